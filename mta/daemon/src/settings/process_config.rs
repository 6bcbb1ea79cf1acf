//! What master gives each process: the checked settings and the host's environment, in a sealed memfd that nobody can
//! change.
//!
//! Must never be larger than `PROCESS_CONFIG_BYTES_MAX`.

use super::{Deliver, Fill, LocalSettings, Piece, Settings, Users, homes};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Upper bound on an encoded [`ProcessConfig`]. A million accounts take about half of it.
pub const PROCESS_CONFIG_BYTES_MAX: u64 = 128 << 20;

/// Upper bound on what is read of one file of the host's environment.
const FILE_BYTES_MAX: u64 = 64 << 20;

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
    pub accounts: Vec<Account>,
    /// The group `mail`, whose members may write to mailboxes; `None` if the host has no such group.
    pub mail_group: Option<u32>,
    /// The only user that mail can be delivered as; `None` if root started the mailer.
    pub only_user: Option<u32>,
}

/// An account of the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
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

/// Why a [`ProcessConfig`] could not be sealed or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessConfigError {
    /// A system call failed.
    #[error("cannot pass the settings to a process: {0}")]
    Kernel(#[from] Errno),
    /// Reading or writing the memfd failed.
    #[error("cannot pass the settings to a process: {0}")]
    Io(#[from] std::io::Error),
    /// The host has too many accounts, or the memfd is not ours.
    #[error("the settings for a process take {0} bytes, more than {PROCESS_CONFIG_BYTES_MAX}")]
    TooLarge(u64),
    /// The memfd is not sealed: somebody could still write to it.
    #[error("the settings for a process are not sealed")]
    NotSealed,
    /// The bytes are not what `seal` writes.
    #[error("the settings for a process cannot be decoded: {0}")]
    Decode(#[from] postcard::Error),
}

const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Writes `config` to a memfd and seals it. The descriptor is closed on exec. Inverse of `open`.
pub fn seal(config: &ProcessConfig) -> Result<OwnedFd, ProcessConfigError> {
    let bytes = postcard::to_stdvec(config)?;
    if bytes.len() as u64 > PROCESS_CONFIG_BYTES_MAX {
        return Err(ProcessConfigError::TooLarge(bytes.len() as u64));
    }
    let memory =
        memfd_create("posthaste-settings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let written = rustix::io::write(&memory, rest)?;
        rest = &rest[written..];
    }
    fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// Reads what `seal` wrote. Reads from the start whatever the offset is, because processes share the descriptor.
pub fn open(memory: impl AsFd) -> Result<ProcessConfig, ProcessConfigError> {
    if !fcntl_get_seals(&memory)?.contains(SEALS) {
        return Err(ProcessConfigError::NotSealed);
    }
    let size = fstat(&memory)?.st_size as u64;
    if size > PROCESS_CONFIG_BYTES_MAX {
        return Err(ProcessConfigError::TooLarge(size));
    }
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(&memory, &mut bytes[filled..], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(postcard::from_bytes(&bytes[..filled])?)
}

impl LocalSettings {
    /// Returns the path of an account's mailbox, unless the path depends on the domain.
    fn mailbox_of(&self, account: &Account, state: &str) -> Option<PathBuf> {
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
    /// Collects the environment from the files below `root`, which is `/` except in tests. Reads accounts only if
    /// `accounts` is set. A file that is missing or unreadable counts as empty, and what depends on it is deferred.
    pub fn collect(root: &Path, accounts: bool) -> HostEnvironment {
        let text = |path: &str| {
            String::from_utf8_lossy(&read_bounded(&root.join(path)).unwrap_or_default())
                .into_owned()
        };
        let groups = text("etc/group");
        HostEnvironment {
            resolv_conf: text("etc/resolv.conf"),
            hosts: text("etc/hosts"),
            localtime: read_bounded(&root.join("etc/localtime")).unwrap_or_default(),
            addresses: addresses_of(&text("proc/net/fib_trie"), &text("proc/net/if_inet6")),
            accounts: match accounts {
                true => accounts_of(&text("etc/passwd"), &groups),
                false => Vec::new(),
            },
            only_user: None,
            mail_group: group_of(&groups, "mail"),
        }
    }

    /// Collects what these settings need of this host. With `only_user`, all local mail is delivered as that user.
    pub fn of(settings: &Settings, only_user: Option<u32>) -> HostEnvironment {
        let system = settings.local.users == Users::System;
        let mut found = HostEnvironment::collect(Path::new("/"), system);
        found.only_user = only_user;
        if settings.local.is_at_home() {
            let (local, state) = (&settings.local, settings.state.to_string_lossy());
            homes::look(&mut found.accounts, |account| local.mailbox_of(account, &state));
        }
        found
    }

    /// The groups whose members may write to the mailbox of this account.
    pub fn groups(&self, account: Option<&Account>) -> policy::Groups {
        let private = account.filter(|account| account.has_private_group);
        policy::Groups { mail: self.mail_group, private: private.map(|account| account.gid) }
    }

    /// Returns the account with this name.
    pub fn account(&self, name: &str) -> Option<&Account> {
        let at = self.accounts.binary_search_by(|account| account.name.as_str().cmp(name));
        at.ok().map(|at| &self.accounts[at])
    }
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the addresses in the kernel's two tables. `fib_trie` has a host route for each local IPv4 address. `if_inet6`
/// has a line for each IPv6 address, which begins with its 32 digits.
fn addresses_of(fib_trie: &str, if_inet6: &str) -> Vec<IpAddr> {
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
fn group_of(groups: &str, wanted: &str) -> Option<u32> {
    let mut groups = groups.lines().map(|line| line.split(':'));
    let mut found = groups.find(|group| group.clone().next() == Some(wanted))?;
    found.nth(2)?.parse().ok()
}

/// Returns the accounts in a file of the format passwd(5). Skips malformed lines and accounts whose home directory is
/// not absolute. The first of two accounts with the same name wins, as in the system.
fn accounts_of(passwd: &str, groups: &str) -> Vec<Account> {
    let members = Members::of(passwd, groups);
    let account = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let &[name, _, uid, gid, _, home, _] = fields.as_slice() else { return None };
        let home = PathBuf::from(home);
        let plain = !name.is_empty() && !name.starts_with(['#', '+', '-']) && home.is_absolute();
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        let (home_is, has_private_group) = (policy::Home::Unknown, members.only(gid, name));
        plain.then(|| Account { name: name.into(), uid, gid, home, has_private_group, home_is })
    };
    let mut accounts: Vec<Account> = passwd.lines().filter_map(account).collect();
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
