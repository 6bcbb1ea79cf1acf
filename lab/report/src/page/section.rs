//! A scenario on the page: question, answer as a picture, tables, the rest of the pictures.
//!
//! Must never put a picture before the question that it answers.

use super::{counts, effects, measures, results};
use crate::about::heading;
use crate::campaign::{Campaign, Section, word};
use crate::draw::{Look, Svg, escape};
use crate::plot::{Gallery, Plot, galleries};

/// More figures than these of one kind are folded away after the first ones.
const OPEN_MAX: usize = 6;

/// All of it.
pub fn section(campaign: &Campaign, section: &Section) -> String {
    let galleries = galleries(campaign, section);
    let draw = |gallery: &Gallery| draw(section, gallery);
    let answer: String = galleries.iter().filter(|gallery| gallery.is_answer).map(draw).collect();
    let rest: String = galleries.iter().filter(|gallery| !gallery.is_answer).map(draw).collect();
    let tables = [
        results::results(campaign, section),
        effects::effects_table(campaign, section),
        measures::costs(campaign, section),
        counts::minutes(campaign, section),
        measures::trends(campaign, section),
        measures::delays(campaign, section),
        counts::calls(campaign, section),
    ];
    format!(
        "<section class=\"scenario\" id=\"{slug}\">\n<h2>{title}</h2>\n{question}{conditions}{answer}{tables}{rest}</section>\n",
        slug = section.slug,
        title = escape(&section.about.title),
        question = paragraph("question", &section.about.question),
        conditions = paragraph("conditions", &conditions(section)),
        tables = tables.concat(),
    )
}

fn paragraph(class: &str, text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("<p class=\"{class}\">{}</p>\n", escape(text))
    }
}

fn conditions(section: &Section) -> String {
    let fixed: Vec<String> = section
        .fixed
        .iter()
        .map(|(name, value)| format!("{} {}", heading(&section.about, name), word(value)))
        .collect();
    let seeds: std::collections::BTreeSet<u64> =
        section.groups.values().flat_map(|group| &group.runs).map(|run| run.seed).collect();
    let seeds: Vec<String> = match seeds.len() {
        0..=12 => seeds.iter().map(u64::to_string).collect(),
        count => vec![format!("{count} different ones, in the data")],
    };
    let everywhere = if fixed.is_empty() {
        String::new()
    } else {
        format!("Everywhere: {}. ", fixed.join(", "))
    };
    format!("Scenario {}. {everywhere}Seeds: {}.", section.scenario, seeds.join(", "))
}

fn draw(section: &Section, gallery: &Gallery) -> String {
    let figures = |plots: &[Plot]| -> String {
        plots.iter().map(|plot| figure(section, plot, gallery)).collect()
    };
    let heading = if gallery.is_answer {
        String::new()
    } else {
        format!("<h3>{}</h3>\n", escape(&gallery.title))
    };
    let caption = format!("<p class=\"caption\">{}</p>\n", escape(&gallery.caption));
    let (shown, folded) = gallery.plots.split_at(gallery.plots.len().min(OPEN_MAX));
    let folded = if folded.is_empty() {
        String::new()
    } else {
        format!(
            "<details><summary>{} more of these figures</summary><div class=\"panels\">{}</div></details>\n",
            folded.len(),
            figures(folded)
        )
    };
    let key = key(&gallery.plots);
    let class = if gallery.plots.len() == 1 && gallery.plots[0].narrow.is_some() {
        "single"
    } else {
        "panels"
    };
    format!("{heading}{caption}{key}<div class=\"{class}\">{}</div>\n{folded}", figures(shown))
}

/// What the looks in the figures mean, once for all of them.
fn key(plots: &[Plot]) -> String {
    let mut entries: Vec<&(Look, String)> = Vec::new();
    for entry in plots.iter().flat_map(|plot| plot.wide.key()) {
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries.sort_by_key(|(look, _)| *look);
    let one =
        |(look, name): &&(Look, String)| format!("<li>{}{}</li>", Svg::sample(*look), escape(name));
    let all: String = entries.iter().map(one).collect();
    if all.is_empty() { all } else { format!("<ul class=\"key\">{all}</ul>\n") }
}

fn figure(section: &Section, plot: &Plot, gallery: &Gallery) -> String {
    let id = format!("f-{}-{}", section.slug, plot.slug);
    let title = if gallery.plots.len() == 1 && gallery.is_answer {
        String::new()
    } else {
        format!("<figcaption>{}</figcaption>", escape(&plot.title))
    };
    let caption = if plot.caption.is_empty() {
        String::new()
    } else {
        format!("<p class=\"caption\">{}</p>", escape(&plot.caption))
    };
    let Some(narrow) = &plot.narrow else {
        return format!("<figure>{title}{}{caption}</figure>\n", plot.wide.inline(&id));
    };
    format!(
        "<figure>{title}<div class=\"for-wide\">{}</div><div class=\"for-narrow\">{}</div>{caption}</figure>\n",
        plot.wide.inline(&id),
        narrow.inline(&format!("{id}-narrow"))
    )
}
