//! The table of budgets as plain text and as Markdown, and the words of all three forms.
//!
//! Must never say "met" alone: how sure it is stands beside it.

use super::judge::{Found, Judged, Verdict};
use super::{Budgets, Claim};
use crate::campaign::word;
use crate::draw::{exact, number};
use crate::record::Cell;
use std::fmt::Write;

/// Columns of the text form.
const COLUMNS_MAX: usize = 100;

/// `inject, per-connection 1, sessions 10`.
pub fn place(claim: &Claim, cell: &Cell) -> String {
    if let Some(fields) = &claim.lines {
        let field = |(name, value): (&String, &serde_json::Value)| match value.as_str() {
            Some(text) => format!("{name} {text}"),
            None => format!("{name} {value}"),
        };
        return fields.iter().map(field).collect::<Vec<_>>().join(", ");
    }
    let factors = cell.iter().map(|(name, value)| format!("{name} {}", word(value)));
    let mut words = vec![claim.scenario.clone()];
    words.extend(factors);
    if !claim.value.is_empty() {
        words.push(claim.value.replace('_', " "));
    }
    words.join(", ")
}

/// `≥ 70 % of the ceiling`.
pub fn wanted(budgets: &Budgets, claim: &Claim) -> String {
    let (sign, bound) = match (claim.at_least, claim.at_most) {
        (Some(bound), _) => ("≥", bound),
        (None, bound) => ("≤", bound.unwrap_or_default()),
    };
    let Some(to) = &claim.to else {
        return format!("{sign} {} {}", exact(bound), claim.unit).trim_end().to_string();
    };
    let base = match (&to.subject, &to.value) {
        (Some(subject), _) if *subject == budgets.ceiling => "the ceiling".into(),
        (Some(subject), _) => subject.clone(),
        (None, Some(value)) => value.replace('_', " "),
        (None, None) => {
            let factors = to.cell.iter().map(|(name, value)| format!("{name} {}", word(value)));
            factors.collect::<Vec<_>>().join(", ")
        }
    };
    let by = if bound < 1.0 { " of" } else { "" };
    format!("{sign} {}{by} {base}", ratio(bound))
}

/// 0.7 as `70 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", exact((share * 1e8).round() / 1e6))
}

/// A bound as a share, or from 1 on as a multiple.
fn ratio(bound: f64) -> String {
    if bound < 1.0 { percent(bound) } else { format!("{} ×", exact(bound)) }
}

impl Found {
    /// What was reached: the median.
    pub fn reached(&self) -> String {
        self.median.map_or_else(|| "–".into(), |median| self.in_kind(median))
    }

    /// Where the true median lies, and of how many runs.
    pub fn interval(&self) -> String {
        let range = self.interval.map(|range| {
            format!("{}–{}, ", number(self.scaled(range.low)), number(self.scaled(range.high)))
        });
        match self.values.len() {
            0 => String::new(),
            n => format!("{}n {n}", range.unwrap_or_default()),
        }
    }

    /// The ceiling, and behind it the other one.
    pub fn ceilings(&self) -> String {
        let other = self.other_ceiling.map(|other| format!(" ({})", number(other)));
        format!("{}{}", or_dash(self.ceiling), other.unwrap_or_default())
    }

    fn in_kind(&self, value: f64) -> String {
        match (self.is_ratio, self.is_share()) {
            (true, true) => format!("{} %", number(value * 100.0)),
            (true, false) => format!("{} ×", number(value)),
            (false, _) => number(value),
        }
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.is_share() { value * 100.0 } else { value }
    }

    fn is_share(&self) -> bool {
        self.is_ratio && self.wanted.contains(" % of ")
    }
}

/// A median, or a dash.
pub fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), number)
}

