//! Curves over the time of a run: throughput as it went.
//!
//! Must never smooth: the bold line is the median of the runs' points, and each run is there beside it.

use super::lines::{capital, y_room};
use super::{Gallery, PANEL, Plot, cell_title, entries, names};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{Axes, Scale, Svg, tick};
use crate::judge;

/// What makes a series one over time.
pub const OVER_SECONDS: &str = " over seconds";

/// A gallery for each kind of series over time.
pub fn galleries(campaign: &Campaign, section: &Section) -> Vec<Gallery> {
    let names = names(section, |run| {
        run.series.keys().filter(|name| name.ends_with(OVER_SECONDS)).collect()
    });
    names.into_iter().filter_map(|name| gallery(campaign, section, name)).collect()
}

fn gallery(campaign: &Campaign, section: &Section, series: &str) -> Option<Gallery> {
    let what = series.trim_end_matches(OVER_SECONDS).replace('_', " ");
    let plots: Vec<Plot> = (0..section.cells.len())
        .filter_map(|cell| {
            let wide = picture(campaign, section, cell, series, &what)?;
            Some(Plot {
                slug: format!("time-{}-{}", series.len(), cell + 1),
                title: cell_title(section, cell),
                caption: String::new(),
                wide,
                narrow: None,
            })
        })
        .collect();
    let caption = format!(
        "{} over the seconds of a run. Thin lines are runs, bold lines the medians of all runs at that time.",
        capital(&what)
    );
    let title = format!("{} over time", capital(&what));
    (!plots.is_empty()).then_some(Gallery { title, caption, plots, is_answer: false })
}

fn picture(
    campaign: &Campaign,
    section: &Section,
    cell: usize,
    series: &str,
    what: &str,
) -> Option<Svg> {
    let groups: Vec<(usize, &Group)> =
        section.of_cell(cell).filter(|(_, group)| runs(group, series).next().is_some()).collect();
    let points = || groups.iter().flat_map(|(_, group)| runs(group, series)).flatten();
    points().next()?;
    let (xs, ys): (Vec<f64>, Vec<f64>) = points().copied().unzip();
    let title = format!("{}: {what} over time, {}", section.about.title, cell_title(section, cell));
    let subjects: Vec<usize> = groups.iter().map(|(subject, _)| *subject).collect();
    let mut svg = Svg::new(
        PANEL,
        0.0,
        &title,
        &format!("Lines: {what} over the seconds of a run, a line for each run, and their median."),
    );
    svg.set_key(entries(campaign, section, &subjects, Some(cell)));
    let top = 26.0;
    let y = Scale::fitting(&ys, super::lines::SPAN_MAX).between(top + 190.0, top);
    let left = y_room(&y);
    let x = Scale::equal(&xs, true).between(left, PANEL - 12.0);
    Axes {
        x: &x,
        y: &y,
        x_name: "seconds",
        y_name: what,
        x_word: &tick,
        y_word: &tick,
        x_ticks: None,
    }
    .draw(&mut svg, left);
    for (subject, group) in groups {
        let look = campaign.look(subject);
        svg.open(&look.class());
        let place = |(at, value): &(f64, f64)| (x.at(*at), y.at(*value));
        for points in runs(group, series) {
            svg.course("faint", "", &points.iter().map(place).collect::<Vec<_>>());
        }
        svg.course(
            "course",
            look.dash(),
            &middle(group, series).iter().map(place).collect::<Vec<_>>(),
        );
        svg.close();
    }
    svg.set_height(top + 232.0);
    Some(svg)
}

fn runs<'a>(group: &'a Group, series: &str) -> impl Iterator<Item = &'a Vec<(f64, f64)>> {
    group
        .runs
        .iter()
        .filter_map(move |run| run.series.get(series))
        .filter(|points| !points.is_empty())
}

/// The median of the runs' first points, of their second ones, and so on.
fn middle(group: &Group, series: &str) -> Vec<(f64, f64)> {
    let longest = runs(group, series).map(Vec::len).max().unwrap_or(0);
    let point = |index: usize| {
        let (xs, ys): (Vec<f64>, Vec<f64>) =
            runs(group, series).filter_map(|points| points.get(index).copied()).unzip();
        Some((judge::median(&xs)?, judge::median(&ys)?))
    };
    (0..longest).filter_map(point).collect()
}
