//! What happens in one simulation: settings, messages and faults, all drawn from one seed.
//!
//! Must never depend on what the mailer does: each part has chance of its own, so that a plan
//! from which parts are taken away leaves the others as they were.

mod fault;
mod faults;
mod mail;
mod settings;

pub use fault::{Act, Fault, Lie, Poison, Station, What, When};
pub use mail::{Fate, Mail, Manner, Recipient, Trouble};
pub use settings::{Deliverers, LocalSettings, SendSettings, Settings};

use ::mail::{Instant, Timestamp};
use faults::{bad_reads, drains, fault, send_drains, streams};
use mail::{deliver_here, list, mail, refuse_closed};
use settings::{draw_limits, make_lists, settings, without_trouble};
use std::collections::BTreeSet;
use std::time::Duration;
use world::Rng as _;
use world::sim::Rng;

/// Domains that mail goes to, `d0.test` and so on; the first ones by a route, the last by MX.
pub const DOMAINS: u8 = 4;

/// Of these, the ones with a route.
pub const ROUTED: u8 = 2;

/// The wall clock at the beginning of every simulation: 2026-01-01.
pub const WALL_START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A simulation before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where all of it comes from.
    pub seed: u64,
    /// How the mailer is set.
    pub settings: Settings,
    /// What clients bring.
    pub mails: Vec<Mail>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// When the last mail has been brought and the last fault has begun.
    pub span: Duration,
    /// What was taken away: names such as `m3` and `f7`.
    pub without: BTreeSet<String>,
}

/// Chance for one purpose of one seed.
pub fn chance(seed: u64, purpose: u64) -> Rng {
    let mut first = Rng::seeded(seed ^ purpose.wrapping_mul(0x9e6c_63d0_876a_3f6b));
    Rng::seeded(first.u64())
}

/// One of these.
pub fn pick<T: Copy>(chance: &mut Rng, of: &[T]) -> T {
    of[chance.below(of.len() as u64) as usize]
}

fn one_in(chance: &mut Rng, n: u64) -> bool {
    chance.below(n) == 0
}

fn within(chance: &mut Rng, most: Duration) -> Duration {
    Duration::from_nanos(chance.below(most.as_nanos() as u64 + 1))
}

impl Plan {
    /// The plan of a seed, with only the parts that are named.
    pub fn only(seed: u64, parts: &BTreeSet<String>) -> Plan {
        let all = Plan::drawn(seed, &BTreeSet::new()).parts();
        let without = all.into_iter().filter(|part| !parts.contains(part)).collect();
        Plan::drawn(seed, &without)
    }

    /// The plan of a seed, without the parts that are named.
    pub fn drawn(seed: u64, without: &BTreeSet<String>) -> Plan {
        let mut draw = chance(seed, 1);
        let spans = [1, 20, 120, 7_200, 172_800];
        let span = Duration::from_secs(pick(&mut draw, &spans));
        let mut settings = settings(seed, &mut draw, span);
        let lists = make_lists(seed, &mut settings);
        draw_limits(seed, &mut settings);
        let mails = 1 + draw.below(pick(&mut draw.clone(), &[4, 12, 40])) as u32;
        let quiet = one_in(&mut draw, 12);
        let settings = if quiet { without_trouble(seed, settings) } else { settings };
        // Some plans are storms of power cuts: recovery over recovery.
        let storm = one_in(&mut draw, 4);
        let faults = match (quiet, storm) {
            (true, _) => 0,
            (false, true) => 100 + draw.below(200) as u32,
            (false, false) => draw.below(40) as u32,
        };
        let kept = |name: String| !without.contains(&name);
        Plan {
            seed,
            mails: (0..mails)
                .filter(|number| kept(format!("m{number}")))
                .map(|number| mail(seed, number, span, quiet))
                .map(|mail| if lists { list(seed, mail) } else { mail })
                .map(|mail| if settings.local.has_much { deliver_here(seed, mail) } else { mail })
                .map(|mail| refuse_closed(mail, settings.send.closed))
                .collect(),
            faults: (0..faults)
                .filter(|number| kept(format!("f{number}")))
                .map(|number| fault(seed, number, span, &settings, storm))
                .chain(bad_reads(seed, span, quiet).into_iter().filter(|f| kept(f.name())))
                .chain(streams(seed, span, &settings, quiet).into_iter().filter(|f| kept(f.name())))
                .chain(drains(seed, span, &settings, quiet).into_iter().filter(|f| kept(f.name())))
                .chain(send_drains(seed, span, &settings).into_iter().filter(|f| kept(f.name())))
                .collect(),
            settings,
            span,
            without: without.clone(),
        }
    }

    /// Nothing goes wrong in it.
    pub fn is_quiet(&self) -> bool {
        self.faults.iter().all(|fault| matches!(fault.what, What::Drain(_) | What::DrainInBatch))
            && self.settings.sink_trouble == 0
            && self.settings.local.trouble == 0
            && self.mails.iter().all(|mail| mail.client.trouble.is_none())
    }

    /// The names of all parts that are left.
    pub fn parts(&self) -> Vec<String> {
        let mails = self.mails.iter().map(|mail| format!("m{}", mail.number));
        mails.chain(self.faults.iter().map(Fault::name)).collect()
    }

    /// What has to be said to see this plan again.
    pub fn line(&self) -> String {
        let line = format!("cargo xtask swarm --replay {}", self.seed);
        match self.without.is_empty() {
            true => line,
            false => format!("{line} --only {}", self.parts().join(",")),
        }
    }

    /// When the faults end.
    pub fn quiet_at(&self) -> Instant {
        Instant::ZERO + self.span + Duration::from_secs(60)
    }
}
