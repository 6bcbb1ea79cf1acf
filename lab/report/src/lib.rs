//! What a campaign of the laboratory leaves: its lines, and the page that is made of them.
//!
//! Must never know a mailer by name, or show a figure without what it was measured on.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod about;
pub mod budget;
mod campaign;
mod csv;
mod delay_table;
mod draw;
mod effect;
mod judge;
mod latency;
pub mod lines;
mod page;
mod plot;
pub mod record;
pub mod table;

pub use about::{About, Abouts};
pub use campaign::{Campaign, ReportError, Section};
pub use csv::csv;
pub use page::{html, html_of_budgets, html_with_budgets};

/// Every figure of a campaign as a file of its own: its name, and its text.
pub fn figures(campaign: &Campaign) -> Vec<(String, String)> {
    let mut figures = Vec::new();
    for section in &campaign.sections {
        for plot in plot::galleries(campaign, section).into_iter().flat_map(|gallery| gallery.plots)
        {
            figures.push((format!("{}-{}.svg", section.slug, plot.slug), plot.wide.standalone()));
        }
    }
    figures
}
