//! Delays over a factor of numbers: the curves of `lines`, of a share of each run's delays in place of its figure.
//!
//! Must never draw one run's share as if it were of all messages: each dot is a run, as everywhere.

use super::{Gallery, lines};
use crate::campaign::{Campaign, Group, Section};
use crate::judge;
use crate::plot::latency::meaning;
use crate::record::{Better, Figure};

/// Names of values, what they are of, and how that is said.
const SHARES: [(&str, &str, &str); 6] = [
    ("accept_p50_ms", "accept", "half of all messages"),
    ("accept_p99_ms", "accept", "99 % of all messages"),
    ("accept_p99_9_ms", "accept", "99.9 % of all messages"),
    ("arrive_p50_ms", "arrive", "half of all messages"),
    ("arrive_p99_ms", "arrive", "99 % of all messages"),
    ("arrive_p99_9_ms", "arrive", "99.9 % of all messages"),
];

/// Whether a value is a share of delays that have a table of their own, and pictures.
pub fn is_drawn(section: &Section, name: &str) -> bool {
    let kind = SHARES.iter().find(|(known, ..)| *known == name).map(|(_, kind, _)| *kind);
    let mut runs = section.groups.values().flat_map(|group| &group.runs);
    kind.is_some_and(|kind| runs.any(|run| run.histograms.contains_key(kind)))
}

/// Of a scenario that asks for delays.
pub fn galleries(campaign: &Campaign, section: &Section) -> Vec<Gallery> {
    if !section.about.delays {
        return Vec::new();
    }
    let of = |(name, kind, share): &(&str, &str, &str)| {
        let mut gallery = lines::gallery(campaign, &of_value(section, name, share))?;
        for plot in &mut gallery.plots {
            plot.slug = plot.slug.replace("answer", &name.replace('_', "-"));
        }
        gallery.title = format!("{}: no longer than this for {share}", lines::capital(kind));
        gallery.caption = format!("The delay {}. {}", meaning(kind), gallery.caption);
        gallery.is_answer = false;
        Some(gallery)
    };
    SHARES.iter().filter_map(of).collect()
}

/// The same section with one of the other numbers as its figure.
fn of_value(section: &Section, name: &str, share: &str) -> Section {
    let group = |group: &Group| {
        let mut runs = group.runs.clone();
        for run in &mut runs {
            run.value = run.value.and(run.values.get(name).copied());
        }
        let mut other = Group { runs, durability: group.durability.clone(), ..Group::default() };
        other.standing = judge::standing(&other.values());
        other
    };
    let groups = section.groups.iter().map(|(key, one)| (*key, group(one)));
    Section {
        scenario: section.scenario.clone(),
        slug: section.slug.clone(),
        about: section.about.clone(),
        figure: Figure {
            name: format!("delay of {share}"),
            unit: "ms".into(),
            better: Better::Lower,
        },
        factors: section.factors.clone(),
        fixed: section.fixed.clone(),
        cells: section.cells.clone(),
        reference: section.reference,
        groups: groups.collect(),
    }
}
