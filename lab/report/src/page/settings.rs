//! The end of the page: each subject's settings in full, and where the data lies.
//!
//! Must never shorten a settings file: a reader who doubts a figure looks here.

use super::tables;
use crate::campaign::Campaign;
use crate::record::{Run, Settings};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// Returns the section.
pub fn settings(campaign: &Campaign, source: &str) -> Markup {
    html! {
        section #settings {
            h2 { "Settings and data" }
            p {
                "Each subject’s files as they were at the start of the runs. The raw data, with every sample, lies in "
                (source) "."
            }
            @for (settings, scenarios, runs) in &campaign.settings { (one(campaign, settings, scenarios, *runs)) }
            (missing(campaign))
        }
    }
}

fn one(
    campaign: &Campaign,
    settings: &Settings,
    scenarios: &BTreeSet<String>,
    runs: usize,
) -> Markup {
    let subject = campaign.subjects.iter().position(|name| *name == settings.subject);
    let scenarios: Vec<&str> = scenarios.iter().map(String::as_str).collect();
    html! {
        details {
            summary {
                @match subject {
                    Some(subject) => (tables::subject(campaign, subject)),
                    None => (settings.subject),
                }
                " " code { (settings.id) } " "
                span.soft { (runs) " runs: " (scenarios.join(", ")) }
            }
            @for (name, text) in &settings.files { h4 { (name) } pre tabindex="0" { (text) } }
        }
    }
}

/// Names the settings that runs refer to and that are not in the data.
fn missing(campaign: &Campaign) -> Markup {
    let groups = campaign.sections.iter().flat_map(|section| section.groups.values());
    let known =
        |run: &&Run| campaign.settings.iter().any(|(settings, ..)| settings.id == run.settings);
    let missing: BTreeSet<String> = groups
        .flat_map(|group| &group.runs)
        .filter(|run| !run.settings.is_empty() && !known(run))
        .map(|run| format!("{} ({})", run.subject, run.settings))
        .collect();
    let missing: Vec<String> = missing.into_iter().collect();
    html! {
        @if !missing.is_empty() {
            p.fault { "Runs name settings that are not in the data: " (missing.join(", ")) "." }
        }
    }
}
