//! The tables of what was counted: system calls, and postal's minutes.
//!
//! Must never show a count without what it was counted for: a message, a run, a stretch of time.

use super::tables::{class, subject};
use super::{heads, table};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{escape, number};
use crate::judge;
use crate::plot::calls::per_message;

/// Every system call of every subject.
pub fn calls(campaign: &Campaign, section: &Section) -> String {
    let mut body = String::new();
    for cell in 0..section.cells.len() {
        for (index, group) in section.of_cell(cell) {
            let (calls, is_per_message) = per_message(group);
            if calls.is_empty() {
                continue;
            }
            let each = if is_per_message { "a message" } else { "a run" };
            let name = section.cell_name(cell);
            body += &format!(
                "<tbody><tr class=\"cell\"><th scope=\"rowgroup\" colspan=\"4\"><span>{} {}{}{}, {each}</span></th></tr>",
                subject(campaign, index),
                class(campaign, index, group),
                if name.is_empty() { "" } else { ", " },
                escape(&name)
            );
            for call in calls {
                let mean = if call.count > 0.0 { call.total_us / call.count } else { 0.0 };
                body += &format!(
                    "<tr><th scope=\"row\"><code>{}</code></th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                    escape(&call.name),
                    number(call.count),
                    number(call.total_us),
                    number(mean)
                );
            }
            body += "</tbody>";
        }
    }
    if body.is_empty() {
        return body;
    }
    let head =
        heads(&[("call", false), ("count", true), ("total, µs", true), ("average, µs", true)]);
    let table = table("All system calls", &head, &body);
    format!(
        "<details><summary>All system calls: count, total and average time</summary>{table}</details>\n"
    )
}

/// Postal's table, with a row for each stretch of time: the medians of all runs.
pub fn minutes(campaign: &Campaign, section: &Section) -> String {
    let mut body = String::new();
    for cell in 0..section.cells.len() {
        for (index, group) in section.of_cell(cell) {
            let rows = minute_rows(group);
            if rows.is_empty() {
                continue;
            }
            let runs = group.runs.iter().filter(|run| !run.minutes.is_empty()).count();
            let name = section.cell_name(cell);
            body += &format!(
                "<tbody><tr class=\"cell\"><th scope=\"rowgroup\" colspan=\"5\"><span>{} {}{}{}, {}</span></th></tr>{rows}</tbody>",
                subject(campaign, index),
                class(campaign, index, group),
                if name.is_empty() { "" } else { ", " },
                escape(&name),
                if runs == 1 { "one run".into() } else { format!("medians of {runs} runs") }
            );
        }
    }
    if body.is_empty() {
        return body;
    }
    let head = heads(&[
        ("time, s", true),
        ("messages", true),
        ("data, KB", true),
        ("errors", true),
        ("connections", true),
    ]);
    table("As postal prints it: what came in each stretch of time", &head, &body)
}

fn minute_rows(group: &Group) -> String {
    let longest = group.runs.iter().map(|run| run.minutes.len()).max().unwrap_or(0);
    let row = |index: usize| {
        let middle = |of: &dyn Fn(&crate::record::Minute) -> f64| {
            let all: Vec<f64> =
                group.runs.iter().filter_map(|run| run.minutes.get(index)).map(of).collect();
            judge::median(&all).map_or_else(String::new, number)
        };
        let cells = [
            middle(&|minute| minute.seconds),
            middle(&|minute| minute.messages as f64),
            middle(&|minute| minute.bytes as f64 / 1000.0),
            middle(&|minute| minute.errors as f64),
            middle(&|minute| minute.connections as f64),
        ];
        format!("<tr>{}</tr>", cells.map(|cell| format!("<td class=\"n\">{cell}</td>")).concat())
    };
    (0..longest).map(row).collect()
}
