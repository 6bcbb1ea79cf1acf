//! The table that answers the question: median, interval, ratio, verdict, and what is odd about the runs.
//!
//! Must never tell a verdict by colour alone: a word and a mark stand there.

use super::tables::{cell_head, class, first_head, row_head};
use super::{heads, table};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{escape, number};
use crate::judge::{Finding, Judgement};
use crate::table::Row;

/// Which columns there is something to say in.
struct Columns {
    compared: bool,
    limited: bool,
    tested: bool,
}

/// All cells.
pub fn results(campaign: &Campaign, section: &Section) -> String {
    let any = |has: &dyn Fn(&Group) -> bool| section.groups.values().any(has);
    let columns = Columns {
        compared: any(&|group| group.judgement.is_some()),
        limited: any(&|group| group.of_limit.is_some_and(|part| part != 1.0)),
        tested: any(&|group| {
            group.judgement.as_ref().is_some_and(|judgement| judgement.at_95.is_some())
        }),
    };
    let to = format!("to {}", campaign.reference_in(section).unwrap_or("nothing"));
    let head = [
        (first_head(section), false, true),
        ("its 250", false, true),
        ("median", true, true),
        ("95 % interval", true, true),
        ("n", true, true),
        (&to, true, columns.compared),
        ("of limit", true, columns.limited),
        ("verdict", false, columns.compared),
        ("difference of means, 95 %", false, columns.tested),
    ];
    let head: Vec<(&str, bool)> = head
        .into_iter()
        .filter(|(.., shown)| *shown)
        .map(|(word, is_number, _)| (word, is_number))
        .collect();
    let cells = (0..section.cells.len())
        .map(|cell| of_cell(campaign, section, cell, (&columns, head.len())));
    let caption = format!("{}, {}", section.figure_name(), section.better());
    table(&caption, &heads(&head), &cells.collect::<String>())
}

fn of_cell(
    campaign: &Campaign,
    section: &Section,
    cell: usize,
    (columns, count): (&Columns, usize),
) -> String {
    let rows = crate::table::rows(campaign, section, cell);
    let rows = rows.iter().zip(section.of_cell(cell)).map(|(words, (index, group))| {
        let first = row_head(campaign, section, index, cell);
        let kind = if section.reference == Some(index) { " class=\"reference\"" } else { "" };
        let class = class(campaign, index, group);
        format!(
            "<tr{kind}><th scope=\"row\">{first}</th><td>{class}</td>{}{}</tr>{}",
            figures(words, group),
            comparison(words, group, columns),
            notes(words, count)
        )
    });
    format!("<tbody>{}{}</tbody>", cell_head(section, cell, count), rows.collect::<String>())
}

fn figures(words: &Row, group: &Group) -> String {
    let n = match (words.n, group.runs.len()) {
        (0, 0) => String::new(),
        (n, all) if n == all => n.to_string(),
        (n, all) => format!("{n} of {all}"),
    };
    format!(
        "<td class=\"n big\">{}</td><td class=\"n soft\">{}</td><td class=\"n\">{n}</td>",
        words.median, words.interval
    )
}

fn comparison(words: &Row, group: &Group, columns: &Columns) -> String {
    let judgement = group.judgement.as_ref();
    let range = judgement.and_then(|judgement| judgement.ratio_interval);
    let range = range.map_or_else(String::new, |range| {
        format!(" <span class=\"soft\">{}–{}</span>", number(range.low), number(range.high))
    });
    let test = judgement.map_or_else(String::new, Judgement::test);
    let all = [
        (columns.compared, format!("<td class=\"n\">{}{range}</td>", words.ratio)),
        (columns.limited, format!("<td class=\"n\">{}</td>", words.of_limit)),
        (columns.compared, format!("<td>{}{}</td>", mark(judgement), escape(&words.verdict))),
        (columns.tested, format!("<td class=\"soft small\">{}</td>", escape(&test))),
    ];
    all.into_iter().filter(|(shown, _)| *shown).map(|(_, cell)| cell).collect()
}

/// A mark for a finding, beside its words.
pub fn mark(judgement: Option<&Judgement>) -> &'static str {
    match judgement.map(Judgement::finding) {
        Some(Finding::Higher(_)) => "▲ ",
        Some(Finding::Lower(_)) => "▼ ",
        Some(Finding::Same) => "= ",
        _ => "",
    }
}

fn notes(words: &Row, columns: usize) -> String {
    let notes: Vec<String> = words.notes.iter().map(|note| escape(note)).collect();
    if notes.is_empty() {
        return String::new();
    }
    format!("<tr class=\"notes\"><td colspan=\"{columns}\"><p>{}</p></td></tr>", notes.join("<br>"))
}
