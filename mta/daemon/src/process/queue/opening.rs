//! Opening the spool: waits for its lock, and restores the scheduler from what the spool replays.
//!
//! Must never change a spool that another mailer uses.

use super::replay;
use crate::io::BUILD;
use crate::log::{EventKind, Log};
use mail::Now;
use queue::Queue;
use scheduler::Scheduler;
use std::time::Duration;
use world::{Clock, Rng};

/// How long the lock of the spool is waited for. A killed queue process releases the lock when its last write has
/// ended; a lock that is held longer belongs to another mailer.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
/// The pause between two attempts to take the lock.
const LOCK_REST: Duration = Duration::from_millis(10);

/// Opens the spool. A queue process that was replaced may still have to end.
pub(super) async fn open_patiently(
    config: &settings::ProcessConfig,
    disk: &world::real::Disk,
    spool_settings: spool::Settings,
    log: &Log,
) -> std::result::Result<Queue, spool::OpenError> {
    let began = world::real::Clock.now();
    loop {
        let now = world::real::Clock.now();
        match open(config, disk, spool_settings.clone(), log, now) {
            Err(spool::OpenError::Locked)
                if now.monotonic.since(began.monotonic) < LOCK_PATIENCE =>
            {
                tokio::time::sleep(LOCK_REST).await;
            }
            other => return other,
        }
    }
}

/// Opens the spool and restores the scheduler from it.
fn open(
    config: &settings::ProcessConfig,
    disk: &world::real::Disk,
    spool_settings: spool::Settings,
    log: &Log,
    now: Now,
) -> std::result::Result<Queue, spool::OpenError> {
    let settings = config.settings.queue(&config.environment);
    let seed = world::real::Rng.u64();
    let mut scheduler = Scheduler::new(settings.scheduler.clone(), seed, now);
    let mut restore = queue::Restore::new(&settings.routes);
    let secret = world::real::Rng.u64();
    let opened = replay::aside(
        |replay| spool::open(disk, spool_settings, secret, replay),
        |replay| restore.replay(&mut scheduler, replay, now),
    );
    let (spool, report) = opened?;
    tell(log, &report, now, world::real::Clock.now());
    for message in restore.lost() {
        log.error(&format!("{message} is in the spool, but what was known of it cannot be read"));
    }
    let incarnation = world::real::Rng.u64();
    let senders = config.settings.processes.send as usize + 1;
    Ok(Queue::new(BUILD, incarnation, settings, spool, scheduler, senders, now))
}

/// Logs what recovery found.
fn tell(log: &Log, report: &spool::OpenReport, began: Now, ended: Now) {
    log.event(EventKind::Info)
        .text("msg", if report.created { "spool made" } else { "spool open" })
        .number("messages", report.messages)
        .number("replayed", report.replayed)
        .number("segments", report.segments)
        .number("torn", report.torn.len() as u64)
        .delay(ended.monotonic.since(began.monotonic))
        .emit();
    for damage in &report.damage {
        log.error(&format!("spool damaged: {damage:?}"));
    }
    for name in &report.strangers {
        log.warn(&format!("{name} in the spool directory is none of ours; it is left alone"));
    }
}
