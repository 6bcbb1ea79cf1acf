//! Whether an account of the system gets mail: the one rule by which RCPT is answered and mail is
//! delivered.
//!
//! Must never look anything up: what the system says of an account is an argument.

use serde::{Deserialize, Serialize};

/// What stands at the place of an account's home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Home {
    /// Nothing is there, or the file system did not answer in time: perhaps it is not mounted yet.
    #[default]
    Unknown,
    /// A directory of the account's, or there is a mailbox already.
    Theirs,
    /// Something that belongs to somebody else, or the name of a directory that never exists.
    NotTheirs,
}

/// What the system says of an account. Its shell does not count: a user who may not log in may get
/// mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Its home.
    pub home: Home,
}

/// What the settings need of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Mail is kept below its home.
    pub home: bool,
    /// The only user as whom mail can be delivered: where the mailer was not started by root.
    pub only_user: Option<u32>,
}

/// Whether an account gets mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Gets,
    /// Never: it is no user's here.
    Never,
}

impl Account {
    /// The rule. Root's own mail is delivered to nobody as root; a program of the system has no home
    /// of its own. A home that is not there may be mounted later: its mail is accepted and waits.
    pub fn standing(self, needs: Needs) -> Standing {
        let root = self.uid == 0 || self.gid == 0;
        if root || needs.only_user.is_some_and(|only| only != self.uid) {
            return Standing::Never;
        }
        match (needs.home, self.home) {
            (true, Home::NotTheirs) => Standing::Never,
            _ => Standing::Gets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r213_an_account_gets_mail_if_it_can_be_delivered_as_that_user() {
        use Standing::{Gets, Never};
        let account = |uid, gid, home| Account { uid, gid, home };
        let any = Needs::default();
        let at_home = Needs { home: true, only_user: None };
        let only = Needs { home: true, only_user: Some(1000) };
        for (uid, gid, home, needs, expected) in [
            (1000, 1000, Home::Theirs, at_home, Gets),
            (1000, 1000, Home::Unknown, at_home, Gets),
            (5, 60, Home::NotTheirs, at_home, Never),
            (5, 60, Home::NotTheirs, any, Gets),
            (5, 60, Home::Unknown, any, Gets),
            (0, 0, Home::Theirs, at_home, Never),
            (0, 0, Home::Unknown, any, Never),
            (1000, 0, Home::Theirs, any, Never),
            (0, 1000, Home::Theirs, any, Never),
            (1000, 1000, Home::Theirs, only, Gets),
            (1001, 1001, Home::Theirs, only, Never),
        ] {
            let found = account(uid, gid, home);
            assert_eq!(found.standing(needs), expected, "{found:?} {needs:?}");
        }
    }
}
