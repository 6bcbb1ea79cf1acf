//! The lines of a campaign, put in order: scenarios, their cells, and each subject's runs in each cell.
//!
//! Must never drop a run: failed and cut-off ones are counted where they belong.

use crate::about::{About, Abouts};
use crate::draw::{Look, exact};
use crate::judge::{self, Judgement, Standing};
use crate::record::{
    Absent, Better, Cell, Class, Durability, Factor, Figure, Line, Machine, Run, Settings,
};
use std::collections::{BTreeMap, BTreeSet};

/// The subject that is no mailer.
pub const LIMIT: &str = "limit";

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Not one run and not one cell that cannot be.
    #[error("there are no runs in what was read: nothing to report")]
    Empty,
    /// The reference was never measured.
    #[error("no run of {name}, which all others were to be compared to; there are: {known}")]
    NoReference {
        /// The subject that was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
}

/// All of it.
pub struct Campaign {
    /// One for each scenario, in the order of their first lines.
    pub sections: Vec<Section>,
    /// The subjects in the order of their first lines, the limit last.
    pub subjects: Vec<String>,
    /// The subject to which the others are compared.
    pub reference: String,
    /// All versions that were seen of each subject.
    pub versions: BTreeMap<String, BTreeSet<String>>,
    /// Every configuration, with the scenarios and the number of runs that used it.
    pub settings: Vec<(Settings, BTreeSet<String>, usize)>,
    /// Every machine, with its number of runs, and the least and greatest load and sync time seen.
    pub machines: Vec<Host>,
    /// Versions of the laboratory.
    pub labs: BTreeSet<String>,
    /// Begin of the first and of the last run, in seconds since 1970.
    pub time: (u64, u64),
    /// Runs in all, and how many of them failed.
    pub runs: (usize, usize),
}

/// A machine, and what changed on it from run to run.
pub struct Host {
    /// What stayed the same.
    pub machine: Machine,
    /// Runs on it.
    pub runs: usize,
    /// Least and greatest time of a sync, in microseconds.
    pub sync_us: (f64, f64),
    /// Least and greatest load average.
    pub load: (f64, f64),
}

/// One scenario.
pub struct Section {
    /// Its name.
    pub scenario: String,
    /// A name for links and files: letters, digits, hyphens; unlike all others.
    pub slug: String,
    /// What is said of it.
    pub about: About,
    /// What is measured.
    pub figure: Figure,
    /// Factors that have more than one value, those of numbers last.
    pub factors: Vec<String>,
    /// Factors that stay the same.
    pub fixed: Cell,
    /// The subject to which the others are compared here: the campaign's reference, or the first that was measured.
    pub reference: Option<usize>,
    /// In order of their factors.
    pub cells: Vec<Cell>,
    /// By subject (as in `Campaign::subjects`), then by cell.
    pub groups: BTreeMap<(usize, usize), Group>,
}

/// A subject's runs in one cell.
#[derive(Default)]
pub struct Group {
    /// In the order of their ordinals.
    pub runs: Vec<Run>,
    /// Why there can be none.
    pub absent: Option<String>,
    /// When it syncs; `None` for what was not looked at.
    pub durability: Option<Durability>,
    /// Figures of its values; `None` without any.
    pub standing: Option<Standing>,
    /// Against the reference in the same cell; `None` without one, or for itself.
    pub judgement: Option<Judgement>,
    /// Its median to the limit's.
    pub of_limit: Option<f64>,
}

impl Group {
    /// The values of the runs that have one.
    pub fn values(&self) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.value).collect()
    }

    /// One of the other numbers, of all runs that have it.
    pub fn others(&self, name: &str) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.values.get(name).copied()).collect()
    }
}

impl Campaign {
    /// Puts lines in order. The others are compared to `reference`, or else to the first mailer.
    pub fn new(
        lines: &[Line],
        abouts: &Abouts,
        reference: Option<&str>,
    ) -> Result<Campaign, ReportError> {
        let runs: Vec<&Run> = lines
            .iter()
            .filter_map(|line| if let Line::Run(run) = line { Some(&**run) } else { None })
            .collect();
        let absents: Vec<&Absent> = lines
            .iter()
            .filter_map(|line| if let Line::Absent(absent) = line { Some(absent) } else { None })
            .collect();
        if runs.is_empty() && absents.is_empty() {
            return Err(ReportError::Empty);
        }
        let subjects = subjects(&runs, &absents);
        let reference = choose(&subjects, reference)?;
        let mut campaign = Campaign {
            sections: sections(&runs, &absents, &subjects, abouts),
            settings: settings(lines, &runs),
            machines: machines(&runs),
            labs: runs.iter().map(|run| run.lab.clone()).collect(),
            time: (
                runs.iter().map(|run| run.time).min().unwrap_or(0),
                runs.iter().map(|run| run.time).max().unwrap_or(0),
            ),
            runs: (runs.len(), runs.iter().filter(|run| run.value.is_none()).count()),
            versions: versions(&runs),
            subjects,
            reference,
        };
        campaign.find_durability(&runs);
        campaign.judge();
        Ok(campaign)
    }

