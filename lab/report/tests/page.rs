//! What the page, the figures and the tables say of a campaign.

#![allow(clippy::unwrap_used)]

mod synthetic;

use report::record::{Class, Line};
use report::{Abouts, Campaign};
use synthetic::{ABSENCE, FAILURE, HOSTILE, cell, number, run, word};

fn campaign(lines: &[Line]) -> Campaign {
    Campaign::new(lines, &synthetic::abouts(), Some("postfix")).unwrap()
}

/// The one that never was, put in order once for all tests.
fn odd() -> &'static Campaign {
    static ODD: std::sync::OnceLock<Campaign> = std::sync::OnceLock::new();
    ODD.get_or_init(|| campaign(&synthetic::campaign()))
}

fn line(run: report::record::Run) -> Line {
    Line::Run(Box::new(run))
}

/// Runs of two subjects at three numbers of sessions.
fn small(runs: u32) -> Vec<Line> {
    let mut lines = Vec::new();
    for ordinal in 0..runs {
        for sessions in [1.0, 10.0, 1000.0] {
            for (subject, rate) in [("postfix", 1000.0), ("posthaste", 6000.0)] {
                let value = rate * sessions + f64::from(ordinal);
                lines.push(line(run(
                    "small",
                    subject,
                    cell(&[("sessions", number(sessions))]),
                    ordinal,
                    value,
                )));
            }
        }
    }
    lines
}

fn figure(campaign: &Campaign, name: &str) -> String {
    let figures = report::figures(campaign);
    let names: Vec<&String> = figures.iter().map(|(name, _)| name).collect();
    figures.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{names:?}")).1.clone()
}

#[test]
fn every_run_has_its_dot_in_the_answer_and_in_the_dot_plot() {
    let campaign = campaign(&small(7));
    let answer = figure(&campaign, "small-answer.svg");
    assert_eq!(answer.matches("class=\"run\"").count(), 7 * 3 * 2);
    for index in 1..=3 {
        let dots = figure(&campaign, &format!("small-runs-{index}.svg"));
        assert_eq!(dots.matches("class=\"run\"").count(), 7 * 2);
    }
}

#[test]
fn numbers_that_were_set_are_the_ticks() {
    let answer = figure(&campaign(&small(1)), "small-answer.svg");
    for tick in [">1<", ">10<", ">1,000<"] {
        assert!(answer.contains(tick), "{tick}: {answer}");
    }
}

