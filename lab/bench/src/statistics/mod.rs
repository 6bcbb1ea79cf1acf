//! `posthaste-lab stats`: ministat's job with its flags and its output; further flags do more.
//!
//! Must never change a line of ministat's output: scripts read it.

mod beyond;
mod input;
mod json;
mod ministat;
mod number;

use anyhow::Result;
use input::{Fault, Set};
use stats::{Confidence, SETS_MAX, Trend, WIDTH_DEFAULT, WIDTH_MAX};
use std::io::Write;
use std::str::FromStr;

/// The options of `stats`.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct Options {
    /// Files of numbers, one a line; each but the first is compared with the first; `-` or none: the standard input
    files: Vec<String>,
    /// Confidence of a difference, in percent; ministat knows 80, 90, 95, 98, 99 and 99.5
    #[arg(short, default_value = "95", value_name = "CONFIDENCE", value_parser = confidence)]
    confidence: Confidence,
    /// The column of the numbers, from 1
    #[arg(short = 'C', default_value = "1", value_name = "COLUMN", value_parser = column)]
    column: usize,
    /// Characters between columns
    #[arg(short, default_value = " \t", value_name = "DELIMITERS", value_parser = delimiters)]
    delimiters: String,
    /// Figures only: no plot, no comparisons
    #[arg(short = 'n')]
    figures_only: bool,
    /// Figures and comparisons: no plot
    #[arg(short = 'A')]
    no_plot: bool,
    /// No names, no line of headings, no outliers
    #[arg(short)]
    quiet: bool,
    /// A line of the plot for each set's mean and deviation
    #[arg(short)]
    separate: bool,
    /// Columns of the plot; the default is the terminal's, or 74
    #[arg(short, value_name = "WIDTH", value_parser = width)]
    width: Option<usize>,
    /// Also print Welch's t test, which does not need equal variances
    #[arg(long)]
    welch: bool,
    /// Also print medians with bootstrap intervals, and whether the samples look normal
    #[arg(long)]
    bootstrap: bool,
    /// The seed of the bootstrap
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Test whether the means are the same within this percentage of the first: two one-sided tests
    #[arg(long, value_name = "MARGIN%")]
    same: Option<Margin>,
    /// Fit a straight line instead: x in the column, y in the next one
    #[arg(long, conflicts_with_all = ["welch", "bootstrap", "same"])]
    trend: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A share between 0 and 1, written in percent.
#[derive(Clone, Copy, Debug)]
struct Margin(f64);

/// Prints the figures of the files. Ends the process with ministat's exit code if the input is invalid.
pub fn run(options: Options) -> Result<()> {
    let text = if options.trend { trends(&options) } else { sets(&options) };
    match text {
        Ok(text) => match std::io::stdout().lock().write_all(text.as_bytes()) {
            // Who reads the pipe may stop after the first line.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        },
        Err(fault) => {
            eprintln!("posthaste-lab stats: {fault}");
            std::process::exit(fault.code);
        }
    }
}

fn sets(options: &Options) -> Result<String, Fault> {
    if options.files.len() > SETS_MAX {
        return Err(Fault::content(format!(
            "{} files are too many, {SETS_MAX} can be compared",
            options.files.len()
        )));
    }
    let read = |name: String| input::read(&name)?.column(options.column, &options.delimiters);
    let sets = names(options).map(read).collect::<Result<Vec<Set>, Fault>>()?;
    if options.json {
        return Ok(format!("{:#}\n", json::sets(&sets, options)));
    }
    let width = options.width.unwrap_or_else(terminal_width);
    Ok(ministat::text(&sets, options, width) + &beyond::text(&sets, options))
}

fn trends(options: &Options) -> Result<String, Fault> {
    let mut text = String::new();
    for name in names(options) {
        let (name, points) = input::read(&name)?.points(options.column, &options.delimiters)?;
        let no_line =
            || Fault::content(format!("{name}: all points have one x, which makes no line"));
        let trend = Trend::of(&points).ok_or_else(no_line)?;
        text += &if options.json {
            format!("{}\n", json::trend(&name, &trend, options))
        } else {
            beyond::trend_text(&name, &points, &trend, options.confidence)
        };
    }
    Ok(text)
}

fn names(options: &Options) -> impl Iterator<Item = String> {
    let none = options.files.is_empty().then(|| "-".to_string());
    options.files.iter().cloned().chain(none)
}

/// Finds the width as ministat does: `COLUMNS`, or the terminal's width less two if the output is a terminal.
fn terminal_width() -> usize {
    let terminal = console::Term::stdout();
    let named = || std::env::var("COLUMNS").ok()?.parse::<usize>().ok();
    let found = || {
        named().or_else(|| {
            terminal.size_checked().map(|(_, columns)| usize::from(columns).saturating_sub(2))
        })
    };
    let found = if terminal.is_term() { found() } else { None };
    found.filter(|width| (2..=WIDTH_MAX).contains(width)).unwrap_or(WIDTH_DEFAULT)
}

fn confidence(text: &str) -> Result<Confidence, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    percent
        .and_then(Confidence::of_percent)
        .ok_or_else(|| "it has to lie between 0 and 100".to_string())
}

fn column(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|column| *column > 0)
        .ok_or_else(|| "columns are counted from 1".to_string())
}

fn delimiters(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("at least one character is needed".to_string())
    } else {
        Ok(text.to_string())
    }
}

fn width(text: &str) -> Result<usize, String> {
    let known = text.parse().ok().filter(|width| (2..=WIDTH_MAX).contains(width));
    known.ok_or_else(|| format!("it has to lie between 2 and {WIDTH_MAX}"))
}

impl FromStr for Margin {
    type Err = String;

    fn from_str(text: &str) -> Result<Margin, String> {
        let percent: Option<f64> = text.trim_end_matches('%').parse().ok();
        let known = percent.filter(|percent| *percent > 0.0 && *percent < 100.0);
        known
            .map(|percent| Margin(percent / 100.0))
            .ok_or_else(|| "it has to lie between 0 and 100 percent".into())
    }
}
