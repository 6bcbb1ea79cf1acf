//! A scenario on the page: question, answer as a picture, tables, the rest of the pictures.
//!
//! Must never put a picture before the question that it answers.

use super::{counts, effects, measures, results};
use crate::about::heading;
use crate::campaign::{Campaign, Section, word};
use crate::draw::{Look, Svg};
use crate::plot::{Gallery, Plot, galleries};
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeSet;

/// Figures of one kind that are shown; the rest is folded away.
const OPEN_MAX: usize = 6;

/// Seeds that are listed; of more only the number is given.
const SEEDS_MAX: usize = 12;

/// Returns the whole section.
pub fn section(campaign: &Campaign, section: &Section) -> Markup {
    let galleries = galleries(campaign, section);
    html! {
        section.scenario id=(section.slug) {
            h2 { (section.about.title) }
            @if !section.about.question.is_empty() { p.question { (section.about.question) } }
            p.conditions { (conditions(section)) }
            @for gallery in galleries.iter().filter(|gallery| gallery.is_answer) { (draw(section, gallery)) }
            (results::results(campaign, section))
            (effects::effects_table(campaign, section))
            (measures::costs(campaign, section))
            (counts::minutes(campaign, section))
            (measures::trends(campaign, section))
            (measures::delays(campaign, section))
            (counts::calls(campaign, section))
            @for gallery in galleries.iter().filter(|gallery| !gallery.is_answer) { (draw(section, gallery)) }
        }
    }
}

fn conditions(section: &Section) -> String {
    let fixed: Vec<String> = section
        .fixed
        .iter()
        .map(|(name, value)| format!("{} {}", heading(&section.about, name), word(value)))
        .collect();
    let seeds: BTreeSet<u64> =
        section.groups.values().flat_map(|group| &group.runs).map(|run| run.seed).collect();
    let seeds = if seeds.len() <= SEEDS_MAX {
        seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    } else {
        format!("{} different ones, in the data", seeds.len())
    };
    let everywhere = if fixed.is_empty() {
        String::new()
    } else {
        format!("Everywhere: {}. ", fixed.join(", "))
    };
    format!("Scenario {}. {everywhere}Seeds: {seeds}.", section.scenario)
}

fn draw(section: &Section, gallery: &Gallery) -> Markup {
    let (shown, folded) = gallery.plots.split_at(gallery.plots.len().min(OPEN_MAX));
    let is_single = gallery.plots.len() == 1 && gallery.plots[0].narrow.is_some();
    html! {
        @if !gallery.is_answer { h3 { (gallery.title) } }
        p.caption { (gallery.caption) }
        (key(&gallery.plots))
        div class=(if is_single { "single" } else { "panels" }) {
            @for plot in shown { (figure(section, plot, gallery)) }
        }
        @if !folded.is_empty() {
            details {
                summary { (folded.len()) " more of these figures" }
                div.panels { @for plot in folded { (figure(section, plot, gallery)) } }
            }
        }
    }
}

/// Explains the looks in the figures, once for all of them.
fn key(plots: &[Plot]) -> Markup {
    let mut entries: Vec<&(Look, String)> = Vec::new();
    for entry in plots.iter().flat_map(|plot| plot.wide.key()) {
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries.sort_by_key(|(look, _)| *look);
    html! {
        @if !entries.is_empty() {
            ul.key { @for (look, name) in entries { li { (PreEscaped(Svg::sample(*look))) (name) } } }
        }
    }
}

fn figure(section: &Section, plot: &Plot, gallery: &Gallery) -> Markup {
    let id = format!("f-{}-{}", section.slug, plot.slug);
    let has_title = gallery.plots.len() > 1 || !gallery.is_answer;
    html! {
        figure {
            @if has_title { figcaption { (plot.title) } }
            (picture(plot, &id))
            @if !plot.caption.is_empty() { p.caption { (plot.caption) } }
        }
    }
}

/// Returns a plot's picture, and the one for narrow pages if it has one.
pub fn picture(plot: &Plot, id: &str) -> Markup {
    let wide = PreEscaped(plot.wide.inline(id));
    let Some(narrow) = &plot.narrow else { return wide };
    html! {
        div.for-wide { (wide) }
        div.for-narrow { (PreEscaped(narrow.inline(&format!("{id}-narrow")))) }
    }
}
