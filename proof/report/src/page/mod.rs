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
    let sections: String =
        campaign.sections.iter().map(|one| section::section(campaign, one)).collect();
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{FIGURES}</style>\n</head>\n<body>\n{marks}<main>\n\
         {opening}{sections}{settings}</main>\n</body>\n</html>\n",
        marks = tables::marks(),
        opening = opening::opening(campaign, &title, source),
        settings = settings::settings(campaign, source),
    )
}

/// A table in a box of its own, in which it scrolls where it is wider than the page.
fn table(caption: &str, head: &str, body: &str) -> String {
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
fn heads(words: &[(&str, bool)]) -> String {
    let one = |(word, is_number): &(&str, bool)| {
        format!(
            "<th scope=\"col\"{}>{}</th>",
            if *is_number { " class=\"n\"" } else { "" },
            escape(word)
        )
    };
    words.iter().map(one).collect()
}
