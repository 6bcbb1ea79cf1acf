//! The table that answers the question: median, interval, ratio, verdict, and what is odd about the runs.
//!
//! Must never tell a verdict by colour alone: a word and a mark stand there.

use super::tables::{cell_head, class, first_head, row_head};
use super::{heads, table};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::number;
use crate::judge::{Finding, Judgement};
use crate::table::Row;
use maud::{Markup, html};

/// The optional columns that have something to say.
struct Columns {
    compared: bool,
    limited: bool,
    tested: bool,
}

impl Columns {
    fn of(section: &Section) -> Columns {
        let any = |has: &dyn Fn(&Group) -> bool| section.groups.values().any(has);
        let is_tested = |judgement: &Judgement| judgement.at_95.is_some();
        Columns {
            compared: any(&|group| group.judgement.is_some()),
            limited: any(&|group| group.of_limit.is_some_and(|part| part != 1.0)),
            tested: any(&|group| group.judgement.as_ref().is_some_and(is_tested)),
        }
    }
}

/// Returns the table of all cells.
pub fn results(campaign: &Campaign, section: &Section) -> Markup {
    let columns = Columns::of(section);
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
    let body = html! {
        @for cell in 0..section.cells.len() { (of_cell(campaign, section, cell, (&columns, head.len()))) }
    };
    let caption = format!("{}, {}", section.figure_name(), section.better());
    table(&caption, &heads(&head), &body)
}

fn of_cell(
    campaign: &Campaign,
    section: &Section,
    cell: usize,
    (columns, count): (&Columns, usize),
) -> Markup {
    let rows = crate::table::rows(campaign, section, cell);
    html! {
        tbody {
            (cell_head(section, cell, count))
            @for (words, (index, group)) in rows.iter().zip(section.of_cell(cell)) {
                tr.reference[section.reference == Some(index)] {
                    th scope="row" { (row_head(campaign, section, index, cell)) }
                    td { (class(campaign, index, group)) }
                    (figures(words, group))
                    (comparison(words, group, columns))
                }
                @if !words.notes.is_empty() {
                    tr.notes { td colspan=(count) { p { (lines(&words.notes)) } } }
                }
            }
        }
    }
}

fn figures(words: &Row, group: &Group) -> Markup {
    let n = match (words.n, group.runs.len()) {
        (0, 0) => String::new(),
        (n, all) if n == all => n.to_string(),
        (n, all) => format!("{n} of {all}"),
    };
    html! { td.n.big { (words.median) } td.n.soft { (words.interval) } td.n { (n) } }
}

fn comparison(words: &Row, group: &Group, columns: &Columns) -> Markup {
    let judgement = group.judgement.as_ref();
    html! {
        @if columns.compared { td.n { (words.ratio) (judgement.map_or_else(|| html! {}, range)) } }
        @if columns.limited { td.n { (words.of_limit) } }
        @if columns.compared { td { (mark(judgement)) (words.verdict) } }
        @if columns.tested {
            td.soft.small { (judgement.map_or_else(String::new, Judgement::test)) }
        }
    }
}

/// Returns the interval of a ratio.
pub fn range(judgement: &Judgement) -> Markup {
    html! {
        @if let Some(range) = judgement.ratio_interval {
            " " span.soft { (number(range.low)) "–" (number(range.high)) }
        }
    }
}

/// Returns a mark for a finding, which stands beside its words.
pub fn mark(judgement: Option<&Judgement>) -> &'static str {
    match judgement.map(Judgement::finding) {
        Some(Finding::Higher(_)) => "▲ ",
        Some(Finding::Lower(_)) => "▼ ",
        Some(Finding::Same) => "= ",
        _ => "",
    }
}

fn lines(notes: &[String]) -> Markup {
    html! { @for (index, note) in notes.iter().enumerate() { @if index > 0 { br; } (note) } }
}
