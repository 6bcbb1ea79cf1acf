//! The tables of what was counted: system calls, and postal's minutes.
//!
//! Must never show a count without what it was counted for: a message, a run, a stretch of time.

use super::tables::{group_head, of_subject};
use super::{heads, table};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::number;
use crate::judge;
use crate::plot::calls::per_message;
use crate::record::Minute;
use maud::{Markup, html};

/// Returns the table of every system call of every subject.
pub fn calls(campaign: &Campaign, section: &Section) -> Markup {
    let body = of_each(section, |index, cell, group| {
        let (calls, is_per_message) = per_message(group);
        let each = if is_per_message { "a message" } else { "a run" };
        html! {
            @if !calls.is_empty() {
                tbody {
                    (group_head(&of_subject(campaign, section, (index, cell), each), 4))
                    @for call in calls {
                        @let mean = if call.count > 0.0 { call.total_us / call.count } else { 0.0 };
                        tr {
                            th scope="row" { code { (call.name) } }
                            @for value in [call.count, call.total_us, mean] { td.n { (number(value)) } }
                        }
                    }
                }
            }
        }
    });
    if body.0.is_empty() {
        return body;
    }
    let head =
        heads(&[("call", false), ("count", true), ("total, µs", true), ("average, µs", true)]);
    html! {
        details {
            summary { "All system calls: count, total and average time" }
            (table("All system calls", &head, &body))
        }
    }
}

/// Returns postal's table, with a row for each stretch of time: the medians of all runs.
pub fn minutes(campaign: &Campaign, section: &Section) -> Markup {
    let body = of_each(section, |index, cell, group| {
        let runs = group.runs.iter().filter(|run| !run.minutes.is_empty()).count();
        let what = if runs == 1 { "one run".into() } else { format!("medians of {runs} runs") };
        html! {
            @if runs > 0 {
                tbody {
                    (group_head(&of_subject(campaign, section, (index, cell), &what), 5))
                    (minute_rows(group))
                }
            }
        }
    });
    if body.0.is_empty() {
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

/// Returns what `write` makes of each subject in each cell.
fn of_each(section: &Section, write: impl Fn(usize, usize, &Group) -> Markup) -> Markup {
    html! {
        @for cell in 0..section.cells.len() {
            @for (index, group) in section.of_cell(cell) { (write(index, cell, group)) }
        }
    }
}

const COLUMNS: [fn(&Minute) -> f64; 5] = [
    |minute| minute.seconds,
    |minute| minute.messages as f64,
    |minute| minute.bytes as f64 / 1000.0,
    |minute| minute.errors as f64,
    |minute| minute.connections as f64,
];

fn minute_rows(group: &Group) -> Markup {
    let longest = group.runs.iter().map(|run| run.minutes.len()).max().unwrap_or(0);
    let middle = |index: usize, column: fn(&Minute) -> f64| {
        let minutes = group.runs.iter().filter_map(|run| run.minutes.get(index));
        let all: Vec<f64> = minutes.map(column).collect();
        judge::median(&all).map_or_else(String::new, number)
    };
    html! {
        @for index in 0..longest {
            tr { @for column in COLUMNS { td.n { (middle(index, column)) } } }
        }
    }
}
