//! Whether a mailbox is its recipient's alone, judged by what the file system says of it.
//!
//! Must never be asked about a path: only about what was opened, so that nobody can change it between
//! the question and the writing.

use serde::{Deserialize, Serialize};

/// Owner, group and permissions of a file or directory, as fstat(2) has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its mode; only the permissions count.
    pub mode: u32,
}

/// The groups whose members may write to a mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The system's group `mail`: mailboxes are 0660 and of this group on many systems, and its programs are the
    /// system's own.
    pub mail: Option<u32>,
    /// The recipient's primary group, if it has no other member.
    pub private: Option<u32>,
}

/// Why mail is not written into a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NotTheirs {
    /// It belongs to somebody else than its recipient.
    #[error("belongs to user id {0}, not to its recipient, user id {1}")]
    Owner(u32, u32),
    /// Others than its recipient may write to it.
    #[error("may be written to by everybody")]
    Everybody,
    /// The members of a group may write to it, and the group is neither `mail` nor private.
    #[error("may be written to by the members of group id {0}")]
    Group(u32),
}

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

impl Ownership {
    /// Whether only `recipient`, a user id, and members of these groups may write here.
    pub fn judge(self, recipient: u32, groups: Groups) -> Result<(), NotTheirs> {
        if self.uid != recipient {
            return Err(NotTheirs::Owner(self.uid, recipient));
        }
        if self.mode & OTHERS_WRITE != 0 {
            return Err(NotTheirs::Everybody);
        }
        let may_write = [groups.mail, groups.private].contains(&Some(self.gid));
        if self.mode & GROUP_WRITES != 0 && !may_write {
            return Err(NotTheirs::Group(self.gid));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r210_a_mailbox_is_its_recipient_s_alone_but_for_mail_and_a_private_group() {
        const ANN: u32 = 1000;
        const MAIL: u32 = 8;
        const USERS: u32 = 100;
        let groups = Groups { mail: Some(MAIL), private: Some(ANN) };
        for (uid, gid, mode, expected) in [
            (ANN, ANN, 0o100600, Ok(())),
            (ANN, ANN, 0o100644, Ok(())),
            (ANN, USERS, 0o100644, Ok(())),
            (ANN, MAIL, 0o100660, Ok(())),
            (ANN, MAIL, 0o042770, Ok(())),
            (ANN, ANN, 0o040775, Ok(())),
            (ANN, ANN, 0o100660, Ok(())),
            (ANN, ANN, 0o040777, Err(NotTheirs::Everybody)),
            (ANN, USERS, 0o040775, Err(NotTheirs::Group(USERS))),
            (33, ANN, 0o100660, Err(NotTheirs::Owner(33, ANN))),
            (ANN, MAIL, 0o100662, Err(NotTheirs::Everybody)),
            (ANN, ANN, 0o100602, Err(NotTheirs::Everybody)),
            (33, ANN, 0o100666, Err(NotTheirs::Owner(33, ANN))),
            (33, MAIL, 0o100600, Err(NotTheirs::Owner(33, ANN))),
            (0, MAIL, 0o100600, Err(NotTheirs::Owner(0, ANN))),
        ] {
            let found = Ownership { uid, gid, mode };
            assert_eq!(found.judge(ANN, groups), expected, "{found:?}");
        }
        for gid in [MAIL, ANN] {
            let shared = Ownership { uid: ANN, gid, mode: 0o660 };
            assert_eq!(shared.judge(ANN, Groups::default()), Err(NotTheirs::Group(gid)));
        }
    }
}