    /// How a subject looks in all figures.
    pub fn look(&self, subject: usize) -> Look {
        if self.subjects[subject] == LIMIT { Look::Ceiling } else { Look::Subject(subject) }
    }

    /// Returns the subject to which the others are compared in a section; `None` if there is only the limit.
    pub fn reference_in(&self, section: &Section) -> Option<&str> {
        section.reference.map(|reference| self.subjects[reference].as_str())
    }

    /// What was found of a subject's syncs, in this cell, else with the same settings, else anywhere.
    fn find_durability(&mut self, runs: &[&Run]) {
        let found = |keep: &dyn Fn(&Run) -> bool| {
            together(runs.iter().filter(|run| keep(run)).filter_map(|run| run.durability.as_ref()))
        };
        for section in &mut self.sections {
            for ((subject, _), group) in &mut section.groups {
                let name = &self.subjects[*subject];
                let settings: BTreeSet<&str> =
                    group.runs.iter().map(|run| run.settings.as_str()).collect();
                group.durability =
                    together(group.runs.iter().filter_map(|run| run.durability.as_ref()))
                        .or_else(|| {
                            found(&|run| {
                                run.subject == *name && settings.contains(run.settings.as_str())
                            })
                        })
                        .or_else(|| found(&|run| run.subject == *name));
            }
        }
    }

    fn judge(&mut self) {
        let place = |name: &str| self.subjects.iter().position(|subject| subject == name);
        let (wanted, limit) = (place(&self.reference), place(LIMIT));
        for section in &mut self.sections {
            for group in section.groups.values_mut() {
                group.standing = judge::standing(&group.values());
            }
            let measured = |subject: &usize| {
                section
                    .groups
                    .iter()
                    .any(|((one, _), group)| one == subject && group.standing.is_some())
            };
            let others = (0..self.subjects.len()).filter(|subject| Some(*subject) != limit);
            section.reference = wanted.into_iter().chain(others).find(measured);
            for cell in 0..section.cells.len() {
                section.judge(cell, limit);
            }
        }
    }
}

impl Section {
    fn judge(&mut self, cell: usize, limit: Option<usize>) {
        let reference = self.reference;
        let values = |subject: Option<usize>| {
            subject
                .and_then(|subject| self.groups.get(&(subject, cell)))
                .map(Group::values)
                .filter(|values| !values.is_empty())
        };
        let median = |subject: Option<usize>| {
            let group = self.groups.get(&(subject?, cell))?;
            group.standing.as_ref().map(|standing| standing.median)
        };
        let (beside, ceiling) = (values(reference), median(limit));
        for ((subject, at), group) in &mut self.groups {
            if *at != cell {
                continue;
            }
            let Some(standing) = &group.standing else { continue };
            group.of_limit =
                ceiling.filter(|ceiling| *ceiling != 0.0).map(|ceiling| standing.median / ceiling);
            let beside =
                beside.as_ref().filter(|_| Some(*subject) != reference && Some(*subject) != limit);
            group.judgement = beside.map(|beside| judge::against(beside, &group.values()));
        }
    }

    /// Whether each cell is one row: there is one subject only, and several cells.
    pub fn is_of_one(&self) -> bool {
        self.subjects().len() == 1 && self.cells.len() > 1
    }

    /// The subjects that have runs or reasons here.
    pub fn subjects(&self) -> Vec<usize> {
        let all: BTreeSet<usize> = self.groups.keys().map(|(subject, _)| *subject).collect();
        all.into_iter().collect()
    }

    /// A cell's name: what varies.
    pub fn cell_name(&self, cell: usize) -> String {
        name_of(&self.about, &self.cells[cell], &self.factors)
    }

    /// `accepted, messages/s`.
    pub fn figure_name(&self) -> String {
        format!("{}, {}", self.figure.name, self.figure.unit)
    }

    /// Which way is better, in words.
    pub fn better(&self) -> &'static str {
        match self.figure.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
        }
    }

    /// All groups of a cell, in the order of the subjects.
    pub fn of_cell(&self, cell: usize) -> impl Iterator<Item = (usize, &Group)> {
        self.groups
            .iter()
            .filter(move |((_, at), _)| *at == cell)
            .map(|((subject, _), group)| (*subject, group))
    }
}

