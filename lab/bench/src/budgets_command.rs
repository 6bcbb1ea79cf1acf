//! `posthaste-lab budgets`: judges campaigns by the budgets.
//!
//! Must never measure, or leave out a row that was not measured.

use anyhow::{Context, Result};
use report::budget::{self, Budgets, Judged, Measured};
use report::record::Line;
use std::path::{Path, PathBuf};

/// The built-in budgets: Posthaste's.
const BUDGETS: &str = include_str!("../../budgets.toml");

/// The options.
#[derive(clap::Args)]
pub struct Options {
    /// Files of campaigns' lines and of other commands', one JSON object each; none prints the file of budgets
    files: Vec<PathBuf>,
    /// Judge by these budgets instead of the built-in ones
    #[arg(long, value_name = "FILE")]
    budgets: Option<PathBuf>,
    /// Write a page of HTML; `report --budgets` puts the table at the head of a campaign's page
    #[arg(long, value_name = "PAGE")]
    html: Option<PathBuf>,
    /// Print a table in Markdown
    #[arg(long, visible_alias = "markdown")]
    md: bool,
    /// Print text, at most 100 columns wide; the default
    #[arg(long)]
    text: bool,
    /// The page's title
    #[arg(long, default_value = "The budgets: wanted and reached")]
    title: String,
}

/// Judges the runs and prints or writes the table.
pub fn run(options: Options) -> Result<()> {
    if options.files.is_empty() {
        let text = options.budgets.as_ref().map(std::fs::read_to_string).transpose()?;
        print!("{}", text.as_deref().unwrap_or(BUDGETS));
        return Ok(());
    }
    let mut measured = Measured::default();
    options.files.iter().try_for_each(|file| measured.add(file))?;
    let judged = budget::judge(&read(options.budgets.as_deref())?, &measured);
    if let Some(page) = &options.html {
        let names: Vec<String> =
            options.files.iter().map(|file| file.display().to_string()).collect();
        let text = report::html_of_budgets(&judged, &options.title, &names.join(", "));
        std::fs::write(page, text).with_context(|| page.display().to_string())?;
    }
    if options.md {
        print!("{}", budget::markdown(&judged));
    }
    if options.text || (options.html.is_none() && !options.md) {
        print!("{}", budget::text(&judged));
    }
    Ok(())
}

/// Judges lines for a campaign's page; `None` means the built-in budgets.
pub fn of_lines(budgets: Option<&Path>, lines: &[Line]) -> Result<Judged> {
    let mut measured = Measured::default();
    measured.add_lines(lines);
    Ok(budget::judge(&read(budgets)?, &measured))
}

fn read(path: Option<&Path>) -> Result<Budgets> {
    let (text, name) = match path {
        Some(path) => (std::fs::read_to_string(path), path.display().to_string()),
        None => (Ok(BUDGETS.into()), "the budgets that come along".into()),
    };
    let budgets: Budgets =
        toml::from_str(&text.with_context(|| name.clone())?).with_context(|| name.clone())?;
    budgets.check().context(name)?;
    Ok(budgets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, names};
    use report::record::Factor;

    #[test]
    fn each_claim_that_names_a_scenario_of_ours_names_values_that_it_varies() {
        for row in read(None).unwrap().rows {
            for claim in &row.claims {
                if !names().contains(&claim.scenario.as_str()) {
                    continue; // another command's
                }
                let scenario = Scenario::find(&claim.scenario).unwrap();
                let questions = scenario.questions().unwrap();
                for cell in &claim.cells {
                    for (name, value) in cell {
                        let value = match value {
                            Factor::Number(number) => number.to_string(),
                            Factor::Word(word) => word.clone(),
                        };
                        scenario.clone().set(&format!("{name}={value}")).unwrap();
                    }
                    let varied = questions[0].cell.keys().all(|name| cell.contains_key(name));
                    assert!(
                        varied,
                        "{}: {cell:?} leaves open what {} varies",
                        row.work, claim.scenario
                    );
                }
            }
        }
    }

    #[test]
    fn a_claim_without_a_bound_is_an_error_that_names_its_row() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("mine.toml");
        let head = "subject = \"a\"\nbeside = \"b\"\nceiling = \"c\"\n[[row]]\nwork = \"sorting\"\nwanted = \"fast\"\n";
        for claim in [
            "{ scenario = \"x\" }",
            "{ at-least = 1 }",
            "{ scenario = \"x\", at-least = 1, at-most = 2 }",
        ] {
            std::fs::write(&path, format!("{head}claim = [{claim}]\n")).unwrap();
            let error = format!("{:#}", read(Some(&path)).unwrap_err());
            assert!(error.contains("sorting: a claim needs"), "{error}");
        }
        std::fs::write(&path, format!("{head}claim = [{{ scenaro = \"x\" }}]\n")).unwrap();
        assert!(format!("{:#}", read(Some(&path)).unwrap_err()).contains("scenaro"));
    }
}
