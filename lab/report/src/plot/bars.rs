//! Bars where what varies is a word: the median's length, each run a dot on it.
//!
//! Must never draw a bar that does not begin at zero: where the values span too much, marks take the place of bars.

use super::lines::{SPAN_MAX, capital};
use super::{Gallery, NARROW, Plot, WIDE, cell_title, name};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{Anchor, Look, Scale, Svg, number, text_width, tick};

/// Units of a row, of a heading, and between cells.
const ROW: f64 = 22.0;
const HEADING: f64 = 24.0;
const GAP: f64 = 8.0;

struct Row<'a> {
    look: Look,
    name: String,
    group: &'a Group,
}

/// `None` without values.
pub fn gallery(campaign: &Campaign, section: &Section) -> Option<Gallery> {
    let values: Vec<f64> = section.groups.values().flat_map(|group| group.values()).collect();
    if values.is_empty() {
        return None;
    }
    let draw = |width| picture(campaign, section, &values, width);
    let plot = Plot {
        slug: "answer".into(),
        title: section.about.title.clone(),
        caption: String::new(),
        wide: draw(WIDE),
        narrow: Some(draw(NARROW)),
    };
    let shape = if scale(&values).is_ratio() {
        "The marks are medians, on an axis of equal ratios"
    } else {
        "The bars end at the medians"
    };
    let caption = format!(
        "{}. {shape}, with their 95 % intervals; each small dot is a run; {}.",
        capital(&section.figure_name()),
        section.better()
    );
    Some(Gallery {
        title: section.about.title.clone(),
        caption,
        plots: vec![plot],
        is_answer: true,
    })
}

fn scale(values: &[f64]) -> Scale {
    Scale::fitting(values, SPAN_MAX)
}

fn picture(campaign: &Campaign, section: &Section, values: &[f64], width: f64) -> Svg {
    let cells: Vec<(String, Vec<Row>)> = (0..section.cells.len())
        .map(|cell| (cell_title(section, cell), rows(campaign, section, cell)))
        .collect();
    let mut svg = Svg::new(width, 0.0, &section.about.title, &describe(section, &cells));
    let narrow = width < 500.0;
    let names = cells
        .iter()
        .flat_map(|(_, rows)| rows)
        .map(|row| text_width(&row.name) + 24.0)
        .fold(60.0, f64::max);
    // On narrow pages a name stands above its bar.
    let left = if narrow { 2.0 } else { names };
    let x = scale(values).between(left, width - 64.0);
    let row_height = if narrow { ROW + 14.0 } else { ROW };
    let several = cells.len() > 1;
    let height: f64 = cells
        .iter()
        .map(|(_, rows)| rows.len() as f64 * row_height + if several { HEADING + GAP } else { GAP })
        .sum();
    grid(&mut svg, section, &x, height);
    let mut y = 4.0;
    for (title, rows) in &cells {
        if several && !rows.is_empty() {
            svg.text("strong", Anchor::Start, (0.0, y + 16.0), title);
            y += HEADING;
        }
        for row in rows {
            draw_row(&mut svg, section, row, &x, (y, row_height, narrow));
            y += row_height;
        }
        y += GAP;
    }
    svg.set_height(height + 46.0);
    svg
}

fn rows<'a>(campaign: &Campaign, section: &'a Section, cell: usize) -> Vec<Row<'a>> {
    let measured = section.of_cell(cell).filter(|(_, group)| group.standing.is_some());
    measured
        .map(|(subject, group)| Row {
            look: campaign.look(subject),
            name: name(campaign, section, subject, Some(cell)),
            group,
        })
        .collect()
}

fn grid(svg: &mut Svg, section: &Section, x: &Scale, height: f64) {
    let mut free = f64::NEG_INFINITY;
    for value in x.ticks(70.0) {
        let (at, word) = (x.at(value), tick(value));
        svg.line("grid", (at, 0.0), (at, height));
        let half = text_width(&word) / 2.0;
        let centre = at.max(half);
        if centre - half > free {
            svg.text("tick", Anchor::Middle, (centre, height + 16.0), &word);
            free = centre + half + 8.0;
        }
    }
    svg.text("name", Anchor::End, (x.places().1, height + 36.0), &section.figure_name());
}

fn draw_row(
    svg: &mut Svg,
    section: &Section,
    row: &Row,
    x: &Scale,
    (top, height, narrow): (f64, f64, bool),
) {
    let Some(standing) = &row.group.standing else { return };
    let (zero, end) = (x.places().0, x.at(standing.median));
    let centre = top + height - ROW / 2.0;
    svg.open(&row.look.class());
    if narrow {
        svg.mark(row.look, (6.0, top + 10.0), 4.0, "");
        svg.text("label", Anchor::Start, (16.0, top + 14.0), &row.name);
    } else {
        svg.mark(row.look, (6.0, centre), 4.4, "");
        svg.text("label", Anchor::Start, (17.0, centre + 4.0), &row.name);
    }
    if !x.is_ratio() {
        svg.rectangle("bar", (zero.min(end), centre - 7.0), ((end - zero).abs(), 14.0));
        svg.line("edge", (end, centre - 7.0), (end, centre + 7.0));
    }
    let mut last = end;
    for run in &row.group.runs {
        let Some(value) = run.value else { continue };
        svg.circle(
            "run",
            (x.at(value), centre),
            2.1,
            &format!(
                "{}, run {}: {} {}",
                row.name,
                run.ordinal,
                number(value),
                section.figure.unit
            ),
        );
        last = last.max(x.at(value));
    }
    if let Some(interval) = standing.interval {
        svg.line("whisker", (x.at(interval.low), centre), (x.at(interval.high), centre));
        last = last.max(x.at(interval.high));
    }
    if x.is_ratio() {
        svg.mark(row.look, (end, centre), 4.8, &format!("median {}", number(standing.median)));
    }
    svg.close();
    svg.text("label", Anchor::Start, (last + 7.0, centre + 4.0), &number(standing.median));
}

fn describe(section: &Section, cells: &[(String, Vec<Row>)]) -> String {
    let cell = |(title, rows): &(String, Vec<Row>)| {
        let medians: Vec<String> = rows
            .iter()
            .filter_map(|row| {
                row.group
                    .standing
                    .as_ref()
                    .map(|standing| format!("{} {}", row.name, number(standing.median)))
            })
            .collect();
        format!("{title}: {}.", medians.join(", "))
    };
    let all: Vec<String> = cells.iter().map(cell).collect();
    format!("Bars: the median of {}. {}", section.figure_name(), all.join(" "))
}
