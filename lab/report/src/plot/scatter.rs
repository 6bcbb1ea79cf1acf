//! Points with a trend: what one more costs, as the slope with its error and the band in which the line lies.
//!
//! Must never fit a line to the points that are drawn only: the trend is that of all.

use super::lines::{capital, y_room};
use super::time::OVER_SECONDS;
use super::{Gallery, PANEL, Plot, cell_title, name, names};
use crate::campaign::{Campaign, Group, Section};
use crate::draw::{Anchor, Axes, Scale, Svg, exact, number, tick};
use crate::judge;
use stats::{Confidence, Trend};

/// More points than these of one picture are thinned out evenly.
const POINTS_MAX: usize = 1500;
/// Ratio of the greatest value to the high quantile above which the axis ends at the quantile, and the rest is counted.
const BEYOND: f64 = 3.0;
const NEARLY_ALL: f64 = 0.995;
/// Points of a band's edge.
const BAND_POINTS: usize = 24;

/// A subject's trend in a cell.
pub struct Slope {
    /// The series' name.
    pub series: String,
    /// Which subject, as in `Campaign::subjects`.
    pub subject: usize,
    /// Which cell.
    pub cell: usize,
    /// The line.
    pub trend: Trend,
}

/// All trends of a scenario.
pub fn slopes(section: &Section) -> Vec<Slope> {
    let mut slopes = Vec::new();
    for series in series(section) {
        for ((subject, cell), group) in &section.groups {
            if let Some(trend) = Trend::of(&points(group, series)) {
                slopes.push(Slope {
                    series: series.clone(),
                    subject: *subject,
                    cell: *cell,
                    trend,
                });
            }
        }
    }
    slopes.sort_by_key(|slope| (slope.series.clone(), slope.cell, slope.subject));
    slopes
}

/// A gallery for each kind of series that is not over time.
pub fn galleries(campaign: &Campaign, section: &Section) -> Vec<Gallery> {
    series(section).into_iter().filter_map(|series| gallery(campaign, section, series)).collect()
}

fn series(section: &Section) -> Vec<&String> {
    names(section, |run| run.series.keys().filter(|name| !name.ends_with(OVER_SECONDS)).collect())
}

/// `Y over X`, in words.
fn words(series: &str) -> (String, String) {
    let (y, x) = series.split_once(" over ").unwrap_or((series, "x"));
    (spoken(y), spoken(x))
}

/// The same in one.
pub fn spoken_series(series: &str) -> String {
    let (y, x) = words(series);
    format!("{y} over {x}")
}

/// `create_us` as `create, µs`.
fn spoken(name: &str) -> String {
    let units = [("_us", ", µs"), ("_ms", ", ms"), ("_s", ", s")];
    let known = units
        .iter()
        .find_map(|(end, unit)| name.strip_suffix(end).map(|rest| format!("{rest}{unit}")));
    known.unwrap_or_else(|| name.into()).replace('_', " ")
}

fn points(group: &Group, series: &str) -> Vec<(f64, f64)> {
    let points = group.runs.iter().filter_map(|run| run.series.get(series)).flatten();
    points.copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect()
}

fn gallery(campaign: &Campaign, section: &Section, series: &str) -> Option<Gallery> {
    let (y, x) = words(series);
    let mut plots = Vec::new();
    for cell in 0..section.cells.len() {
        for (subject, group) in section.of_cell(cell) {
            let points = points(group, series);
            if points.is_empty() {
                continue;
            }
            let title = [name(campaign, section, subject, Some(cell)), section.cell_name(cell)];
            let title = title
                .iter()
                .filter(|part| !part.is_empty())
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            let wide = picture(campaign, section, (subject, cell), &points, (&y, &x));
            plots.push(Plot {
                slug: format!("scatter-{}-{}", series.len(), plots.len() + 1),
                title,
                caption: String::new(),
                wide,
                narrow: None,
            });
        }
    }
    let caption = format!(
        "Each dot is one measured point, of all runs together; of more than {} an even selection is drawn. \
         The line is the trend of all points, the band where it lies at 95 %.",
        exact(POINTS_MAX as f64)
    );
    let title = format!("{} over {x}", capital(&y));
    (!plots.is_empty()).then_some(Gallery { title, caption, plots, is_answer: false })
}

