//! `posthaste-lab report`: makes a page, figures, a table or plain text of a campaign's lines.
//!
//! Must never measure, or change what was measured: it reads lines and writes pages.

use crate::budgets_command::of_lines;
use anyhow::{Context, Result, ensure};
use report::record::{self, Line};
use report::{Abouts, Campaign, table};
use std::path::{Path, PathBuf};

/// The options.
#[derive(clap::Args)]
pub struct Options {
    /// Files of a campaign's lines, one JSON object each
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write one page of HTML with everything in it; it needs no network
    #[arg(long, value_name = "PAGE")]
    html: Option<PathBuf>,
    /// Write every figure as an SVG file into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write one row a run
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print the tables, at most 100 columns wide; the default
    #[arg(long)]
    text: bool,
    /// Add the table of budgets to the page: those of this file, or the built-in ones
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    budgets: Option<Option<PathBuf>>,
    /// Compare the others to this subject; else to the first that is a mailer
    #[arg(long, value_name = "SUBJECT")]
    reference: Option<String>,
    /// The page's title
    #[arg(long, default_value = "Mail transfer agents, measured the same way")]
    title: String,
}

/// Makes the output. `abouts` has titles and questions of the scenarios.
pub fn run(options: Options, abouts: Abouts) -> Result<()> {
    let lines = lines(&options.files)?;
    let campaign = Campaign::new(&lines, &abouts, options.reference.as_deref())
        .with_context(|| names(&options.files))?;
    if let Some(page) = &options.html {
        let budgets = options.budgets.as_ref().map(|file| of_lines(file.as_deref(), &lines));
        let budgets = budgets.transpose()?;
        let source = names(&options.files);
        let text = report::html_with_budgets(&campaign, budgets.as_ref(), &options.title, &source);
        write(page, &text)?;
    }
    if let Some(directory) = &options.svg {
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        for (name, text) in report::figures(&campaign) {
            write(&directory.join(name), &text)?;
        }
    }
    if let Some(file) = &options.csv {
        write(file, &report::csv(&campaign))?;
    }
    if options.text || (options.html.is_none() && options.svg.is_none() && options.csv.is_none()) {
        print!("{}", table::text(&campaign));
    }
    Ok(())
}

/// Reads the lines of all files; a missing file is an error.
fn lines(files: &[PathBuf]) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for file in files {
        ensure!(file.exists(), "{}: there is no such file", file.display());
        lines.extend(record::read(file)?);
    }
    Ok(lines)
}

fn names(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
