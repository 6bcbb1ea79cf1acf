//! The progress bar of a campaign, with the time left; plain lines if the output is no terminal.
//!
//! Must never delay a result: it is printed as soon as its run has ended.

use super::schedule::Step;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::record::Line;
use std::io::IsTerminal;
use std::time::Instant;

/// The progress bar.
pub struct Progress {
    bar: ProgressBar,
    runs: usize,
    plain: bool,
    begun: Instant,
}

impl Progress {
    /// Creates the bar for this number of runs.
    pub fn new(runs: usize) -> Progress {
        let plain = !std::io::stderr().is_terminal();
        let target =
            if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}");
        bar.set_style(style.expect("the template is one"));
        Progress { bar, runs, plain, begun: Instant::now() }
    }

    /// Shows that a run begins.
    pub fn begin(&self, step: &Step) {
        self.bar.set_message(step.to_string());
    }

    /// Shows the lines of a run that has ended.
    pub fn end(&self, step: &Step, lines: &[Line]) {
        self.bar.inc(1);
        for line in lines {
            match line {
                Line::Run(run) => {
                    let result = match (&run.value, &run.failed) {
                        (Some(value), _) => format!("{} {}", short(*value), run.figure.unit),
                        (None, Some(why)) => format!("failed: {why}"),
                        (None, None) => "no value".into(),
                    };
                    self.say(&format!("{step}: {result}"));
                    run.warnings.iter().for_each(|warning| self.say(&format!("  {warning}")));
                }
                Line::Absent(absent) => self.say(&format!("{step}: not asked: {}", absent.why)),
                Line::Settings(_) => {}
            }
        }
    }

    /// Shows that a run is skipped, because the subject cannot do it.
    pub fn skip(&self, step: &Step) {
        self.bar.inc(1);
        self.say(&format!("{step}: not asked again"));
    }

    /// Shows an error of the laboratory.
    pub fn trouble(&self, step: &Step, error: &anyhow::Error) {
        self.bar.inc(1);
        self.say(&format!("{step}: the laboratory failed: {error:#}"));
    }

    /// Removes the bar.
    pub fn close(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, text: &str) {
        if !self.plain {
            return self.bar.suspend(|| eprintln!("{text}"));
        }
        let done = self.bar.position().max(1);
        let each = self.begun.elapsed().as_secs_f64() / done as f64;
        let left = each * (self.runs as f64 - done as f64).max(0.0) / 60.0;
        eprintln!("{done}/{} ({left:.0} min left) {text}", self.runs);
    }
}

/// Writes three significant digits.
fn short(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}
