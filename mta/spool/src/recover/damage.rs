//! Damage to what was durable, told apart from a torn tail, and the messages that it hits.
//!
//! Must never report a torn commit as damage: nobody was promised anything in it.

use super::fold::{known_durable, voided};
use super::scan::{FoundBatch, Scanned};
use super::{Damage, Loaded, OpenReport};
use crate::File;
use mail::MessageId;
use std::collections::{BTreeMap, HashMap};

/// Tells damage from a torn tail. Reports the damage and returns the torn commits.
pub(super) fn report_damage(
    scanned: &Scanned,
    start_commit: u64,
    report: &mut OpenReport,
) -> Vec<u64> {
    let (durable, voided) = (known_durable(scanned), voided(scanned));
    let mut seen = BTreeMap::new();
    let mut torn = Vec::new();
    for batch in &scanned.batches {
        let commit = batch.header.sequence;
        seen.insert(commit, batch);
        if batch.whole || voided.contains(&commit) {
            continue;
        }
        if commit > durable {
            torn.push(commit);
            continue;
        }
        let file = File::Segment(batch.slot).to_string();
        for (offset, id) in &batch.bad {
            let what = "a record is damaged";
            let messages = id.iter().copied().collect();
            report.damage.push(Damage { file: file.clone(), offset: *offset, what, messages });
        }
        if batch.bad.is_empty() {
            let (what, messages) = ("bytes between records are damaged", Vec::new());
            report.damage.push(Damage { file, offset: batch.offset.into(), what, messages });
        }
    }
    for commit in gaps(&seen, start_commit).filter(|commit| !voided.contains(commit)) {
        if commit > durable {
            torn.push(commit);
        } else {
            report.damage.push(missing(&seen, commit));
        }
    }
    torn.sort_unstable();
    torn
}

/// Upper bound on the missing commits of one gap that are looked at. All of one gap say the same, and
/// no settings allow more than 64 commits under way.
const GAP_COMMITS_MAX: usize = 1_024;

/// Returns the commits from `start` on that are missing between those that were found; of each gap only
/// the first ones, because a damaged number may make a gap of any length.
fn gaps<T>(seen: &BTreeMap<u64, T>, start: u64) -> impl Iterator<Item = u64> + '_ {
    let mut next = start;
    seen.range(start..).flat_map(move |(commit, _)| {
        let gap = next..*commit;
        next = commit + 1;
        gap.take(GAP_COMMITS_MAX)
    })
}

/// Returns the place after which a commit that was durable and is missing must have been.
fn missing(seen: &BTreeMap<u64, &FoundBatch>, commit: u64) -> Damage {
    let nearest = seen.range(..commit).next_back().map(|(_, batch)| *batch);
    let file = nearest.map_or(String::new(), |batch| File::Segment(batch.slot).to_string());
    let end = |batch: &FoundBatch| u64::from(batch.offset) + u64::from(batch.header.length);
    let offset = nearest.map_or(0, end);
    Damage { file, offset, what: "a commit is missing", messages: Vec::new() }
}

/// Adds to each damage the messages that the damaged bytes belong to.
pub(super) fn name_victims(loaded: &mut Loaded) {
    if loaded.report.damage.is_empty() {
        return;
    }
    let mut places: HashMap<String, Vec<(u64, u64, MessageId)>> = HashMap::new();
    for (message, place) in loaded.index.above(0) {
        let end = u64::from(place.offset) + 32 + u64::from(place.length());
        let start = end.saturating_sub(place.own_bytes() + 8);
        let file = File::Segment(place.slot).to_string();
        places.entry(file).or_default().push((start, end, message));
    }
    // Messages do not overlap, so the order of their ends is the order of their starts.
    places.values_mut().for_each(|places| places.sort_unstable_by_key(|(_, end, _)| *end));
    for damage in loaded.report.damage.iter_mut().filter(|damage| damage.offset > 0) {
        let Some(places) = places.get(&damage.file) else { continue };
        let first = places.partition_point(|(_, end, _)| *end <= damage.offset);
        let hit = places[first..].iter().take_while(|(start, ..)| *start <= damage.offset);
        for (.., message) in hit {
            if !damage.messages.contains(message) {
                damage.messages.push(*message);
            }
        }
    }
}
