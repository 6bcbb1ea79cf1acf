//! The beginning of the page: what was measured, when, on what, and how to read it.
//!
//! Must never praise: it says how to read, not what to think.

use super::{heads, table, tables};
use crate::campaign::{Campaign, Group, Host};
use crate::draw::{number, time_us};
use crate::judge::{SAME_WITHIN, STDDEV_RATIO_MAX};
use maud::{Markup, html};

/// Returns the title, and what was measured when.
pub fn header(campaign: &Campaign, title: &str, source: &str) -> Markup {
    let (all, failed) = campaign.runs;
    let (first, last) = (date(campaign.time.0), date(campaign.time.1));
    let is_one_day = first[..10] == last[..10];
    let last = if is_one_day { &last[11..] } else { &last };
    let labs: Vec<&str> = campaign.labs.iter().map(String::as_str).collect();
    html! {
        header {
            h1 { (title) }
            p.lead {
                (number(all as f64)) " runs of " (campaign.subjects.len()) " subjects in "
                (count(campaign.sections.len(), "scenario")) ", "
                @if failed == 0 { "none" } @else { (failed) } " of which failed. "
                (first) " to " (last) " UTC, by posthaste-lab " (labs.join(", ")) ". Raw data: " (source) "."
            }
        }
    }
}

/// Returns what stands before the first scenario: how to read the page, the machines, the contents.
pub fn opening(campaign: &Campaign) -> Markup {
    html! { (reading(campaign)) (machines(campaign)) (contents(campaign)) }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn reading(campaign: &Campaign) -> Markup {
    let reference = &campaign.reference;
    html! {
        section #reading {
            h2 { "How to read this page" }
            p {
                "Every figure is the median of several runs. The subjects take turns, so that a slow minute of the \
                 machine affects all of them. The interval beside a figure holds the true median with 95 % confidence. "
                "The word beside each figure says what the subject’s " code { "250" } " was worth: "
                b { "synced" } " means that the disk had confirmed each message before the reply, "
                b { "sometimes" } " that it had confirmed some of them, "
                b { "unsynced" } " that a power cut could have lost mail that was promised, "
                b { "unknown" } " that it could not be observed. A fast figure that is unsynced answers another \
                 question than a slow one that is synced. "
                b { "Limit" } " is no mailer: the source talks to the sink, and nothing can be faster. Syncs were \
                 observed in separate runs or in some runs only; the result holds for all runs with the same settings."
            }
            p {
                "The verdict compares a subject’s runs to those of " b { (reference) } " in the same cell. \
                 “Higher, 99.5 %” means that chance would hardly ever produce a difference as large; “95 % only” is \
                 weaker; “no difference proven” does not mean that they are alike. Only “same within "
                (format!("{:.0}", SAME_WITHIN * 100.0)) " %” claims that, and it was tested (two one-sided tests at \
                 95 %). The test is Student’s t as ministat computes it, or Welch’s if one standard deviation is more \
                 than " (number_word(STDDEV_RATIO_MAX)) " times the other. If " (reference) " was not measured, the \
                 first subject that was measured takes its place. With fewer than ten runs on either side nothing is \
                 claimed, however far apart the figures are. Outliers are named and still count."
            }
        }
    }
}

fn number_word(value: f64) -> String {
    if value == 2.0 { "two".into() } else { number(value) }
}

fn machines(campaign: &Campaign) -> Markup {
    let several = campaign.machines.len() > 1;
    html! {
        section #machine {
            h2 { @if several { "The machines" } @else { "The machine" } }
            @if several { p { "The runs come from more than one machine: read their figures apart." } }
            @for machine in &campaign.machines { (host(machine)) }
            (versions(campaign))
        }
    }
}

fn host(host: &Host) -> Markup {
    let machine = &host.machine;
    let between = |(low, high): (f64, f64), write: &dyn Fn(f64) -> String| {
        if low == high { write(low) } else { format!("{} to {}", write(low), write(high)) }
    };
    let rows = [
        ("Processor", format!("{}, {}", machine.cpu, count(machine.cores as usize, "processor"))),
        ("Memory", format!("{} MiB", number(machine.memory_mib as f64))),
        ("System", format!("{}, kernel {}", machine.system, machine.kernel)),
        ("Disk", format!("{}, {}", machine.disk, machine.file_system)),
        (
            "One sync of 4 KiB",
            format!("{} (medians before the runs)", between(host.sync_us, &time_us)),
        ),
        ("Load before the runs", between(host.load, &|load| format!("{load:.2}"))),
        ("Runs", number(host.runs as f64)),
    ];
    html! { dl.facts { @for (name, value) in rows { dt { (name) } dd { (value) } } } }
}

fn versions(campaign: &Campaign) -> Markup {
    let heads = heads(&[
        ("subject", false),
        ("version", false),
        ("its 250", false),
        ("how that was found", false),
    ]);
    let rows = html! {
        tbody.words {
            @for (subject, name) in campaign.subjects.iter().enumerate() { (version(campaign, subject, name)) }
        }
    };
    table("Subjects and their versions", &heads, &rows)
}

fn version(campaign: &Campaign, subject: usize, name: &str) -> Markup {
    let versions: Vec<&str> =
        campaign.versions.get(name).into_iter().flatten().map(String::as_str).collect();
    let mut groups = campaign.sections.iter().flat_map(|section| section.groups.iter());
    let found = groups.find(|((one, _), group)| *one == subject && group.durability.is_some());
    let unknown = Group::default();
    let group = found.map_or(&unknown, |(_, group)| group);
    html! {
        tr {
            th scope="row" { (tables::subject(campaign, subject)) }
            td { (versions.join(", ")) }
            td { (tables::class(campaign, subject, group)) }
            td {
                @if let Some(found) = &group.durability {
                    (number(found.syncs_before_250)) " syncs before 250, mean of " (found.messages) " messages, "
                    (found.how)
                }
            }
        }
    }
}

fn contents(campaign: &Campaign) -> Markup {
    html! {
        nav aria-label="Contents" {
            h2 { "Contents" }
            ol {
                @for section in &campaign.sections {
                    li {
                        a href={ "#" (section.slug) } { (section.about.title) }
                        br;
                        span { (section.about.question) }
                    }
                }
                li { a href="#settings" { "Settings and data" } }
            }
        }
    }
}

/// Returns seconds since 1970 as `2026-11-21 06:43`.
pub fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is a year's last; eras of 400 years are alike.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!(
        "{:04}-{month:02}-{of_month:02} {:02}:{:02}",
        era * 400 + year + carry,
        rest / 3600,
        rest / 60 % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let dates = [0, 951_782_400, 951_868_800, 1_795_243_385].map(date);
        assert_eq!(
            dates,
            ["1970-01-01 00:00", "2000-02-29 00:00", "2000-03-01 00:00", "2026-11-21 06:43"]
        );
    }
}
