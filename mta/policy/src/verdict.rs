//! Decides whether a client may send to a recipient.
//!
//! Must never let a stranger send to recipients outside of our domains, however the address is written.

use crate::{Mailboxes, Names, NoMailbox, Routes, mailbox_name};
use ipnet::IpNet;
use mail::{Address, Domain, Enhanced, NextHop, Recipient, Reply, Verdict};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The facts about a client that the verdict depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The address, or `None` for a client of a Unix socket.
    pub address: Option<IpAddr>,
    /// True if the settings of the listener allow its clients to send to any recipient.
    pub trusted: bool,
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Client {
        Client { address: Some(address), trusted: false }
    }
}

/// Where mail for the postmaster goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Postmaster {
    /// To the mailbox of this local part, in the domain that was addressed.
    Mailbox(Box<str>),
    /// To this address.
    Address(Address),
}

impl Postmaster {
    /// The mailbox `postmaster`, as in an empty settings file, for tests of any crate.
    ///
    /// Product code takes the setting; tidy refuses a call from it.
    pub fn for_tests() -> Postmaster {
        Postmaster::Mailbox(POSTMASTER.into())
    }
}

/// The local part that exists everywhere (RFC 5321 4.5.1).
pub(crate) const POSTMASTER: &str = "postmaster";

/// The settings that the verdicts follow.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The networks whose clients may send to any recipient (`relay.from`).
    pub relay_from: Vec<IpNet>,
    /// Our mailboxes.
    pub mailboxes: Mailboxes,
    /// Where mail for the postmaster goes.
    pub postmaster: Postmaster,
    /// Our domains and the next hops of all others.
    pub routes: Routes,
}

impl Policy {
    /// True if the client may send to any recipient and has no limits of its own. A client of a Unix socket is a
    /// stranger unless its listener trusts it.
    pub fn is_trusted(&self, client: impl Into<Client>) -> bool {
        let Client { address, trusted } = client.into();
        let address = address.map(|address| address.to_canonical());
        let within = |address| self.relay_from.iter().any(|network| network.contains(&address));
        trusted || address.is_some_and(within)
    }

    /// Returns the verdict on RCPT TO, which is also the result of delivery.
    pub fn recipient(&self, client: impl Into<Client>, address: &Address) -> Verdict {
        if self.is_our_postmaster(address) {
            return self.postmaster();
        }
        if self.routes.is_own(address.domain()) {
            return self.mailbox(address.local());
        }
        // A route decides where mail goes. It does not allow a client to send.
        if !self.is_trusted(client) {
            let text = "relay access denied: not a domain of ours";
            return reject(554, Enhanced(5, 7, 1), text);
        }
        match self.routes.next_hop_of_foreign(address) {
            NextHop::Error(text) => reject(550, Enhanced(5, 1, 2), text),
            _ => Verdict::Accept,
        }
    }

    /// Returns the verdict on the postmaster: whether the mailbox or address of the settings accepts mail.
    ///
    /// The postmaster exists in all our domains, and at the name of this machine unless a route names it (RFC 5321
    /// 4.5.1).
    pub fn postmaster(&self) -> Verdict {
        match &self.postmaster {
            Postmaster::Mailbox(local) => self.mailbox(local),
            Postmaster::Address(address) if self.ends_here(address.domain()) => {
                self.mailbox(address.local())
            }
            Postmaster::Address(address) => match self.routes.next_hop(address.domain()) {
                NextHop::Error(text) => reject(550, Enhanced(5, 1, 2), text),
                _ => Verdict::Accept,
            },
        }
    }

    /// Returns the recipient that the mail is delivered to. The postmaster is replaced by the recipient in the
    /// settings, but reports still name the original recipient (RFC 3461 5.2.2).
    pub fn as_delivered(&self, recipient: Recipient) -> Recipient {
        let Some(address) = self.stands_for(&recipient.address) else { return recipient };
        let domain = recipient.address.domain_text();
        let addressed =
            || domain.is_ascii().then(|| format!("rfc822;{POSTMASTER}@{domain}").into());
        Recipient { address, orcpt: recipient.orcpt.or_else(addressed), ..recipient }
    }

    /// Returns the address that replaces `address` if that is our postmaster, or `None` if it is not replaced.
    fn stands_for(&self, address: &Address) -> Option<Address> {
        if !self.is_our_postmaster(address) {
            return None;
        }
        match &self.postmaster {
            Postmaster::Mailbox(local) if &**local == POSTMASTER => None,
            Postmaster::Mailbox(local) => {
                Address::parse(&format!("{local}@{}", address.domain_text()), true).ok()
            }
            Postmaster::Address(address) => Some(address.clone()),
        }
    }

    /// True if the message was already delivered to one of these recipients. `names` says whether a Delivered-To field
    /// names an address.
    ///
    /// Only recipients of process local count, because it writes Delivered-To. Such a message is refused at the end of
    /// the data: if delivery failed after the `250`, a notice would go to a sender that may be forged.
    pub fn is_loop(
        &self,
        mut recipients: impl Iterator<Item = Recipient>,
        names: impl Fn(&str) -> bool,
    ) -> bool {
        let had = |recipient: &Recipient| names(recipient.address.as_str());
        let here =
            |recipient: &Recipient| self.routes.next_hop_of(&recipient.address) == NextHop::Local;
        recipients.any(|recipient| had(&recipient) && here(&recipient))
    }

    /// True if mail for this domain may be delivered here. At the name of this machine that holds only for the
    /// postmaster: see [`Routes::next_hop_of`].
    pub fn ends_here(&self, domain: &Domain) -> bool {
        self.routes.is_own(domain) || self.routes.is_hostname(domain)
    }

    /// True if the address is the postmaster of one of our domains or of this machine.
    fn is_our_postmaster(&self, address: &Address) -> bool {
        is_postmaster(address.local()) && self.ends_here(address.domain())
    }

    fn mailbox(&self, local: &str) -> Verdict {
        match self.mailboxes.find(local) {
            Ok(_) => Verdict::Accept,
            Err(NoMailbox) => reject(550, Enhanced(5, 1, 1), "no such mailbox here"),
        }
    }
}

/// True if this local part means the postmaster. This is checked for each recipient, so only a quoted local part is
/// copied.
fn is_postmaster(local: &str) -> bool {
    match local.starts_with('"') {
        true => mailbox_name(local, Names::default()).is_ok_and(|name| name == POSTMASTER),
        false => local.eq_ignore_ascii_case(POSTMASTER),
    }
}

fn reject(code: u16, enhanced: Enhanced, text: impl Into<Box<str>>) -> Verdict {
    Verdict::Reject(Reply::new(code, enhanced, text))
}

#[cfg(test)]
pub(crate) mod tests;
