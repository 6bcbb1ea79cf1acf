//! The settings of each machine, made from those of the operator: a file for each process. This file has what several of
//! them share.
//!
//! Must never decide anything: what a file can say is decided in `schema`, what follows from it in the machines.

mod local;
mod queue;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use super::{Deliver, HostEnvironment, Listen, ListenAddress, Problem, SettingOrigin, Settings};
use ::policy::{Policy, Routes};
use mail::NextHop;
use std::net::IpAddr;

impl Settings {
    /// What judges recipients and says where their mail goes.
    pub fn policy(&self, environment: &HostEnvironment) -> Policy {
        Policy {
            relay_from: self.relay.from.clone(),
            mailboxes: self.local.mailboxes(environment),
            postmaster: self.postmaster.value.clone(),
            routes: self.routes(environment),
        }
    }

    /// What is wrong with the postmaster: nobody gets the mail that everybody may send to it.
    pub(super) fn postmaster_problem(&self, environment: &HostEnvironment) -> Option<Problem> {
        let mail::Verdict::Reject(reply) = self.policy(environment).postmaster() else {
            return None;
        };
        let who = match &self.postmaster.value {
            policy::Postmaster::Mailbox(local) => format!("`{local}`"),
            policy::Postmaster::Address(address) => format!("<{address}>"),
        };
        let help = "set `postmaster` to an account that gets mail, or to the address of somebody who reads it";
        let what =
            format!("mail for the postmaster goes to {who}, which accepts none: {}", reply.text);
        Some(self.postmaster.origin.problem("postmaster", what, help))
    }

    /// Each group of a listener that is no group of this system.
    fn group_problems(&self, is_group: impl Fn(&str) -> bool) -> Vec<Problem> {
        let problem = |listen: &Listen| {
            let group = listen.group.as_ref().filter(|group| !is_group(&group.value))?;
            let what = format!("this system has no group `{}`", group.value);
            let help = "`getent group` lists the groups";
            Some(group.origin.problem("listen.group", what, help))
        };
        self.listen.iter().filter_map(problem).collect()
    }

    /// Everything in these settings that does not fit this system.
    pub fn problems_here(
        &self,
        environment: &HostEnvironment,
        is_group: impl Fn(&str) -> bool,
    ) -> Vec<Problem> {
        self.postmaster_problem(environment)
            .into_iter()
            .chain(self.group_problems(is_group))
            .collect()
    }

    /// The addresses that we listen at; where that is any, those of the machine.
    pub fn own_addresses(&self, environment: &HostEnvironment) -> Vec<IpAddr> {
        let addresses = |listen: &Listen| match &listen.address {
            ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
                let v6_too = address.is_ipv6();
                let heard = |own: &IpAddr| own.is_ipv4() || v6_too;
                environment.addresses.iter().copied().filter(heard).collect()
            }
            ListenAddress::Tcp(address) => vec![address.ip()],
            _ => Vec::new(),
        };
        self.listen.iter().flat_map(addresses).collect()
    }

    /// Where mail for each domain goes. Mail to the literal of an address that is not ours goes
    /// nowhere: it could be an address in our own network.
    pub fn routes(&self, environment: &HostEnvironment) -> Routes {
        let own_hop = match &self.local.deliver {
            Deliver::Lmtp(hop) => hop.clone(),
            Deliver::Maildir(_) | Deliver::Mbox(_) | Deliver::Pipe(_) => NextHop::Local,
        };
        let own = self.local.domains.iter().cloned().collect();
        Routes::new(own, own_hop, self.hostname.clone(), self.routes.clone(), false)
            .with_addresses(self.own_addresses(environment))
            .with_postmaster(&self.postmaster.value)
    }
}

impl SettingOrigin {
    fn problem(&self, key: &str, what: String, help: &str) -> Problem {
        let SettingOrigin { file, place } = self.clone();
        Problem { file, place, key: key.into(), what, help: Some(help.into()) }
    }
}
