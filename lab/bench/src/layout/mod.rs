//! The bare layout of 2006: two files a message in queue directories, written by the laboratory itself, without a mailer.
//!
//! Must never time anything but a message's files: names and bytes are made before the clock starts.

pub mod disks;
mod message;
mod series;

use crate::gauge::{Percentiles, Times, sample_us};
use anyhow::{Context, Result, ensure};
use disks::{Disks, FileSystem};
use message::Writer;
use serde::Serialize;
use series::Point;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const DIRECTORIES_MAX: u32 = 10_000;
const WRITERS_MAX: u32 = 1_000;
/// Upper bound on messages: each takes 16 bytes of memory until the end.
const MESSAGES_MAX: u64 = 10_000_000;
const SIZE_BYTES_MAX: usize = 100 << 20;

/// Which directory a message goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// One after the other.
    #[default]
    Turns,
    /// At random, by the seed.
    Random,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayoutPlan {
    /// Where the directories are made, in turn; more than one: several disks.
    pub places: Vec<PathBuf>,
    /// Queue directories, `queue0`, `queue1`, ...: none of them may be there yet.
    pub directories: u32,
    /// Writers at once. They are threads: what they contend for, directories and journal, is the kernel's, and the same
    /// for processes.
    pub writers: u32,
    /// Number of messages.
    pub messages: u64,
    /// Bytes of a message's body.
    pub size_bytes: usize,
    /// Whether both files are synced before they count as written.
    pub sync: bool,
    /// Whether the directory is synced after the rename.
    pub sync_directory: bool,
    /// Which directory a message goes to.
    pub spread: Spread,
    /// The seed for names and random directories.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutResult {
    /// Messages written.
    pub messages: u64,
    /// Seconds from the first to the last message.
    pub seconds: f64,
    /// Messages a second.
    pub rate: f64,
    /// Of each message's create: from the first open to the end of the rename (and of the directory's sync).
    pub create_ms: Option<Percentiles>,
    /// The same as an HDR histogram of microseconds (V2 with DEFLATE, in base64).
    pub histogram: String,
    /// Create time in microseconds over messages already queued: the median of each of up to 1,000 bins.
    pub medians: Vec<(f64, f64)>,
    /// The same times, raw, of an even selection of messages.
    pub thinned: Vec<(f64, f64)>,
    /// Growth of the create time with each queued message, over all messages, in microseconds; `None` of fewer than three.
    pub slope_us: Option<f64>,
    /// Its standard error.
    pub slope_error_us: Option<f64>,
    /// Create time at an empty queue by that line, in microseconds.
    pub intercept_us: Option<f64>,
}

/// State shared by the writers.
struct Shared<'a> {
    plan: &'a LayoutPlan,
    directories: Vec<PathBuf>,
    next: AtomicU64,
    queued: AtomicU64,
    failed: AtomicBool,
    start: Barrier,
}

/// Makes the directories and fills them; the files stay.
pub fn run(plan: &LayoutPlan) -> Result<LayoutResult> {
    plan.check()?;
    let shared = Shared {
        plan,
        directories: plan.make_directories()?,
        next: AtomicU64::new(0),
        queued: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        start: Barrier::new(plan.writers as usize),
    };
    let parts: Vec<Result<Part>> = std::thread::scope(|scope| {
        let write = |_| scope.spawn(|| shared.write());
        let writers: Vec<_> = (0..plan.writers).map(write).collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect()
    });
    Ok(LayoutResult::of(parts.into_iter().collect::<Result<Vec<Part>>>()?))
}

/// One writer's measurements.
struct Part {
    begin: Instant,
    end: Instant,
    points: Vec<Point>,
}

impl LayoutPlan {
    fn check(&self) -> Result<()> {
        let within = |name: &str, value: u64, max: u64| {
            ensure!((1..=max).contains(&value), "{name} is {value}; it may be 1 to {max}");
            Ok(())
        };
        ensure!(!self.places.is_empty(), "there is no place to write to");
        within("directories", self.directories.into(), DIRECTORIES_MAX.into())?;
        within("writers", self.writers.into(), WRITERS_MAX.into())?;
        within("messages", self.messages, MESSAGES_MAX)?;
        within("size", self.size_bytes as u64, SIZE_BYTES_MAX as u64)
    }

    /// Makes the directories, then syncs everything that was written before.
    fn make_directories(&self) -> Result<Vec<PathBuf>> {
        let make = |number: u32| {
            let place = &self.places[number as usize % self.places.len()];
            let directory = place.join(format!("queue{number}"));
            std::fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
            Ok(directory)
        };
        let directories = (0..self.directories).map(make).collect::<Result<Vec<PathBuf>>>()?;
        for place in &self.places {
            rustix::fs::syncfs(std::fs::File::open(place)?).context("syncfs")?;
        }
        Ok(directories)
    }

