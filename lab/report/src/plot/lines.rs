//! Curves over a factor of numbers: medians joined by lines, each run a dot.
//!
//! Must never join what was measured under other conditions: what else varies has a panel for each value.

use super::{Gallery, NARROW, PANEL, Plot, WIDE, name};
use crate::about::heading;
use crate::campaign::{Campaign, Section, name_of, numbers};
use crate::draw::{Axes, Look, Scale, Svg, exact, number, tick};
use crate::record::{Cell, Factor};

/// Fewer different numbers are words.
const NUMBERS_MIN: usize = 3;
/// From this spread on the steps of an axis are ratios.
pub const SPAN_MAX: f64 = 30.0;
/// Units between two subjects' dots over the same number.
const DODGE: f64 = 3.0;

/// One curve: cells in the order of their numbers.
struct Course {
    look: Look,
    name: String,
    subject: usize,
    cells: Vec<(f64, usize)>,
}

struct Panel {
    title: String,
    courses: Vec<Course>,
}

/// `None` where nothing that varies is a number.
pub fn gallery(campaign: &Campaign, section: &Section) -> Option<Gallery> {
    let factor = section
        .factors
        .iter()
        .filter(|factor| is_numeric(section, factor))
        .max_by_key(|factor| count(section, factor))?;
    let panels = panels(campaign, section, factor);
    let values: Vec<f64> = section.groups.values().flat_map(|group| group.values()).collect();
    if values.is_empty() {
        return None;
    }
    let one = panels.len() == 1;
    let plots = panels.iter().enumerate().map(|(index, panel)| {
        let draw = |width| picture(section, factor, panel, &values, width);
        Plot {
            slug: if one { "answer".into() } else { format!("answer-{}", index + 1) },
            title: if one { section.about.title.clone() } else { panel.title.clone() },
            caption: String::new(),
            wide: draw(if one { WIDE } else { PANEL }),
            narrow: one.then(|| draw(NARROW)),
        }
    });
    let caption = format!(
        "{}, over {}. Each small dot is a run; the lines join the medians; {}.",
        capital(&section.figure_name()),
        heading(&section.about, factor),
        section.better()
    );
    Some(Gallery {
        title: section.about.title.clone(),
        caption,
        plots: plots.collect(),
        is_answer: true,
    })
}

fn is_numeric(section: &Section, factor: &str) -> bool {
    count(section, factor) >= NUMBERS_MIN
}

fn count(section: &Section, factor: &str) -> usize {
    numbers(&section.cells, factor).map_or(0, |numbers| numbers.len())
}

/// A panel for each combination of what else varies; where there is one subject only, words are curves instead.
fn panels(campaign: &Campaign, section: &Section, factor: &str) -> Vec<Panel> {
    let others: Vec<String> =
        section.factors.iter().filter(|other| *other != factor).cloned().collect();
    let subjects = section.subjects();
    let words_are_courses = subjects.len() == 1;
    let (within, apart): (Vec<String>, Vec<String>) = others
        .into_iter()
        .partition(|other| words_are_courses && numbers(&section.cells, other).is_none());
    let mut panels: Vec<(Cell, Panel)> = Vec::new();
    for (index, cell) in section.cells.iter().enumerate() {
        let Some(Factor::Number(x)) = cell.get(factor) else { continue };
        let key = only(cell, &apart);
        if !panels.iter().any(|(known, _)| *known == key) {
            panels.push((
                key.clone(),
                Panel { title: name_of(&section.about, cell, &apart), courses: Vec::new() },
            ));
        }
        let (_, panel) =
            panels.iter_mut().find(|(known, _)| *known == key).expect("it was added above");
        for subject in &subjects {
            let course =
                course(campaign, section, panel, *subject, &name_of(&section.about, cell, &within));
            course.cells.push((*x, index));
        }
    }
    panels.into_iter().map(|(_, panel)| panel).collect()
}

/// The panel's curve of that subject (and those words); a new one where there is none.
fn course<'a>(
    campaign: &Campaign,
    section: &Section,
    panel: &'a mut Panel,
    subject: usize,
    words: &str,
) -> &'a mut Course {
    let called =
        if words.is_empty() { name(campaign, section, subject, None) } else { words.into() };
    let found =
        panel.courses.iter().position(|course| course.name == called && course.subject == subject);
    let place = found.unwrap_or_else(|| {
        let look = if words.is_empty() {
            campaign.look(subject)
        } else {
            Look::Subject(panel.courses.len())
        };
        panel.courses.push(Course { look, name: called, subject, cells: Vec::new() });
        panel.courses.len() - 1
    });
    &mut panel.courses[place]
}

