//! The page: one HTML file with all figures in it. It needs no network and no script.
//!
//! Must never put a record's text into the page unescaped; `PreEscaped` is for our own SVG and style sheets only.

mod counts;
mod effects;
mod glance;
mod measures;
mod opening;
mod results;
mod section;
mod settings;
mod tables;

use crate::budget::{self, Judged};
use crate::campaign::Campaign;
pub use tables::group_head;

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The page's style sheet.
const STYLE: &str = include_str!("style.css");
/// The style sheet of the figures, which SVG files of their own have as well.
const FIGURES: &str = include_str!("../draw/figure.css");
/// What a browser may load: nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Rows above which a table is folded away, unless it answers the scenario's question.
const OPEN_ROWS_MAX: usize = 30;

/// Returns the page. `source` says where the raw data lies.
pub fn html(campaign: &Campaign, title: &str, source: &str) -> String {
    html_with_budgets(campaign, None, title, source)
}

/// Returns the page with the table of budgets below the first picture.
pub fn html_with_budgets(
    campaign: &Campaign,
    budgets: Option<&Judged>,
    title: &str,
    source: &str,
) -> String {
    let content = html! {
        (opening::header(campaign, title, source))
        (glance::glance(campaign))
        @if let Some(judged) = budgets { (budget::section(judged)) }
        (opening::opening(campaign))
        @for one in &campaign.sections { (section::section(campaign, one)) }
        (settings::settings(campaign, source))
    };
    whole(title, &content)
}

/// Returns a page that has only the table of budgets.
pub fn html_of_budgets(budgets: &Judged, title: &str, source: &str) -> String {
    let content = html! {
        header { h1 { (title) } p.lead { "Raw data: " (source) "." } }
        (budget::section(budgets))
    };
    whole(title, &content)
}

fn whole(title: &str, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(FIGURES)) }
            }
            body { (tables::marks()) main { (content) } }
        }
    };
    page.into_string() + "\n"
}

/// Returns a table in a box that scrolls if the table is wider than the page.
pub fn table(caption: &str, head: &Markup, body: &Markup) -> Markup {
    html! {
        div.box tabindex="0" role="region" aria-label=(caption) {
            table { caption { (caption) } thead { tr { (head) } } (body) }
        }
    }
}

/// Returns the same table, folded away below its caption if it is long.
fn folding_table(caption: &str, head: &Markup, body: &Markup) -> Markup {
    let table = table(caption, head, body);
    if body.0.matches("<tr").count() <= OPEN_ROWS_MAX {
        return table;
    }
    html! { details { summary { (caption) } (table) } }
}

/// Returns the heads of columns; the flag marks columns of numbers, which are aligned right.
pub fn heads(words: &[(&str, bool)]) -> Markup {
    html! {
        @for (word, is_number) in words { th scope="col" class=[is_number.then_some("n")] { (word) } }
    }
}
