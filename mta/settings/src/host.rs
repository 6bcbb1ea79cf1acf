//! What a process knows of its host, and how it is read from the texts of the system's files.
//!
//! Must never open a file: the caller passes the texts.

use super::{Deliver, Fill, LocalSettings, Piece, Settings};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

/// Upper bound on what is read of one file of the host's environment.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// Everything that a process knows about the operator's settings and about its host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessConfig {
    /// The settings, checked.
    pub settings: Settings,
    /// The environment, collected by master.
    pub environment: HostEnvironment,
}

/// Facts about the host that a process with an empty root directory cannot read itself. Master collects them at each
/// start and reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEnvironment {
    /// Text of `/etc/resolv.conf`; empty if there is none.
    pub resolv_conf: String,
    /// Text of `/etc/hosts`; empty if there is none.
    pub hosts: String,
    /// Bytes of `/etc/localtime`; empty if there is none, which means UTC.
    pub localtime: Vec<u8>,
    /// The addresses of this host's interfaces, without link-local addresses.
    pub addresses: Vec<IpAddr>,
    /// The system's accounts in the order of their names; empty unless `local.users` is `system`.
    pub accounts: Vec<UserAccount>,
    /// The group `mail`, whose members may write to mailboxes; `None` if the host has no such group.
    pub mail_group: Option<u32>,
    /// The only user that mail can be delivered as; `None` if root started the mailer.
    pub only_user: Option<u32>,
}

/// An account of the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserAccount {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Home directory.
    pub home: PathBuf,
    /// Whether the account's group has no other member, by `/etc/passwd` and `/etc/group`.
    pub has_private_group: bool,
    /// What the mailbox's place in the home directory holds, if mail is kept in home directories.
    pub home_is: policy::Home,
}

impl LocalSettings {
    /// Returns the path of an account's mailbox, unless the path depends on the domain.
    pub fn mailbox_of(&self, account: &UserAccount, state: &str) -> Option<PathBuf> {
        let (Deliver::Maildir(template) | Deliver::Mbox(template)) = &self.deliver else {
            return None;
        };
        let home = account.home.to_str();
        let fill = Fill { state, user: &account.name, domain: "", home };
        let fixed = !template.has(&Piece::Domain);
        template.expand(&fill).filter(|_| fixed).map(PathBuf::from)
    }
}

impl HostEnvironment {
    /// The groups whose members may write to the mailbox of this account.
    pub fn groups(&self, account: Option<&UserAccount>) -> policy::Groups {
        let private = account.filter(|account| account.has_private_group);
        policy::Groups { mail: self.mail_group, private: private.map(|account| account.gid) }
    }

    /// Returns the account with this name.
    pub fn account(&self, name: &str) -> Option<&UserAccount> {
        let at = self.accounts.binary_search_by(|account| account.name.as_str().cmp(name));
        at.ok().map(|at| &self.accounts[at])
    }
}

/// Returns the addresses in the kernel's two tables. `fib_trie` has a host route for each local IPv4 address. `if_inet6`
/// has a line for each IPv6 address, which begins with its 32 digits.
pub fn addresses_of(fib_trie: &str, if_inet6: &str) -> Vec<IpAddr> {
    let (mut found, mut leaf) = (Vec::new(), None);
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok().map(IpAddr::V4);
        } else if line == "/32 host LOCAL" {
            found.extend(leaf);
        }
    }
    let digits = if_inet6.lines().filter_map(|line| line.split(' ').next());
    let bits = digits.filter_map(|digits| u128::from_str_radix(digits, 16).ok());
    let v6 = bits.map(Ipv6Addr::from_bits).filter(|address| !address.is_unicast_link_local());
    found.extend(v6.map(IpAddr::V6));
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the id of a group in a file of the format group(5).
pub fn group_of(groups: &str, wanted: &str) -> Option<u32> {
    let mut groups = groups.lines().map(|line| line.split(':'));
    let mut found = groups.find(|group| group.clone().next() == Some(wanted))?;
    found.nth(2)?.parse().ok()
}

/// Returns the accounts in a file of the format passwd(5). Skips malformed lines and accounts whose home directory is
/// not absolute. The first of two accounts with the same name wins, as in the system.
pub fn accounts_of(passwd: &str, groups: &str) -> Vec<UserAccount> {
    let members = Members::of(passwd, groups);
    let account = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let &[name, _, uid, gid, _, home, _] = fields.as_slice() else { return None };
        let home = PathBuf::from(home);
        let plain = !name.is_empty() && !name.starts_with(['#', '+', '-']) && home.is_absolute();
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        let (home_is, has_private_group) = (policy::Home::Unknown, members.only(gid, name));
        plain.then(|| UserAccount { name: name.into(), uid, gid, home, has_private_group, home_is })
    };
    let mut accounts: Vec<UserAccount> = passwd.lines().filter_map(account).collect();
    accounts.sort_by(|one, other| one.name.cmp(&other.name));
    accounts.dedup_by(|later, earlier| later.name == earlier.name);
    accounts
}

/// The members of each group.
#[derive(Default)]
struct Members<'a> {
    /// The only member of each group, or `None` if it has several.
    only: HashMap<u32, Option<&'a str>>,
    /// The groups in `/etc/group`. A group that is not there may have any members.
    listed: HashSet<u32>,
}

impl<'a> Members<'a> {
    /// Reads the primary groups of all lines of `passwd`, also of malformed ones, and the members in `groups`.
    fn of(passwd: &'a str, groups: &'a str) -> Members<'a> {
        let mut members = Members::default();
        if [passwd, groups].iter().any(|text| names_others(text)) {
            return members;
        }
        for mut fields in passwd.lines().map(|line| line.split(':')) {
            let name = fields.next().unwrap_or_default();
            fields.nth(2).into_iter().for_each(|gid| members.add(gid, name));
        }
        for mut fields in groups.lines().map(|line| line.split(':')) {
            let (gid, names) = (fields.nth(2), fields.next().unwrap_or_default());
            members.listed.extend(gid.and_then(|gid| gid.trim().parse::<u32>().ok()));
            let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.for_each(|name| members.add(gid.unwrap_or_default(), name));
        }
        members
    }

    fn add(&mut self, gid: &str, name: &'a str) {
        let Ok(gid) = gid.trim().parse() else { return };
        let only = self.only.entry(gid).or_insert(Some(name));
        *only = only.filter(|known| *known == name);
    }

    fn only(&self, gid: u32, name: &str) -> bool {
        self.listed.contains(&gid) && self.only.get(&gid) == Some(&Some(name))
    }
}

/// Returns whether a group may have members that this text does not name: the file is longer than what was read, or a
/// line that begins with `+` refers to a directory service.
fn names_others(text: &str) -> bool {
    text.len() as u64 >= FILE_BYTES_MAX || text.starts_with('+') || text.contains("\n+")
}
