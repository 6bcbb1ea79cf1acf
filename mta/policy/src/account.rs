//! The rule whether an account of the system gets mail. RCPT and local delivery both use it.
//!
//! Must never look up an account: the facts about the account are an argument.

use serde::{Deserialize, Serialize};

/// What the path of an account's home directory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Home {
    /// Nothing exists there, or the file system did not answer in time. It may not be mounted yet.
    #[default]
    Unknown,
    /// A directory that the account owns, or a directory that already has a mailbox.
    Theirs,
    /// A file or directory of another owner, or the name of a directory that never exists.
    NotTheirs,
}

/// An account of the system. Its shell is ignored: a user who may not log in may get mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// The home directory.
    pub home: Home,
}

/// What the settings require of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// True if mail is stored below the home directory.
    pub home: bool,
    /// The user that runs the mailer, if that is not root. Mail can be delivered to no other user then.
    pub only_user: Option<u32>,
}

/// Whether an account gets mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The account gets mail.
    Gets,
    /// The account never gets mail.
    Never,
}

impl Account {
    /// Decides whether the account gets mail.
    ///
    /// Nothing is delivered with the rights of root, so root gets no mail. Accounts of system programs have no home
    /// directory of their own. If a home directory is missing, it may be mounted later: mail is accepted and waits.
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