fn only(cell: &Cell, factors: &[String]) -> Cell {
    cell.iter()
        .filter(|(name, _)| factors.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn picture(section: &Section, factor: &str, panel: &Panel, values: &[f64], width: f64) -> Svg {
    let numbers = numbers(&section.cells, factor).unwrap_or_default();
    let title = if panel.title.is_empty() {
        section.about.title.clone()
    } else {
        format!("{}: {}", section.about.title, panel.title)
    };
    let mut svg = Svg::new(width, 0.0, &title, &describe(section, factor, panel));
    let drawn: Vec<&Course> =
        panel.courses.iter().filter(|course| has_values(section, course)).collect();
    let entries: Vec<(Look, String)> =
        drawn.iter().map(|course| (course.look, course.name.clone())).collect();
    svg.set_key(entries);
    let top = 26.0;
    let height = if width > 500.0 { 340.0 } else { 240.0 };
    let y = Scale::fitting(values, SPAN_MAX).between(top + height, top);
    let left = y_room(&y);
    let x = Scale::fitting_exact(&numbers).between(left + 16.0, width - 16.0);
    let axes = Axes {
        x: &x,
        y: &y,
        x_name: &heading(&section.about, factor),
        y_name: &section.figure_name(),
        x_word: &exact,
        y_word: &tick,
        x_ticks: Some(numbers.clone()),
    };
    axes.draw(&mut svg, left);
    for (index, course) in drawn.iter().enumerate() {
        let aside = (index as f64 - (drawn.len() as f64 - 1.0) / 2.0)
            * DODGE.min(12.0 / drawn.len() as f64);
        draw_course(&mut svg, section, course, &|value| x.at(value) + aside, &y);
    }
    svg.set_height(top + height + 42.0);
    svg
}

/// Units that the words beside the y axis need.
pub fn y_room(y: &Scale) -> f64 {
    let widths = y.ticks(42.0).into_iter().map(|value| crate::draw::text_width(&tick(value)));
    widths.fold(24.0, f64::max) + 10.0
}

fn has_values(section: &Section, course: &Course) -> bool {
    course.cells.iter().any(|(_, cell)| {
        section.groups.get(&(course.subject, *cell)).is_some_and(|group| group.standing.is_some())
    })
}

fn draw_course(
    svg: &mut Svg,
    section: &Section,
    course: &Course,
    x: &dyn Fn(f64) -> f64,
    y: &Scale,
) {
    let mut medians = Vec::new();
    svg.open(&course.look.class());
    for (at, cell) in &course.cells {
        let Some(group) = section.groups.get(&(course.subject, *cell)) else { continue };
        let Some(standing) = &group.standing else { continue };
        for run in &group.runs {
            let Some(value) = run.value else { continue };
            let word = format!(
                "{}, {}, run {}: {} {}",
                course.name,
                section.cell_name(*cell),
                run.ordinal,
                number(value),
                section.figure.unit
            );
            svg.circle("run", (x(*at), y.at(value)), 2.1, &word);
        }
        medians.push((
            x(*at),
            y.at(standing.median),
            format!("{}: median {} of {} runs", course.name, number(standing.median), standing.n),
        ));
    }
    let line: Vec<(f64, f64)> = medians.iter().map(|(x, y, _)| (*x, *y)).collect();
    svg.course("course", course.look.dash(), &line);
    for (x, y, word) in &medians {
        svg.mark(course.look, (*x, *y), 4.4, word);
    }
    svg.close();
}

fn describe(section: &Section, factor: &str, panel: &Panel) -> String {
    let course = |course: &Course| {
        let medians: Vec<String> = course
            .cells
            .iter()
            .filter_map(|(at, cell)| {
                let standing = section.groups.get(&(course.subject, *cell))?.standing.as_ref()?;
                Some(format!("{} at {}", number(standing.median), exact(*at)))
            })
            .collect();
        (!medians.is_empty()).then(|| format!("{}: {}.", course.name, medians.join(", ")))
    };
    let courses: Vec<String> = panel.courses.iter().filter_map(course).collect();
    format!(
        "Lines: the median of {} over {}. {}",
        section.figure_name(),
        heading(&section.about, factor),
        courses.join(" ")
    )
}

/// With a capital letter.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
