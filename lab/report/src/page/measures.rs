//! The tables of the other measurements: costs, delays, trends.
//!
//! Must never show a mean where a median or a share says more.

use super::tables::{cell_head, class, first_head, row_head, subject};
use super::{folding_table, heads};
use crate::about::heading;
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{delay_us, number};
use crate::judge;
use crate::latency::{Delays, PERCENTILES};
use crate::plot::latency::meaning;
use crate::plot::over::is_drawn;
use crate::plot::{Slope, slopes, spoken_series};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// The first columns of the table of costs, as far as the runs have these values.
const COSTS: [&str; 4] =
    ["cpu_ms_per_message", "peak_memory_mib", "syncs_per_message", "disk_flushes_per_message"];

/// Returns the table of what the runs cost: medians of the other numbers.
pub fn costs(campaign: &Campaign, section: &Section) -> Markup {
    let all: BTreeSet<&String> = section
        .groups
        .values()
        .flat_map(|group| &group.runs)
        .flat_map(|run| run.values.keys())
        .filter(|name| !is_drawn(section, name))
        .collect();
    let first = COSTS.iter().filter_map(|name| all.iter().find(|known| known == &name).copied());
    let rest = all.iter().copied().filter(|name| !COSTS.contains(&name.as_str()));
    let names: Vec<&String> = first.chain(rest).collect();
    if names.is_empty() {
        return html! {};
    }
    let words: Vec<String> = names.iter().map(|name| heading(&section.about, name)).collect();
    let fixed = [(first_head(section), false), ("its 250", false)];
    let head: Vec<(&str, bool)> =
        fixed.into_iter().chain(words.iter().map(|word| (word.as_str(), true))).collect();
    let value = |group: &Group, name: &str| {
        judge::median(&group.others(name)).map_or_else(|| "–".into(), number)
    };
    let body = html! {
        @for cell in 0..section.cells.len() {
            tbody {
                (cell_head(section, cell, head.len()))
                @for (index, group) in section.of_cell(cell).filter(|(_, group)| !group.runs.is_empty()) {
                    tr {
                        th scope="row" { (row_head(campaign, section, index, cell)) }
                        td { (class(campaign, index, group)) }
                        @for name in &names { td.n { (value(group, name)) } }
                    }
                }
            }
        }
    };
    folding_table("What it took: medians of all runs", &heads(&head), &body)
}

/// Returns a table of each kind of delay at shares of the messages.
pub fn delays(campaign: &Campaign, section: &Section) -> Markup {
    let kinds: BTreeSet<&String> = section
        .groups
        .values()
        .flat_map(|group| &group.runs)
        .flat_map(|run| run.histograms.keys())
        .collect();
    html! { @for kind in kinds { (delays_of(campaign, section, kind)) } }
}

fn delays_of(campaign: &Campaign, section: &Section, kind: &str) -> Markup {
    let shares: Vec<String> = PERCENTILES.iter().map(|share| format!("{share} %")).collect();
    let fixed = [(first_head(section), false), ("its 250", false), ("messages", true)];
    let head: Vec<(&str, bool)> = fixed
        .into_iter()
        .chain(shares.iter().map(|share| (share.as_str(), true)))
        .chain([("greatest", true)])
        .collect();
    let all: Vec<(usize, usize, Delays)> = (0..section.cells.len())
        .flat_map(|cell| section.of_cell(cell).map(move |(index, group)| (cell, index, group)))
        .filter_map(|(cell, index, group)| Some((cell, index, Delays::of(group, kind)?)))
        .collect();
    let body = html! {
        @for rows in all.chunk_by(|one, other| one.0 == other.0) {
            @let rows: Vec<_> = rows.iter().filter(|(.., delays)| delays.count() > 0).collect();
            @if let Some((cell, ..)) = rows.first() {
                tbody {
                    (cell_head(section, *cell, head.len()))
                    @for (cell, index, delays) in &rows { (delay_row(campaign, section, (*index, *cell), delays)) }
                }
            }
        }
    };
    let caption =
        format!("Delay “{kind}”, {}: the longest of this share of all messages", meaning(kind));
    html! {
        @if !body.0.is_empty() { (folding_table(&caption, &heads(&head), &body)) }
        @for (_, index, delays) in &all {
            @for fault in &delays.faults { p.fault { (campaign.subjects[*index]) ": " (fault) } }
        }
    }
}

fn delay_row(
    campaign: &Campaign,
    section: &Section,
    (index, cell): (usize, usize),
    delays: &Delays,
) -> Markup {
    html! {
        tr {
            th scope="row" { (row_head(campaign, section, index, cell)) }
            td { (class(campaign, index, &section.groups[&(index, cell)])) }
            td.n { (number(delays.count() as f64)) }
            @for delay in delays.table() { td.n { (delay_us(delay)) } }
        }
    }
}

/// Returns the slopes of all trends.
pub fn trends(campaign: &Campaign, section: &Section) -> Markup {
    let slopes = slopes(section);
    if slopes.is_empty() {
        return html! {};
    }
    let head = heads(&[
        ("what", false),
        ("subject", false),
        ("its 250", false),
        ("where", false),
        ("points", true),
        ("slope", true),
        ("standard error", true),
        ("95 % interval", true),
        ("explained", true),
    ]);
    let rows = html! { tbody { @for slope in &slopes { (slope_row(campaign, section, slope)) } } };
    folding_table("Trends: what each one more adds", &head, &rows)
}

fn slope_row(campaign: &Campaign, section: &Section, slope: &Slope) -> Markup {
    let Slope { trend, subject: index, cell, .. } = slope;
    let interval = trend.slope_interval(stats::Confidence::P95);
    html! {
        tr {
            th scope="row" { (spoken_series(&slope.series)) }
            td { (subject(campaign, *index)) }
            td { (class(campaign, *index, &section.groups[&(*index, *cell)])) }
            td { (section.cell_name(*cell)) }
            td.n { (number(trend.n as f64)) }
            td.n.big { (number(trend.slope)) }
            td.n { (number(trend.slope_error)) }
            td.n.soft { (number(interval.low)) " – " (number(interval.high)) }
            td.n { (format!("{:.0} %", trend.r_squared * 100.0)) }
        }
    }
}
