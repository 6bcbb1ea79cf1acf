//! The table of what each factor changes for each subject.
//!
//! Must never compare one subject to another.

use super::results::{mark, range};
use super::tables::{class, subject};
use super::{folding_table, heads};
use crate::about::heading;
use crate::campaign::{Campaign, Section, name_of, word};
use crate::draw::number;
use crate::effect::{Effect, effects};
use maud::{Markup, html};

/// Returns the table of all factors; nothing if a single cell was measured.
pub fn effects_table(campaign: &Campaign, section: &Section) -> Markup {
    let effects = effects(section);
    if effects.is_empty() {
        return html! {};
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
    let rows = html! { tbody { @for effect in &effects { (row(campaign, section, effect)) } } };
    folding_table("Each subject against itself: what a change does", &head, &rows)
}

fn row(campaign: &Campaign, section: &Section, effect: &Effect) -> Markup {
    let Effect { factor, subject: index, base, cell, judgement } = effect;
    let value = |cell: usize| section.cells[cell].get(factor).map_or_else(|| "none".into(), word);
    let others: Vec<String> =
        section.factors.iter().filter(|other| *other != factor).cloned().collect();
    html! {
        tr {
            th scope="row" { (subject(campaign, *index)) }
            td { (class(campaign, *index, &section.groups[&(*index, *cell)])) }
            td { (heading(&section.about, factor)) " " (value(*cell)) " against " (value(*base)) }
            td { (name_of(&section.about, &section.cells[*cell], &others)) }
            td.n { (judgement.ratio.map_or_else(|| "–".into(), number)) "×" (range(judgement)) }
            td { (mark(Some(judgement))) (judgement.words()) }
            td.soft.small { (judgement.test()) }
        }
    }
}