    /// Returns the directory of message `number`.
    fn directory(&self, number: u64) -> usize {
        let chosen = match self.spread {
            Spread::Turns => number,
            Spread::Random => scramble(self.seed ^ scramble(number)),
        };
        (chosen % u64::from(self.directories)) as usize
    }
}

impl Shared<'_> {
    /// Writes messages until all are written, or until another writer has failed.
    fn write(&self) -> Result<Part> {
        let mut writer = Writer::new(self.plan);
        self.start.wait();
        let begin = Instant::now();
        let mut points = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= self.plan.messages || self.failed.load(Relaxed) {
                return Ok(Part { begin, end: Instant::now(), points });
            }
            let directory = &self.directories[self.plan.directory(number)];
            let queued = self.queued.load(Relaxed);
            let time = writer.create(directory, number);
            let time = time.inspect_err(|_| self.failed.store(true, Relaxed))?;
            self.queued.fetch_add(1, Relaxed);
            points.push(Point { queued: queued as f64, create_us: micros(time) });
        }
    }
}

impl LayoutResult {
    fn of(parts: Vec<Part>) -> LayoutResult {
        let begin = parts.iter().map(|part| part.begin).min();
        let end = parts.iter().map(|part| part.end).max();
        let seconds = begin.zip(end).map_or(0.0, |(begin, end)| (end - begin).as_secs_f64());
        let mut points: Vec<Point> = parts.into_iter().flat_map(|part| part.points).collect();
        points.sort_by(|a, b| a.queued.total_cmp(&b.queued));
        let mut times = Times::default();
        points.iter().for_each(|point| times.record(point.time()));
        let samples = points.iter().map(|point| sample_us(point.time())).collect();
        let pairs: Vec<(f64, f64)> = points.iter().map(Point::pair).collect();
        let trend = stats::Trend::of(&pairs);
        LayoutResult {
            messages: points.len() as u64,
            seconds,
            rate: points.len() as f64 / seconds.max(1e-9),
            create_ms: Percentiles::of(samples),
            histogram: times.to_base64(),
            medians: series::medians(&points),
            thinned: series::thinned(&points),
            slope_us: trend.map(|trend| trend.slope),
            slope_error_us: trend.map(|trend| trend.slope_error),
            intercept_us: trend.map(|trend| trend.intercept),
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Mixes bits so that numbers in a row look random (the finish of SplitMix64).
fn scramble(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The options of `layout`.
#[derive(clap::Args)]
pub struct Options {
    /// Queue directories
    #[arg(long, default_value_t = 1)]
    directories: u32,
    /// Concurrent writers
    #[arg(long, default_value_t = 1)]
    writers: u32,
    /// Number of messages
    #[arg(long, default_value_t = 30_000)]
    messages: u64,
    /// Bytes of a message's body
    #[arg(long, default_value_t = 4096)]
    size: usize,
    /// Directory to write to; may be repeated, queue directories are then spread over them
    #[arg(long = "in", default_value = ".")]
    places: Vec<PathBuf>,
    /// Sync nothing
    #[arg(long)]
    no_sync: bool,
    /// Sync the directory after each rename, too
    #[arg(long)]
    sync_directory: bool,
    /// Which directory a message goes to
    #[arg(long, default_value = "turns")]
    spread: Spread,
    /// The seed for names and random directories; the default is random
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the files
    #[arg(long)]
    keep: bool,
    /// Number of loop disks of 2 GiB to make in the first place, with the directories spread over them; needs root
    #[arg(long, default_value_t = 0)]
    disks: u32,
    /// Make a slow disk in the first place, as the scenario `logging` has it, and write there; needs root
    #[arg(long, conflicts_with = "disks")]
    slow_disk: bool,
}

/// Writes the files, prints one JSON line, and removes the files.
pub fn command(options: Options) -> Result<()> {
    if (options.disks > 0 || options.slow_disk) && !crate::room::is_inside() {
        // What is mounted there ends with the room.
        std::process::exit(crate::room::enter(false)?.unwrap_or(130));
    }
    let own: Vec<PathBuf> = options.places.iter().map(|place| own_directory(place)).collect();
    for directory in &own {
        std::fs::create_dir(directory).with_context(|| directory.display().to_string())?;
    }
    let result = measure(&options, &own);
    if !options.keep {
        for directory in &own {
            std::fs::remove_dir_all(directory)?;
        }
    }
    println!("{}", result?);
    Ok(())
}

fn own_directory(place: &Path) -> PathBuf {
    // In a room process numbers come again.
    place.join(format!("posthaste-lab-layout-{:016x}", crate::source::random_name()))
}

fn measure(options: &Options, own: &[PathBuf]) -> Result<serde_json::Value> {
    let disks = match options.disks {
        0 if options.slow_disk => Some(Disks::slow(&own[0].join("slow"))?),
        0 => None,
        count => Some(Disks::make(count, disks::DISK_BYTES, FileSystem::Ext4, &own[0])?),
    };
    let plan = LayoutPlan {
        places: disks.as_ref().map_or_else(|| own.to_vec(), |disks| disks.places().to_vec()),
        directories: options.directories,
        writers: options.writers,
        messages: options.messages,
        size_bytes: options.size,
        sync: !options.no_sync,
        sync_directory: options.sync_directory && !options.no_sync,
        spread: options.spread,
        seed: options.seed.unwrap_or_else(crate::source::random_name),
    };
    let result = run(&plan)?;
    let mut value = serde_json::to_value(&result)?;
    value["plan"] = serde_json::to_value(&plan)?;
    value["disks"] = disks.as_ref().map_or("", |disks| disks.how()).into();
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plan(place: &Path) -> LayoutPlan {
        LayoutPlan {
            places: vec![place.to_path_buf()],
            directories: 3,
            writers: 4,
            messages: 200,
            size_bytes: 1000,
            sync: false,
            sync_directory: false,
            spread: Spread::Turns,
            seed: 5,
        }
    }

    #[test]
    fn each_message_is_two_whole_files_with_one_name_and_no_temporary_name_stays() {
        let place = tempfile::tempdir().unwrap();
        for (number, sync) in [false, true].into_iter().enumerate() {
            let place = place.path().join(number.to_string());
            std::fs::create_dir(&place).unwrap();
            let plan = LayoutPlan { sync, sync_directory: sync, messages: 60, ..plan(&place) };
            let result = run(&plan).unwrap();
            let (mut bodies, mut envelopes) = (BTreeSet::new(), BTreeSet::new());
            for directory in std::fs::read_dir(&place).unwrap().flatten() {
                for file in std::fs::read_dir(directory.path()).unwrap().flatten() {
                    let name = file.file_name().into_string().unwrap();
                    let text = std::fs::read(file.path()).unwrap();
                    match name.split_at(2) {
                        ("df", id) => assert!(text.len() == 1000 && bodies.insert(id.to_string())),
                        ("qf", id) => assert!(!text.is_empty() && envelopes.insert(id.to_string())),
                        _ => panic!("{name}"),
                    }
                }
            }
            assert!(bodies.len() == 60 && bodies == envelopes);
            assert_eq!((result.messages, result.medians.len()), (60, 60));
            assert!(result.rate > 0.0 && result.slope_us.is_some());
        }
    }

    #[test]
    fn turns_share_alike_and_the_same_seed_makes_the_same_choice() {
        let count = |place: &Path| {
            let entries =
                |number| std::fs::read_dir(place.join(format!("queue{number}"))).unwrap().count();
            [0, 1, 2].map(entries)
        };
        let fresh = |spread| {
            let place = tempfile::tempdir().unwrap();
            run(&LayoutPlan { spread, messages: 150, ..plan(place.path()) }).unwrap();
            count(place.path())
        };
        assert_eq!(fresh(Spread::Turns), [100; 3]);
        let random = fresh(Spread::Random);
        assert_eq!(random, fresh(Spread::Random));
        assert!(random != [100; 3] && random.iter().sum::<usize>() == 300);
    }

    #[test]
    fn directories_are_spread_over_the_places() {
        let place = tempfile::tempdir().unwrap();
        let places: Vec<PathBuf> = ["a", "b"].map(|name| place.path().join(name)).to_vec();
        places.iter().for_each(|place| std::fs::create_dir(place).unwrap());
        run(&LayoutPlan { places: places.clone(), messages: 9, ..plan(place.path()) }).unwrap();
        let names = |place: &Path| std::fs::read_dir(place).unwrap().count();
        assert_eq!([names(&places[0]), names(&places[1])], [2, 1]);
    }

    #[test]
    fn an_impossible_plan_or_a_queue_that_is_there_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let error = |plan: LayoutPlan| run(&plan).unwrap_err().to_string();
        assert!(error(LayoutPlan { writers: 0, ..plan(place.path()) }).contains("writers is 0"));
        std::fs::create_dir(place.path().join("queue1")).unwrap();
        assert!(error(plan(place.path())).contains("queue1"));
    }
}
