//! The delays of a scenario as plain text and as Markdown.
//!
//! Must never show a mean of delays: it hides what people wait for.

use crate::campaign::{Campaign, Group, Section, class_of, class_word};
use crate::draw::{delay_us, number};
use crate::latency::{Delays, PERCENTILES};
use crate::plot::latency::meaning;
use std::fmt::Write;

/// The kinds that are asked for, in the order in which a message meets them.
const KINDS: [&str; 2] = ["accept", "arrive"];

/// One subject in one cell.
struct Row {
    cell: String,
    subject: String,
    class: &'static str,
    messages: u64,
    delays: Vec<f64>,
}

fn rows(campaign: &Campaign, section: &Section, kind: &str) -> Vec<Row> {
    let cells = (0..section.cells.len())
        .flat_map(|cell| section.of_cell(cell).map(move |(subject, group)| (cell, subject, group)));
    let row = |(cell, subject, group): (usize, usize, &Group)| {
        let delays = Delays::of(group, kind).filter(|delays| delays.count() > 0)?;
        Some(Row {
            cell: section.cell_name(cell),
            subject: campaign.subjects[subject].clone(),
            class: class_of(campaign, subject, group).map_or("no mailer", class_word),
            messages: delays.count(),
            delays: delays.table(),
        })
    };
    cells.filter_map(row).collect()
}

/// Of a scenario that asks for delays; empty for others.
pub fn text(campaign: &Campaign, section: &Section) -> String {
    let mut out = String::new();
    for kind in KINDS {
        let rows = if section.about.delays { rows(campaign, section, kind) } else { Vec::new() };
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\nDelay “{kind}”, {}, of all runs together:", meaning(kind));
        let mut cell = None;
        for row in rows {
            if cell.as_ref() != Some(&row.cell) {
                let heads = PERCENTILES.map(|share| format!("{:>9}", format!("{share} %")));
                let name: String = row.cell.chars().take(38).collect();
                let _ = writeln!(out, "  {name:<38} {} {:>9}", heads.join(" "), "greatest");
            }
            let name: String = row.subject.chars().take(12).collect();
            let delays: Vec<String> =
                row.delays.iter().map(|delay| format!("{:>9}", delay_us(*delay))).collect();
            let messages = format!("{} messages", number(row.messages as f64));
            let _ = writeln!(
                out,
                "    {name:<12} {:<9} {messages:>13} {}",
                row.class,
                delays.join(" ")
            );
            cell = Some(row.cell);
        }
    }
    out
}

/// Of a scenario that asks for delays; empty for others.
pub fn markdown(campaign: &Campaign, section: &Section) -> String {
    let mut out = String::new();
    for kind in KINDS {
        let rows = if section.about.delays { rows(campaign, section, kind) } else { Vec::new() };
        if rows.is_empty() {
            continue;
        }
        let heads = PERCENTILES.map(|share| format!("{share} %")).join(" | ");
        let _ = writeln!(out, "\nDelay “{kind}”, {}, of all runs together.\n", meaning(kind));
        let _ = writeln!(out, "| cell | subject | 250 | messages | {heads} | greatest |");
        let _ = writeln!(out, "|---|---|---|---:|{}", "---:|".repeat(PERCENTILES.len() + 1));
        for row in rows {
            let delays: Vec<String> = row.delays.iter().map(|delay| delay_us(*delay)).collect();
            let Row { cell, subject, class, messages, .. } = row;
            let messages = number(messages as f64);
            let _ = writeln!(
                out,
                "| {cell} | {subject} | {class} | {messages} | {} |",
                delays.join(" | ")
            );
        }
    }
    out
}
