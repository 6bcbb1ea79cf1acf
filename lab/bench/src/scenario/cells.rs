//! The factors of a scenario, and the cells that follow from them.
//!
//! Must never know a factor: the names are those of `Load` and `Setup`.

use super::{Load, Question};
use crate::subject::Setup;
use anyhow::{Context, Result, bail};
use report::record::{Cell, Factor};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use toml::{Table, Value};

/// Factors with their values, ordered by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Vary(std::collections::BTreeMap<String, Vec<Factor>>);

impl Vary {
    /// Sets a factor's values.
    pub fn set(&mut self, name: &str, values: Vec<Factor>) {
        self.0.insert(name.into(), values);
    }

    /// Returns whether this is a factor.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns all combinations.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::new()];
        for (name, values) in &self.0 {
            let with = |cell: &Cell, value: &Factor| {
                let mut cell = cell.clone();
                cell.insert(name.clone(), value.clone());
                cell
            };
            cells = cells
                .iter()
                .flat_map(|cell| values.iter().map(move |value| with(cell, value)))
                .collect();
        }
        cells
    }
}

/// Parses a word of the command line, as a number if it is one.
pub fn factor(text: &str) -> Factor {
    text.parse().map_or_else(|_| Factor::Word(text.into()), Factor::Number)
}

/// Returns an error that lists the known names.
pub fn name_is_known(name: &str, load: &Load, setup: &Setup) -> Result<()> {
    let (load, setup) = (Table::try_from(load)?, Table::try_from(setup)?);
    if load.contains_key(name) || setup.contains_key(name) {
        return Ok(());
    }
    let names: Vec<&str> = load.keys().chain(setup.keys()).map(String::as_str).collect();
    bail!("{name}: one of these is expected: {}", names.join(" "))
}

/// Applies a cell to the scenario's values.
pub fn question(cell: Cell, load: &Load, setup: &Setup) -> Result<Question> {
    let (mut load, mut setup) = (load.clone(), setup.clone());
    for (name, factor) in &cell {
        name_is_known(name, &load, &setup)?;
        if Table::try_from(&load)?.contains_key(name) {
            load = with(&load, name, factor)?;
        } else {
            setup = with(&setup, name, factor)?;
        }
    }
    Ok(Question { cell, load, setup })
}

fn with<T: Serialize + DeserializeOwned>(of: &T, name: &str, factor: &Factor) -> Result<T> {
    let mut table = Table::try_from(of)?;
    let old = table.get(name).context("the name was there a moment ago")?;
    let value = value(old, factor);
    table.insert(name.into(), value);
    table.try_into().with_context(|| format!("{name} cannot be {factor:?}"))
}

/// Converts a value to the type that the name has.
fn value(old: &Value, factor: &Factor) -> Value {
    match (old, factor) {
        (Value::Integer(_), Factor::Number(number)) => Value::Integer(*number as i64),
        (Value::String(_), Factor::Number(number)) => Value::String(number.to_string()),
        (Value::Boolean(_), Factor::Word(word)) => Value::Boolean(word == "true"),
        (Value::Array(_), Factor::Word(word)) => Value::Array(vec![word.clone().into()]),
        (_, Factor::Number(number)) => Value::Float(*number),
        (_, Factor::Word(word)) => Value::String(word.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Duty;

    #[test]
    fn every_combination_is_a_cell_and_each_name_lands_where_it_belongs() {
        let vary: Vary =
            toml::from_str("duty = [\"mbox\", \"maildir\"]\nsessions = [5, 10, 20]").unwrap();
        let cells = vary.cells();
        assert_eq!(cells.len(), 6);
        let all: Vec<Question> = cells
            .into_iter()
            .map(|cell| question(cell, &Load::default(), &Setup::default()).unwrap())
            .collect();
        assert_eq!(all.iter().filter(|one| one.setup.duty == Duty::Mbox).count(), 3);
        assert_eq!(all.iter().filter(|one| one.load.sessions == 20).count(), 2);
    }

    #[test]
    fn a_value_of_another_kind_is_an_error_that_names_it() {
        let cell = Cell::from([("duty".into(), Factor::Word("sleep".into()))]);
        let error = question(cell, &Load::default(), &Setup::default()).unwrap_err();
        assert!(format!("{error:#}").contains("duty"), "{error:#}");
    }
}
