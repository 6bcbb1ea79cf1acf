//! Bars for system calls: which of them take the time of a message, and which are made most often.
//!
//! Must never show a time without saying that a tracer saw it.

use super::{Gallery, PANEL, Plot, cell_title, name};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{Anchor, Scale, Svg, number, text_width};
use std::collections::BTreeMap;

/// Calls in a picture, by time and by count.
const CALLS_MAX: usize = 8;
const ROW: f64 = 19.0;

/// One call, for each message.
#[derive(Clone, Debug, PartialEq)]
pub struct PerMessage {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: f64,
    /// All of them together, in microseconds.
    pub total_us: f64,
}

/// The calls of all runs of a group, for each message (for each run, where messages were not counted), and which of both.
pub fn per_message(group: &Group) -> (Vec<PerMessage>, bool) {
    let runs: Vec<_> = group.runs.iter().filter(|run| !run.calls.is_empty()).collect();
    let messages: Option<f64> = runs
        .iter()
        .map(|run| run.values.get("messages").copied().filter(|count| *count > 0.0))
        .sum();
    let by = messages.unwrap_or(runs.len() as f64).max(1.0);
    let mut sums = BTreeMap::<&str, (f64, f64)>::new();
    for call in runs.iter().flat_map(|run| &run.calls) {
        let sum = sums.entry(&call.name).or_default();
        *sum = (sum.0 + call.count as f64, sum.1 + call.total_us);
    }
    let all = sums.into_iter().map(|(name, (count, total_us))| PerMessage {
        name: name.into(),
        count: count / by,
        total_us: total_us / by,
    });
    let mut all: Vec<PerMessage> = all.collect();
    all.sort_by(|one, other| other.total_us.total_cmp(&one.total_us));
    (all, messages.is_some())
}

/// `None` where calls were not counted.
pub fn gallery(campaign: &Campaign, section: &Section) -> Option<Gallery> {
    let mut plots = Vec::new();
    let mut how = std::collections::BTreeSet::new();
    for cell in 0..section.cells.len() {
        for (subject, group) in section.of_cell(cell) {
            let (calls, per_message) = per_message(group);
            if calls.is_empty() {
                continue;
            }
            how.extend(group.runs.iter().filter_map(|run| run.how.get("calls").cloned()));
            let title = [name(campaign, section, subject, Some(cell)), section.cell_name(cell)];
            let title = title
                .iter()
                .filter(|part| !part.is_empty())
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            let each = if per_message { "a message" } else { "a run" };
            let wide = picture(campaign, section, (subject, cell), &calls, each);
            plots.push(Plot {
                slug: format!("calls-{}", plots.len() + 1),
                title,
                caption: String::new(),
                wide,
                narrow: None,
            });
        }
    }
    let how = how.into_iter().collect::<Vec<_>>().join("; ");
    let by = if how.is_empty() {
        String::new()
    } else {
        format!(", as {how} saw it, which makes each call slower")
    };
    let caption = format!(
        "The calls of all the subject's processes between the start and the end, the mean over all runs{by}. Waiting in a call counts as its time."
    );
    (!plots.is_empty()).then_some(Gallery {
        title: "System calls".into(),
        caption,
        plots,
        is_answer: false,
    })
}

fn picture(
    campaign: &Campaign,
    section: &Section,
    (subject, cell): (usize, usize),
    calls: &[PerMessage],
    each: &str,
) -> Svg {
    let title = format!(
        "{}: system calls of {}, {}",
        section.about.title,
        campaign.subjects[subject],
        cell_title(section, cell)
    );
    let mut svg = Svg::new(PANEL, 0.0, &title, &describe(calls, each));
    svg.open(&campaign.look(subject).class());
    let total: f64 = calls.iter().map(|call| call.total_us).sum();
    let heading = format!("by time, µs {each} (all: {})", number(total));
    let y = block(&mut svg, 0.0, &heading, calls, |call| call.total_us);
    let mut by_count = calls.to_vec();
    by_count.sort_by(|one, other| other.count.total_cmp(&one.count));
    let total: f64 = calls.iter().map(|call| call.count).sum();
    let y = block(
        &mut svg,
        y + 12.0,
        &format!("by count, calls {each} (all: {})", number(total)),
        &by_count,
        |call| call.count,
    );
    svg.close();
    svg.set_height(y + 4.0);
    svg
}

fn block(
    svg: &mut Svg,
    top: f64,
    heading: &str,
    calls: &[PerMessage],
    value: impl Fn(&PerMessage) -> f64,
) -> f64 {
    svg.text("name", Anchor::Start, (0.0, top + 14.0), heading);
    let shown = &calls[..calls.len().min(CALLS_MAX)];
    let left =
        shown.iter().map(|call| text_width(&call.name)).fold(60.0, f64::max).min(PANEL * 0.4) + 8.0;
    let values: Vec<f64> = shown.iter().map(&value).collect();
    let x = Scale::equal(&values, true).between(left, PANEL - 62.0);
    let mut y = top + 22.0;
    for call in shown {
        svg.text("label", Anchor::End, (left - 7.0, y + 13.0), &call.name);
        svg.rectangle("solid", (left, y + 3.0), ((x.at(value(call)) - left).max(0.8), ROW - 6.0));
        svg.text(
            "tick",
            Anchor::Start,
            (x.at(value(call)).max(left + 0.8) + 6.0, y + 13.0),
            &number(value(call)),
        );
        y += ROW;
    }
    y
}

fn describe(calls: &[PerMessage], each: &str) -> String {
    let one = |call: &PerMessage| {
        format!(
            "{} {} times, {} microseconds",
            call.name,
            number(call.count),
            number(call.total_us)
        )
    };
    let top: Vec<String> = calls.iter().take(CALLS_MAX).map(one).collect();
    format!("Bars: system calls {each}. {}.", top.join("; "))
}
