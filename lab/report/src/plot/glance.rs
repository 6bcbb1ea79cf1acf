//! The first picture of a page: who is fastest, and whose `250` is safe, one panel for each of the first scenarios.
//!
//! Must never tell a durability class by colour: the fill differs, and the word stands beside the name.

use super::{NARROW, Plot, cell_title, name};
use crate::campaign::{Campaign, Group, LIMIT, Section, class_of, word};
use crate::draw::{Anchor, Look, Scale, Svg, number, text_width, tick};
use crate::judge::Standing;
use crate::record::{Better, Cell, Class};

/// Panels in the picture: more are no glance.
const PANELS_MAX: usize = 4;

/// Width of a panel: two fit beside each other on a wide page.
const WIDE: f64 = 600.0;

/// Heights of a row and of a bar, in units.
const ROW: f64 = 26.0;
const BAR: f64 = 15.0;

/// One scenario's mailers in one cell.
pub struct Panel {
    /// The bars, the highest median first.
    pub plot: Plot,
    /// The mailer with the highest median of those that sync each message before its `250`.
    pub fastest_synced: Option<String>,
    /// Mailers with a higher median that do not, or of which it is unknown.
    pub faster: Vec<String>,
}

struct Row<'a> {
    look: Look,
    subject: &'a str,
    name: String,
    class: Option<Class>,
    standing: &'a Standing,
}

/// Returns the panels: of scenarios in which more is better and in which at least two mailers were measured.
pub fn panels(campaign: &Campaign) -> Vec<Panel> {
    let sections =
        campaign.sections.iter().filter(|section| section.figure.better == Better::Higher);
    sections.filter_map(|section| panel(campaign, section)).take(PANELS_MAX).collect()
}

fn panel(campaign: &Campaign, section: &Section) -> Option<Panel> {
    let cell = fullest(campaign, section)?;
    let rows = rows(campaign, section, cell);
    let is_synced = |row: &Row| row.class == Some(Class::Synced);
    let synced = rows.iter().position(is_synced);
    let subject = |row: &Row| row.subject.to_string();
    let title = match cell_title(section, cell) {
        cell if cell == section.about.title => cell,
        cell => format!("{}: {cell}", section.about.title),
    };
    Some(Panel {
        fastest_synced: synced.map(|row| subject(&rows[row])),
        faster: rows[..synced.unwrap_or(rows.len())].iter().map(subject).collect(),
        plot: Plot {
            slug: format!("glance-{}", section.slug),
            wide: picture(section, &rows, &title, WIDE),
            narrow: Some(picture(section, &rows, &title, NARROW)),
            title,
            caption: String::new(),
        },
    })
}

/// The cell in which most mailers were measured, of several the one nearest to the middle of all factors. `None` if there
/// are never two mailers.
fn fullest(campaign: &Campaign, section: &Section) -> Option<usize> {
    let counts: Vec<usize> =
        (0..section.cells.len()).map(|cell| mailers(campaign, section, cell).count()).collect();
    let most = counts.iter().copied().max().filter(|most| *most >= 2)?;
    let fullest = (0..counts.len()).rev().filter(|cell| counts[*cell] == most);
    fullest.min_by_key(|cell| off_middle(section, *cell))
}

/// How far a cell's factors are from the middle of their values, in half steps.
fn off_middle(section: &Section, cell: usize) -> usize {
    let off = |factor: &String| {
        let value = |cell: &Cell| cell.get(factor).map(word);
        let mut values: Vec<Option<String>> = Vec::new();
        for value in section.cells.iter().map(value) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let rank = values.iter().position(|one| *one == value(&section.cells[cell])).unwrap_or(0);
        (2 * rank).abs_diff(values.len() - 1)
    };
    section.factors.iter().map(off).sum()
}

fn mailers<'a>(
    campaign: &'a Campaign,
    section: &'a Section,
    cell: usize,
) -> impl Iterator<Item = (usize, &'a Group, &'a Standing)> {
    let measured = section
        .of_cell(cell)
        .filter_map(|(subject, group)| Some((subject, group, group.standing.as_ref()?)));
    measured.filter(|(subject, ..)| campaign.subjects[*subject] != LIMIT)
}

fn rows<'a>(campaign: &'a Campaign, section: &'a Section, cell: usize) -> Vec<Row<'a>> {
    let mut rows: Vec<Row> = mailers(campaign, section, cell)
        .map(|(subject, group, standing)| Row {
            look: campaign.look(subject),
            subject: &campaign.subjects[subject],
            name: name(campaign, section, subject, Some(cell)),
            class: class_of(campaign, subject, group),
            standing,
        })
        .collect();
    rows.sort_by(|one, other| other.standing.median.total_cmp(&one.standing.median));
    rows
}

fn picture(section: &Section, rows: &[Row], title: &str, width: f64) -> Svg {
    let said: Vec<String> =
        rows.iter().map(|row| format!("{} {}", row.name, number(row.standing.median))).collect();
    let said = format!("The median of {}: {}.", section.figure_name(), said.join(", "));
    let mut svg = Svg::new(width, rows.len() as f64 * ROW + 42.0, title, &said);
    let left = rows.iter().map(|row| text_width(&row.name) + 12.0).fold(60.0, f64::max);
    let highest = rows.iter().map(Row::end).fold(0.0, f64::max);
    let x = Scale::fitting(&[0.0, highest], f64::INFINITY).between(left, width - 56.0);
    let height = rows.len() as f64 * ROW;
    for value in x.ticks(80.0) {
        svg.line("grid", (x.at(value), 0.0), (x.at(value), height));
        svg.text("tick", Anchor::Middle, (x.at(value), height + 15.0), &tick(value));
    }
    svg.text("name", Anchor::End, (width, height + 34.0), &section.figure_name());
    for (index, row) in rows.iter().enumerate() {
        row.draw(&mut svg, &x, (index as f64 + 0.5) * ROW);
    }
    svg
}

impl Row<'_> {
    /// Where the bar or its interval ends.
    fn end(&self) -> f64 {
        self.standing
            .interval
            .map_or(self.standing.median, |interval| interval.high.max(self.standing.median))
    }

    fn draw(&self, svg: &mut Svg, x: &Scale, centre: f64) {
        let (zero, median) = (x.places().0, x.at(self.standing.median));
        let fill = match self.class {
            Some(Class::Synced) => "solid",
            Some(Class::Sometimes) => "half",
            _ => "hollow",
        };
        svg.text("label", Anchor::Start, (0.0, centre + 4.0), &self.name);
        svg.open(&self.look.class());
        svg.rectangle(fill, (zero, centre - BAR / 2.0), ((median - zero).max(1.0), BAR));
        svg.close();
        if let Some(interval) = self.standing.interval {
            let (low, high) = (x.at(interval.low), x.at(interval.high));
            svg.line("interval", (low, centre), (high, centre));
            for end in [low, high] {
                svg.line("interval", (end, centre - 4.0), (end, centre + 4.0));
            }
        }
        let end = x.at(self.end());
        let label = number(self.standing.median);
        svg.text("strong", Anchor::Start, (end + 6.0, centre + 4.0), &label);
    }
}
