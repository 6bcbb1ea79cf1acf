//! A subject for queue runs: with many hosts to deliver to, and with another program in the mailer's place.
//!
//! Must never change anything else of the subject's settings.

use crate::subject::{Duty, Phase, Setup, Site, Subject, Versions};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// See the module.
pub struct Variant<'a> {
    inner: &'a dyn Subject,
    hosts: u32,
    /// The program and arguments that run instead of the mailer.
    instead: Option<Vec<String>>,
}

impl<'a> Variant<'a> {
    /// Wraps a subject and gives it this number of hosts.
    pub fn of(inner: &'a dyn Subject, hosts: u32) -> Variant<'a> {
        Variant { inner, hosts, instead: None }
    }

    /// Replaces the mailer's program by these words.
    pub fn instead(self, words: Vec<String>) -> Variant<'a> {
        Variant { instead: Some(words), ..self }
    }

    /// What the mailer does while its queue is filled. A message that Posthaste holds is in no queue run, so there the
    /// next hop is one that nobody listens at.
    pub fn filling_duty(&self) -> Duty {
        if self.name() == "posthaste" { Duty::Relay } else { Duty::Hold }
    }

    /// Returns the recipient of mail for host `number`, from 0.
    pub fn recipient_at(&self, site: &Site, number: u32) -> String {
        match (self.hosts, self.name()) {
            (0 | 1, _) => self.inner.recipient(site),
            (_, "posthaste") => format!("user{{n}}@h{number}.sink.test"),
            _ => format!("user{{n}}@[{}]", address(number)),
        }
    }

    fn spread(&self, site: &Site, files: &[PathBuf]) -> Result<()> {
        let edit: fn(&str, u16, u32) -> Option<String> = match self.name() {
            "posthaste" => posthaste_routes,
            _ => sendmail_port,
        };
        let last = files.last().context("no settings")?;
        let text = std::fs::read_to_string(last)?;
        let text = edit(&text, site.next_hop, self.hosts);
        let text = text.with_context(|| format!("{} is not as expected", last.display()))?;
        Ok(std::fs::write(last, text)?)
    }
}

/// The address of host `number`. Debian has 127.0.1.1 for the machine's own name: mail to that would be local.
fn address(number: u32) -> String {
    format!("127.9.0.{}", number + 1)
}

/// Adds a route for each host before the one for all others.
fn posthaste_routes(text: &str, port: u16, hosts: u32) -> Option<String> {
    let at = text.find("[[route]]")?;
    let route = |number: u32| {
        let address = address(number);
        format!("[[route]]\ndomain = \"h{number}.sink.test\"\nto = \"smtp:{address}:{port}\"\n\n")
    };
    let routes: String = (0..hosts).map(route).collect();
    Some(format!("{}{routes}{}", &text[..at], &text[at..]))
}

/// Without a smart host mail to an address literal goes there by the mailer `esmtp`, which gets the sink's port.
fn sendmail_port(text: &str, port: u16, _: u32) -> Option<String> {
    let smart = text.find("\nDS")? + "\nDS".len();
    let text = format!("{}{}", &text[..smart], &text[smart + text[smart..].find('\n')?..]);
    let mailer = text.find("\nMesmtp,")? + 1;
    let end = mailer + 1 + text[mailer + 1..].find("\nM")?;
    let own = &text[mailer..end];
    own.contains("A=TCP $h").then_some(())?;
    let own = own.replace("A=TCP $h", &format!("A=TCP $h {port}"));
    Some(format!("{}{own}{}", &text[..mailer], &text[end..]))
}

impl Subject for Variant<'_> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn version(&self, site: &Site, peers: &Versions) -> Result<String> {
        self.inner.version(site, peers)
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        self.inner.refuses(setup)
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        let files = self.inner.configure(site)?;
        if self.hosts > 1 {
            self.spread(site, &files)?;
        }
        Ok(files)
    }

    fn command(&self, site: &Site, phase: Phase) -> Option<Command> {
        let Some(words) = &self.instead else { return self.inner.command(site, phase) };
        let (program, arguments) = words.split_first()?;
        let mut command = Command::new(program);
        command.args(arguments);
        Some(command)
    }

    fn recipient(&self, site: &Site) -> String {
        self.inner.recipient(site)
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        self.inner.flush(site)
    }

    fn settle(&self, site: &Site, phase: Phase) -> Option<Command> {
        self.inner.settle(site, phase).filter(|_| self.instead.is_none())
    }

    fn needs_machines_network(&self) -> bool {
        self.inner.needs_machines_network()
    }

    fn is_left_without_goodbye(&self) -> bool {
        self.inner.is_left_without_goodbye()
    }

    fn queued(&self, site: &Site) -> Result<u64> {
        self.inner.queued(site)
    }

    fn orders(&self) -> &'static [&'static str] {
        self.inner.orders()
    }
}

/// Returns the settings file with this suffix.
pub fn file_of<'a>(files: &'a [PathBuf], end: &str) -> Result<&'a Path> {
    let found = files.iter().find(|path| path.extension().is_some_and(|found| found == end));
    ensure!(found.is_some(), "no settings file ends in .{end}");
    found.map(PathBuf::as_path).context("it was there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_of_posthaste_has_a_route_before_the_one_for_all() {
        let text = "hostname = \"x\"\n\n[[route]]\ndomain = \"*\"\nto = \"hold\"\n";
        let spread = posthaste_routes(text, 2600, 3).unwrap();
        let parsed: toml::Table = spread.parse().unwrap();
        let routes = parsed["route"].as_array().unwrap();
        assert_eq!(routes.len(), 4);
        assert_eq!(routes[2]["domain"].as_str(), Some("h2.sink.test"));
        assert_eq!(routes[2]["to"].as_str(), Some("smtp:127.9.0.3:2600"));
        assert_eq!(routes[3]["domain"].as_str(), Some("*"));
        assert_eq!(posthaste_routes("hostname = \"x\"\n", 2600, 3), None);
    }

    #[test]
    fn only_the_mailer_for_literals_gets_the_port_and_the_smart_host_is_gone() {
        let text = "# smart\nDSrelay:[127.0.0.1]\nMsmtp, P=[IPC]\n\t\tA=TCP $h\nMesmtp,\tP=[IPC]\n\t\tA=TCP $h\nMdsmtp,\n\t\tA=TCP $h\n";
        let expected = "# smart\nDS\nMsmtp, P=[IPC]\n\t\tA=TCP $h\nMesmtp,\tP=[IPC]\n\t\tA=TCP $h 77\nMdsmtp,\n\t\tA=TCP $h\n";
        assert_eq!(sendmail_port(text, 77, 9).as_deref(), Some(expected));
        assert_eq!(sendmail_port("\nDSx\nMother\n", 77, 9), None);
    }
}
