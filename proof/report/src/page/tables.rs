//! The tables of a scenario.
//!
//! Must never tell a class or a verdict by colour alone: a word and a mark stand there.

use super::{heads, table};
use crate::about::heading;
use crate::campaign::{Campaign, Group, Section, class_of, class_word};
use crate::draw::{Svg, escape, number, time_us};
use crate::judge::{self, Finding};
use crate::latency::{Delays, PERCENTILES};
use crate::plot::calls::per_message;
use crate::plot::latency::meaning;
use crate::plot::slopes;
use crate::record::Class;
use std::collections::BTreeSet;

/// Columns of the second table that come first, if there are such values.
const COSTS: [&str; 4] =
    ["cpu_ms_per_message", "peak_memory_mib", "syncs_per_message", "disk_flushes_per_message"];

/// The marks of the classes, once for the whole page.
pub fn marks() -> &'static str {
    "<svg class=\"symbols\" width=\"0\" height=\"0\" aria-hidden=\"true\">\
     <symbol id=\"synced\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"5\" fill=\"currentColor\"/></symbol>\
     <symbol id=\"sometimes\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"4.4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.3\"/><path d=\"M6 1.6a4.4 4.4 0 0 0 0 8.8Z\" fill=\"currentColor\"/></symbol>\
     <symbol id=\"unsynced\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"4.4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.3\"/></symbol>\
     <symbol id=\"unknown\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"4.4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.3\" stroke-dasharray=\"2 1.8\"/></symbol>\
     </svg>\n"
}

/// A subject's name with the mark that it has in the figures.
pub fn subject(campaign: &Campaign, subject: usize) -> String {
    let look = campaign.look(subject);
    let mut mark = Svg::new(12.0, 12.0, "", "");
    mark.open(&look.class());
    mark.mark(look, (6.0, 6.0), 4.2, "");
    mark.close();
    format!("{}{}", mark.icon(), escape(&campaign.subjects[subject]))
}

/// The durability class: a mark and a word.
pub fn class(campaign: &Campaign, subject: usize, group: &Group) -> String {
    let Some(class) = class_of(campaign, subject, group) else {
        return "<span class=\"class\">no mailer</span>".into();
    };
    let word = class_word(class);
    let weight = if class == Class::Synced { "class" } else { "class weak" };
    format!(
        "<span class=\"{weight}\"><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><use href=\"#{word}\"/></svg>{word}</span>"
    )
}

/// What answers the question: median, interval, ratio, verdict.
pub fn results(campaign: &Campaign, section: &Section) -> String {
    let to = format!("to {}", campaign.reference);
    let head = heads(&[
        ("subject", false),
        ("its 250", false),
        ("median", true),
        ("95 % interval", true),
        ("n", true),
        (&to, true),
        ("of limit", true),
        ("verdict", false),
        ("by", false),
    ]);
    let body: String =
        (0..section.cells.len()).map(|cell| results_of(campaign, section, cell)).collect();
    table(&format!("{}, {}", section.figure_name(), section.better()), &head, &body)
}

fn results_of(campaign: &Campaign, section: &Section, cell: usize) -> String {
    let rows = crate::table::rows(campaign, section, cell);
    let groups: Vec<(usize, &Group)> = section.of_cell(cell).collect();
    let one = |(row, (index, group)): (&crate::table::Row, &(usize, &Group))| {
        let n = if row.n == group.runs.len() {
            row.n.to_string()
        } else {
            format!("{} of {}", row.n, group.runs.len())
        };
        let ratio = group.judgement.as_ref().and_then(|judgement| judgement.ratio_interval);
        let ratio = ratio.map_or_else(String::new, |range| {
            format!(" <span class=\"soft\">{}–{}</span>", number(range.low), number(range.high))
        });
        let test = group.judgement.as_ref().map_or_else(String::new, |judgement| judgement.test());
        let notes: String =
            row.notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
        let notes = if notes.is_empty() {
            notes
        } else {
            format!("<tr class=\"notes\"><td></td><td colspan=\"8\"><ul>{notes}</ul></td></tr>")
        };
        format!(
            "<tr{}><th scope=\"row\">{}</th><td>{}</td><td class=\"n big\">{}</td><td class=\"n soft\">{}</td><td class=\"n\">{n}</td>\
             <td class=\"n\">{}{ratio}</td><td class=\"n\">{}</td><td>{}</td><td class=\"soft small\">{}</td></tr>{notes}",
            if campaign.is_reference(*index) { " class=\"reference\"" } else { "" },
            subject(campaign, *index),
            class(campaign, *index, group),
            row.median,
            row.interval,
            row.ratio,
            row.of_limit,
            verdict(group, &row.verdict),
            escape(&test)
        )
    };
    let body: String = rows.iter().zip(&groups).map(one).collect();
    format!("<tbody>{}{body}</tbody>", cell_head(section, cell, 9))
}

