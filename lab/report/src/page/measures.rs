//! The tables of what was measured besides: costs, delays, trends.
//!
//! Must never show a mean where a median or a share says more.

use super::tables::{cell_head, class, first_head, row_head, subject};
use super::{folding_table, heads};
use crate::about::heading;
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{delay_us, escape, number};
use crate::judge;
use crate::latency::{Delays, PERCENTILES};
use crate::plot::latency::meaning;
use crate::plot::over::is_drawn;
use crate::plot::{slopes, spoken_series};
use std::collections::BTreeSet;

/// Columns of the second table that come first, if there are such values.
const COSTS: [&str; 4] =
    ["cpu_ms_per_message", "peak_memory_mib", "syncs_per_message", "disk_flushes_per_message"];

/// What it costs: medians of the other numbers.
pub fn costs(campaign: &Campaign, section: &Section) -> String {
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
        return String::new();
    }
    let words: Vec<String> = names.iter().map(|name| heading(&section.about, name)).collect();
    let fixed = [(first_head(section), false), ("its 250", false)];
    let head: Vec<(&str, bool)> =
        fixed.into_iter().chain(words.iter().map(|word| (word.as_str(), true))).collect();
    let row = |cell: usize, index: usize, group: &Group| {
        let value =
            |name: &&String| judge::median(&group.others(name)).map_or_else(|| "–".into(), number);
        let cells: String =
            names.iter().map(|name| format!("<td class=\"n\">{}</td>", value(name))).collect();
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td>{cells}</tr>",
            row_head(campaign, section, index, cell),
            class(campaign, index, group)
        )
    };
    let of_cell = |cell: usize| {
        let groups = section.of_cell(cell).filter(|(_, group)| !group.runs.is_empty());
        let rows: String = groups.map(|(index, group)| row(cell, index, group)).collect();
        format!("<tbody>{}{rows}</tbody>", cell_head(section, cell, names.len() + 2))
    };
    let body: String = (0..section.cells.len()).map(of_cell).collect();
    folding_table("What it took: medians of all runs", &heads(&head), &body)
}

/// Delays at shares of the messages.
pub fn delays(campaign: &Campaign, section: &Section) -> String {
    let kinds: BTreeSet<&String> = section
        .groups
        .values()
        .flat_map(|group| &group.runs)
        .flat_map(|run| run.histograms.keys())
        .collect();
    kinds.into_iter().map(|kind| delays_of(campaign, section, kind)).collect()
}

fn delays_of(campaign: &Campaign, section: &Section, kind: &str) -> String {
    let shares: Vec<String> = PERCENTILES.iter().map(|share| format!("{share} %")).collect();
    let fixed = [(first_head(section), false), ("its 250", false), ("messages", true)];
    let head: Vec<(&str, bool)> = fixed
        .into_iter()
        .chain(shares.iter().map(|share| (share.as_str(), true)))
        .chain([("greatest", true)])
        .collect();
    let mut faults = String::new();
    let mut body = String::new();
    for cell in 0..section.cells.len() {
        let mut rows = String::new();
        for (index, group) in section.of_cell(cell) {
            let Some(delays) = Delays::of(group, kind) else { continue };
            for fault in &delays.faults {
                faults += &format!(
                    "<p class=\"fault\">{}: {}</p>\n",
                    escape(&campaign.subjects[index]),
                    escape(fault)
                );
            }
            if delays.count() == 0 {
                continue;
            }
            let cells: String = delays
                .table()
                .into_iter()
                .map(|delay| format!("<td class=\"n\">{}</td>", delay_us(delay)))
                .collect();
            rows += &format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td>{cells}</tr>",
                row_head(campaign, section, index, cell),
                class(campaign, index, group),
                number(delays.count() as f64)
            );
        }
        if !rows.is_empty() {
            body += &format!("<tbody>{}{rows}</tbody>", cell_head(section, cell, head.len()));
        }
    }
    if body.is_empty() {
        return faults;
    }
    let caption = format!(
        "Delay “{kind}”, {}: no longer than this for so many of all messages",
        meaning(kind)
    );
    folding_table(&caption, &heads(&head), &body) + &faults
}

/// Slopes of all trends.
pub fn trends(campaign: &Campaign, section: &Section) -> String {
    let slopes = slopes(section);
    if slopes.is_empty() {
        return String::new();
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
    let row = |slope: &crate::plot::Slope| {
        let group = &section.groups[&(slope.subject, slope.cell)];
        let interval = slope.trend.slope_interval(stats::Confidence::P95);
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n big\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n soft\">{} – {}</td><td class=\"n\">{:.0} %</td></tr>",
            escape(&spoken_series(&slope.series)),
            subject(campaign, slope.subject),
            class(campaign, slope.subject, group),
            escape(&section.cell_name(slope.cell)),
            number(slope.trend.n as f64),
            number(slope.trend.slope),
            number(slope.trend.slope_error),
            number(interval.low),
            number(interval.high),
            slope.trend.r_squared * 100.0
        )
    };
    let rows: String = slopes.iter().map(row).collect();
    folding_table("Trends: what each one more adds", &head, &format!("<tbody>{rows}</tbody>"))
}
