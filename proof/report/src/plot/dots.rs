//! Ministat's dot plot: each run a dot, below it the mean, the median and one standard deviation to each side.
//!
//! Must never hide a run behind another: what falls together is stacked.

use super::lines::SPAN_MAX;
use super::{Gallery, PANEL, Plot, cell_title, measured, name};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{Anchor, Scale, Svg, number, text_width, tick};

/// Units of a dot, and rows of a stack before it grows no higher and its dots overlap.
const DOT: f64 = 6.0;
const STACK_MAX: usize = 12;

/// `None` if no subject was run twice.
pub fn gallery(campaign: &Campaign, section: &Section) -> Option<Gallery> {
    if !section.groups.values().any(|group| group.values().len() > 1) {
        return None;
    }
    let cells = (0..section.cells.len()).filter(|cell| !measured(section, *cell).is_empty());
    let plots: Vec<Plot> = cells
        .map(|cell| Plot {
            slug: format!("runs-{}", cell + 1),
            title: cell_title(section, cell),
            caption: String::new(),
            wide: picture(campaign, section, cell),
            narrow: None,
        })
        .collect();
    let caption = format!(
        "{}: each dot is a run. Below the dots, a bar of one standard deviation to each side of the mean (tall stroke); \
         the median is the subject's mark; a ring names an outlier. The axes do not begin at zero.",
        super::lines::capital(&section.figure_name())
    );
    Some(Gallery { title: "Every run".into(), caption, plots, is_answer: false })
}

fn picture(campaign: &Campaign, section: &Section, cell: usize) -> Svg {
    let subjects = measured(section, cell);
    let groups: Vec<(usize, &Group)> =
        section.of_cell(cell).filter(|(subject, _)| subjects.contains(subject)).collect();
    let values: Vec<f64> = groups.iter().flat_map(|(_, group)| group.values()).collect();
    let title = format!("{}: every run, {}", section.about.title, cell_title(section, cell));
    let mut svg = Svg::new(PANEL, 0.0, &title, &describe(campaign, section, &groups, cell));
    let x = scale(&values).between(10.0, PANEL - 12.0);
    let mut y = 4.0;
    let mut rows = Vec::new();
    for (subject, group) in &groups {
        let stacks = stacks(&group.values(), &x);
        let height = 18.0
            + stacks.iter().map(|(_, _, level)| level + 1).max().unwrap_or(1) as f64 * DOT
            + 18.0;
        rows.push((*subject, *group, stacks, y, height));
        y += height;
    }
    ticks(&mut svg, &x, y);
    svg.text("name", Anchor::End, (PANEL - 12.0, y + 36.0), &section.figure_name());
    for (subject, group, stacks, top, height) in rows {
        svg.open(&campaign.look(subject).class());
        svg.mark(campaign.look(subject), (6.0, top + 9.0), 4.0, "");
        svg.text(
            "label",
            Anchor::Start,
            (16.0, top + 13.0),
            &name(campaign, section, subject, Some(cell)),
        );
        draw_row(&mut svg, campaign, subject, group, &stacks, (&x, top + height));
        svg.close();
        svg.line("rule", (0.0, top + height), (PANEL, top + height));
    }
    svg.set_height(y + 42.0);
    svg
}

fn scale(values: &[f64]) -> Scale {
    let positive = values.iter().all(|value| *value > 0.0);
    let (low, high) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    if positive && high / low > SPAN_MAX {
        Scale::ratio(values)
    } else {
        Scale::equal(values, false)
    }
}

fn ticks(svg: &mut Svg, x: &Scale, bottom: f64) {
    let mut free = f64::NEG_INFINITY;
    for value in x.ticks(64.0) {
        let (at, word) = (x.at(value), tick(value));
        svg.line("grid", (at, 0.0), (at, bottom));
        let half = text_width(&word) / 2.0;
        let centre = at.clamp(half, svg.width() - half);
        if centre - half > free {
            svg.text("tick", Anchor::Middle, (centre, bottom + 17.0), &word);
            free = centre + half + 8.0;
        }
    }
}

/// Each value with its place and its level above the row's floor.
fn stacks(values: &[f64], x: &Scale) -> Vec<(f64, f64, usize)> {
    let mut levels = std::collections::BTreeMap::<i64, usize>::new();
    let place = |value: &f64| {
        let column = (x.at(*value) / DOT).round() as i64;
        let level = levels.entry(column).or_default();
        *level += 1;
        (*value, x.at(*value), (*level - 1).min(STACK_MAX))
    };
    values.iter().map(place).collect()
}

fn draw_row(
    svg: &mut Svg,
    campaign: &Campaign,
    subject: usize,
    group: &Group,
    stacks: &[(f64, f64, usize)],
    (x, bottom): (&Scale, f64),
) {
    let Some(standing) = &group.standing else { return };
    let (floor, bar) = (bottom - 21.0, bottom - 9.0);
    let runs = group.runs.iter().filter(|run| run.value.is_some());
    for (index, ((value, at, level), run)) in stacks.iter().zip(runs).enumerate() {
        let y = floor - *level as f64 * DOT;
        let outlier = standing.outliers.iter().any(|outlier| outlier.index == index);
        let word = format!(
            "run {}: {}{}",
            run.ordinal,
            number(*value),
            if outlier { ", an outlier" } else { "" }
        );
        svg.circle("run", (*at, y), DOT / 2.0 - 0.3, &word);
        if outlier {
            svg.circle("ring", (*at, y), DOT / 2.0 + 2.0, &word);
        }
    }
    if let Some(stddev) = standing.stddev {
        let (left, right) = x.places();
        let end = |value: f64| {
            if x.is_ratio() && value <= 0.0 { left } else { x.at(value).clamp(left, right) }
        };
        let (from, to) = (end(standing.mean - stddev), end(standing.mean + stddev));
        svg.line("whisker", (from, bar), (to, bar));
        for at in [from, to] {
            svg.line("whisker", (at, bar - 3.0), (at, bar + 3.0));
        }
    }
    svg.line("mean", (x.at(standing.mean), bar - 6.0), (x.at(standing.mean), bar + 6.0));
    svg.mark(
        campaign.look(subject),
        (x.at(standing.median), bar),
        3.8,
        &format!("median {}", number(standing.median)),
    );
}

fn describe(
    campaign: &Campaign,
    section: &Section,
    groups: &[(usize, &Group)],
    cell: usize,
) -> String {
    let one = |(subject, group): &(usize, &Group)| {
        let standing = group.standing.as_ref()?;
        let spread = standing
            .stddev
            .map_or_else(String::new, |stddev| format!(", standard deviation {}", number(stddev)));
        Some(format!(
            "{}: {} runs from {} to {}, mean {}, median {}{spread}.",
            name(campaign, section, *subject, Some(cell)),
            standing.n,
            number(standing.min),
            number(standing.max),
            number(standing.mean),
            number(standing.median)
        ))
    };
    let all: Vec<String> = groups.iter().filter_map(one).collect();
    format!("Dot plot of {}. {}", section.figure_name(), all.join(" "))
}
