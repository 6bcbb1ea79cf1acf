//! Texts with variables: the paths of mailboxes, and the words of a command.
//! Must never decide whether a value is safe in a path: the name of a mailbox is checked by `policy`.

use serde::{Deserialize, Serialize};

/// A text with variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template(pub Vec<Piece>);

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// A text without variables.
    Text(Box<str>),
    /// `{state}`: the directory of the mailer.
    State,
    /// `{user}`: the name of the mailbox.
    User,
    /// `{domain}`: the domain of the recipient.
    Domain,
    /// `{home}`: the home of the system's account.
    Home,
}

/// The values of the variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill<'a> {
    /// `{state}`
    pub state: &'a str,
    /// `{user}`
    pub user: &'a str,
    /// `{domain}`
    pub domain: &'a str,
    /// `{home}`, if the user is an account of the system.
    pub home: Option<&'a str>,
}

/// A path template, split at the last `/` before its first variable other than `{state}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitTemplate {
    /// The base is the user's home, and `base` is empty.
    pub home: bool,
    /// The directory that all mailboxes have in common.
    pub base: String,
    /// The path of a mailbox below `base`.
    pub rest: Template,
}

impl Template {
    /// Returns the text with its variables filled in, or `None` if `{home}` occurs and is not known.
    pub fn expand(&self, fill: &Fill<'_>) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            text.push_str(match piece {
                Piece::Text(text) => text,
                Piece::State => fill.state,
                Piece::User => fill.user,
                Piece::Domain => fill.domain,
                Piece::Home => fill.home?,
            });
        }
        Some(text)
    }

    /// Whether this variable occurs.
    pub fn has(&self, variable: &Piece) -> bool {
        self.0.contains(variable)
    }

    /// Returns the directory that all mailboxes of this path template have in common, or `None` if
    /// they are in homes.
    pub fn shared_directory(&self, state: &str) -> Option<String> {
        let split = self.split(state);
        (!split.home).then_some(split.base)
    }

    /// Splits a path template into the directory that all mailboxes share and the rest.
    pub(crate) fn split(&self, state: &str) -> SplitTemplate {
        let home = self.0.first() == Some(&Piece::Home);
        let pieces = &self.0[usize::from(home)..];
        let is_fixed = |piece: &&Piece| matches!(piece, Piece::Text(_) | Piece::State);
        let (fixed, variable) = pieces.split_at(pieces.iter().take_while(is_fixed).count());
        let fill = Fill { state, ..Fill::default() };
        let mut text = Template(fixed.to_vec()).expand(&fill).unwrap_or_default();
        if variable.is_empty() {
            text.truncate(text.trim_end_matches('/').len());
        }
        let (base, beginning) = match (home, text.rsplit_once('/')) {
            (true, _) => ("", text.as_str()),
            (false, Some(("", name))) => ("/", name),
            (false, Some(parts)) => parts,
            (false, None) => (".", text.as_str()),
        };
        let mut rest = vec![Piece::Text(beginning.trim_start_matches('/').into())];
        rest.extend_from_slice(variable);
        SplitTemplate { home, base: base.to_owned(), rest: Template(rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(pieces: &[&str]) -> Template {
        let piece = |text: &&str| match *text {
            "{user}" => Piece::User,
            "{state}" => Piece::State,
            "{home}" => Piece::Home,
            "{domain}" => Piece::Domain,
            text => Piece::Text(text.into()),
        };
        Template(pieces.iter().map(piece).collect())
    }

    #[test]
    fn a_template_is_split_where_its_first_variable_is() {
        let fill = Fill { state: "/state", user: "bob", domain: "example.org", home: Some("/h") };
        for (pieces, home, base, path) in [
            (&["{state}", "/mail/", "{user}", "/"][..], false, "/state/mail", "bob/"),
            (&["/var/mail/", "{user}"], false, "/var/mail", "bob"),
            (&["/m/x-", "{user}", ".mbox"], false, "/m", "x-bob.mbox"),
            (
                &["/m/", "{domain}", "/", "{user}", "/Maildir/"],
                false,
                "/m",
                "example.org/bob/Maildir/",
            ),
            (&["{home}", "/Maildir/"], true, "", "Maildir"),
            (&["/srv/all/"], false, "/srv", "all"),
            (&["/", "{user}"], false, "/", "bob"),
        ] {
            let split = template(pieces).split("/state");
            assert_eq!((split.home, split.base.as_str()), (home, base), "{pieces:?}");
            assert_eq!(split.rest.expand(&fill).unwrap(), path);
        }
    }
}
