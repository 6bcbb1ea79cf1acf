//! The rule whether a mailbox belongs to its recipient alone, by its owner, group and permissions.
//!
//! Must never be applied to a path, only to an open file: nobody can replace an open file between the check and the
//! write.

use serde::{Deserialize, Serialize};

/// Owner, group and permissions of a file or directory, as fstat(2) returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// The user id of the owner.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The mode, of which only the permissions are used.
    pub mode: u32,
}

/// The groups whose members may write to a mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The system's group `mail`. On many systems mailboxes have this group and the mode 0660, and only programs of the
    /// system have the group.
    pub mail: Option<u32>,
    /// The recipient's primary group, if it has no other member.
    pub private: Option<u32>,
}

/// Why mail is not written into a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NotTheirs {
    /// The mailbox belongs to another user: the user ids of the owner and of the recipient.
    #[error("belongs to user id {0}, not to its recipient, user id {1}")]
    Owner(u32, u32),
    /// All users may write to the mailbox.
    #[error("may be written to by everybody")]
    Everybody,
    /// The members of a group may write to the mailbox, and the group is neither `mail` nor private.
    #[error("may be written to by the members of group id {0}")]
    Group(u32),
}

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

impl Ownership {
    /// Checks that only the user id `recipient` and members of these groups may write to the mailbox.
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
