//! What one factor does to one subject: each of its values against the first, all else being equal.
//!
//! Must never compare two cells that differ in more than that factor.

use crate::campaign::Section;
use crate::judge::{self, Judgement};
use crate::record::Cell;

/// One cell beside another of the same subject.
pub struct Effect {
    /// Which factor differs.
    pub factor: String,
    /// The subject, as in `Campaign::subjects`.
    pub subject: usize,
    /// The cell with the factor's first value.
    pub base: usize,
    /// The cell beside it.
    pub cell: usize,
    /// What may be said.
    pub judgement: Judgement,
}

/// All of a section, by factor, subject and cell.
pub fn effects(section: &Section) -> Vec<Effect> {
    let mut effects = Vec::new();
    for factor in &section.factors {
        for subject in section.subjects() {
            for cell in 0..section.cells.len() {
                effects.extend(effect(section, factor, subject, cell));
            }
        }
    }
    effects
}

fn effect(section: &Section, factor: &str, subject: usize, cell: usize) -> Option<Effect> {
    let values = |cell: usize| {
        section
            .groups
            .get(&(subject, cell))
            .map(|group| group.values())
            .filter(|values| !values.is_empty())
    };
    let rest = without(&section.cells[cell], factor);
    let alike =
        |other: &usize| without(&section.cells[*other], factor) == rest && values(*other).is_some();
    let base = (0..section.cells.len()).find(alike).filter(|base| *base != cell)?;
    let judgement = judge::against(&values(base)?, &values(cell)?);
    Some(Effect { factor: factor.into(), subject, base, cell, judgement })
}

fn without(cell: &Cell, factor: &str) -> Cell {
    cell.iter()
        .filter(|(name, _)| *name != factor)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
