//! How the page ends: each configuration in full, and where the data lies.
//!
//! Must never shorten a configuration: whoever doubts a figure looks here.

use super::tables;
use crate::campaign::Campaign;
use crate::draw::escape;
use crate::record::Settings;
use std::collections::BTreeSet;

/// All of them.
pub fn settings(campaign: &Campaign, source: &str) -> String {
    let known: String = campaign
        .settings
        .iter()
        .map(|(settings, scenarios, runs)| one(campaign, settings, scenarios, *runs))
        .collect();
    let missing = missing(campaign);
    format!(
        "<section id=\"settings\">\n<h2>Configurations and data</h2>\n\
         <p>Each subject’s files as they were at the start of the runs. The raw data, with every sample, lies in {}.</p>\n{known}{missing}</section>\n",
        escape(source)
    )
}

fn one(
    campaign: &Campaign,
    settings: &Settings,
    scenarios: &BTreeSet<String>,
    runs: usize,
) -> String {
    let subject = campaign.subjects.iter().position(|name| *name == settings.subject);
    let name = subject
        .map_or_else(|| escape(&settings.subject), |subject| tables::subject(campaign, subject));
    let scenarios: Vec<&str> = scenarios.iter().map(String::as_str).collect();
    let file = |(name, text): (&String, &String)| {
        format!("<h4>{}</h4>\n<pre tabindex=\"0\">{}</pre>\n", escape(name), escape(text))
    };
    let files: String = settings.files.iter().map(file).collect();
    format!(
        "<details><summary>{name} <code>{}</code> <span class=\"soft\">{runs} runs: {}</span></summary>\n{files}</details>\n",
        escape(&settings.id),
        escape(&scenarios.join(", "))
    )
}

/// Settings that runs name and nobody recorded.
fn missing(campaign: &Campaign) -> String {
    let runs = campaign
        .sections
        .iter()
        .flat_map(|section| section.groups.values())
        .flat_map(|group| &group.runs);
    let known = |run: &&crate::record::Run| {
        campaign.settings.iter().any(|(settings, ..)| settings.id == run.settings)
    };
    let missing: BTreeSet<String> = runs
        .filter(|run| !run.settings.is_empty() && !known(run))
        .map(|run| format!("{} ({})", run.subject, run.settings))
        .collect();
    if missing.is_empty() {
        return String::new();
    }
    let missing: Vec<String> = missing.into_iter().collect();
    format!(
        "<p class=\"fault\">Runs name settings that are not in the data: {}.</p>\n",
        escape(&missing.join(", "))
    )
}
