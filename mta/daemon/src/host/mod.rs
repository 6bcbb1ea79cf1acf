//! What master collects of its host for the processes that cannot read it themselves.
//!
//! Must never fail: a file that cannot be read counts as empty, and what depends on it is deferred.

mod homes;
#[cfg(test)]
mod tests;

use settings::host::{FILE_BYTES_MAX, accounts_of, addresses_of, group_of};
use settings::{HostEnvironment, Settings, Users};
use std::path::Path;

/// Collects the environment from the files below `root`, which is `/` except in tests. Reads accounts only if
/// `accounts` is set. A file that is missing or unreadable counts as empty, and what depends on it is deferred.
pub fn collect(root: &Path, accounts: bool) -> HostEnvironment {
    let text = |path: &str| {
        String::from_utf8_lossy(&read_bounded(&root.join(path)).unwrap_or_default()).into_owned()
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
pub fn environment(settings: &Settings, only_user: Option<u32>) -> HostEnvironment {
    let system = settings.local.users == Users::System;
    let mut found = collect(Path::new("/"), system);
    found.only_user = only_user;
    if settings.local.is_at_home() {
        let (local, state) = (&settings.local, settings.state.to_string_lossy());
        homes::look(&mut found.accounts, |account| local.mailbox_of(account, &state));
    }
    found
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
