//! What an operator decides about trying: the retry schedule, the limits of each destination.
//!
//! Must never hold what is learned while running: that is in `destination`.

use mail::NextHop;
use std::time::Duration;

/// Everything the scheduler is told at its start and at a reload.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When a deferred recipient is tried again, and for how long.
    pub retry: Retry,
    /// A sender is told once that the message is still waiting; `None`: never.
    pub delay_notice_after: Option<Duration>,
    /// For destinations that no entry of `limits` names.
    pub default: DestinationLimits,
    /// First match wins: `example.org`, `*.example.org`, `*`, or a next hop as it is shown,
    /// such as `local` or `smtp:127.0.0.1:2600`.
    pub limits: Vec<(String, DestinationLimits)>,
    /// Attempts in flight to all destinations together.
    pub attempts_in_flight_max: u32,
    /// Messages from this size on wait behind smaller ones, but not for ever.
    pub bulk_bytes_min: u64,
    /// A message is held when its attempt was lost so many times in a row, because it is
    /// probably what kills the sending process.
    pub losses_max: u8,
    /// Which of the ready ones goes first.
    pub order: crate::Order,
}

/// Exponential back-off: `first · factor^n`, at most `longest`, ± `jitter` of itself.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// After the first failed attempt.
    pub first: Duration,
    /// How much longer each further wait is.
    pub factor: f64,
    /// No wait is longer.
    pub longest: Duration,
    /// Older messages bounce.
    pub expire: Duration,
    /// Share of a wait by which it is made shorter or longer by chance, 0 to 1.
    pub jitter: f64,
}

/// How much a destination is given at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DestinationLimits {
    /// Attempts in flight at most.
    pub connections: u32,
    /// Attempts in flight before the destination has answered for the first time.
    pub start_connections: u32,
    /// Transactions on one connection; for the process that keeps the connections.
    pub messages_per_connection: u32,
    /// Recipients in one attempt.
    pub recipients_per_message: u32,
    /// Attempts begun in a second; `None`: as fast as it goes.
    pub rate_per_second: Option<f64>,
}

impl Settings {
    /// The settings that the daemon makes of an empty settings file, for tests of any crate.
    ///
    /// Product code fills every field itself; tidy refuses a call from it.
    pub fn for_tests() -> Settings {
        Settings {
            retry: Retry::for_tests(),
            delay_notice_after: Some(Duration::from_secs(4 * 3600)),
            default: DestinationLimits::for_tests(),
            limits: Vec::new(),
            attempts_in_flight_max: 1_000,
            bulk_bytes_min: 256 * 1024,
            losses_max: 5,
            order: crate::Order::Fair,
        }
    }
}

impl Retry {
    /// The retry schedule of an empty settings file, for tests of any crate.
    pub fn for_tests() -> Retry {
        Retry {
            first: Duration::from_secs(300),
            factor: 2.0,
            longest: Duration::from_secs(4 * 3600),
            expire: Duration::from_secs(5 * 86_400),
            jitter: 0.1,
        }
    }
}

impl DestinationLimits {
    /// The limits of an empty settings file, for tests of any crate.
    pub fn for_tests() -> DestinationLimits {
        DestinationLimits {
            connections: 100,
            start_connections: 20,
            messages_per_connection: 100,
            recipients_per_message: 100,
            rate_per_second: None,
        }
    }
}

impl Retry {
    /// The wait after the `attempts`th attempt; `chance` is in -1..=1.
    pub fn wait(&self, attempts: u16, chance: f64) -> Duration {
        let exponent = i32::from(attempts.saturating_sub(1).min(64));
        let plain = self.first.as_secs_f64() * self.factor.max(1.0).powi(exponent);
        let capped = plain.min(self.longest.max(self.first).as_secs_f64());
        let jitter = self.jitter.clamp(0.0, 1.0) * chance.clamp(-1.0, 1.0);
        Duration::try_from_secs_f64(capped * (1.0 + jitter)).unwrap_or(self.longest)
    }
}

impl Settings {
    /// The limits of a destination: by the domain of the recipient that opened it, then by the
    /// next hop's host, then by the next hop as it is shown.
    pub fn limits_of(&self, hop: &NextHop, recipient_domain: &str) -> DestinationLimits {
        let shown = hop.to_string();
        let host = match hop {
            NextHop::Smtp(host, _) | NextHop::Lmtp(host, _) => host.to_string(),
            _ => shown.clone(),
        };
        let by = |name: &str| self.limits.iter().find(|(pattern, _)| matches(pattern, name));
        let found = by(recipient_domain).or_else(|| by(&host)).or_else(|| by(&shown));
        found.map_or(self.default, |(_, limits)| *limits)
    }
}

/// `*` is everything, `*.a.b` every name below `a.b`, all else the name itself.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some("") => true,
        Some(suffix) => {
            name.len() > suffix.len()
                && name.is_char_boundary(name.len() - suffix.len())
                && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        }
        None => pattern.eq_ignore_ascii_case(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_a_domain_or_all_below_it() {
        let cases = [
            ("*", "a.test", true),
            ("a.test", "A.test", true),
            ("a.test", "b.a.test", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "ba.test", false),
            ("*.a.test", ".a.test", false),
            ("*.test", "é.test", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_wait_grows_by_the_factor_until_the_longest() {
        let retry = Retry { jitter: 0.5, ..Retry::for_tests() };
        let minutes = |attempts, chance| retry.wait(attempts, chance).as_secs() / 60;
        let expected = [(1, 5), (2, 10), (3, 20), (6, 160), (7, 240), (60_000, 240)];
        for (attempts, wait) in expected {
            assert_eq!(minutes(attempts, 0.0), wait);
        }
        assert_eq!(minutes(2, 1.0), 15);
        assert_eq!(minutes(2, -1.0), 5);
    }

    #[test]
    fn limits_go_by_recipient_domain_then_by_host_then_by_the_hop() {
        let limits =
            |connections| DestinationLimits { connections, ..DestinationLimits::for_tests() };
        let settings = Settings {
            limits: vec![
                ("a.test".into(), limits(1)),
                ("10.0.0.1".into(), limits(2)),
                ("local".into(), limits(3)),
            ],
            ..Settings::for_tests()
        };
        let smtp = NextHop::Smtp(mail::Host::Address([10, 0, 0, 1].into()), 25);
        let connections = |hop: &NextHop, domain| settings.limits_of(hop, domain).connections;
        assert_eq!(connections(&smtp, "a.test"), 1);
        assert_eq!(connections(&smtp, "b.test"), 2);
        assert_eq!(connections(&NextHop::Local, "b.test"), 3);
        assert_eq!(connections(&NextHop::Discard, "b.test"), 100);
    }
}
