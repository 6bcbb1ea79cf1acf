//! The name of the mailbox that an address of ours means, safe as one component of a path.
//!
//! Must never return a name with a `/`, a NUL or another control character, an empty one, or one
//! with a leading dot.

use mail::Address;

/// The local part names no mailbox here; becomes 550 5.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("local part cannot be the name of a mailbox")]
pub struct UnsafeMailbox;

/// The mailbox of an address: its local part without quotes and backslashes (RFC 5321 4.1.2), in
/// lower case, since nobody means two people by `Joe` and `joe`.
pub fn mailbox_name(address: &Address) -> Result<String, UnsafeMailbox> {
    let mut name = unquoted(address.local());
    name.make_ascii_lowercase();
    let unsafe_char = |c: char| c == '/' || c.is_control();
    if name.is_empty() || name.starts_with('.') || name.contains(unsafe_char) {
        return Err(UnsafeMailbox);
    }
    Ok(name)
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
            assert_eq!(mailbox_name(&address).ok().as_deref(), expected, "{text}");
        }
    }
}
