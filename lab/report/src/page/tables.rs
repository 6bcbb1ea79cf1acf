//! What the tables have in common: how a subject, a durability class and a cell are written.
//!
//! Must never tell a class or a verdict by colour alone: a word and a mark stand there.

use crate::campaign::{Campaign, Group, Section, class_of, class_word};
use crate::draw::Svg;
use crate::record::Class;
use maud::{Markup, PreEscaped, html};

/// Returns the marks of the classes, defined once for the whole page.
pub fn marks() -> Markup {
    html! {
        svg.symbols width="0" height="0" aria-hidden="true" {
            symbol #synced viewBox="0 0 12 12" { circle cx="6" cy="6" r="5" fill="currentColor" {} }
            symbol #sometimes viewBox="0 0 12 12" {
                (ring(None))
                path d="M6 1.6a4.4 4.4 0 0 0 0 8.8Z" fill="currentColor" {}
            }
            symbol #unsynced viewBox="0 0 12 12" { (ring(None)) }
            symbol #unknown viewBox="0 0 12 12" { (ring(Some("2 1.8"))) }
        }
    }
}

fn ring(dash: Option<&str>) -> Markup {
    html! {
        circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" stroke-width="1.3" stroke-dasharray=[dash] {}
    }
}

/// Returns a subject's name with its mark in the figures.
pub fn subject(campaign: &Campaign, subject: usize) -> Markup {
    let look = campaign.look(subject);
    let mut mark = Svg::new(12.0, 12.0, "", "");
    mark.open(&look.class());
    mark.mark(look, (6.0, 6.0), 4.2, "");
    mark.close();
    html! { (PreEscaped(mark.icon())) (campaign.subjects[subject]) }
}

/// Returns the durability class: a mark and a word.
pub fn class(campaign: &Campaign, subject: usize, group: &Group) -> Markup {
    if group.runs.is_empty() && group.absent.is_some() {
        return html! {};
    }
    let Some(class) = class_of(campaign, subject, group) else {
        return html! { span.class { "no mailer" } };
    };
    let word = class_word(class);
    html! {
        span.class.weak[class != Class::Synced] {
            svg width="12" height="12" aria-hidden="true" { use href={ "#" (word) } {} }
            (word)
        }
    }
}

/// Returns a row's first word: the subject, or the cell if there is only one subject.
pub fn row_head(campaign: &Campaign, section: &Section, index: usize, cell: usize) -> Markup {
    if section.is_of_one() {
        html! { (section.cell_name(cell)) }
    } else {
        subject(campaign, index)
    }
}

/// Returns the head of that column.
pub fn first_head(section: &Section) -> &'static str {
    if section.is_of_one() { "what varies" } else { "subject" }
}

/// Returns a row that names a cell, if there are several cells with several rows each.
pub fn cell_head(section: &Section, cell: usize, columns: usize) -> Markup {
    let name = section.cell_name(cell);
    html! {
        @if !name.is_empty() && !section.is_of_one() { (group_head(&html! { (name) }, columns)) }
    }
}

/// Returns a row that stands above others and names what they share.
pub fn group_head(name: &Markup, columns: usize) -> Markup {
    html! { tr.cell { th scope="rowgroup" colspan=(columns) { span { (name) } } } }
}

/// Returns the name, class and cell of a subject's rows, and what they count.
pub fn of_subject(
    campaign: &Campaign,
    section: &Section,
    (index, cell): (usize, usize),
    what: &str,
) -> Markup {
    let group = &section.groups[&(index, cell)];
    let name = section.cell_name(cell);
    html! {
        (subject(campaign, index)) " " (class(campaign, index, group))
        @if !name.is_empty() { ", " (name) }
        ", " (what)
    }
}