#[test]
fn words_of_the_records_cannot_become_elements() {
    let campaign = odd();
    let page = report::html(campaign, "<i>title</i>", "a<b>.jsonl");
    let figures: String = report::figures(campaign).into_iter().map(|(_, text)| text).collect();
    for text in [&page, &figures] {
        for forbidden in ["<script", "<i>title", "a<b>.jsonl", "qmail <b>", "hidden = <nothing>"] {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
    }
    assert!(
        page.contains("qmail &lt;b&gt;&amp;&quot;amp;'")
            && page.contains("hidden = &lt;nothing&gt; &amp; &quot;no one&quot;")
    );
}

#[test]
fn what_is_odd_is_named_failures_absences_outliers_warnings_broken_histograms() {
    let page = report::html(odd(), "title", "campaign.jsonl");
    let failure = FAILURE.replace('<', "&lt;").replace('>', "&gt;");
    for said in [
        &format!("Run 4: failed: {failure}"),
        &format!("Not possible: {ABSENCE}"),
        "no difference proven (n = 3)",
        ", extreme)",
        "Each run: The source used 96 % of a processor",
        "the histogram accept of run 3 cannot be read",
        "9 of 10",
        "same within 5 %",
    ] {
        assert!(page.contains(said), "{said}");
    }
}

#[test]
fn the_class_stands_beside_every_figure_and_where_it_was_not_seen_it_is_unknown() {
    let mut lines = small(2);
    for line in &mut lines {
        let Line::Run(run) = line else { continue };
        if run.subject == "postfix" {
            run.durability = None;
        } else if run.ordinal == 1 {
            run.durability.as_mut().unwrap().class = Class::Unsynced;
        }
    }
    let campaign = campaign(&lines);
    let text = report::table::text(&campaign);
    for row in
        text.lines().filter(|line| line.starts_with("  postfix ") && !line.contains("against"))
    {
        assert!(row.contains("unknown"), "{row}");
    }
    for row in
        text.lines().filter(|line| line.starts_with("  posthaste ") && !line.contains("against"))
    {
        assert!(row.contains("sometimes"), "{row}");
    }
    let answer = figure(&campaign, "small-answer.svg");
    assert!(
        answer.contains("posthaste (sometimes)") && answer.contains("postfix (unknown)"),
        "{answer}"
    );
}

#[test]
fn the_first_picture_ranks_the_safe_mailers_and_names_the_faster_unsafe_ones() {
    let first_picture = |class: Class| {
        let mut lines = small(2);
        for line in &mut lines {
            let Line::Run(run) = line else { continue };
            if run.subject == "posthaste" {
                run.durability.as_mut().unwrap().class = class;
            }
        }
        let page = report::html(&campaign(&lines), "title", "file");
        page.split_once("How to read this page").unwrap().0.to_string()
    };
    let synced = first_picture(Class::Synced);
    assert!(synced.contains("<b>posthaste</b>, in each of these panels"), "{synced}");
    // The middle cell of three, and each of its two mailers has a full bar, wide and narrow.
    assert!(synced.contains("sessions 10</figcaption>"), "{synced}");
    assert_eq!(synced.matches("class=\"solid\"").count(), 2 * 2);
    let unsynced = first_picture(Class::Unsynced);
    assert!(unsynced.contains("<b>postfix</b>, in each of these panels"), "{unsynced}");
    assert!(unsynced.contains("but not synced: <b>posthaste</b>"), "{unsynced}");
    assert!(unsynced.contains("posthaste (unsynced)</text>"), "{unsynced}");
    assert_eq!(unsynced.matches("class=\"hollow\"").count(), 2);
}

#[test]
fn a_change_of_one_factor_is_judged_with_all_else_equal() {
    let mut lines = Vec::new();
    for ordinal in 0..10 {
        for (order, value) in [("host", 400.0), ("random", 300.0)] {
            for size in [1.0, 2.0] {
                let cell = cell(&[("order", word(order)), ("size", number(size))]);
                lines.push(line(run(
                    "orders",
                    "sendmail",
                    cell,
                    ordinal,
                    value * size + f64::from(ordinal),
                )));
            }
        }
    }
    let text = report::table::compare(&lines, &Abouts::new(), None).unwrap();
    let row = |start: &str| {
        text.lines().find(|line| line.contains(start)).unwrap_or_else(|| panic!("{start}: {text}"))
    };
    assert!(row("order random against host (size 1)").ends_with("lower, 99.5 %"), "{text}");
    assert!(row("size 2 against 1 (order host)").contains("1.99×  higher, 99.5 %"), "{text}");
    assert_eq!(text.matches("×  ").count(), 4, "{text}");
}

#[test]
fn markdown_has_a_row_for_each_subject_in_each_cell_and_keeps_its_columns() {
    let campaign = odd();
    let section = campaign.sections.iter().find(|section| section.scenario == "senders").unwrap();
    let table = report::table::markdown(campaign, section);
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 2 + 8 * 7);
    assert!(rows.iter().all(|row| row.matches('|').count() == 10), "{table}");
    assert!(!table.contains(HOSTILE), "{table}");
}

#[test]
fn a_scenario_that_asks_for_delays_has_them_as_tables_and_over_its_factor() {
    let mut lots = synthetic::Lots::new(3);
    let mut lines = small(4);
    for line in &mut lines {
        let Line::Run(run) = line else { continue };
        run.histograms.insert("accept".into(), synthetic::histogram(&mut lots, 3000.0));
        run.values.insert("accept_p99_ms".into(), 3.0);
    }
    let asked = report::About { delays: true, ..Default::default() };
    let abouts = Abouts::from([("small".to_string(), asked)]);
    let with = Campaign::new(&lines, &abouts, None).unwrap();
    let delays = figure(&with, "small-accept-p99-ms.svg");
    assert_eq!(delays.matches("class=\"run\"").count(), 4 * 3 * 2);
    let text = report::table::text(&with);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("1,600 messages")).collect();
    assert_eq!(rows.len(), 3 * 2, "400 messages a run, 4 runs: {text}");
    assert!(rows.iter().all(|row| row.chars().count() <= 100), "{text}");
    assert!(text.contains("from the end of a message to its 250"), "{text}");
    let section = &with.sections[0];
    let table = report::table::markdown(&with, section);
    assert!(table.contains("| sessions 10 | postfix | synced | 1,600 |"), "{table}");
    let page = report::html(&with, "title", "file");
    assert!(!page.contains("accept p99 ms<") && page.contains("99 % of all messages"));
    let without = Campaign::new(&lines, &Abouts::new(), None).unwrap();
    assert!(!report::table::text(&without).contains("1,600 messages"));
    assert!(report::figures(&without).iter().all(|(name, _)| !name.contains("p99")));
}

#[test]
fn a_page_of_cells_that_nobody_can_do_is_still_a_page() {
    let absent = synthetic::campaign().into_iter().filter(|line| matches!(line, Line::Absent(_)));
    let campaign = Campaign::new(&absent.collect::<Vec<_>>(), &Abouts::new(), None).unwrap();
    assert!(report::html(&campaign, "title", "file").contains(ABSENCE));
    assert!(report::figures(&campaign).is_empty());
    assert!(Campaign::new(&[], &Abouts::new(), None).is_err());
}
