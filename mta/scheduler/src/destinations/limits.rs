//! The limits of destinations, found by name in the settings.
//!
//! Must never hold what is learned while running: that is in `destination`.

use crate::settings::{DestinationLimits, Settings, matches};
use mail::NextHop;

/// The limits in the settings, and all limits in use. A destination names its limits by index.
#[derive(Debug)]
pub(crate) struct LimitTable {
    default: DestinationLimits,
    by_name: Vec<(String, DestinationLimits)>,
    in_use: Vec<DestinationLimits>,
}

impl LimitTable {
    pub fn new(settings: &Settings) -> Self {
        let by_name = settings.limits.clone();
        LimitTable { default: settings.default, by_name, in_use: Vec::new() }
    }

    /// Limits of destinations that no entry names.
    pub fn default(&self) -> DestinationLimits {
        self.default
    }

    pub fn at(&self, index: u16) -> DestinationLimits {
        self.in_use[usize::from(index)]
    }

    /// Returns the index of the limits of a destination.
    pub fn index_of(&mut self, hop: &NextHop, recipient_domain: &str) -> u16 {
        let limits = self.find(hop, recipient_domain);
        let found = self.in_use.iter().position(|other| *other == limits).unwrap_or_else(|| {
            self.in_use.push(limits);
            self.in_use.len() - 1
        });
        u16::try_from(found).expect("settings do not have 65,536 different limits")
    }

    /// Finds limits by the domain of the recipient that opened the destination, then by the host of the next hop, then
    /// by the text of the next hop.
    fn find(&self, hop: &NextHop, recipient_domain: &str) -> DestinationLimits {
        let shown = hop.to_string();
        let host = match hop {
            NextHop::Smtp(host, _) | NextHop::Lmtp(host, _) => host.to_string(),
            _ => shown.clone(),
        };
        let by = |name: &str| self.by_name.iter().find(|(pattern, _)| matches(pattern, name));
        let found = by(recipient_domain).or_else(|| by(&host)).or_else(|| by(&shown));
        found.map_or(self.default, |(_, limits)| *limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let table = LimitTable::new(&settings);
        let smtp = NextHop::Smtp(mail::Host::Address([10, 0, 0, 1].into()), 25);
        let connections = |hop: &NextHop, domain| table.find(hop, domain).connections;
        assert_eq!(connections(&smtp, "a.test"), 1);
        assert_eq!(connections(&smtp, "b.test"), 2);
        assert_eq!(connections(&NextHop::Local, "b.test"), 3);
        assert_eq!(connections(&NextHop::Discard, "b.test"), 100);
    }
}
