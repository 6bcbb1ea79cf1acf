//! Ministat's dot plot: each run a dot, below it the mean, the median and one standard deviation to each side.
//!
//! Must never hide a run behind another: what falls together is stacked.

use super::{Gallery, PANEL, Plot, cell_title, name};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{Anchor, Look, Scale, Svg, number, text_width, tick};
use crate::judge::Standing;

/// Units of a dot, and rows of a stack before it grows no higher and its dots overlap.
const DOT: f64 = 6.0;
const STACK_MAX: usize = 12;
/// Where medians are further apart than this, each row is drawn in percent of its own.
const SPAN_MAX: f64 = 3.0;
/// Units above the dots for the name, and below them for the bar.
const HEAD: f64 = 23.0;
const FOOT: f64 = 18.0;

/// One set of runs.
struct Row<'a> {
    look: Look,
    name: String,
    group: &'a Group,
    standing: &'a Standing,
    /// What all its values are divided by.
    by: f64,
}

/// `None` if no subject was run twice.
pub fn gallery(campaign: &Campaign, section: &Section) -> Option<Gallery> {
    if !section.groups.values().any(|group| group.values().len() > 1) {
        return None;
    }
    let panels: Vec<(String, Vec<Row>)> = if section.is_of_one() {
        vec![(
            section.about.title.clone(),
            (0..section.cells.len()).flat_map(|cell| rows(campaign, section, cell)).collect(),
        )]
    } else {
        (0..section.cells.len())
            .map(|cell| (cell_title(section, cell), rows(campaign, section, cell)))
            .collect()
    };
    let panels = panels.into_iter().filter(|(_, rows)| !rows.is_empty());
    let plots: Vec<Plot> = panels
        .enumerate()
        .map(|(index, (title, rows))| Plot {
            slug: format!("runs-{}", index + 1),
            wide: picture(section, &title, rows),
            title,
            caption: String::new(),
            narrow: None,
        })
        .collect();
    let caption = format!(
        "{}: each dot is a run. Below the dots, a bar of one standard deviation to each side of the mean (tall stroke); \
         the median is the mark; a ring names an outlier. Where medians lie far apart, each row is in percent of its own. \
         The axes do not begin at zero.",
        super::lines::capital(&section.figure_name())
    );
    Some(Gallery { title: "Every run".into(), caption, plots, is_answer: false })
}

fn rows<'a>(campaign: &Campaign, section: &'a Section, cell: usize) -> Vec<Row<'a>> {
    let row = |(subject, group): (usize, &'a Group)| {
        let name = if section.is_of_one() {
            section.cell_name(cell)
        } else {
            name(campaign, section, subject, Some(cell))
        };
        Some(Row {
            look: campaign.look(subject),
            name,
            group,
            standing: group.standing.as_ref()?,
            by: 1.0,
        })
    };
    section.of_cell(cell).filter_map(row).collect()
}

fn picture(section: &Section, title: &str, mut rows: Vec<Row>) -> Svg {
    let title = format!("{}: every run, {title}", section.about.title);
    let mut svg = Svg::new(PANEL, 0.0, &title, &describe(section, &rows));
    let is_share = to_shares(&mut rows);
    let values: Vec<f64> = rows.iter().flat_map(places).collect();
    let x = Scale::equal(&values, false).between(12.0, PANEL - 14.0);
    let heights: Vec<f64> = rows.iter().map(|row| HEAD + stack_height(row, &x) + FOOT).collect();
    let bottom: f64 = heights.iter().sum();
    ticks(&mut svg, &x, bottom);
    let unit = if is_share {
        format!("{}, in percent of the median", section.figure.name)
    } else {
        section.figure_name()
    };
    svg.text("name", Anchor::End, (PANEL - 14.0, bottom + 36.0), &unit);
    let mut top = 0.0;
    for (row, height) in rows.iter().zip(heights) {
        draw_row(&mut svg, row, &x, (top, top + height));
        top += height;
    }
    svg.set_height(bottom + 42.0);
    svg
}