/// A cell's name by some of its factors.
pub fn name_of(about: &About, cell: &Cell, factors: &[String]) -> String {
    let known = factors.iter().filter_map(|factor| cell.get(factor).map(|value| (factor, value)));
    let words: Vec<String> = known
        .map(|(factor, value)| format!("{} {}", crate::about::heading(about, factor), word(value)))
        .collect();
    words.join(", ")
}

/// A factor's value.
pub fn word(factor: &Factor) -> String {
    match factor {
        Factor::Number(number) => exact(*number),
        Factor::Word(word) => word.clone(),
    }
}

/// The class in a word.
pub fn class_word(class: Class) -> &'static str {
    match class {
        Class::Synced => "synced",
        Class::Sometimes => "sometimes",
        Class::Unsynced => "unsynced",
        Class::Unknown => "unknown",
    }
}

/// A group's class; a limit keeps nothing that could be synced.
pub fn class_of(campaign: &Campaign, subject: usize, group: &Group) -> Option<Class> {
    if campaign.subjects[subject] == LIMIT {
        return None;
    }
    Some(group.durability.as_ref().map_or(Class::Unknown, |durability| durability.class))
}

/// What several looks say together: where they differ, `sometimes`. What was not seen says nothing.
fn together<'a>(all: impl Iterator<Item = &'a Durability>) -> Option<Durability> {
    let mut sum: Option<Durability> = None;
    for one in all {
        let Some(so_far) = &mut sum else {
            sum = Some(one.clone());
            continue;
        };
        if so_far.class == Class::Unknown {
            *so_far = one.clone();
        } else if one.class != Class::Unknown {
            if one.class != so_far.class {
                so_far.class = Class::Sometimes;
            }
            let messages = so_far.messages + one.messages;
            let syncs = so_far.syncs_before_250 * so_far.messages as f64
                + one.syncs_before_250 * one.messages as f64;
            (so_far.syncs_before_250, so_far.messages) =
                (syncs / (messages.max(1)) as f64, messages);
        }
    }
    sum
}

fn subjects(runs: &[&Run], absents: &[&Absent]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let names =
        runs.iter().map(|run| &run.subject).chain(absents.iter().map(|absent| &absent.subject));
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all.sort_by_key(|name| name == LIMIT);
    all
}

fn choose(subjects: &[String], reference: Option<&str>) -> Result<String, ReportError> {
    match reference {
        Some(name) if subjects.iter().any(|subject| subject == name) => Ok(name.into()),
        Some(name) => {
            Err(ReportError::NoReference { name: name.into(), known: subjects.join(", ") })
        }
        None => {
            Ok(subjects.iter().find(|subject| *subject != LIMIT).unwrap_or(&subjects[0]).clone())
        }
    }
}

/// A scenario whose runs measure different things has a section for each.
fn sections(
    runs: &[&Run],
    absents: &[&Absent],
    subjects: &[String],
    abouts: &Abouts,
) -> Vec<Section> {
    let mut keys: Vec<(&str, Option<&Figure>)> = Vec::new();
    for run in runs {
        if !keys.contains(&(&run.scenario, Some(&run.figure))) {
            keys.push((&run.scenario, Some(&run.figure)));
        }
    }
    for absent in absents {
        if !keys.iter().any(|(scenario, _)| *scenario == absent.scenario) {
            keys.push((&absent.scenario, None));
        }
    }
    let mut slugs = BTreeSet::new();
    let mut sections: Vec<Section> = Vec::new();
    for (scenario, figure) in keys {
        let first = !sections.iter().any(|section| section.scenario == scenario);
        let runs = runs
            .iter()
            .copied()
            .filter(|run| run.scenario == scenario && Some(&run.figure) == figure);
        let absents = absents.iter().copied().filter(|absent| first && absent.scenario == scenario);
        let about = abouts.get(scenario).cloned().unwrap_or_default();
        let mut section =
            section(scenario, figure, about, subjects, runs.collect(), absents.collect());
        section.slug = slug(scenario, &mut slugs);
        sections.push(section);
    }
    sections
}

