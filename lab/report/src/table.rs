//! The tables of a campaign as plain text and as Markdown: for `posthaste-lab compare`, and for pages of documentation.
//!
//! Must never be wider than the terminal: names are cut, numbers are not.

use crate::about::Abouts;
use crate::campaign::{
    Campaign, Group, LIMIT, ReportError, Section, class_of, class_word, name_of, word,
};
use crate::delay_table;
use crate::draw::number;
use crate::effect::{Effect, effects};
use crate::record::Line;
use std::fmt::Write;

/// Columns of the text form.
pub const COLUMNS_MAX: usize = 100;
/// Columns of a subject's name.
const NAME_MAX: usize = 12;

/// One subject in one cell, in words.
pub struct Row {
    /// The subject's name.
    pub subject: String,
    /// `synced`, ...; `no mailer` for the limit.
    pub durability: &'static str,
    /// The median.
    pub median: String,
    /// Where the true median lies, at 95 %.
    pub interval: String,
    /// Runs that count.
    pub n: usize,
    /// To the reference's median.
    pub ratio: String,
    /// Of the limit's median.
    pub of_limit: String,
    /// Against the reference.
    pub verdict: String,
    /// Outliers, failures, warnings, or why there is nothing: in sentences.
    pub notes: Vec<String>,
}

/// The rows of a cell, in the order of the subjects.
pub fn rows(campaign: &Campaign, section: &Section, cell: usize) -> Vec<Row> {
    section.of_cell(cell).map(|(subject, group)| row(campaign, section, (subject, group))).collect()
}

fn row(campaign: &Campaign, section: &Section, (subject, group): (usize, &Group)) -> Row {
    let standing = group.standing.as_ref();
    let judgement = group.judgement.as_ref();
    let interval = standing.and_then(|standing| standing.interval);
    Row {
        subject: campaign.subjects[subject].clone(),
        durability: class_of(campaign, subject, group).map_or("no mailer", class_word),
        median: standing.map_or_else(String::new, |standing| number(standing.median)),
        interval: interval.map_or_else(String::new, |interval| {
            format!("{}–{}", number(interval.low), number(interval.high))
        }),
        n: standing.map_or(0, |standing| standing.n),
        ratio: judgement
            .and_then(|judgement| judgement.ratio)
            .map_or_else(String::new, |ratio| format!("{}×", number(ratio))),
        of_limit: group
            .of_limit
            .filter(|_| campaign.subjects[subject] != LIMIT)
            .map_or_else(String::new, |part| format!("{} %", number(part * 100.0))),
        verdict: verdict(section, subject, group),
        notes: notes(group),
    }
}

fn verdict(section: &Section, subject: usize, group: &Group) -> String {
    if group.standing.is_none() {
        return if group.absent.is_some() && group.runs.is_empty() {
            "not possible".into()
        } else {
            "no run succeeded".into()
        };
    }
    if section.reference == Some(subject) {
        return "reference".into();
    }
    group.judgement.as_ref().map_or_else(|| "not compared".into(), |judgement| judgement.words())
}

/// What a reader has to know of a group besides its figures.
pub fn notes(group: &Group) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(why) = &group.absent {
        notes.push(format!("Not possible: {why}"));
    }
    let with_value: Vec<_> = group.runs.iter().filter(|run| run.value.is_some()).collect();
    let outlier = |outlier: &stats::Outlier| {
        let far = if outlier.distance == stats::Distance::Extreme { ", extreme" } else { "" };
        format!("run {} ({}{far})", with_value[outlier.index].ordinal, number(outlier.value))
    };
    let outliers: Vec<String> =
        group.standing.iter().flat_map(|standing| &standing.outliers).map(outlier).collect();
    if !outliers.is_empty() {
        notes.push(format!("Outliers: {}.", outliers.join(", ")));
    }
    let mut said = std::collections::BTreeMap::<String, Vec<String>>::new();
    for run in &group.runs {
        let failed = run.failed.iter().map(|why| format!("failed: {why}"));
        let cut = (run.value.is_none() && run.failed.is_none())
            .then(|| "has no value, and does not say why".to_string());
        for what in failed.chain(cut).chain(run.warnings.iter().cloned()) {
            said.entry(what).or_default().push(run.ordinal.to_string());
        }
    }
    for (what, runs) in said {
        let all = runs.len() == group.runs.len() && runs.len() > 1;
        let which = if all { "Each run".into() } else { format!("Run {}", runs.join(", ")) };
        notes.push(format!("{which}: {what}"));
    }
    notes
}

/// What `posthaste-lab compare` prints of its lines.
pub fn compare(
    lines: &[Line],
    abouts: &Abouts,
    reference: Option<&str>,
) -> Result<String, ReportError> {
    Ok(text(&Campaign::new(lines, abouts, reference)?))
}

/// All tables, at most `COLUMNS_MAX` columns wide.
pub fn text(campaign: &Campaign) -> String {
    let mut out = String::new();
    for section in &campaign.sections {
        head(&mut out, campaign, section);
        for cell in 0..section.cells.len() {
            let _ = writeln!(out, "\n{}", cut(&cell_line(section, cell), COLUMNS_MAX));
            text_table(&mut out, &rows(campaign, section, cell));
        }
        out.push_str(&delay_table::text(campaign, section));
        text_effects(&mut out, campaign, section);
        out.push('\n');
    }
    let (all, failed) = campaign.runs;
    let _ = writeln!(out, "{all} runs, {failed} of them failed.");
    out
}

