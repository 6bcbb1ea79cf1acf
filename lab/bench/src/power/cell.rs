//! The cells of the table: a file system, a next hop, a mailer; and what a seed chooses for one cut.
//!
//! Must never be random: all choices of a cut follow from its seed.

use crate::subject::Mailer;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The file system under the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// With its defaults: data=ordered, a commit every 5 s.
    Ext4,
    /// With its defaults.
    Xfs,
}

/// The next hop during the load; after the cut it is always up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NextHop {
    /// Refuses connections: all mail stays in the queue.
    Down,
    /// Accepts mail: the cut comes in the middle of relaying.
    Up,
    /// Accepts mail also after the cut, which takes the disk alone: the mailer lives for some seconds more.
    UpAfter,
}

impl NextHop {
    /// The cells of a campaign that names none.
    pub const USUAL: [NextHop; 2] = [NextHop::Down, NextHop::Up];

    /// Returns whether it accepts mail during the load.
    pub fn is_up(self) -> bool {
        self != NextHop::Down
    }
}

/// The mailers whose power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entrant {
    /// Posthaste.
    Posthaste,
    /// Debian's Postfix.
    Postfix,
    /// Debian's Exim.
    Exim,
    /// Debian's OpenSMTPD.
    Opensmtpd,
    /// Posthaste on an overlay mounted `volatile`, whose syncs do nothing: it must lose mail.
    Control,
    /// Postfix under libeatmydata, whose syncs do nothing: it must lose mail.
    PostfixEatmydata,
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// The file system under the queue.
    pub fs: FileSystem,
    /// The next hop during the load.
    pub next_hop: NextHop,
    /// The mailer.
    pub subject: Entrant,
}

/// The choices of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Time from the load's start to the cut.
    pub cut_after: Duration,
    /// Concurrent sessions.
    pub sessions: u64,
    /// Messages over one connection; 0: all of them.
    pub per_connection: u64,
    /// Recipients of each message.
    pub recipients: u64,
    /// Size of each message.
    pub message_bytes: u64,
    /// Time from the mailer's restart to a second cut: in its recovery, or while it drains.
    pub second_cut_after: Option<Duration>,
    /// Time that the next hop takes for each message until the cut, so that some are in flight and others wait.
    pub hop_delay_ms: u64,
}

/// Shortest load.
const CUT_MS_MIN: u64 = 150;
/// Longest load.
const CUT_MS_MAX: u64 = 3000;
/// Time that the slowest next hop takes for a message.
const HOP_DELAY_MS_MAX: u64 = 300;
/// Time within which a second cut comes.
const SECOND_CUT_MS_MAX: u64 = 1500;
/// One cut in this number is followed by a second one.
const SECOND_CUT_EVERY: u64 = 4;

impl Entrant {
    /// The mailer that runs.
    pub fn mailer(self) -> Mailer {
        match self {
            Entrant::Posthaste | Entrant::Control => Mailer::Posthaste,
            Entrant::Postfix | Entrant::PostfixEatmydata => Mailer::Postfix,
            Entrant::Exim => Mailer::Exim,
            Entrant::Opensmtpd => Mailer::Opensmtpd,
        }
    }

    /// Returns whether it does not sync, so that it is expected to lose mail.
    pub fn is_known_to_lose(self) -> bool {
        matches!(self, Entrant::Opensmtpd | Entrant::Control | Entrant::PostfixEatmydata)
    }

    /// Whether it needs packages that are fetched.
    pub fn is_fetched(self) -> bool {
        self.mailer() != Mailer::Posthaste
    }
}

impl Plan {
    /// Returns the choices of a seed for this next hop.
    pub fn for_hop(seed: u64, next_hop: NextHop) -> Plan {
        match next_hop {
            // A next hop so slow that mail waits, and one cut: what comes twice is then what this one makes.
            NextHop::UpAfter => {
                Plan { second_cut_after: None, hop_delay_ms: HOP_DELAY_MS_MAX, ..Plan::of(seed) }
            }
            NextHop::Down | NextHop::Up => Plan::of(seed),
        }
    }

    /// Returns the choices of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut lots = Lots(seed);
        Plan {
            cut_after: Duration::from_millis(CUT_MS_MIN + lots.below(CUT_MS_MAX - CUT_MS_MIN)),
            sessions: lots.one_of(&[1, 4, 10, 20]),
            per_connection: lots.one_of(&[0, 0, 10]),
            recipients: lots.one_of(&[1, 1, 3]),
            message_bytes: lots.one_of(&[1_000, 4_096, 4_096, 20_000, 300_000]),
            second_cut_after: (lots.below(SECOND_CUT_EVERY) == 0)
                .then(|| Duration::from_millis(lots.below(SECOND_CUT_MS_MAX))),
            hop_delay_ms: lots.one_of(&[0, 50, HOP_DELAY_MS_MAX]),
        }
    }
}

/// SplitMix64.
struct Lots(u64);

impl Lots {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_of(&mut self, of: &[u64]) -> u64 {
        of[self.below(of.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_chooses_the_same_each_time_and_seeds_choose_differently() {
        assert_eq!(Plan::of(7), Plan::of(7));
        let plans: Vec<Plan> = (0..200).map(Plan::of).collect();
        let times: std::collections::HashSet<_> = plans.iter().map(|plan| plan.cut_after).collect();
        assert!(times.len() > 180);
        let twice = plans.iter().filter(|plan| plan.second_cut_after.is_some()).count();
        assert!((30..70).contains(&twice), "{twice}");
        for plan in plans {
            assert!((150..3000).contains(&plan.cut_after.as_millis()), "{plan:?}");
        }
    }
}
