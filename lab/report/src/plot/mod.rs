//! The figures of a scenario, each with a title, and a caption that says what is drawn.
//!
//! Must never draw a mean without its runs, or leave a run out without saying so.

mod bars;
pub mod calls;
mod dots;
pub mod glance;
pub mod latency;
mod lines;
pub mod over;
mod scatter;
mod time;

use crate::campaign::{Campaign, Section, class_of, class_word};
use crate::draw::{Look, Svg};

pub use scatter::{Slope, slopes, spoken_series};

/// Wide figures, narrow ones, and one of several beside each other.
const WIDE: f64 = 960.0;
/// Fits a telephone.
const NARROW: f64 = 346.0;
/// One of several.
const PANEL: f64 = 420.0;

/// A figure.
pub struct Plot {
    /// Unlike all others of its scenario.
    pub slug: String,
    /// What it is.
    pub title: String,
    /// What is drawn.
    pub caption: String,
    /// For wide pages.
    pub wide: Svg,
    /// For narrow ones, where the wide one cannot be read there.
    pub narrow: Option<Svg>,
}

/// Figures that belong together.
pub struct Gallery {
    /// A heading.
    pub title: String,
    /// What all of them show.
    pub caption: String,
    /// At least one.
    pub plots: Vec<Plot>,
    /// Answers the scenario's question.
    pub is_answer: bool,
}

/// All figures of a scenario; those that answer its question first.
pub fn galleries(campaign: &Campaign, section: &Section) -> Vec<Gallery> {
    let answer = lines::gallery(campaign, section).or_else(|| bars::gallery(campaign, section));
    let rest = [
        over::galleries(campaign, section),
        scatter::galleries(campaign, section),
        time::galleries(campaign, section),
        calls::gallery(campaign, section).into_iter().collect(),
        latency::galleries(campaign, section),
        dots::gallery(campaign, section).into_iter().collect(),
    ];
    answer.into_iter().chain(rest.into_iter().flatten()).collect()
}

/// `postfix, synced`: no figure without the durability class.
fn name(campaign: &Campaign, section: &Section, subject: usize, cell: Option<usize>) -> String {
    let group = match cell {
        Some(cell) => section.groups.get(&(subject, cell)),
        None => section
            .groups
            .iter()
            .find(|((one, _), group)| *one == subject && group.absent.is_none())
            .map(|(_, group)| group),
    };
    let class = group.and_then(|group| class_of(campaign, subject, group));
    let name = &campaign.subjects[subject];
    class.map_or_else(|| name.clone(), |class| format!("{name} ({})", class_word(class)))
}

/// Looks and names of these subjects.
fn entries(
    campaign: &Campaign,
    section: &Section,
    subjects: &[usize],
    cell: Option<usize>,
) -> Vec<(Look, String)> {
    subjects
        .iter()
        .map(|subject| (campaign.look(*subject), name(campaign, section, *subject, cell)))
        .collect()
}

/// A title for one cell; the scenario's where there is only one cell.
fn cell_title(section: &Section, cell: usize) -> String {
    match section.cell_name(cell) {
        name if name.is_empty() => section.about.title.clone(),
        name => name,
    }
}

/// All names of histograms or series in a section, in order.
fn names<'a>(
    section: &'a Section,
    of: impl Fn(&'a crate::record::Run) -> Vec<&'a String>,
) -> Vec<&'a String> {
    let all: std::collections::BTreeSet<&String> =
        section.groups.values().flat_map(|group| &group.runs).flat_map(of).collect();
    all.into_iter().collect()
}