fn head(out: &mut String, campaign: &Campaign, section: &Section) {
    let title = cut(&section.about.title, COLUMNS_MAX);
    let _ = writeln!(out, "{title}\n{}", "=".repeat(title.chars().count()));
    for line in wrapped(&section.about.question, COLUMNS_MAX) {
        let _ = writeln!(out, "{line}");
    }
    let line = format!(
        "{}; {}. Compared to {}.",
        section.figure_name(),
        section.better(),
        campaign.reference_in(section).unwrap_or("nothing")
    );
    wrapped(&line, COLUMNS_MAX).iter().for_each(|line| out.push_str(&format!("{line}\n")));
    if !section.fixed.is_empty() {
        let fixed: Vec<String> =
            section.fixed.iter().map(|(name, value)| format!("{name} {}", word(value))).collect();
        wrapped(&format!("Everywhere: {}.", fixed.join(", ")), COLUMNS_MAX)
            .iter()
            .for_each(|line| out.push_str(&format!("{line}\n")));
    }
}

fn cell_line(section: &Section, cell: usize) -> String {
    match section.cell_name(cell) {
        name if name.is_empty() => "all runs".into(),
        name => name,
    }
}

fn text_table(out: &mut String, rows: &[Row]) {
    let _ = writeln!(
        out,
        "  {:<NAME_MAX$} {:<9} {:>8} {:>13} {:>3} {:>7} {:>7}  verdict",
        "subject", "250", "median", "95 % interval", "n", "ratio", "limit"
    );
    for row in rows {
        let Row { durability, median, interval, n, ratio, of_limit, verdict, .. } = row;
        let line = format!(
            "  {:<NAME_MAX$} {durability:<9} {median:>8} {interval:>13} {n:>3} {ratio:>7} {of_limit:>7}  {verdict}",
            cut(&row.subject, NAME_MAX)
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for row in rows {
        for note in &row.notes {
            for (index, line) in
                wrapped(&format!("{}: {note}", row.subject), COLUMNS_MAX - 6).iter().enumerate()
            {
                let _ = writeln!(out, "{}{line}", if index == 0 { "    ! " } else { "      " });
            }
        }
    }
}

/// Each subject against itself: what a change of one factor does.
fn text_effects(out: &mut String, campaign: &Campaign, section: &Section) {
    let effects = effects(section);
    if !effects.is_empty() {
        out.push_str("\nEach subject against itself:\n");
    }
    for Effect { factor, subject, base, cell, judgement } in effects {
        let value =
            |cell: usize| section.cells[cell].get(&factor).map_or_else(|| "none".into(), word);
        let others: Vec<String> =
            section.factors.iter().filter(|other| **other != factor).cloned().collect();
        let place = name_of(&section.about, &section.cells[cell], &others);
        let place = if place.is_empty() { place } else { format!(" ({place})") };
        let change = format!("{factor} {} against {}{place}", value(cell), value(base));
        let ratio = judgement.ratio.map_or_else(|| "–".into(), number);
        let line = format!(
            "  {:<NAME_MAX$} {:<46} {ratio:>6}×  {}",
            cut(&campaign.subjects[subject], NAME_MAX),
            cut(&change, 46),
            judgement.words()
        );
        let _ = writeln!(out, "{}", cut(&line, COLUMNS_MAX));
    }
}

/// Of one scenario.
pub fn markdown(campaign: &Campaign, section: &Section) -> String {
    let mut out = format!(
        "{}; {}.\n\n| {} | subject | 250 | median | 95 % interval | n | to {} | of limit | verdict |\n|---|---|---|---:|---:|---:|---:|---:|---|\n",
        section.figure_name(),
        section.better(),
        if section.factors.is_empty() { "cell".into() } else { section.factors.join(", ") },
        plain(campaign.reference_in(section).unwrap_or("nothing"))
    );
    let mut notes = Vec::new();
    for cell in 0..section.cells.len() {
        let name = cell_line(section, cell);
        for row in rows(campaign, section, cell) {
            let words = [
                &name,
                &row.subject,
                row.durability,
                &row.median,
                &row.interval,
                &row.n.to_string(),
                &row.ratio,
                &row.of_limit,
                &row.verdict,
            ];
            let _ = writeln!(out, "| {} |", words.map(plain).join(" | "));
            notes.extend(row.notes.iter().map(|note| {
                format!("- {}, {}: {}\n", plain(&name), plain(&row.subject), plain(note))
            }));
        }
    }
    if !notes.is_empty() {
        out = out + "\n" + &notes.concat();
    }
    out + &delay_table::markdown(campaign, section)
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

/// In lines; a word longer than a line is cut into pieces.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let letters: Vec<char> = text.replace(char::is_control, " ").chars().collect();
    let mut rest = &letters[..];
    while rest.len() > columns {
        let space =
            rest[..=columns].iter().rposition(|letter| *letter == ' ').filter(|place| *place > 0);
        let end = space.unwrap_or(columns);
        lines.push(rest[..end].iter().collect());
        rest = &rest[end + usize::from(space.is_some())..];
    }
    lines.push(rest.iter().collect());
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_words_and_no_word_is_lost() {
        let text = "one two three four";
        assert_eq!(wrapped(text, 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrapped("", 5), Vec::<String>::new());
        assert_eq!(cut("posthaste", 5), "post…");
    }
}
