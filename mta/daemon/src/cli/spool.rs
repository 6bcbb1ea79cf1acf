//! `posthaste spool check`: finds damaged records and the messages they belong to.
//!
//! Must never write to the spool: its directory is opened for reading only.

use super::config::{self, Config};
use super::print::{Failure, count, harmless, say};
use super::{EX_FOUND, EX_OK, EX_UNAVAILABLE, json};
use serde_json::json;
use spool::check::{CheckReport, check};
use std::fmt::Write;
use std::path::Path;

/// Name of the spool directory below `state`.
pub const SPOOL_DIRECTORY: &str = "spool";

pub(super) fn run(config: &Config, as_json: bool) -> Result<u8, Failure> {
    let settings = config::load(config)?;
    let path = settings.state.join(SPOOL_DIRECTORY);
    let report = read(&path, settings.spool.segment_bytes)?;
    say(&if as_json { json::line(&value(&report)) } else { words(&path, &report) });
    Ok(if report.is_clean() { EX_OK } else { EX_FOUND })
}

fn read(path: &Path, segment_bytes: u32) -> Result<CheckReport, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::new(EX_UNAVAILABLE, format!("the spool {}: {why}", path.display()))
    };
    let disk = world::real::Disk::open(path).map_err(|error| failed(&error))?.reading_only();
    check(&disk, segment_bytes).map_err(|error| failed(&error))
}

fn words(path: &Path, report: &CheckReport) -> String {
    let opening = &report.opening;
    let mut out = format!(
        "{}: {} in {}, {} of bodies verified\n",
        path.display(),
        count(report.whole, "whole message"),
        count(opening.segments, "segment"),
        super::show::size(report.body_bytes)
    );
    for damage in &opening.damage {
        let ids: Vec<_> = damage.messages.iter().map(|id| id.to_string()).collect();
        let whose = if ids.is_empty() { String::new() } else { format!(": {}", ids.join(" ")) };
        let (file, offset) = (harmless(&damage.file), damage.offset);
        let _ = writeln!(out, "DAMAGED {file} at {offset}: {}{whose}", damage.what);
    }
    for (message, why) in &report.damaged {
        let _ = writeln!(out, "DAMAGED message {message}: {}", harmless(why));
    }
    if !opening.torn.is_empty() {
        let commits = count(opening.torn.len() as u64, "commit");
        let _ = writeln!(out, "{commits} cut short by a crash; nothing in them was promised");
    }
    for name in &opening.strangers {
        let _ = writeln!(out, "not ours: {}", harmless(name));
    }
    out.push_str(if report.is_clean() { "sound\n" } else { "DAMAGED\n" });
    out
}

fn value(report: &CheckReport) -> serde_json::Value {
    let opening = &report.opening;
    let ids = |ids: &[mail::MessageId]| ids.iter().map(|id| id.to_string()).collect::<Vec<_>>();
    let damage: Vec<_> = opening
        .damage
        .iter()
        .map(|one| {
            json!({
                "file": one.file, "offset": one.offset, "what": one.what,
                "messages": ids(&one.messages),
            })
        })
        .collect();
    let damaged: Vec<_> = report
        .damaged
        .iter()
        .map(|(message, why)| json!({ "id": message.to_string(), "why": why }))
        .collect();
    json!({
        "sound": report.is_clean(), "whole": report.whole, "segments": opening.segments,
        "body_bytes": report.body_bytes, "bytes_read": opening.bytes_read,
        "torn": opening.torn.len(), "strangers": opening.strangers,
        "damage": damage, "damaged_messages": damaged,
    })
}
