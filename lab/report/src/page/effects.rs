//! The table of what each factor does to each subject.
//!
//! Must never be read as one subject against another.

use super::results::mark;
use super::tables::{class, subject};
use super::{folding_table, heads};
use crate::about::heading;
use crate::campaign::{Campaign, Section, word};
use crate::draw::{escape, number};
use crate::effect::{Effect, effects};

/// All factors; nothing where a single cell was measured.
pub fn effects_table(campaign: &Campaign, section: &Section) -> String {
    let effects = effects(section);
    if effects.is_empty() {
        return String::new();
    }
    let head = heads(&[
        ("subject", false),
        ("its 250", false),
        ("what was changed", false),
        ("where", false),
        ("ratio", true),
        ("verdict", false),
        ("difference of means, 95 %", false),
    ]);
    let rows: String = effects.iter().map(|effect| row(campaign, section, effect)).collect();
    folding_table(
        "Each subject against itself: what a change does",
        &head,
        &format!("<tbody>{rows}</tbody>"),
    )
}

fn row(campaign: &Campaign, section: &Section, effect: &Effect) -> String {
    let Effect { factor, subject: index, base, cell, judgement } = effect;
    let value = |cell: usize| section.cells[cell].get(factor).map_or_else(|| "none".into(), word);
    let change =
        format!("{} {} against {}", heading(&section.about, factor), value(*cell), value(*base));
    let others: Vec<String> =
        section.factors.iter().filter(|other| *other != factor).cloned().collect();
    let place = crate::campaign::name_of(&section.about, &section.cells[*cell], &others);
    let range = judgement.ratio_interval.map_or_else(String::new, |range| {
        format!(" <span class=\"soft\">{}–{}</span>", number(range.low), number(range.high))
    });
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}×{range}</td><td>{}{}</td><td class=\"soft small\">{}</td></tr>",
        subject(campaign, *index),
        class(campaign, *index, &section.groups[&(*index, *cell)]),
        escape(&change),
        escape(&place),
        judgement.ratio.map_or_else(|| "–".into(), number),
        mark(Some(judgement)),
        escape(&judgement.words()),
        escape(&judgement.test())
    )
}
