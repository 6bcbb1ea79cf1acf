//! Posthaste as a subject: its program, run with a settings file like any other.
//!
//! Must never use anything that an ordinary user of the program could not.

use super::routes;
use super::versions::Versions;
use super::{
    Duty, Logging, Phase, Setup, Site, Subject, fill_in, make_mailboxes, usual_recipient, write,
};
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// See the module.
pub struct Posthaste;

/// The orders of its queue; the first is the default.
const ORDERS: [&str; 8] =
    ["fair", "priority", "arrival", "destination", "modified", "id", "random", "none"];
/// Concurrent connections to the next hop: the default.
const CONNECTIONS: u32 = 100;

fn settings(site: &Site) -> PathBuf {
    site.work.join("posthaste.toml")
}

fn queue(site: &Site, verb: &str) -> Command {
    let mut command = Command::new(&site.posthaste);
    command.args(["queue", verb, "--config"]).arg(settings(site));
    command
}

/// Its configuration.
pub(super) fn text(site: &Site) -> String {
    let setup = &site.setup;
    let route = match setup.duty {
        Duty::Hold => "hold",
        Duty::Discard => "discard",
        _ => "smtp:127.0.0.1:{next_hop}",
    };
    let local = match setup.duty {
        Duty::Mbox => "mbox:{mail}/{user}",
        _ => "maildir:{mail}/home/{user}/Maildir/",
    };
    let level = if setup.logging == Logging::None { "none" } else { "info" };
    let order = if setup.order.is_empty() { ORDERS[0] } else { &setup.order };
    let share = setup.recipients_per_transaction.to_string();
    let connections = if setup.runners > 0 { setup.runners } else { CONNECTIONS }.to_string();
    let routes = own_routes(setup);
    let more = [
        ("routes", routes.as_str()),
        ("route", route),
        ("local", local),
        ("level", level),
        ("order", order),
        ("share", &share),
        ("connections", &connections),
    ];
    fill_in(site, include_str!("../../../subjects/posthaste.toml"), &more)
}

/// Returns the routes of single domains, which precede the route for all others.
fn own_routes(setup: &Setup) -> String {
    // What cannot be read has been refused.
    let routes = routes::expand(&setup.routes).unwrap_or_default();
    let text = |route: routes::Route| {
        format!("[[route]]\ndomain = \"{}\"\nto = \"smtp:{}\"\n\n", route.domain, route.to)
    };
    routes.into_iter().map(text).collect()
}

impl Subject for Posthaste {
    fn name(&self) -> &str {
        "posthaste"
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        let order = setup.order.as_str();
        if !order.is_empty() && !self.orders().contains(&order) {
            return Some(format!("it has no order {order}"));
        }
        routes::expand(&setup.routes)
            .err()
            .map(|error| format!("{error:#}"))
            .or_else(|| setup.beyond(&["order", "runners", "routes", "discard"]))
    }

    fn orders(&self) -> &'static [&'static str] {
        &ORDERS
    }

    fn recipient(&self, site: &Site) -> String {
        usual_recipient(site)
    }

    fn version(&self, site: &Site, _: &Versions) -> Result<String> {
        let output = Command::new(&site.posthaste).arg("--version").output();
        let output = output.with_context(|| site.posthaste.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.trim().trim_start_matches("posthaste ").to_string())
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        make_mailboxes(site)?;
        Ok(vec![write(&settings(site), &text(site))?])
    }

    fn command(&self, site: &Site, _: Phase) -> Option<Command> {
        let mut command = Command::new(&site.posthaste);
        command.args(["run", "--config"]).arg(settings(site));
        Some(command)
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        // Where the route itself is the hold, nothing lets a message go but another route.
        (site.setup.duty != Duty::Hold).then(|| queue(site, "flush"))
    }

    fn queued(&self, site: &Site) -> Result<u64> {
        let output = queue(site, "summary").arg("--json").output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "posthaste queue summary: {error}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        summary["messages"].as_u64().context("no count of messages in `queue summary --json`")
    }
}