fn picture(
    campaign: &Campaign,
    section: &Section,
    (subject, cell): (usize, usize),
    points: &[(f64, f64)],
    (y_name, x_name): (&str, &str),
) -> Svg {
    let trend = Trend::of(points);
    let said = trend
        .map_or_else(|| "no trend: too few points".into(), |trend| slope_words(&trend, x_name));
    let title = format!(
        "{}: {}, {}",
        section.about.title,
        campaign.subjects[subject],
        cell_title(section, cell)
    );
    let mut svg =
        Svg::new(PANEL, 0.0, &title, &format!("Scatter plot of {y_name} over {x_name}; {said}."));
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let top = 44.0;
    let ceiling = ceiling(&ys);
    let y = Scale::equal(&ys.iter().map(|y| y.min(ceiling)).collect::<Vec<_>>(), true)
        .between(top + 190.0, top);
    let left = y_room(&y);
    let x = Scale::equal(&xs, false).between(left, PANEL - 14.0);
    svg.text("strong", Anchor::Start, (0.0, 12.0), &said);
    Axes { x: &x, y: &y, x_name, y_name, x_word: &tick, y_word: &tick, x_ticks: None }
        .draw(&mut svg, left);
    svg.open(&campaign.look(subject).class());
    let every = points.len().div_ceil(POINTS_MAX);
    let inside = points.iter().step_by(every).filter(|(_, y)| *y <= ceiling);
    svg.dots("points", &inside.map(|(at, value)| (x.at(*at), y.at(*value))).collect::<Vec<_>>());
    if let Some(trend) = trend {
        draw_trend(&mut svg, &trend, &x, &y);
    }
    svg.close();
    let beyond = ys.iter().filter(|y| **y > ceiling).count();
    if beyond > 0 {
        let most = ys.iter().copied().fold(f64::MIN, f64::max);
        svg.text(
            "quiet",
            Anchor::End,
            (PANEL - 14.0, top - 12.0),
            &format!("{beyond} above, up to {}", number(most)),
        );
    }
    svg.set_height(top + 232.0);
    svg
}

/// Where the axis ends, so that a few far-off points do not press all others to the floor.
fn ceiling(ys: &[f64]) -> f64 {
    let most = ys.iter().copied().fold(f64::MIN, f64::max);
    let nearly = judge::quantile(ys, NEARLY_ALL).unwrap_or(most);
    if nearly > 0.0 && most > BEYOND * nearly { nearly * 1.1 } else { most }
}

fn draw_trend(svg: &mut Svg, trend: &Trend, x: &Scale, y: &Scale) {
    let ((low, high), (bottom, top)) = (x.ends(), y.places());
    let place = |at: f64, value: f64| (x.at(at), y.at(value).clamp(top, bottom));
    let steps =
        || (0..=BAND_POINTS).map(|step| low + (high - low) * step as f64 / BAND_POINTS as f64);
    let edge = |side: f64| {
        steps()
            .map(|at| place(at, trend.at(at) + side * trend.band(at, Confidence::P95)))
            .collect::<Vec<_>>()
    };
    svg.area("band", &edge(1.0), &edge(-1.0));
    svg.course("edge", "", &[place(low, trend.at(low)), place(high, trend.at(high))]);
}

/// `slope 0.0123 ± 0.0004 for each queued (standard error)`.
pub fn slope_words(trend: &Trend, x_name: &str) -> String {
    format!("slope {} ± {} for each {x_name}", number(trend.slope), number(trend.slope_error))
        .replace('-', "−")
}
