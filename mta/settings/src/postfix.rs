//! Settings of Postfix's `main.cf` that a person who changes over writes by habit, and what stands for them here.
//!
//! Must never change what a file means: it only helps to say what is wrong.

/// The name in `main.cf`, and what to write in its place.
const NAMES: &[(&str, &str)] = &[
    ("alias_database", NO_ALIASES),
    ("alias_maps", NO_ALIASES),
    ("home_mailbox", DELIVER),
    ("inet_interfaces", "write [[listen]] with `address = \"*:25\"`"),
    ("local_transport", DELIVER),
    ("mail_spool_directory", DELIVER),
    ("mailbox_command", DELIVER),
    ("mailbox_transport", DELIVER),
    ("maximal_queue_lifetime", "it is `expire` of [retry]"),
    ("message_size_limit", "it is `message_bytes_max` of [limits]"),
    ("mydestination", "it is `domains` of [local]"),
    ("myhostname", "it is `hostname`"),
    ("mynetworks", "it is `from` of [relay]"),
    ("queue_directory", "it is `state`"),
    ("relayhost", "write [[route]] with `domain = \"*\"` and `to = \"smtp:HOST:PORT\"`"),
    ("smtpd_recipient_limit", "it is `stranger_recipients_max` of [limits]"),
    ("transport_maps", "write a [[route]] for each line"),
    ("virtual_alias_maps", NO_ALIASES),
    ("virtual_mailbox_domains", "it is `domains` of [local]"),
];

const DELIVER: &str =
    "it is `deliver` of [local]: maildir:PATH, mbox:PATH, lmtp:ADDRESS or pipe:COMMAND";
const NO_ALIASES: &str = "there are no aliases yet";

/// What stands here for this setting of Postfix.
pub(super) fn ours(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;

    /// What is told is there: each `name` of a [table].
    #[test]
    fn what_stands_for_a_setting_of_postfix_is_a_setting() {
        for (theirs, ours) in NAMES {
            assert!(!settings().any(|ours| ours.name == *theirs), "{theirs} is ours, too");
            let Some(rest) = ours.strip_prefix("it is `") else { continue };
            let (name, rest) = rest.split_once('`').unwrap();
            let table = rest.strip_prefix(" of [").and_then(|rest| rest.split_once(']'));
            let name = table.map_or(name.to_owned(), |(table, _)| format!("{table}.{name}"));
            assert!(settings().any(|ours| ours.name == name), "{name} for {theirs}");
        }
    }
}