fn section(
    scenario: &str,
    figure: Option<&Figure>,
    mut about: About,
    subjects: &[String],
    runs: Vec<&Run>,
    absents: Vec<&Absent>,
) -> Section {
    if about.title.is_empty() {
        about.title = scenario.into();
    }
    let mut cells =
        cells(runs.iter().map(|run| &run.cell).chain(absents.iter().map(|absent| &absent.cell)));
    let (factors, fixed) = factors(&cells);
    cells.sort_by(|one, other| by_factors(one, other, &factors));
    let mut groups: BTreeMap<(usize, usize), Group> = BTreeMap::new();
    let place = |subject: &str, cell: &Cell| {
        let subject =
            subjects.iter().position(|name| name == subject).expect("all subjects were listed");
        (subject, cells.iter().position(|known| known == cell).expect("all cells were listed"))
    };
    for run in runs {
        groups.entry(place(&run.subject, &run.cell)).or_default().runs.push(run.clone());
    }
    for absent in absents {
        groups.entry(place(&absent.subject, &absent.cell)).or_default().absent =
            Some(absent.why.clone());
    }
    groups.values_mut().for_each(|group| group.runs.sort_by_key(|run| run.ordinal));
    let nothing = || Figure { name: "nothing".into(), unit: "none".into(), better: Better::Higher };
    let figure = figure.cloned().unwrap_or_else(nothing);
    Section {
        scenario: scenario.into(),
        slug: String::new(),
        about,
        figure,
        factors,
        fixed,
        cells,
        reference: None,
        groups,
    }
}

fn cells<'a>(all: impl Iterator<Item = &'a Cell>) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for cell in all {
        if !cells.contains(cell) {
            cells.push(cell.clone());
        }
    }
    cells
}

/// By the first factor, then by the second, and so on.
fn by_factors(one: &Cell, other: &Cell, factors: &[String]) -> std::cmp::Ordering {
    let each = factors.iter().map(|name| {
        one.get(name).partial_cmp(&other.get(name)).unwrap_or(std::cmp::Ordering::Equal)
    });
    each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
}

/// Words first: cells are read as `duty maildir, sessions 5`.
fn factors(cells: &[Cell]) -> (Vec<String>, Cell) {
    let names: BTreeSet<&String> = cells.iter().flat_map(|cell| cell.keys()).collect();
    let varies = |name: &String| cells.iter().any(|cell| cell.get(name) != cells[0].get(name));
    let (mut varied, fixed): (Vec<String>, Vec<String>) =
        names.into_iter().cloned().partition(|name| varies(name));
    varied.sort_by_key(|name| numbers(cells, name).is_some());
    (
        varied,
        fixed
            .into_iter()
            .filter_map(|name| cells[0].get(&name).cloned().map(|value| (name, value)))
            .collect(),
    )
}

/// All values of a factor, in order, if they are numbers.
pub fn numbers(cells: &[Cell], factor: &str) -> Option<Vec<f64>> {
    let mut all = Vec::new();
    for cell in cells {
        match cell.get(factor) {
            Some(Factor::Number(number)) => all.push(*number),
            _ => return None,
        }
    }
    all.sort_by(f64::total_cmp);
    all.dedup();
    Some(all)
}

fn slug(name: &str, taken: &mut BTreeSet<String>) -> String {
    let plain: String = name
        .chars()
        .map(
            |letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' },
        )
        .collect();
    let plain = match plain.trim_matches('-') {
        "" => "scenario".to_string(),
        plain => plain.into(),
    };
    let numbered = (2..).map(|count| format!("{plain}-{count}"));
    let free = std::iter::once(plain.clone()).chain(numbered).find(|slug| !taken.contains(slug));
    let free = free.expect("there are more numbers than scenarios");
    taken.insert(free.clone());
    free
}

fn versions(runs: &[&Run]) -> BTreeMap<String, BTreeSet<String>> {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for run in runs {
        versions.entry(run.subject.clone()).or_default().insert(run.version.clone());
    }
    versions
}

fn settings(lines: &[Line], runs: &[&Run]) -> Vec<(Settings, BTreeSet<String>, usize)> {
    let mut all: Vec<(Settings, BTreeSet<String>, usize)> = Vec::new();
    for line in lines {
        let Line::Settings(settings) = line else { continue };
        if !all
            .iter()
            .any(|(known, ..)| known.id == settings.id && known.subject == settings.subject)
        {
            let users = || {
                runs.iter()
                    .filter(|run| run.settings == settings.id && run.subject == settings.subject)
            };
            all.push((
                settings.clone(),
                users().map(|run| run.scenario.clone()).collect(),
                users().count(),
            ));
        }
    }
    all
}

fn machines(runs: &[&Run]) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    for run in runs {
        let same = Machine { sync_us: 0.0, load: 0.0, ..run.machine.clone() };
        let (sync_us, load) = (run.machine.sync_us, run.machine.load);
        if let Some(host) = hosts.iter_mut().find(|host| host.machine == same) {
            host.runs += 1;
            host.sync_us = (host.sync_us.0.min(sync_us), host.sync_us.1.max(sync_us));
            host.load = (host.load.0.min(load), host.load.1.max(load));
        } else {
            hosts.push(Host {
                machine: same,
                runs: 1,
                sync_us: (sync_us, sync_us),
                load: (load, load),
            });
        }
    }
    hosts
}
