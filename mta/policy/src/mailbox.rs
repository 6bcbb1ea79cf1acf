//! The name of the mailbox that a local part stands for, safe as one component of a path.
//!
//! Must never return a name that is empty, starts with a dot, or contains a `/`, a NUL or another control character.
//! If a program gets the name as an argument, the name must never start with `-`.

use crate::Standing;
use std::collections::HashMap;

/// The local part cannot be the name of a mailbox. The reply is 550 5.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("local part cannot be the name of a mailbox")]
pub struct UnsafeMailbox;

/// Upper bound on a name. With a suffix it still fits into a file name of 255 bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// Names that have another meaning at delivery and therefore cannot be mailboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// True if mailboxes are files with lock files beside them: `joe.lock` is the lock of `joe`.
    pub dotlocks: bool,
    /// True if a program gets the name as an argument: `-joe` would be an option.
    pub arguments: bool,
}

/// The mailboxes in our domains. RCPT and local delivery both ask here.
#[derive(Clone, Debug)]
pub struct Mailboxes {
    /// The names that cannot be mailboxes.
    pub names: Names,
    /// The accounts that have a mailbox.
    pub accounts: Accounts,
}

/// The accounts that have a mailbox in our domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accounts {
    /// Every safe name has a mailbox.
    Any,
    /// Only these names, in the form of `mailbox_name`.
    Listed(HashMap<Box<str>, Standing>),
}

/// The local part has no mailbox. The reply is 550 5.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMailbox;

impl Mailboxes {
    /// Returns the name that the mailbox of a local part would have, whether or not the mailbox exists.
    pub fn name(&self, local: &str) -> Option<String> {
        mailbox_name(local, self.names).ok()
    }

    /// Returns the name of the mailbox of a local part.
    pub fn find(&self, local: &str) -> Result<String, NoMailbox> {
        let name = mailbox_name(local, self.names).map_err(|UnsafeMailbox| NoMailbox)?;
        let standing = match &self.accounts {
            Accounts::Any => Some(Standing::Gets),
            Accounts::Listed(accounts) => accounts.get(name.as_str()).copied(),
        };
        match standing {
            Some(Standing::Gets) => Ok(name),
            Some(Standing::Never) | None => Err(NoMailbox),
        }
    }
}

/// Returns the name of the mailbox of a local part: without quotes and backslashes (RFC 5321 4.1.2), and in lower case,
/// because `Joe` and `joe` are the same person.
pub fn mailbox_name(local: &str, names: Names) -> Result<String, UnsafeMailbox> {
    let mut name = unquoted(local);
    name.make_ascii_lowercase();
    let unsafe_char = |c: char| c == '/' || c.is_control();
    let refused = name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.starts_with('.')
        || name.contains(unsafe_char)
        || (names.dotlocks && name.ends_with(".lock"))
        || (names.arguments && name.starts_with('-'));
    if refused { Err(UnsafeMailbox) } else { Ok(name) }
}

fn unquoted(local: &str) -> String {
    let Some(inner) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return local.into();
    };
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        // A backslash quotes the next character, also another backslash.
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Address;

    const PLAIN: Names = Names { dotlocks: false, arguments: false };
    const LOCKED: Names = Names { dotlocks: true, arguments: false };

    #[test]
    fn r217_a_name_that_a_program_would_take_for_an_option_is_refused_where_programs_get_names() {
        let arguments = Names { arguments: true, ..PLAIN };
        for local in ["-x", "--config=x", "\"-x\"", "\"\\-x\"", "-"] {
            assert_eq!(mailbox_name(local, arguments), Err(UnsafeMailbox), "{local}");
            assert!(mailbox_name(local, PLAIN).is_ok(), "{local}");
        }
        assert_eq!(mailbox_name("a-b-", arguments).as_deref(), Ok("a-b-"));
    }

    #[test]
    fn names_that_could_lead_elsewhere_are_no_mailboxes_whatever_grammar_let_them_through() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for local in
            ["", ".", "..", ".hidden", "a/b", "../x", "a\0b", "a\nb", "\"\"", "\"../x\"", &long]
        {
            assert_eq!(mailbox_name(local, PLAIN), Err(UnsafeMailbox), "{local:?}");
        }
    }

    #[test]
    fn a_name_that_is_another_mailboxs_lock_is_refused_only_where_there_are_such_locks() {
        for local in ["bob.lock", "\"bob.LOCK\"", "\"bob.\\lock\""] {
            assert_eq!(mailbox_name(local, LOCKED), Err(UnsafeMailbox), "{local}");
            assert_eq!(mailbox_name(local, PLAIN).as_deref(), Ok("bob.lock"), "{local}");
        }
        assert!(mailbox_name("lock", LOCKED).is_ok());
    }

    #[test]
    fn a_mailbox_name_is_the_unquoted_local_part_or_refused() {
        for (text, expected) in [
            ("joe@us.test", Some("joe")),
            ("Joe@us.test", Some("joe")),
            ("\"joe\"@us.test", Some("joe")),
            ("\"j\\oe\"@us.test", Some("joe")),
            ("\"a b\"@us.test", Some("a b")),
            ("x%other@us.test", Some("x%other")),
            ("jö@us.test", Some("jö")),
            ("\"\\.x\"@us.test", None),
            ("\".\"@us.test", None),
            ("\"..\"@us.test", None),
            ("\"\"@us.test", None),
            ("../x@us.test", None),
            ("\"../x\"@us.test", None),
            ("a/b@us.test", None),
            ("\"a\\/b\"@us.test", None),
        ] {
            // Addresses that the grammar refuses never get here.
            let Ok(address) = Address::parse(text, true) else {
                assert_eq!(expected, None, "{text}");
                continue;
            };
            assert_eq!(mailbox_name(address.local(), LOCKED).ok().as_deref(), expected, "{text}");
        }
    }
}
