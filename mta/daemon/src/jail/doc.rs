//! The part of `docs/processes.md` that is generated from the tables.
//!
//! Must never say anything that the tables do not.

use super::Role;
use super::profiles::{CallGroup, Calls, Only, calls, refused};

/// Returns a table for each role, as Markdown.
pub fn markdown() -> String {
    let mut text = String::new();
    for role in Role::ALL {
        let (groups, title, rule) = match calls(role) {
            Calls::Only(groups) => (groups, "may make", "Anything else ends it."),
            Calls::AllBut(groups) => (
                groups,
                "may not make",
                "It starts programs, which inherit the filter; all other calls are open to it.",
            ),
        };
        text += &format!("\n### {role} {title}\n\n| what | calls | only |\n|---|---|---|\n");
        for group in groups.iter().filter(|group| group.calls != refused(role)) {
            text += &row(group);
        }
        text += &format!("\n{rule}");
        let refused = refused(role);
        if !refused.is_empty() {
            text += &format!(" Answered with ENOSYS, and no more than that: {}.", names(refused));
        }
        text += "\n";
    }
    text
}

fn row(group: &CallGroup) -> String {
    let only = match group.only {
        Only::Any => String::new(),
        Only::OneOf(argument, values) => {
            let values: Vec<String> = values.iter().map(|value| format!("{value:#x}")).collect();
            format!("argument {argument} is {}", values.join(" or "))
        }
        Only::Bits(argument, mask, value) => {
            format!("argument {argument} has {value:#x} of {mask:#x}")
        }
        Only::Ourselves(argument) => format!("argument {argument} is our own process id"),
    };
    format!("| {} | {} | {only} |\n", group.what, names(group.calls))
}

fn names(calls: &[&str]) -> String {
    let quoted: Vec<String> = calls.iter().map(|call| format!("`{call}`")).collect();
    quoted.join(" ")
}
