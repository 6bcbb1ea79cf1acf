//! Delays: percentile curves, and histograms below each other on one axis.
//!
//! Must never show a mean of delays: it hides what people wait for.

use super::lines::capital;
use super::{Gallery, PANEL, Plot, cell_title, entries, name, names};
use crate::campaign::{Campaign, Section};
use crate::draw::{Anchor, Axes, Scale, Svg, text_width, time_us};
use crate::latency::{Bin, Delays};

/// Units of one subject's histogram.
const ROW: f64 = 58.0;

/// What is known of the kinds of delays.
pub fn meaning(name: &str) -> String {
    match name {
        "accept" => "from the end of a message to its 250".into(),
        "arrive" => "from the 250 to the sink's 250".into(),
        _ => "as the runs' records call it".into(),
    }
}

/// Two galleries for each kind of delay.
pub fn galleries(campaign: &Campaign, section: &Section) -> Vec<Gallery> {
    let names = names(section, |run| run.histograms.keys().collect());
    names.into_iter().flat_map(|name| both(campaign, section, name)).collect()
}

fn both(campaign: &Campaign, section: &Section, kind: &str) -> Vec<Gallery> {
    let (mut curves, mut histograms) = (Vec::new(), Vec::new());
    for cell in 0..section.cells.len() {
        let delays = section
            .of_cell(cell)
            .filter_map(|(subject, group)| Delays::of(group, kind).map(|delays| (subject, delays)));
        let delays: Vec<(usize, Delays)> =
            delays.filter(|(_, delays)| delays.count() > 0).collect();
        if delays.is_empty() {
            continue;
        }
        let plot = |what: &str, wide| Plot {
            slug: format!("{what}-{}-{}", slug(kind), cell + 1),
            title: cell_title(section, cell),
            caption: String::new(),
            wide,
            narrow: None,
        };
        curves.push(plot("percentiles", curve(campaign, section, cell, kind, &delays)));
        histograms.push(plot("histogram", histogram(campaign, section, cell, kind, &delays)));
    }
    let gallery = |title, caption, plots: Vec<Plot>| {
        (!plots.is_empty()).then_some(Gallery { title, caption, plots, is_answer: false })
    };
    let curves = gallery(
        format!("{}: percentiles", capital(kind)),
        format!(
            "The delay {} that this share of messages did not exceed, all runs together. Both axes have steps of equal ratios.",
            meaning(kind)
        ),
        curves,
    );
    let caption = format!(
        "How often each delay was seen, {}, all runs together; the time axis has steps of equal ratios, each row its own height.",
        meaning(kind)
    );
    curves
        .into_iter()
        .chain(gallery(format!("{}: histograms", capital(kind)), caption, histograms))
        .collect()
}

