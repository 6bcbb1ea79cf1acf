//! The table that answers the question: median, interval, ratio, verdict, and what is odd about the runs.
//!
//! Must never tell a verdict by colour alone: a word and a mark stand there.

use super::tables::{cell_head, class, first_head, row_head};
use super::{heads, table};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{escape, number};
use crate::judge::{Finding, Judgement};
use crate::table::Row;

/// All cells.
pub fn results(campaign: &Campaign, section: &Section) -> String {
    let to = format!("to {}", campaign.reference);
    let head = heads(&[
        (first_head(section), false),
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
        (0..section.cells.len()).map(|cell| of_cell(campaign, section, cell)).collect();
    table(&format!("{}, {}", section.figure_name(), section.better()), &head, &body)
}

fn of_cell(campaign: &Campaign, section: &Section, cell: usize) -> String {
    let rows = crate::table::rows(campaign, section, cell);
    let groups = section.of_cell(cell);
    let rows = rows.iter().zip(groups).map(|(words, (index, group))| {
        let first = row_head(campaign, section, index, cell);
        let kind = if campaign.is_reference(index) { " class=\"reference\"" } else { "" };
        let class = class(campaign, index, group);
        format!(
            "<tr{kind}><th scope=\"row\">{first}</th><td>{class}</td>{}</tr>{}",
            figures(words, group),
            notes(words)
        )
    });
    format!("<tbody>{}{}</tbody>", cell_head(section, cell, 9), rows.collect::<String>())
}

fn figures(words: &Row, group: &Group) -> String {
    let n = if words.n == group.runs.len() {
        words.n.to_string()
    } else {
        format!("{} of {}", words.n, group.runs.len())
    };
    let judgement = group.judgement.as_ref();
    let range = judgement.and_then(|judgement| judgement.ratio_interval).map_or_else(
        String::new,
        |range| {
            format!(" <span class=\"soft\">{}–{}</span>", number(range.low), number(range.high))
        },
    );
    let test = judgement.map_or_else(String::new, Judgement::test);
    format!(
        "<td class=\"n big\">{}</td><td class=\"n soft\">{}</td><td class=\"n\">{n}</td><td class=\"n\">{}{range}</td>\
         <td class=\"n\">{}</td><td>{}{}</td><td class=\"soft small\">{}</td>",
        words.median,
        words.interval,
        words.ratio,
        words.of_limit,
        mark(judgement),
        escape(&words.verdict),
        escape(&test)
    )
}

fn mark(judgement: Option<&Judgement>) -> &'static str {
    match judgement.map(Judgement::finding) {
        Some(Finding::Higher(_)) => "▲ ",
        Some(Finding::Lower(_)) => "▼ ",
        Some(Finding::Same) => "= ",
        _ => "",
    }
}

fn notes(words: &Row) -> String {
    let notes: Vec<String> = words.notes.iter().map(|note| escape(note)).collect();
    if notes.is_empty() {
        return String::new();
    }
    format!(
        "<tr class=\"notes\"><td></td><td colspan=\"8\"><p>{}</p></td></tr>",
        notes.join("<br>")
    )
}
