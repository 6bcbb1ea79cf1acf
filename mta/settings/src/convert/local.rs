//! Which mailboxes there are. RCPT is answered by it, and mail is delivered by it.
//!
//! Must never look at a mailbox: what is known of the accounts is in the host's environment.

use crate::{Deliver, HostEnvironment, LocalSettings, Piece, Template, UserAccount, Users};
use policy::{Accounts, Mailboxes, Names, Needs, Standing};

impl LocalSettings {
    /// Returns the mailboxes.
    pub fn mailboxes(&self, environment: &HostEnvironment) -> Mailboxes {
        let needs = Needs { home: self.is_at_home(), only_user: environment.only_user };
        // The rule is about our own workers. An LMTP server has its own users and its own place for mail.
        let by_another = matches!(self.deliver, Deliver::Lmtp(_));
        let standing = |account: &UserAccount| {
            if by_another {
                return Standing::Gets;
            }
            let UserAccount { uid, gid, home_is: home, .. } = *account;
            policy::Account { uid, gid, home }.standing(needs)
        };
        let accounts = environment.accounts.iter();
        let accounts = match self.users {
            Users::Any => Accounts::Any,
            Users::System => Accounts::Listed(
                accounts.map(|account| (account.name.as_str().into(), standing(account))).collect(),
            ),
        };
        Mailboxes { names: self.names(), accounts }
    }

    /// Returns whether mail is kept in the homes of accounts.
    pub fn is_at_home(&self) -> bool {
        let (Deliver::Maildir(template) | Deliver::Mbox(template)) = &self.deliver else {
            return false;
        };
        self.users == Users::System && template.has(&Piece::Home)
    }

    fn names(&self) -> Names {
        // The first word is the program; within a word, what stands before {user} begins it.
        let is_argument = |word: &Template| word.0.first() == Some(&Piece::User);
        Names {
            dotlocks: matches!(self.deliver, Deliver::Mbox(_)),
            arguments: matches!(&self.deliver, Deliver::Pipe(words) if words.iter().any(is_argument)),
        }
    }
}
