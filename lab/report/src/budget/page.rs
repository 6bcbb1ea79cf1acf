//! The table of budgets on the page.
//!
//! Must never tell a verdict by a mark alone: the words stand beside it.

use super::judge::{Found, Judged, Verdict};
use super::words::{of_row, or_dash};
use crate::draw::escape;
use crate::page::{heads, table};

/// With a heading and how to read it.
pub fn section(judged: &Judged) -> String {
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
    let rows: String = judged.rows.iter().map(|(row, found)| {
        let title = format!("{}: {}", row.work, row.wanted);
        let lines: String = found.iter().map(line).collect();
        format!(
            "<tbody><tr class=\"cell\"><th scope=\"rowgroup\" colspan=\"{}\"><span>{}<br><span class=\"soft\">{}</span></span></th></tr>{lines}</tbody>",
            head.len(),
            escape(&title),
            escape(&of_row(found)),
        )
    }).collect();
    format!(
        "<section id=\"budgets\">\n<h2>The budgets</h2>\n\
         <p>What is wanted, and what the runs show. Ratios are taken round by round, as the runs of a round stand side by side; the figure is \
         the median of the rounds, the interval is where the true median lies with 95 % confidence. A budget is <em>met at 99.5 %</em> where \
         Student’s test of the rounds’ logarithms says so (where there is no spread, the sign test), and never by fewer than ten rounds. The \
         columns of subjects are medians of the value itself.{other}</p>\n{table}</section>\n",
        other = other(judged),
        table = table("Budgets: wanted and reached", &heads(&head), &rows),
    )
}

fn other(judged: &Judged) -> String {
    let Some(other) = &judged.other_ceiling else { return String::new() };
    format!(
        " The ceiling is source to sink with no mailer between; in brackets by {}.",
        escape(other)
    )
}

fn line(found: &Found) -> String {
    let mark = match found.verdict {
        Verdict::Met => "● ",
        Verdict::MetInMedian => "◐ ",
        Verdict::NotMeasured => "",
        Verdict::Missed | Verdict::MissedProven => "○ ",
    };
    let same = match found.sameness() {
        same if same.is_empty() => same,
        same => format!("<br><span class=\"soft\">{}</span>", escape(&same)),
    };
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n big\">{}</td><td class=\"n soft\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{mark}{}{same}</td></tr>",
        escape(&found.place),
        escape(&found.wanted),
        found.reached(),
        found.interval(),
        or_dash(found.own),
        or_dash(found.beside),
        found.ceilings(),
        found.verdict.words(),
    )
}
