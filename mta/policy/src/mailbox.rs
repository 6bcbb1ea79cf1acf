//! The name of the mailbox that an address of ours means, safe as one component of a path.
//!
//! Must never return a name with a `/`, a NUL or another control character, an empty one, or one
//! with a leading dot.

/// The local part names no mailbox here; becomes 550 5.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("local part cannot be the name of a mailbox")]
pub struct UnsafeMailbox;

/// The longest name: with a suffix it still fits into a file name of 255 bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// The mailbox of a local part: without quotes and backslashes (RFC 5321 4.1.2), in lower case,
/// since nobody means two people by `Joe` and `joe`. With `dotlocks` the mailboxes are files that
/// are locked by a `joe.lock` beside `joe`: then `joe.lock` is no mailbox.
pub fn mailbox_name(local: &str, dotlocks: bool) -> Result<String, UnsafeMailbox> {
    let mut name = unquoted(local);
    name.make_ascii_lowercase();
    let unsafe_char = |c: char| c == '/' || c.is_control();
    let refused = name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.starts_with('.')
        || name.contains(unsafe_char)
        || (dotlocks && name.ends_with(".lock"));
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

    #[test]
    fn names_that_could_lead_elsewhere_are_no_mailboxes_whatever_grammar_let_them_through() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for local in
            ["", ".", "..", ".hidden", "a/b", "../x", "a\0b", "a\nb", "\"\"", "\"../x\"", &long]
        {
            assert_eq!(mailbox_name(local, false), Err(UnsafeMailbox), "{local:?}");
        }
    }

    #[test]
    fn a_name_that_is_another_mailboxs_lock_is_refused_only_where_there_are_such_locks() {
        for local in ["bob.lock", "\"bob.LOCK\"", "\"bob.\\lock\""] {
            assert_eq!(mailbox_name(local, true), Err(UnsafeMailbox), "{local}");
            assert_eq!(mailbox_name(local, false).as_deref(), Ok("bob.lock"), "{local}");
        }
        assert!(mailbox_name("lock", true).is_ok());
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
            // What the grammar refuses never comes here.
            let Ok(address) = Address::parse(text, true) else {
                assert_eq!(expected, None, "{text}");
                continue;
            };
            assert_eq!(mailbox_name(address.local(), true).ok().as_deref(), expected, "{text}");
        }
    }
}