/// A row that names a cell, where there are several.
fn cell_head(section: &Section, cell: usize, columns: usize) -> String {
    let name = section.cell_name(cell);
    if name.is_empty() {
        return String::new();
    }
    format!(
        "<tr class=\"cell\"><th scope=\"rowgroup\" colspan=\"{columns}\"><span>{}</span></th></tr>",
        escape(&name)
    )
}

fn verdict(group: &Group, words: &str) -> String {
    let mark = match group.judgement.as_ref().map(judge::Judgement::finding) {
        Some(Finding::Higher(_)) => "▲ ",
        Some(Finding::Lower(_)) => "▼ ",
        Some(Finding::Same) => "= ",
        _ => "",
    };
    format!("<span class=\"verdict\">{mark}{}</span>", escape(words))
}

/// What it costs: medians of the other numbers.
pub fn costs(campaign: &Campaign, section: &Section) -> String {
    let all: BTreeSet<&String> = section
        .groups
        .values()
        .flat_map(|group| &group.runs)
        .flat_map(|run| run.values.keys())
        .collect();
    let first = COSTS.iter().filter_map(|name| all.iter().find(|known| known == &name).copied());
    let rest = all.iter().copied().filter(|name| !COSTS.contains(&name.as_str()));
    let names: Vec<&String> = first.chain(rest).collect();
    if names.is_empty() {
        return String::new();
    }
    let words: Vec<String> = names.iter().map(|name| heading(&section.about, name)).collect();
    let fixed = [("subject", false), ("its 250", false)];
    let head: Vec<(&str, bool)> =
        fixed.into_iter().chain(words.iter().map(|word| (word.as_str(), true))).collect();
    let row = |(index, group): (usize, &Group)| {
        let value =
            |name: &&String| judge::median(&group.others(name)).map_or_else(|| "–".into(), number);
        let cells: String =
            names.iter().map(|name| format!("<td class=\"n\">{}</td>", value(name))).collect();
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td>{cells}</tr>",
            subject(campaign, index),
            class(campaign, index, group)
        )
    };
    let of_cell = |cell: usize| {
        let rows: String =
            section.of_cell(cell).filter(|(_, group)| !group.runs.is_empty()).map(row).collect();
        format!("<tbody>{}{rows}</tbody>", cell_head(section, cell, names.len() + 2))
    };
    let body: String = (0..section.cells.len()).map(of_cell).collect();
    table("What it took: medians of all runs", &heads(&head), &body)
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
    let fixed = [("subject", false), ("its 250", false), ("messages", true)];
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
                .map(|delay| format!("<td class=\"n\">{}</td>", time_us(delay)))
                .collect();
            rows += &format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td>{cells}</tr>",
                subject(campaign, index),
                class(campaign, index, group),
                number(delays.count() as f64)
            );
        }
        body += &format!("<tbody>{}{rows}</tbody>", cell_head(section, cell, head.len()));
    }
    let caption = format!(
        "Delay “{kind}”, {}: no longer than this for so many of all messages",
        meaning(kind)
    );
    table(&caption, &heads(&head), &body) + &faults
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
            escape(&slope.series.replace('_', " ")),
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
    table("Trends: what each one more adds", &head, &format!("<tbody>{rows}</tbody>"))
}

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
