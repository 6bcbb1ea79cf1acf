//! What is wrong with a settings file: where, in which setting, why, and what was probably meant.
//! Must never stop at the first one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named by whoever asked for it.
    pub file: String,
    /// From 1; `None` where the fault is not in the file, as with a system that has no good name.
    pub place: Option<Place>,
    /// The setting, as in `retry.first`; empty where no setting could be made out.
    pub key: String,
    /// What is wrong, in one sentence without a final dot.
    pub what: String,
    /// What was probably meant, or what would be right.
    pub help: Option<String>,
}

/// A place in the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The line's text.
    pub text: String,
    /// How many characters of it are meant; at least 1.
    pub width: usize,
}

/// Text longer than this is not shown; settings of such a length are no settings.
const SHOWN_CHARS_MAX: usize = 160;

impl Place {
    /// The place of the bytes `span` in `source`.
    pub fn of(source: &str, span: std::ops::Range<usize>) -> Place {
        let mut start = span.start.min(source.len());
        while !source.is_char_boundary(start) {
            start -= 1;
        }
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let rest = &source[line_start..];
        let text = rest[..rest.find('\n').unwrap_or(rest.len())].trim_end_matches('\r');
        let line_end = line_start + text.len();
        let meant = source.get(start..span.end.clamp(start, line_end.max(start))).unwrap_or("");
        Place {
            line: source[..start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            text: text.chars().take(SHOWN_CHARS_MAX).collect(),
            width: meant.chars().count().max(1),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(place) = &self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        f.write_str(": ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        if let Some(place) = &self.place {
            let column = place.column.min(SHOWN_CHARS_MAX);
            let width = place.width.min(SHOWN_CHARS_MAX + 1 - column);
            let text: String = place.text.replace('\t', " ");
            let number = place.line.to_string();
            let (gap, at) = (" ".repeat(number.len()), " ".repeat(column - 1));
            write!(f, "\n {number} | {text}\n {gap} | {at}{}", "^".repeat(width))?;
        }
        match &self.help {
            Some(help) => write!(f, "\n   = {help}"),
            None => Ok(()),
        }
    }
}

/// All of them, in the order of the file, and how many.
pub fn render(problems: &[Problem]) -> String {
    let mut sorted: Vec<&Problem> = problems.iter().collect();
    sorted.sort_by_key(|problem| problem.place.as_ref().map(|place| (place.line, place.column)));
    let mut text: String = sorted.iter().map(|problem| format!("{problem}\n")).collect();
    text.push_str(&match problems.len() {
        1 => "1 problem\n".to_string(),
        many => format!("{many} problems\n"),
    });
    text
}

/// Longer words are nobody's typing error.
const WORD_BYTES_MAX: usize = 64;

/// The one of `known` that is nearest to `word`, if it is near enough to have been meant.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let near_enough = word.chars().count().div_ceil(3).max(1);
    known
        .map(|name| (distance(word, name), name))
        .filter(|(distance, _)| *distance <= near_enough)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edit distance after Damerau, in its "optimal string alignment" form: the letters to insert,
/// delete, replace, or swap with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let change = usize::from(from[i - 1] != to[j - 1]);
            let mut best =
                (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}
