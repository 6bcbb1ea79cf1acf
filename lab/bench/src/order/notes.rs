//! The sums of the interposed library's notes: reading, sorting, and the step to the first message.
//!
//! Must never count a sort of something other than the queue: a mailer sorts other things too.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::Path;

/// The sums of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// From the opening of each queue directory to its closing, in milliseconds.
    pub read_ms: f64,
    /// Time inside `qsort`, in milliseconds.
    pub sort_ms: f64,
    /// Time from the last of them to the first message; `None` if the run did not end there.
    pub begin_ms: Option<f64>,
    /// Messages seen in the directories.
    pub messages: u64,
    /// Elements that were sorted.
    pub sorted: u64,
}

/// The state while a process's notes are read.
#[derive(Default)]
struct Course {
    reading: Reading,
    has_read: bool,
    opened: Option<u64>,
    sorting: Option<u64>,
    /// Sorts of the queue that may still come after the last reading.
    sorts_left: u32,
    /// The end of the last step.
    last: u64,
}

/// Adds up the notes of all processes that have read below `queue`, in the order of their ids. After a reading the
/// mailer sorts `sorts` times.
pub fn add_up(text: &str, queue: &Path, sorts: u32) -> Result<Vec<Reading>> {
    let mut all: BTreeMap<u32, Course> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.splitn(5, ' ');
        let mut word = || words.next().with_context(|| format!("half a note: {line}"));
        let (pid, what, at, count) = (word()?, word()?, word()?, word()?);
        let (at, count) = (at.parse()?, count.parse()?);
        let is_queue = Path::new(word()?).starts_with(queue);
        all.entry(pid.parse()?).or_default().take(what, at, count, is_queue, sorts)?;
    }
    let mut readings = Vec::new();
    for (pid, course) in all {
        ensure!(course.opened.is_none(), "process {pid} did not finish reading");
        if course.has_read {
            readings.push(course.reading);
        }
    }
    Ok(readings)
}

/// Returns when the first process with notes started, in nanoseconds of the monotonic clock.
pub fn first_start(text: &str) -> Option<u64> {
    let starts = text.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        (words.next() == Some("start")).then(|| words.next()?.parse().ok())?
    });
    starts.min()
}

impl Course {
    fn take(&mut self, what: &str, at: u64, count: u64, is_queue: bool, sorts: u32) -> Result<()> {
        match what {
            "open" if is_queue => self.opened = Some(at),
            // A directory without messages is none of the queue's: the one above them, looked at for their names.
            "close" if is_queue => {
                let opened = self.opened.take().context("closed what was not opened")?;
                if count == 0 {
                    return Ok(());
                }
                self.reading.read_ms += ms(opened, at);
                self.reading.messages += count;
                (self.has_read, self.sorts_left, self.last) = (true, sorts, at);
            }
            "sort" if self.sorts_left > 0 => self.sorting = Some(at),
            "sorted" => {
                let Some(from) = self.sorting.take() else { return Ok(()) };
                self.reading.sort_ms += ms(from, at);
                self.reading.sorted = self.reading.sorted.max(count);
                (self.sorts_left, self.last) = (self.sorts_left - 1, at);
            }
            "begin" if self.has_read => self.reading.begin_ms = Some(ms(self.last, at)),
            "start" | "open" | "close" | "sort" | "begin" => {}
            _ => bail!("no such note: {what}"),
        }
        Ok(())
    }
}

fn ms(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "\
8 start 99 0
7 start 90 0
7 sort 100000000 60
7 sorted 190000000 60
7 open 200000000 0 /q/mqueue
7 close 210000000 0 /q/mqueue
7 sort 300000000 60
7 sorted 310000000 60
7 open 1000000000 0 /q/mqueue/q1
7 close 1040000000 12 /q/mqueue/q1
7 open 1050000000 0 /etc/mail
7 close 1060000000 3 /etc/mail
7 open 1100000000 0 /q/mqueue/q2
7 close 1102000000 8 /q/mqueue/q2
7 sort 1110000000 9
7 sorted 1113000000 9
7 sort 1114000000 9
7 sorted 1116000000 9
7 begin 1117500000 0 ./qfABC
8 sort 5 5
8 sorted 9 5
";

    /// The library leaves a space at the end of a line without a text.
    fn with_texts(text: &str) -> String {
        text.lines().map(|line| format!("{line} \n")).collect()
    }

    #[test]
    fn directories_of_the_queue_are_read_and_only_what_follows_them_is_sorting() {
        let readings = add_up(&with_texts(HOST), Path::new("/q/mqueue"), 2).unwrap();
        let [reading] = readings[..] else { panic!("{readings:?}") };
        assert_eq!((reading.read_ms, reading.sort_ms), (42.0, 5.0));
        assert_eq!((reading.messages, reading.sorted, reading.begin_ms), (20, 9, Some(1.5)));
    }

    #[test]
    fn sorts_past_those_of_the_queue_do_not_count() {
        let readings = add_up(&with_texts(HOST), Path::new("/q/mqueue"), 1).unwrap();
        assert_eq!((readings[0].sort_ms, readings[0].begin_ms), (3.0, Some(4.5)));
        let readings = add_up(&with_texts(HOST), Path::new("/q/mqueue"), 0).unwrap();
        assert_eq!((readings[0].sort_ms, readings[0].sorted), (0.0, 0));
        assert_eq!(add_up(&with_texts(HOST), Path::new("/elsewhere"), 1).unwrap(), []);
    }

    #[test]
    fn the_first_start_is_that_of_the_first_runner() {
        assert_eq!(first_start(HOST), Some(90));
        assert_eq!(first_start("7 sort 1 1 \n"), None);
    }

    #[test]
    fn half_a_note_is_an_error() {
        for text in ["7 sort 1", "7 open x 0 /q", "7 closed 1 0 /q", "7 close 1 0 /q"] {
            assert!(add_up(text, Path::new("/q"), 1).is_err(), "{text}");
        }
    }
}
