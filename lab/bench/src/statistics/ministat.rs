//! The output of ministat, line for line.
//!
//! Must never print anything that ministat would not: `beyond` does.

use super::Options;
use super::input::Set;
use super::number::general;
use stats::{Difference, SYMBOLS, Summary, dot_plot, student};
use std::fmt::Write;

/// Returns the output for these sets, each compared to the first.
pub fn text(sets: &[Set], options: &Options, width: usize) -> String {
    let summaries: Vec<Summary> = sets.iter().filter_map(|set| Summary::of(&set.samples)).collect();
    let mut text = String::new();
    if !options.quiet {
        text.extend(
            sets.iter().zip(SYMBOLS).map(|(set, symbol)| format!("{symbol} {}\n", set.name)),
        );
    }
    if !options.no_plot && !options.figures_only {
        text += &dot_plot(&summaries, width, options.separate).unwrap_or_default();
    }
    if !options.quiet {
        text += "    N           Min           Max        Median           Avg        Stddev\n";
    }
    for (index, summary) in summaries.iter().enumerate() {
        text += &figures(SYMBOLS[index], summary);
        if index > 0 && !options.figures_only {
            let found = student(&sets[0].samples, &sets[index].samples, options.confidence);
            text += &found.map_or_else(String::new, |found| comparison(&found));
        }
    }
    text
}

fn figures(symbol: char, summary: &Summary) -> String {
    let mut line = format!("{symbol} {:3}", summary.n);
    for figure in [summary.min, summary.max, summary.median, summary.mean, summary.stddev] {
        write!(line, " {:>13}", general(figure, 8)).expect("a string takes all");
    }
    line + "\n"
}

fn comparison(found: &Difference) -> String {
    if !found.is_proven() {
        return format!("No difference proven at {} confidence\n", found.confidence);
    }
    format!(
        "Difference at {} confidence\n\t{} +/- {}\n\t{}% +/- {}%\n\t(Student's t, pooled s = {})\n",
        found.confidence,
        general(found.difference, 6),
        general(found.margin, 6),
        general(found.percent, 6),
        general(found.percent_margin, 6),
        general(found.pooled_stddev.unwrap_or(f64::NAN), 6),
    )
}
