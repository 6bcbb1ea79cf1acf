//! The scenario `power`: cuts the power of a mailer's file system in the middle of load, again and again, and counts
//! the promises that were broken.
//!
//! Must never touch a file system that it has not made itself.
// fault: S137-S139 power cuts at random moments of real load, one in four once more in recovery, on ext4 and xfs

mod cell;
mod cut;
mod image;
mod line;

mod shutdown;
mod table;

use crate::subject::{Setup, Site, Versions};
use crate::{peers, room};
use anyhow::Result;
pub use cell::FileSystem;
use cell::{Cell, Entrant, NextHop};
use clap::ValueEnum;
use cut::Campaign;
use std::path::PathBuf;

/// Default number of cuts of each cell with our own mailer.
const CUTS_OURS: u64 = 20;
/// Default number of cuts of each other cell.
const CUTS_OTHERS: u64 = 5;
/// Time between the loss of the disk and the kill of the mailer, if the next hop goes on.
const DEAD_DISK_TIME: std::time::Duration = std::time::Duration::from_secs(4);
/// Consecutive errors of the laboratory that end a campaign.
const ERRORS_MAX: u32 = 5;
/// The mailer's port; the network is the room's own.
const PORT: u16 = 2525;
/// The next hop's.
const NEXT_HOP_PORT: u16 = 2600;

/// The options of `power`.
#[derive(clap::Args)]
pub struct Options {
    /// Cuts of each cell, including those in the file; the default is 20 for posthaste and 5 for each other
    #[arg(long)]
    cuts: Option<u64>,
    /// The mailers whose power is cut; may be repeated; the default is all
    #[arg(long, value_delimiter = ',')]
    subject: Vec<Entrant>,
    /// The file system under the queue; the default is both
    #[arg(long, value_delimiter = ',')]
    fs: Vec<FileSystem>,
    /// The next hop during the load; the default is down and up
    #[arg(long, value_delimiter = ',')]
    next_hop: Vec<NextHop>,
    /// The first cut's seed, from which the next ones count up; the default is random
    #[arg(long)]
    seed: Option<u64>,
    /// The file to which each cut's JSON line is appended; cuts in it are not repeated
    #[arg(long, default_value = "power.jsonl")]
    out: PathBuf,
    /// Write the table to this file, too, in Markdown
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Only print the table of the file
    #[arg(long)]
    table: bool,
    /// Keep the image of each bad cut; the default is only of mailers that sync
    #[arg(long)]
    keep_all: bool,
    /// Directory of images, logs and what is kept of bad cuts; about 3 GB
    #[arg(long, default_value = "/var/tmp/posthaste-lab-power")]
    work: PathBuf,
    /// Directory of Debian's unpacked packages, fetched if missing; the default is below --work
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Posthaste's program; the default is the one beside this program
    #[arg(long)]
    posthaste: Option<PathBuf>,
}

/// Makes the missing cuts, then prints the table. Fails if our own mailer broke a promise.
pub fn run(options: Options) -> Result<()> {
    if options.table {
        return show(&options);
    }
    let cells = cells(&options);
    let fetched = cells.iter().any(|cell| cell.subject.is_fetched());
    if !room::is_inside() {
        if rustix::process::geteuid().is_root() && fetched {
            peers::fetch(&unpacked(&options))?;
        }
        return outside(&options);
    }
    let campaign = campaign(&options, fetched)?;
    cut_all(&options, &cells, &campaign)?;
    show(&options)?;
    let ours = |line: &&line::Line| line.cell.subject == Entrant::Posthaste && line.is_bad();
    let bad = line::read(&options.out)?.iter().filter(ours).count();
    anyhow::ensure!(bad == 0, "{bad} cuts of posthaste were bad");
    Ok(())
}

fn show(options: &Options) -> Result<()> {
    let lines = line::read(&options.out)?;
    print!("{}", table::text(&lines));
    if let Some(path) = &options.markdown {
        std::fs::write(path, table::markdown(&lines))?;
    }
    Ok(())
}

fn all_or<T: ValueEnum + Copy>(chosen: &[T]) -> Vec<T> {
    if chosen.is_empty() { T::value_variants().to_vec() } else { chosen.to_vec() }
}

fn cells(options: &Options) -> Vec<Cell> {
    let mut cells = Vec::new();
    for subject in all_or(&options.subject) {
        let next_hops =
            if options.next_hop.is_empty() { &NextHop::USUAL[..] } else { &options.next_hop };
        for next_hop in next_hops.iter().copied() {
            for fs in all_or(&options.fs) {
                cells.push(Cell { fs, next_hop, subject });
            }
        }
    }
    cells
}

fn unpacked(options: &Options) -> PathBuf {
    options.peers.clone().unwrap_or_else(|| options.work.join("peers"))
}

fn campaign(options: &Options, fetched: bool) -> Result<Campaign> {
    std::fs::create_dir_all(&options.work)?;
    let work = options.work.canonicalize()?;
    peers::lock(&work)?;
    let queue = work.join("queue");
    let peers = unpacked(options);
    room::furnish(&work, &queue, fetched.then_some(peers.as_path()))?;
    let posthaste = peers::posthaste(options.posthaste.as_deref())?;
    let versions =
        if fetched { Versions::read(&peers.join("versions"))? } else { Versions::default() };
    let kept = work.join("kept");
    let (mail, log, setup) = (queue.join("mail"), work.clone(), Setup::default());
    let site =
        Site { queue, work, port: PORT, next_hop: NEXT_HOP_PORT, posthaste, mail, log, setup };
    Ok(Campaign { site, versions, kept, keeps_all: options.keep_all })
}

/// Waits for the room, and removes what an interrupted cut left.
fn outside(options: &Options) -> Result<()> {
    let end = room::enter(false)?;
    for name in cut::IMAGES {
        let _ = std::fs::remove_file(options.work.join(name)); // mostly it is gone
    }
    match end {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => {
            eprintln!("interrupted; the same command goes on where it stopped");
            std::process::exit(130)
        }
    }
}

/// Orders the cuts cell by cell in turn, so that an unfinished campaign has something of each.
fn cut_all(options: &Options, cells: &[Cell], campaign: &Campaign) -> Result<()> {
    let wanted = |cell: &Cell| {
        let usual = if cell.subject == Entrant::Posthaste { CUTS_OURS } else { CUTS_OTHERS };
        options.cuts.unwrap_or(usual)
    };
    let done = |cell: &Cell| -> Result<u64> {
        let lines = line::read(&options.out)?;
        Ok(lines.iter().filter(|line| line.cell == *cell).count() as u64)
    };
    let mut seed = options.seed.unwrap_or_else(crate::source::random_name);
    let mut errors = 0;
    for round in 0..cells.iter().map(wanted).max().unwrap_or(0) {
        for cell in cells.iter().filter(|cell| round < wanted(cell)) {
            while done(cell)? <= round {
                match campaign.cut(*cell, seed) {
                    Ok(line) => {
                        line::append(&options.out, &line)?;
                        eprintln!("{}", serde_json::to_string(&line)?);
                        errors = 0;
                    }
                    Err(error) => {
                        eprintln!("{cell:?} seed {seed}: {error:#}");
                        errors += 1;
                        anyhow::ensure!(errors < ERRORS_MAX, "{errors} errors in a row");
                    }
                }
                seed = seed.wrapping_add(1);
            }
        }
    }
    Ok(())
}