/// The verdict of a whole row, with what is missing in it.
pub fn of_row(found: &[Found]) -> String {
    let measured: Vec<Found> =
        found.iter().filter(|one| one.verdict != Verdict::NotMeasured).cloned().collect();
    let missing = found.len() - measured.len();
    let worst = Judged::worst(&measured).words();
    match missing {
        0 => worst.into(),
        _ if measured.is_empty() => worst.into(),
        _ => format!("{worst}; {missing} of {} not measured", found.len()),
    }
}

/// At most `COLUMNS_MAX` columns wide.
pub fn text(judged: &Judged) -> String {
    let mut out = String::new();
    let (own, beside) = (judged.subject.as_str(), judged.beside.as_str());
    let heads = ["wanted", "reached", "95 % interval", own, beside, "ceiling"];
    let [wanted, reached, interval, own, beside, ceiling] = heads.map(|head| cut(head, 13));
    let _ = writeln!(
        out,
        "    {wanted:<24} {reached:>8} {interval:>20} {own:>9} {beside:>8} {ceiling:>15}"
    );
    for (row, found) in &judged.rows {
        let _ = writeln!(out, "\n{}", cut(&row.work, COLUMNS_MAX));
        let _ = writeln!(out, "{}", cut(&format!("  wanted: {}", row.wanted), COLUMNS_MAX));
        let _ = writeln!(out, "{}", cut(&format!("  {}", of_row(found)), COLUMNS_MAX));
        let mut place = "";
        for one in found {
            if place != one.place {
                let _ = writeln!(out, "{}", cut(&format!("  - {}", one.place), COLUMNS_MAX));
                place = &one.place;
            }
            text_line(&mut out, one);
        }
    }
    if let Some(other) = &judged.other_ceiling {
        let _ = writeln!(out, "\nIn brackets the ceiling by {other}; judged by the other one.");
    }
    out
}

fn text_line(out: &mut String, found: &Found) {
    let line = format!(
        "    {:<24} {:>8} {:>20} {:>9} {:>8} {:>15}",
        cut(&found.wanted, 24),
        found.reached(),
        cut(&found.interval(), 20),
        or_dash(found.own),
        or_dash(found.beside),
        cut(&found.ceilings(), 15),
    );
    let _ = writeln!(out, "{}", cut(&line, COLUMNS_MAX));
    let notes = [found.verdict.words().to_string(), found.sameness()];
    let notes: Vec<String> = notes.into_iter().filter(|note| !note.is_empty()).collect();
    let _ = writeln!(out, "      {}", cut(&notes.join("; "), COLUMNS_MAX - 6));
}

/// One table.
pub fn markdown(judged: &Judged) -> String {
    let mut out = format!(
        "| work | where | wanted | reached | 95 % interval | {} | {} | ceiling | verdict |\n\
         |---|---|---|---:|---:|---:|---:|---:|---|\n",
        plain(&judged.subject),
        plain(&judged.beside)
    );
    for (row, found) in &judged.rows {
        for (index, one) in found.iter().enumerate() {
            let work = if index == 0 { plain(&row.work) } else { String::new() };
            let verdict = match one.sameness() {
                same if same.is_empty() => one.verdict.words().to_string(),
                same => format!("{}; {same}", one.verdict.words()),
            };
            let cells = [
                work,
                plain(&one.place),
                plain(&one.wanted),
                one.reached(),
                one.interval(),
                or_dash(one.own),
                or_dash(one.beside),
                one.ceilings(),
                verdict,
            ];
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
    }
    if let Some(other) = &judged.other_ceiling {
        let _ = writeln!(
            out,
            "\nIn brackets the ceiling by {}; judged by the other one.",
            plain(other)
        );
    }
    out
}

/// Without what Markdown would take for its own.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('|', "\\|").replace(['\n', '\r'], " ")
}

fn cut(text: &str, columns: usize) -> String {
    let text = text.replace(char::is_control, " ");
    if text.chars().count() <= columns {
        return text;
    }
    text.chars().take(columns - 1).chain(['…']).collect()
}
