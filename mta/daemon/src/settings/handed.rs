//! What master hands to each process: the checked settings, and what an empty root lacks, in a
//! sealed memfd that nobody can change any more. Must never be larger than `HANDED_BYTES_MAX`.

use super::{Deliver, Fill, Local, Piece, Settings, Users, homes};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// More than this is not handed over: a million accounts take about half of it.
pub const HANDED_BYTES_MAX: u64 = 128 << 20;

/// One file of the surroundings is read up to this.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Everything a process knows about the machine and the operator's wishes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handed {
    /// As checked.
    pub settings: Settings,
    /// As collected by master.
    pub surroundings: Surroundings,
}

/// What lies outside an empty root and is needed inside; collected anew with each reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Text of `/etc/resolv.conf`; empty where there is none.
    pub resolv_conf: String,
    /// Text of `/etc/hosts`; empty where there is none.
    pub hosts: String,
    /// Bytes of `/etc/localtime`; empty where there is none, which means UTC.
    pub localtime: Vec<u8>,
    /// The addresses of this machine's interfaces, without those of one link only.
    pub addresses: Vec<IpAddr>,
    /// The system's accounts, where `local.users` is `system`, ordered by name.
    pub accounts: Vec<Account>,
    /// The group `mail`, whose members may write to mailboxes; `None` where there is no such group.
    pub mail_group: Option<u32>,
    /// The only user as whom mail can be delivered: where the mailer was not started by root.
    pub only_user: Option<u32>,
}

/// An account of the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// As it logs in.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Home directory.
    pub home: PathBuf,
    /// Its group has no other member, by `/etc/passwd` and `/etc/group`.
    pub has_private_group: bool,
    /// What stands there, where mail is kept in homes.
    pub home_is: policy::Home,
}

/// Why nothing was handed over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandedError {
    /// The kernel refused.
    #[error("cannot hand settings over: {0}")]
    Kernel(#[from] Errno),
    /// Reading or writing it failed.
    #[error("cannot hand settings over: {0}")]
    Io(#[from] std::io::Error),
    /// Too many accounts, or a memfd that is none of ours.
    #[error("handed settings of {0} bytes are more than {HANDED_BYTES_MAX}")]
    TooLarge(u64),
    /// Somebody could still write to it.
    #[error("handed settings are not sealed")]
    NotSealed,
    /// Not what `seal` writes.
    #[error("handed settings cannot be decoded: {0}")]
    Decode(#[from] postcard::Error),
}

const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Puts `handed` into a memfd that cannot change any more. Closed on exec, as all descriptors are
/// until somebody passes them along; inverse of `open`.
pub fn seal(handed: &Handed) -> Result<OwnedFd, HandedError> {
    let bytes = postcard::to_stdvec(handed)?;
    if bytes.len() as u64 > HANDED_BYTES_MAX {
        return Err(HandedError::TooLarge(bytes.len() as u64));
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

/// Reads what `seal` wrote, from its start, wherever the descriptor shared with others stands.
pub fn open(memory: impl AsFd) -> Result<Handed, HandedError> {
    if !fcntl_get_seals(&memory)?.contains(SEALS) {
        return Err(HandedError::NotSealed);
    }
    let size = fstat(&memory)?.st_size as u64;
    if size > HANDED_BYTES_MAX {
        return Err(HandedError::TooLarge(size));
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

impl Local {
    /// Where an account's mail is kept, unless that depends on the domain.
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

impl Surroundings {
    /// Collects them from below `root`, which is `/` but for tests; `accounts` where they are needed.
    /// A file that is missing or cannot be read counts as empty: what depends on it then defers.
    pub fn collect(root: &Path, accounts: bool) -> Surroundings {
        let text = |path: &str| {
            String::from_utf8_lossy(&read_bounded(&root.join(path)).unwrap_or_default())
                .into_owned()
        };
        let groups = text("etc/group");
        Surroundings {
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

    /// What these settings need of this machine. Mail to accounts is delivered as `only_user`, if
    /// there is one.
    pub fn of(settings: &Settings, only_user: Option<u32>) -> Surroundings {
        let system = settings.local.users == Users::System;
        let mut found = Surroundings::collect(Path::new("/"), system);
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

    /// The account of this name.
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

/// The addresses in the kernel's two tables: of IPv4 the routes to a single local address, of
/// IPv6 a line for each, which begins with its 32 digits.
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

/// The id of a group in a file in the form of group(5).
fn group_of(groups: &str, wanted: &str) -> Option<u32> {
    let mut groups = groups.lines().map(|line| line.split(':'));
    let mut found = groups.find(|group| group.clone().next() == Some(wanted))?;
    found.nth(2)?.parse().ok()
}

/// The accounts of a file in the form of passwd(5). Lines of another form are left out, and so are
/// homes that are not absolute; of two accounts with one name the first counts, as in the system.
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

/// Who is in which group.
#[derive(Default)]
struct Members<'a> {
    /// The only member, or `None` if there are more.
    only: HashMap<u32, Option<&'a str>>,
    /// The groups that `/etc/group` has. One that it does not have may have any members.
    listed: HashSet<u32>,
}

impl<'a> Members<'a> {
    /// By the primary groups in `passwd`, of lines in any form, and by the members that `groups` lists.
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

/// Whether members are named elsewhere, too: the file goes on beyond what was read of it, or a line beginning with
/// `+` stands for what a directory service has.
fn names_others(text: &str) -> bool {
    text.len() as u64 >= FILE_BYTES_MAX || text.starts_with('+') || text.contains("\n+")
}
