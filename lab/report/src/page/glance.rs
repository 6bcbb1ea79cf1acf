//! The first picture: who is fastest, and whose `250` is safe.
//!
//! Must never rank a mailer whose `250` is unsynced without saying so beside it.

use super::section::picture;
use crate::campaign::Campaign;
use crate::plot::glance::{Panel, panels};
use maud::{Markup, html};

/// Returns the section; nothing if no two mailers were measured side by side.
pub fn glance(campaign: &Campaign) -> Markup {
    let panels = panels(campaign);
    html! {
        @if !panels.is_empty() {
            section #glance {
                h2 { "Who is fastest, and is it safe?" }
                (answer(&panels))
                div.pairs {
                    @for panel in &panels {
                        figure {
                            figcaption { (panel.plot.title) }
                            (picture(&panel.plot, &panel.plot.slug))
                        }
                    }
                }
                p.caption {
                    "Bars are medians, thin lines their 95 % intervals. A full bar is " b { "synced" }
                    ": the disk had confirmed each message before its 250. A light bar is " b { "sometimes" }
                    ": some of them. An empty bar is " b { "unsynced" } " or " b { "unknown" }
                    ": a power cut may lose mail that was promised. "
                    "Each panel shows one cell, in which most mailers were measured; all of them follow below."
                }
            }
        }
    }
}

/// Names the fastest of the mailers that sync, and in which panels.
fn answer(panels: &[Panel]) -> Markup {
    let mut fastest: Vec<(&str, Vec<&str>)> = Vec::new();
    for panel in panels {
        let name = panel.fastest_synced.as_deref().unwrap_or("none");
        match fastest.iter_mut().find(|(known, _)| *known == name) {
            Some((_, titles)) => titles.push(&panel.plot.title),
            None => fastest.push((name, vec![&panel.plot.title])),
        }
    }
    html! {
        p {
            "The highest median of the mailers that sync each message before its " code { "250" } ": "
            @for (index, (name, titles)) in fastest.iter().enumerate() {
                @if index > 0 { "; " }
                b { (name) }
                @if fastest.len() > 1 { " in “" (titles.join("”, “")) "”" } @else { ", in each of these panels" }
            }
            ". "
            @for panel in panels.iter().filter(|panel| !panel.faster.is_empty()) {
                "Faster in “" (panel.plot.title) "”, but not synced: " b { (panel.faster.join(", ")) } ". "
            }
        }
    }
}
