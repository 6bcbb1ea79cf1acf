//! How the page begins: what was measured, when, on what, and how to read it.
//!
//! Must never praise: it says how to read, not what to think.

use super::{heads, table};
use crate::campaign::{Campaign, Host};
use crate::draw::{escape, number, time_us};
use crate::judge::{SAME_WITHIN, STDDEV_RATIO_MAX};

/// Everything before the first scenario.
pub fn opening(campaign: &Campaign, title: &str, source: &str) -> String {
    let (all, failed) = campaign.runs;
    let (first, last) = (date(campaign.time.0), date(campaign.time.1));
    let when = if first[..10] == last[..10] {
        format!("{first} to {}", &last[11..])
    } else {
        format!("{first} to {last}")
    };
    let labs: Vec<&str> = campaign.labs.iter().map(String::as_str).collect();
    format!(
        "<header>\n<h1>{title}</h1>\n<p class=\"lead\">{runs} runs of {subjects} subjects in {scenarios}, {failed}. {when} UTC, by posthaste-lab {labs}. Raw data: {source}.</p>\n</header>\n\
         {reading}{machines}{contents}",
        runs = number(all as f64),
        subjects = campaign.subjects.len(),
        scenarios = count(campaign.sections.len(), "scenario"),
        failed = if failed == 0 {
            "none of which failed".into()
        } else {
            format!("{failed} of which failed")
        },
        labs = escape(&labs.join(", ")),
        source = escape(source),
        reading = reading(campaign),
        machines = machines(campaign),
        contents = contents(campaign),
    )
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn reading(campaign: &Campaign) -> String {
    let reference = escape(&campaign.reference);
    format!(
        "<section id=\"reading\">\n<h2>How to read this page</h2>\n\
         <p>Every figure is the median of several runs, made in turn with those of the other subjects, so that a slow minute of the machine \
         strikes all of them. The interval beside it is where the true median lies with 95 % confidence. Beside each figure stands \
         what the subject's <code>250</code> was worth: <b>synced</b> means that the disk had confirmed each message before the reply, <b>sometimes</b> that it had for some, \
         <b>unsynced</b> that a power cut could have lost mail that was promised, <b>unknown</b> that nobody could see it. A fast figure \
         that is unsynced answers another question than a slow one that is synced. <b>Limit</b> is no mailer: the source talks to the sink, and nothing can be faster. Syncs were looked at in separate runs or in some only; what was found holds for all runs with the same settings.</p>\n\
         <p>The verdict compares a subject’s runs to those of <b>{reference}</b> in the same cell: “higher, 99.5 %” means that a difference as \
         large would hardly ever come by chance; “95 % only” is weaker; “no difference proven” does not mean that they are alike. Only “same within {same:.0} %” claims that, and it was tested \
         (two one-sided tests at 95 %). The test is Student’s t as ministat computes it, or Welch’s where one standard deviation is more than {spread} times the other. \
         Where {reference} was not measured, the first subject that was takes its place. With fewer than ten runs on either side nothing is claimed, however far apart the figures are. Outliers are named and still count.</p>\n</section>\n",
        same = SAME_WITHIN * 100.0,
        spread = number_word(STDDEV_RATIO_MAX),
    )
}

fn number_word(value: f64) -> String {
    if value == 2.0 { "two".into() } else { number(value) }
}

fn machines(campaign: &Campaign) -> String {
    let several = campaign.machines.len() > 1;
    let note = if several {
        "<p>The runs come from more than one machine: read their figures apart.</p>\n"
    } else {
        ""
    };
    let hosts: String = campaign.machines.iter().map(host).collect();
    format!(
        "<section id=\"machine\">\n<h2>{}</h2>\n{note}{hosts}{}</section>\n",
        if several { "The machines" } else { "The machine" },
        versions(campaign)
    )
}

fn host(host: &Host) -> String {
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
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escape(value)))
        .collect();
    format!("<dl class=\"facts\">{rows}</dl>\n")
}

fn versions(campaign: &Campaign) -> String {
    let row = |(subject, name): (usize, &String)| {
        let versions: Vec<&str> =
            campaign.versions.get(name).into_iter().flatten().map(String::as_str).collect();
        let found = campaign
            .sections
            .iter()
            .flat_map(|section| section.groups.iter())
            .find(|((one, _), group)| *one == subject && group.durability.is_some());
        let how = found.and_then(|(_, group)| group.durability.as_ref()).map_or_else(
            String::new,
            |found| {
                format!(
                    "{} syncs before 250, mean of {} messages, {}",
                    number(found.syncs_before_250),
                    found.messages,
                    found.how
                )
            },
        );
        let class = found.map_or_else(
            || super::tables::class(campaign, subject, &crate::campaign::Group::default()),
            |(_, group)| super::tables::class(campaign, subject, group),
        );
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{class}</td><td>{}</td></tr>",
            super::tables::subject(campaign, subject),
            escape(&versions.join(", ")),
            escape(&how)
        )
    };
    let rows: String = campaign.subjects.iter().enumerate().map(row).collect();
    let heads = heads(&[
        ("subject", false),
        ("version", false),
        ("its 250", false),
        ("how that was found", false),
    ]);
    table("Subjects and their versions", &heads, &format!("<tbody>{rows}</tbody>"))
}

fn contents(campaign: &Campaign) -> String {
    let one = |section: &crate::campaign::Section| {
        format!(
            "<li><a href=\"#{}\">{}</a><br><span>{}</span></li>\n",
            section.slug,
            escape(&section.about.title),
            escape(&section.about.question)
        )
    };
    let all: String = campaign.sections.iter().map(one).collect();
    format!(
        "<nav aria-label=\"Contents\">\n<h2>Contents</h2>\n<ol>\n{all}<li><a href=\"#settings\">Configurations and data</a></li>\n</ol>\n</nav>\n"
    )
}

/// Seconds since 1970 as `2026-11-21 06:43`, by the calendar's own rules.
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
