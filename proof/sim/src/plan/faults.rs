//! The faults of a plan.
//!
//! Must never draw a new kind of fault before the others: all seeds would change.

use super::fault::{Act, Fault, Lie, Poison, Station, What, When};
use super::settings::Settings;
use super::{DOMAINS, chance, one_in, pick, within};
use std::time::Duration;
use world::Rng as _;
use world::sim::Rng;

/// The purpose of chance for bad reads: one that leaves the seeds alone that failed before them,
const BAD_READS: u64 = 9;

/// and the number of their first.
const BAD_READS_FIRST: u32 = 1_000;

/// The same for streams that are cut and poisoned. A purpose of its own: plans with lists are drawn apart.
const STREAMS: u64 = 11;

/// The number of their first.
const STREAMS_FIRST: u32 = 2_000;

/// The purpose for its ends,
const DRAINS: u64 = 13;

/// and the number of the first.
const DRAINS_FIRST: u32 = 3_000;

/// The purpose for the ends of sending processes,
const SEND_DRAINS: u64 = 15;

/// and the number of the first.
const SEND_DRAINS_FIRST: u32 = 4_000;

pub(super) fn fault(
    seed: u64,
    number: u32,
    span: Duration,
    settings: &Settings,
    storm: bool,
) -> Fault {
    let mut draw = chance(seed, 1_000_000 + u64::from(number));
    let draw = &mut draw;
    let ms = |draw: &mut Rng, most: u64| Duration::from_millis(1 + draw.below(most));
    let share = (span / 3).max(Duration::from_secs(2));
    let kind = if storm && !one_in(draw, 12) { 0 } else { draw.below(30) };
    let what = match kind {
        0..=13 => What::PowerCut(ms(draw, 5_000)),
        14..=17 => What::Kill(station(draw, settings), ms(draw, 2_000)),
        18 => What::Kill(station(draw, settings), ms(draw, 20_000)),
        19 => What::KillAll(ms(draw, 3_000)),
        20 => What::Unlink(match station(draw, settings) {
            Station::Queue => Station::Receive(0),
            other => other,
        }),
        21 => What::SyncFails(1 + draw.below(4) as u32),
        22 => What::WriteFails(1 + draw.below(4) as u32),
        23 => What::NoRoom(within(draw, share.min(Duration::from_secs(3_600)))),
        24 => What::SlowDisk(within(draw, share), ms(draw, pick(&mut draw.clone(), &[30, 40_000]))),
        25 => What::ClockJump(pick(
            draw,
            &[30, -30, 3_000, -3_000, 40_000, 864_000, -864_000, 31_536_000, -31_536_000],
        )),
        26 => What::Down(draw.below(u64::from(DOMAINS)) as u8, within(draw, share)),
        27 => What::NoDns(within(draw, share)),
        _ => What::Operator(pick(
            draw,
            &[Act::Hold, Act::Release, Act::Retry, Act::Delete, Act::Priority],
        )),
    };
    let when = match what {
        What::PowerCut(_) if storm || !one_in(draw, 4) => {
            let most = if storm { [3, 8, 25] } else { [6, 40, 200] };
            When::DiskStep(1 + draw.below(pick(&mut draw.clone(), &most)))
        }
        What::Kill(..) | What::KillAll(_) | What::Unlink(_) if !one_in(draw, 4) => {
            When::LinkStep(1 + draw.below(300))
        }
        _ => When::At(within(draw, span)),
    };
    Fault { number, when, what }
}

/// Came later than the others, and have chance of their own so that other plans are what they were.
pub(super) fn bad_reads(seed: u64, span: Duration, quiet: bool) -> Vec<Fault> {
    let mut draw = chance(seed, BAD_READS);
    let few = if !quiet && one_in(&mut draw, 6) { 1 + draw.below(3) as u32 } else { 0 };
    let mut one = |nth| Fault {
        number: BAD_READS_FIRST + nth,
        when: When::At(within(&mut draw, span)),
        what: What::BadReads(1 + draw.below(4) as u32),
    };
    (0..few).map(&mut one).collect()
}

/// Came later than the others, too: streams that end or are poisoned at any step between two
/// processes.
pub(super) fn streams(seed: u64, span: Duration, settings: &Settings, quiet: bool) -> Vec<Fault> {
    let mut draw = chance(seed, STREAMS);
    let few = if !quiet && one_in(&mut draw, 3) { 1 + draw.below(8) as u32 } else { 0 };
    let mut one = |nth| {
        let draw = &mut draw;
        let peer = match station(draw, settings) {
            Station::Queue => Station::Receive(0),
            other => other,
        };
        let poisons = [Poison::TooLong, Poison::Garbage, Poison::Greeting];
        let lies = [Lie::Outcome, Lie::Message, Lie::Fetch];
        let what = match (draw.below(4), peer) {
            (0, _) => What::Unlink(peer),
            (1, Station::Send(_)) => What::Lie(peer, pick(draw, &lies)),
            _ => What::Poison(peer, one_in(draw, 2), pick(draw, &poisons)),
        };
        let when = match one_in(draw, 5) {
            true => When::At(within(draw, span)),
            false => When::LinkStep(1 + draw.below(60)),
        };
        Fault { number: STREAMS_FIRST + nth, when, what }
    };
    (0..few).map(&mut one).collect()
}

/// Ends of the local process; chance of their own, too.
pub(super) fn drains(seed: u64, span: Duration, settings: &Settings, quiet: bool) -> Vec<Fault> {
    let local = Station::Send(settings.senders);
    let mut draw = chance(seed, DRAINS);
    let few = if one_in(&mut draw, 3) || quiet { 1 + draw.below(6) as u32 } else { 0 };
    let mut one = |nth| {
        let when = match one_in(&mut draw, 3) {
            true => When::At(within(&mut draw, span)),
            false => When::LinkStep(1 + draw.below(60)),
        };
        let what = if one_in(&mut draw, 3) { What::Drain(local) } else { What::DrainInBatch };
        Fault { number: DRAINS_FIRST + nth, when, what }
    };
    (0..few).map(&mut one).collect()
}

/// Ends of the processes that send to next hops, while attempts are under way.
pub(super) fn send_drains(seed: u64, span: Duration, settings: &Settings) -> Vec<Fault> {
    let mut draw = chance(seed, SEND_DRAINS);
    let few = if one_in(&mut draw, 3) { 1 + draw.below(6) as u32 } else { 0 };
    let mut one = |nth| {
        let station = Station::Send(draw.below(u64::from(settings.senders)) as u16);
        let when = match one_in(&mut draw, 3) {
            true => When::At(within(&mut draw, span)),
            false => When::LinkStep(1 + draw.below(60)),
        };
        Fault { number: SEND_DRAINS_FIRST + nth, when, what: What::Drain(station) }
    };
    (0..few).map(&mut one).collect()
}

fn station(draw: &mut Rng, settings: &Settings) -> Station {
    match draw.below(3) {
        0 => Station::Queue,
        1 => Station::Receive(draw.below(u64::from(settings.receivers)) as u16),
        _ => Station::Send(draw.below(u64::from(settings.senders) + 1) as u16),
    }
}
