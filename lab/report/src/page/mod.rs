//! The page: one file of HTML with all figures in it, that asks no network for anything and needs no script.
//!
//! Must never let a word of the records reach the page but through `escape`.

mod counts;
mod effects;
mod measures;
mod opening;
mod results;
mod section;
mod settings;
mod tables;

use crate::budget::{self, Judged};
use crate::campaign::Campaign;
use crate::draw::escape;

/// The rules for the page's looks.
const STYLE: &str = include_str!("style.css");
/// Those of the figures, inside the page and in files of their own.
const FIGURES: &str = include_str!("../draw/figure.css");

/// Longer tables, but for the one that answers the question, are folded away.
const OPEN_ROWS_MAX: usize = 30;

/// The page. `source`: where the raw data lies, as the page shall say it.
pub fn html(campaign: &Campaign, title: &str, source: &str) -> String {
    html_with_budgets(campaign, None, title, source)
}

/// The page, with the table of budgets at its head.
pub fn html_with_budgets(
    campaign: &Campaign,
    budgets: Option<&Judged>,
    title: &str,
    source: &str,
) -> String {
    let sections: String =
        campaign.sections.iter().map(|one| section::section(campaign, one)).collect();
    let opening = opening::opening(campaign, &escape(title), source);
    let (header, rest) = opening.split_once("</header>\n").unwrap_or(("", &opening));
    let budgets = budgets.map(budget::section).unwrap_or_default();
    let settings = settings::settings(campaign, source);
    whole(title, &format!("{header}</header>\n{budgets}{rest}{sections}{settings}"))
}

/// A page of the table of budgets alone.
pub fn html_of_budgets(budgets: &Judged, title: &str, source: &str) -> String {
    let head = format!(
        "<header>\n<h1>{}</h1>\n<p class=\"lead\">Raw data: {}.</p>\n</header>\n",
        escape(title),
        escape(source)
    );
    whole(title, &(head + &budget::section(budgets)))
}

/// A page with this in it.
fn whole(title: &str, main: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{FIGURES}</style>\n</head>\n<body>\n{marks}<main>\n\
         {main}</main>\n</body>\n</html>\n",
        marks = tables::marks(),
    )
}

/// A table in a box of its own, in which it scrolls where it is wider than the page.
pub fn table(caption: &str, head: &str, body: &str) -> String {
    format!(
        "<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table><caption>{caption}</caption>\
         <thead><tr>{head}</tr></thead>{body}</table></div>\n",
        caption = escape(caption)
    )
}

/// The same, folded away where it is long: its caption says what is in it.
fn folding_table(caption: &str, head: &str, body: &str) -> String {
    let table = table(caption, head, body);
    if body.matches("<tr").count() <= OPEN_ROWS_MAX {
        return table;
    }
    format!("<details><summary>{}</summary>{table}</details>\n", escape(caption))
}

/// Heads of columns; those of numbers stand right.
pub fn heads(words: &[(&str, bool)]) -> String {
    let one = |(word, is_number): &(&str, bool)| {
        format!(
            "<th scope=\"col\"{}>{}</th>",
            if *is_number { " class=\"n\"" } else { "" },
            escape(word)
        )
    };
    words.iter().map(one).collect()
}
