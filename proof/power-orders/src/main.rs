//! Opens the spool that a power cut left, as the queue process does, and prints its contents: one JSON line with the
//! results of `spool check` and of opening, then one for each queued message.
//!
//! Must never deliver anything, and never poll the spool, so that nothing is written that the daemon would write after its
//! start.

use anyhow::{Context, Result, ensure};
use mail::{MessageId, Now};
use policy::Routes;
use queue::Restore;
use scheduler::{Filter, Scheduler};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use spool::{Settings, Spool};
use std::path::{Path, PathBuf};
use world::Clock as _;
use world::real::{Clock, Disk};

/// Messages that one call of the scheduler's list returns.
const PAGE_ROWS_MAX: usize = 1000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, segment_bytes] = arguments.as_slice() else {
        anyhow::bail!("usage: spool-reader DIRECTORY SEGMENT_BYTES");
    };
    let directory = PathBuf::from(directory);
    let segment_bytes: u32 = segment_bytes.parse().context("SEGMENT_BYTES")?;
    let (first, rows) = read(&directory, segment_bytes)?;
    let (second, again) = read(&directory, segment_bytes)?;
    // All but what was counted on the way.
    ensure!(rows == again, "opening twice gives two queues: {first} {second}");
    println!("{first}");
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

/// Checks and opens the spool once, and reads every message of it.
fn read(directory: &Path, segment_bytes: u32) -> Result<(Value, Vec<Value>)> {
    let plain = Disk::open(directory)?.reading_only();
    let checked = match spool::check::check(&plain, segment_bytes) {
        Ok(report) => json!({
            "clean": report.is_clean(), "whole": report.whole,
            "damaged": format!("{:?} {:?}", report.damaged, report.opening.damage),
        }),
        Err(spool::OpenError::Missing) => json!({"clean": true, "whole": 0, "damaged": "no spool"}),
        Err(error) => return Err(error).context("spool check"),
    };
    let disk = Disk::open(directory)?;
    let now = Clock.now();
    let routes = Routes::default();
    let mut scheduler = Scheduler::new(scheduler::Settings::for_tests(), 1, now);
    let mut restore = Restore::new(&routes);
    let (mut spool, report) = spool::open(&disk, settings(segment_bytes), 1, &mut |replay| {
        restore.replay(&mut scheduler, replay, now);
    })?;
    ensure!(restore.lost().is_empty(), "the state of some messages was not decoded");
    let head = json!({
        "check": checked, "created": report.created, "torn": report.torn.len(),
        "damage": format!("{:?}", report.damage), "snapshot": report.snapshot,
    });
    let rows = ids(&scheduler, now)
        .into_iter()
        .map(|id| row(&disk, &mut spool, &scheduler, id, now))
        .collect::<Result<_>>()?;
    Ok((head, rows))
}

/// Returns the settings that the daemon uses for segments of that size.
fn settings(segment_bytes: u32) -> Settings {
    let plain = Settings::for_tests();
    Settings {
        segment_bytes,
        batch_bytes_max: plain.batch_bytes_max.min(segment_bytes / 4),
        chunk_bytes_max: plain.chunk_bytes_max.min(segment_bytes / 8),
        ..plain
    }
}

fn ids(scheduler: &Scheduler, now: Now) -> Vec<MessageId> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = scheduler.list(&Filter::default(), after, PAGE_ROWS_MAX, now);
        ids.extend(page.rows.iter().map(|row| row.message));
        match page.next {
            Some(next) => after = Some(next),
            None => return ids,
        }
    }
}

/// One queued message: the recipients that it still waits for, and the hash of its body or why the body is unreadable.
fn row(
    disk: &Disk,
    spool: &mut Spool,
    scheduler: &Scheduler,
    id: MessageId,
    now: Now,
) -> Result<Value> {
    let explained = scheduler.explain(id, now).context("listed, so it is there")?;
    let waiting: Vec<_> = explained.recipients.iter().map(|one| one.address.as_str()).collect();
    let mut row = json!({"id": id.to_string(), "sender": explained.sender, "waiting": waiting});
    match spool.plan(id) {
        None => row["error"] = json!("in the queue, not in the spool"),
        Some(plan) => {
            match hash(disk, &plan) {
                Ok((bytes, hash)) => {
                    row["bytes"] = json!(bytes);
                    row["sha256"] = json!(hash);
                }
                Err(error) => row["error"] = json!(error.to_string()),
            }
            spool.unplan(plan);
        }
    }
    Ok(row)
}

/// Returns length and SHA-256 of the body as the client sent it, without the headers that we added.
fn hash(disk: &Disk, plan: &spool::ReadPlan) -> Result<(u64, String), spool::ReadError> {
    let stored = spool::read_message(disk, plan)?;
    let mut hash = Sha256::new();
    if let Some(body) = &stored.body {
        hash.update(body);
    }
    for chunk in &stored.chunks {
        hash.update(spool::read_chunk(disk, chunk)?);
    }
    Ok((stored.body_bytes, format!("{:x}", hash.finalize())))
}
