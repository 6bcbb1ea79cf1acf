//! What the tables have in common: how a subject, a class and a cell are written.
//!
//! Must never tell a class or a verdict by colour alone: a word and a mark stand there.

use crate::campaign::{Campaign, Group, Section, class_of, class_word};
use crate::draw::{Svg, escape};
use crate::record::Class;

/// The marks of the classes, once for the whole page.
pub fn marks() -> &'static str {
    "<svg class=\"symbols\" width=\"0\" height=\"0\" aria-hidden=\"true\">\
     <symbol id=\"synced\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"5\" fill=\"currentColor\"/></symbol>\
     <symbol id=\"sometimes\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"4.4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.3\"/><path d=\"M6 1.6a4.4 4.4 0 0 0 0 8.8Z\" fill=\"currentColor\"/></symbol>\
     <symbol id=\"unsynced\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"4.4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.3\"/></symbol>\
     <symbol id=\"unknown\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"4.4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.3\" stroke-dasharray=\"2 1.8\"/></symbol>\
     </svg>\n"
}

/// A subject's name with the mark that it has in the figures.
pub fn subject(campaign: &Campaign, subject: usize) -> String {
    let look = campaign.look(subject);
    let mut mark = Svg::new(12.0, 12.0, "", "");
    mark.open(&look.class());
    mark.mark(look, (6.0, 6.0), 4.2, "");
    mark.close();
    format!("{}{}", mark.icon(), escape(&campaign.subjects[subject]))
}

/// The durability class: a mark and a word.
pub fn class(campaign: &Campaign, subject: usize, group: &Group) -> String {
    if group.runs.is_empty() && group.absent.is_some() {
        return String::new();
    }
    let Some(class) = class_of(campaign, subject, group) else {
        return "<span class=\"class\">no mailer</span>".into();
    };
    let word = class_word(class);
    let weight = if class == Class::Synced { "class" } else { "class weak" };
    format!(
        "<span class=\"{weight}\"><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><use href=\"#{word}\"/></svg>{word}</span>"
    )
}

/// A row's first word: the subject, or the cell where there is but one subject.
pub fn row_head(campaign: &Campaign, section: &Section, index: usize, cell: usize) -> String {
    if section.is_of_one() { escape(&section.cell_name(cell)) } else { subject(campaign, index) }
}

/// The head over these.
pub fn first_head(section: &Section) -> &'static str {
    if section.is_of_one() { "what varies" } else { "subject" }
}

/// A row that names a cell, where there are several of several rows.
pub fn cell_head(section: &Section, cell: usize, columns: usize) -> String {
    let name = section.cell_name(cell);
    if name.is_empty() || section.is_of_one() {
        return String::new();
    }
    format!(
        "<tr class=\"cell\"><th scope=\"rowgroup\" colspan=\"{columns}\"><span>{}</span></th></tr>",
        escape(&name)
    )
}
