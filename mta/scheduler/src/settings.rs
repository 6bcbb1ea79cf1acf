//! Settings of the scheduler: the retry schedule and the limits of destinations.
//!
//! Must never hold what is learned while running: that is in `destinations`.

use std::time::Duration;

/// Settings of the scheduler, given at its start and at a reload.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Schedule by which deferred recipients are tried again.
    pub retry: Retry,
    /// Age at which the sender is notified once that a message still waits; `None` for no notice.
    pub delay_notice: Option<Duration>,
    /// Limits of destinations that no entry of `limits` names.
    pub default: DestinationLimits,
    /// Limits by name; the first match wins. A name is a domain such as `example.org`, a pattern such as `*.example.org` or
    /// `*`, or the text of a next hop such as `local` or `smtp:127.0.0.1:2600`.
    pub limits: Vec<(String, DestinationLimits)>,
    /// Maximum number of attempts in flight to all destinations.
    pub attempts_in_flight_max: u32,
    /// Size from which on messages wait behind smaller ones, but not without a bound.
    pub bulk_bytes_min: u64,
    /// Number of lost attempts in a row after which a message is held, because it probably kills the sending process.
    pub losses_max: u8,
    /// Order in which ready messages are tried.
    pub order: crate::Order,
}

/// Exponential back-off: `first · factor^n`, up to `longest`, plus or minus the share `jitter`.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Wait after the first attempt.
    pub first: Duration,
    /// Factor by which each further wait is longer.
    pub factor: f64,
    /// Longest wait.
    pub longest: Duration,
    /// Age at which messages bounce.
    pub expire: Duration,
    /// Share of a wait by which it is shortened or lengthened at random, 0 to 1.
    pub jitter: f64,
}

/// Limits of a destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DestinationLimits {
    /// Maximum number of attempts in flight.
    pub connections: u32,
    /// Maximum number of attempts in flight before the destination has answered for the first time.
    pub start_connections: u32,
    /// Maximum number of transactions on one connection. The process that keeps the connections applies it.
    pub messages_per_connection: u32,
    /// Maximum number of recipients in one attempt.
    pub recipients_per_message: u32,
    /// Maximum number of attempts begun in a second; `None` for no limit.
    pub rate_per_second: Option<f64>,
}

impl Settings {
    /// The settings that the daemon makes of an empty settings file, for tests of any crate.
    ///
    /// Product code fills every field itself; tidy refuses a call from it.
    pub fn for_tests() -> Settings {
        Settings {
            retry: Retry::for_tests(),
            delay_notice: Some(Duration::from_secs(4 * 3600)),
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
    /// Returns the wait after the `attempts`th attempt; `chance` is in -1..=1.
    pub fn wait(&self, attempts: u16, chance: f64) -> Duration {
        let exponent = i32::from(attempts.saturating_sub(1).min(64));
        let plain = self.first.as_secs_f64() * self.factor.max(1.0).powi(exponent);
        let capped = plain.min(self.longest.max(self.first).as_secs_f64());
        let jitter = self.jitter.clamp(0.0, 1.0) * chance.clamp(-1.0, 1.0);
        Duration::try_from_secs_f64(capped * (1.0 + jitter)).unwrap_or(self.longest)
    }
}

/// Returns true if a pattern matches a name: `*` matches every name, `*.a.b` each name below `a.b`, any other pattern only
/// itself.
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
}
