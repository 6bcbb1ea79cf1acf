//! What stands at the places of the accounts' homes.
//!
//! Must never wait long: a home may be on a file server that does not answer.

use policy::Home;
use settings::UserAccount;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long all homes are waited for; what has not been looked at by then stays `Home::Unknown`.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);

/// The home of accounts that have none (Debian policy 9.2.3).
const NO_HOME: &str = "/nonexistent";

/// Looks at the home of each account, and at its mailbox where `mailbox` knows the path.
pub(super) fn look(
    accounts: &mut [UserAccount],
    mailbox: impl Fn(&UserAccount) -> Option<PathBuf>,
) {
    let places: Vec<_> = accounts.iter().map(|a| (a.uid, a.home.clone(), mailbox(a))).collect();
    let (found, homes) = mpsc::channel();
    // It ends when all is looked at, or nobody listens any more.
    let look = move || {
        for (uid, home, mailbox) in places {
            if found.send(home_of(uid, &home, mailbox.as_deref())).is_err() {
                return;
            }
        }
    };
    if std::thread::Builder::new().name("homes".into()).spawn(look).is_err() {
        return;
    }
    let until = Instant::now() + LOOK_TIME_MAX;
    for account in accounts {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(home) = homes.recv_timeout(left) else { return };
        account.home_is = home;
    }
}

fn home_of(uid: u32, home: &Path, mailbox: Option<&Path>) -> Home {
    if home == Path::new(NO_HOME) {
        return Home::NotTheirs;
    }
    match std::fs::metadata(home) {
        Err(_) => Home::Unknown,
        Ok(found) if found.is_dir() && found.uid() == uid => Home::Theirs,
        // A home of root's with a mailbox in it, as for users who may only copy files.
        Ok(_) if mailbox.is_some_and(|path| path.symlink_metadata().is_ok()) => Home::Theirs,
        Ok(_) => Home::NotTheirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r213_a_home_is_its_account_s_or_has_a_mailbox_already() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for home in ["own", "others/Maildir", "empty"] {
            std::fs::create_dir_all(path(home)).unwrap();
        }
        std::fs::write(path("file"), "").unwrap();
        let us = std::fs::metadata(dir.path()).unwrap().uid();
        let account = |uid, home: PathBuf| UserAccount {
            name: "ann".into(),
            uid,
            gid: uid,
            home,
            has_private_group: false,
            home_is: Home::Unknown,
        };
        let mut accounts = vec![
            account(us, path("own")),
            account(us + 1, path("others")),
            account(us + 1, path("empty")),
            account(us, path("file")),
            account(us, path("missing")),
            account(us, NO_HOME.into()),
        ];
        look(&mut accounts, |account| Some(account.home.join("Maildir")));
        let found: Vec<Home> = accounts.iter().map(|account| account.home_is).collect();
        let expected = [
            Home::Theirs,
            Home::Theirs,
            Home::NotTheirs,
            Home::NotTheirs,
            Home::Unknown,
            Home::NotTheirs,
        ];
        assert_eq!(found, expected);
    }
}