/// In percent of their medians, if these are far apart.
fn to_shares(rows: &mut [Row]) -> bool {
    let medians = || rows.iter().map(|row| row.standing.median);
    let (low, high) = (medians().fold(f64::MAX, f64::min), medians().fold(f64::MIN, f64::max));
    let far = low > 0.0 && high / low > SPAN_MAX;
    if far {
        rows.iter_mut().for_each(|row| row.by = row.standing.median / 100.0);
    }
    far
}

/// The values of its runs, as they are drawn.
fn places(row: &Row) -> Vec<f64> {
    row.group.values().iter().map(|value| value / row.by).collect()
}

/// Each run's place, and its level above the row's floor.
fn stacks(row: &Row, x: &Scale) -> Vec<(f64, usize)> {
    let mut levels = std::collections::BTreeMap::<i64, usize>::new();
    let place = |value: f64| {
        let at = x.at(value);
        let level = levels.entry((at / DOT).round() as i64).or_default();
        *level += 1;
        (at, (*level - 1).min(STACK_MAX))
    };
    places(row).into_iter().map(place).collect()
}

fn stack_height(row: &Row, x: &Scale) -> f64 {
    let highest = stacks(row, x).into_iter().map(|(_, level)| level + 1).max();
    highest.unwrap_or(1) as f64 * DOT
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

fn draw_row(svg: &mut Svg, row: &Row, x: &Scale, (top, bottom): (f64, f64)) {
    svg.open(&row.look.class());
    svg.mark(row.look, (6.0, top + 10.0), 4.0, "");
    svg.text("label", Anchor::Start, (16.0, top + 14.0), &row.name);
    let median = format!("median {}", number(row.standing.median));
    if text_width(&row.name) + text_width(&median) + 30.0 < PANEL {
        svg.text("quiet", Anchor::End, (PANEL, top + 14.0), &median);
    }
    let runs = row.group.runs.iter().filter(|run| run.value.is_some());
    for (index, ((at, level), run)) in stacks(row, x).into_iter().zip(runs).enumerate() {
        let y = bottom - FOOT - 3.0 - level as f64 * DOT;
        let outlier = row.standing.outliers.iter().any(|outlier| outlier.index == index);
        let value = number(run.value.unwrap_or_default());
        let word =
            format!("run {}: {value}{}", run.ordinal, if outlier { ", an outlier" } else { "" });
        svg.circle("run", (at, y), DOT / 2.0 - 0.3, &word);
        if outlier {
            svg.circle("ring", (at, y), DOT / 2.0 + 1.6, &word);
        }
    }
    draw_bar(svg, row, x, bottom - 9.0);
    svg.close();
    svg.line("rule", (0.0, bottom), (PANEL, bottom));
}

fn draw_bar(svg: &mut Svg, row: &Row, x: &Scale, y: f64) {
    let (left, right) = x.places();
    let place = |value: f64| x.at(value / row.by).clamp(left, right);
    let standing = row.standing;
    if let Some(stddev) = standing.stddev {
        let (from, to) = (place(standing.mean - stddev), place(standing.mean + stddev));
        svg.line("whisker", (from, y), (to, y));
        for at in [from, to] {
            svg.line("whisker", (at, y - 3.0), (at, y + 3.0));
        }
    }
    svg.line("mean", (place(standing.mean), y - 6.0), (place(standing.mean), y + 6.0));
    svg.mark(
        row.look,
        (place(standing.median), y),
        3.4,
        &format!("median {}", number(standing.median)),
    );
}

fn describe(section: &Section, rows: &[Row]) -> String {
    let one = |row: &Row| {
        let standing = row.standing;
        let spread = standing
            .stddev
            .map_or_else(String::new, |stddev| format!(", standard deviation {}", number(stddev)));
        format!(
            "{}: {} runs from {} to {}, mean {}, median {}{spread}.",
            row.name,
            standing.n,
            number(standing.min),
            number(standing.max),
            number(standing.mean),
            number(standing.median)
        )
    };
    let all: Vec<String> = rows.iter().map(one).collect();
    format!("Dot plot of {}. {}", section.figure_name(), all.join(" "))
}