fn slug(kind: &str) -> String {
    kind.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn curve(
    campaign: &Campaign,
    section: &Section,
    cell: usize,
    kind: &str,
    delays: &[(usize, Delays)],
) -> Svg {
    let curves: Vec<(usize, Vec<(f64, f64)>)> =
        delays.iter().map(|(subject, delays)| (*subject, delays.curve())).collect();
    let points = || curves.iter().flat_map(|(_, points)| points);
    let (xs, ys): (Vec<f64>, Vec<f64>) = points().copied().unzip();
    let title =
        format!("{}: {kind}, percentiles, {}", section.about.title, cell_title(section, cell));
    let mut svg = Svg::new(PANEL, 0.0, &title, &describe(campaign, delays));
    let subjects: Vec<usize> = delays.iter().map(|(subject, _)| *subject).collect();
    svg.set_key(entries(campaign, section, &subjects, Some(cell)));
    let top = 26.0;
    let y = Scale::ratio(&ys).between(top + 190.0, top);
    let left =
        y.ticks(42.0).into_iter().map(|tick| text_width(&time_us(tick))).fold(24.0, f64::max)
            + 10.0;
    let x = Scale::ratio_exact(&xs).between(left, PANEL - 12.0);
    let word = |beyond: f64| percent(100.0 * (1.0 - 1.0 / beyond));
    let ticks = vec![2.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0];
    let axes = Axes {
        x: &x,
        y: &y,
        x_name: "messages",
        y_name: "delay",
        x_word: &word,
        y_word: &time_us,
        x_ticks: Some(ticks),
    };
    axes.draw(&mut svg, left);
    for (subject, points) in curves {
        let look = campaign.look(subject);
        let place = |(beyond, delay): &(f64, f64)| (x.at(*beyond), y.at(*delay));
        svg.open(&look.class());
        svg.course("course", look.dash(), &points.iter().map(place).collect::<Vec<_>>());
        for mark in [2.0, 10.0, 100.0, 1000.0] {
            if let Some(point) = points.iter().find(|(beyond, _)| *beyond >= mark) {
                svg.mark(
                    look,
                    place(point),
                    3.6,
                    &format!(
                        "{}: {} at {}",
                        campaign.subjects[subject],
                        time_us(point.1),
                        word(mark)
                    ),
                );
            }
        }
        svg.close();
    }
    svg.set_height(top + 232.0);
    svg
}

fn percent(share: f64) -> String {
    let text = format!("{share:.3}");
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn describe(campaign: &Campaign, delays: &[(usize, Delays)]) -> String {
    let one = |(subject, delays): &(usize, Delays)| {
        let table = delays.table();
        format!(
            "{}: median {}, 99 % {}, greatest {}.",
            campaign.subjects[*subject],
            time_us(table[0]),
            time_us(table[2]),
            time_us(table[4])
        )
    };
    delays.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn histogram(
    campaign: &Campaign,
    section: &Section,
    cell: usize,
    kind: &str,
    delays: &[(usize, Delays)],
) -> Svg {
    let bins: Vec<(usize, Vec<Bin>)> =
        delays.iter().map(|(subject, delays)| (*subject, delays.bins())).collect();
    let edges: Vec<f64> =
        bins.iter().flat_map(|(_, bins)| bins).flat_map(|(from, to, _)| [*from, *to]).collect();
    let title =
        format!("{}: {kind}, histograms, {}", section.about.title, cell_title(section, cell));
    let mut svg = Svg::new(PANEL, 0.0, &title, &describe(campaign, delays));
    let x = Scale::ratio(&edges).between(8.0, PANEL - 12.0);
    let bottom = bins.len() as f64 * ROW;
    for tick in x.ticks(60.0) {
        svg.line("grid", (x.at(tick), 0.0), (x.at(tick), bottom));
        svg.text(
            "tick",
            Anchor::Middle,
            (x.at(tick).clamp(24.0, PANEL - 24.0), bottom + 17.0),
            &time_us(tick),
        );
    }
    for (row, (subject, bins)) in bins.iter().enumerate() {
        let floor = (row + 1) as f64 * ROW;
        let most = bins.iter().map(|(_, _, share)| *share).fold(f64::MIN_POSITIVE, f64::max);
        let look = campaign.look(*subject);
        svg.open(&look.class());
        for (from, to, share) in bins.iter().filter(|(_, _, share)| *share > 0.0) {
            let height = ((ROW - 24.0) * share / most).max(0.8);
            svg.rectangle(
                "solid",
                (x.at(*from) + 0.4, floor - height),
                (x.at(*to) - x.at(*from) - 0.8, height),
            );
        }
        svg.mark(look, (6.0, floor - ROW + 11.0), 4.0, "");
        svg.close();
        svg.text(
            "label",
            Anchor::Start,
            (16.0, floor - ROW + 15.0),
            &name(campaign, section, *subject, Some(cell)),
        );
        svg.line("axis", (0.0, floor), (PANEL, floor));
    }
    svg.set_height(bottom + 26.0);
    svg
}
