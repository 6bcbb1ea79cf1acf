//! The table of budgets on the page.
//!
//! Must never tell a verdict by a mark alone: the words stand beside it.

use super::judge::{Found, Judged, Verdict};
use super::words::{of_row, or_dash};
use crate::page::{group_head, heads, table};
use maud::{Markup, html};

/// Returns the table with a heading and how to read it.
pub fn section(judged: &Judged) -> Markup {
    let head = [
        ("where", false),
        ("wanted", false),
        ("reached", true),
        ("95 % interval", true),
        (judged.subject.as_str(), true),
        (judged.beside.as_str(), true),
        ("ceiling", true),
        ("verdict", false),
    ];
    let body = html! {
        @for (row, found) in &judged.rows {
            tbody {
                (group_head(&html! { (row.work) ": " (row.wanted) br; span.soft { (of_row(found)) } }, head.len()))
                @for found in found { (line(found)) }
            }
        }
    };
    html! {
        section #budgets {
            h2 { "The budgets" }
            p {
                "What is wanted, and what the runs show. Ratios are taken round by round, as the runs of a round stand \
                 side by side; the figure is the median of the rounds, and the interval holds the true median with 95 % \
                 confidence. A budget is " em { "met at 99.5 %" } " if Student’s test of the rounds’ logarithms says so \
                 (the sign test if there is no spread), and never by fewer than ten rounds. The columns of subjects are \
                 medians of the value itself."
                @if let Some(other) = &judged.other_ceiling {
                    " The ceiling is source to sink with no mailer between; in brackets by " (other) "."
                }
            }
            (table("Budgets: wanted and reached", &heads(&head), &body))
        }
    }
}

fn line(found: &Found) -> Markup {
    let mark = match found.verdict {
        Verdict::Met => "● ",
        Verdict::MetInMedian => "◐ ",
        Verdict::NotMeasured => "",
        Verdict::Missed | Verdict::MissedProven => "○ ",
    };
    let same = found.sameness();
    html! {
        tr {
            th scope="row" { (found.place) }
            td { (found.wanted) }
            td.n.big { (found.reached()) }
            td.n.soft { (found.interval()) }
            td.n { (or_dash(found.own)) }
            td.n { (or_dash(found.beside)) }
            td.n { (found.ceilings()) }
            td {
                (mark) (found.verdict.words())
                @if !same.is_empty() { br; span.soft { (same) } }
            }
        }
    }
}
