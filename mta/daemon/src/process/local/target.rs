//! From a recipient to the place where its mail is kept, by the settings' template.
//! Must never make a path of a name that has not been checked.

use crate::mailbox::{Base, Fault, Format, Mailbox};
use crate::settings::{
    self, Account, Deliver, HostEnvironment, Piece, ProcessConfig, Template, Users,
};
use mail::{Address, Enhanced};
use policy::{Mailboxes, NoMailbox};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Below the state directory, where the mailboxes are not ours.
const STAGE_NAME: &str = "local";

/// Who delivers: batches of one lane follow one another, lanes run side by side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// This process, under local's own id.
    Own,
    /// A worker that runs as this user; the empty name is local's own id.
    Worker(Arc<str>),
}

/// Where one recipient's mail goes.
#[derive(Clone, Debug)]
pub enum Place {
    /// A mailbox below a directory that this process holds.
    Mailbox(Mailbox),
    /// What a worker is told.
    Worker(WorkerPlace),
}

/// A place that only the user may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerPlace {
    /// A mailbox at `path` below `base`.
    Mailbox {
        /// An absolute path, the administrator's word.
        base: PathBuf,
        /// Below it, no link followed.
        path: String,
        /// `mbox`; else a Maildir.
        mbox: bool,
    },
    /// A program and its arguments.
    Command(Vec<String>),
}

/// What of the settings this process lives by: another one of these needs another life.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Our name.
    pub hostname: String,
    /// `{state}`.
    pub state: PathBuf,
    /// `[local]`.
    pub local: settings::Local,
    /// The accounts of the system, who may be delivered to, and its group `mail`; nothing else.
    pub environment: HostEnvironment,
}

/// All that is needed to find places.
#[derive(Debug)]
pub struct Targets {
    wanted: Wanted,
    /// The rule by which RCPT was answered.
    mailboxes: Mailboxes,
    own: Option<Arc<Base>>,
    /// Where large messages are staged.
    stage: Arc<Base>,
}

/// A template's constant beginning, up to a `/`, and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Split {
    /// The base is the user's home.
    home: bool,
    base: String,
    rest: Vec<Piece>,
}

/// What the variables stand for.
struct Variables<'a> {
    user: &'a str,
    recipient: &'a Address,
    home: &'a str,
    state: &'a str,
}

impl Wanted {
    /// Picks it out.
    pub fn of(config: &ProcessConfig) -> Wanted {
        let HostEnvironment { accounts, mail_group, only_user, .. } = config.environment.clone();
        Wanted {
            hostname: config.settings.hostname.as_str().to_owned(),
            state: config.settings.state.clone(),
            local: config.settings.local.clone(),
            environment: HostEnvironment {
                accounts,
                mail_group,
                only_user,
                ..HostEnvironment::default()
            },
        }
    }

    /// Whether workers are needed: then a fork server has to be there.
    pub fn needs_workers(&self) -> bool {
        self.local.users == Users::System || matches!(self.local.deliver, Deliver::Pipe(_))
    }

    /// The directory of all users' mailboxes, if they are in one.
    pub fn shared_directory(&self) -> Option<PathBuf> {
        let (Deliver::Maildir(template) | Deliver::Mbox(template)) = &self.local.deliver else {
            return None;
        };
        let split = split(template, &self.state.to_string_lossy());
        (!split.home).then(|| split.base.into())
    }
}

impl Targets {
    /// Opens what this process will need, and makes it where it is missing. `owner` is the user and
    /// group that a new base belongs to, where we are root. To be called before the jail is shut.
    pub fn open(wanted: Wanted, owner: Option<(u32, u32)>) -> io::Result<Targets> {
        let own = match wanted.local.users {
            Users::Any => wanted.shared_directory(),
            Users::System => None,
        };
        let own = own.map(|base| open_base(base, owner).map(Arc::new)).transpose()?;
        let stage = match &own {
            Some(own) => own.clone(),
            None => Arc::new(open_base(wanted.state.join(STAGE_NAME), owner)?),
        };
        let mailboxes = wanted.local.mailboxes(&wanted.environment);
        Ok(Targets { wanted, mailboxes, own, stage })
    }

    /// What it was opened for.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// A directory where large messages are staged: on the disk of the mailboxes, where they are ours.
    pub fn stage(&self) -> io::Result<OwnedFd> {
        self.stage.directory().try_clone_to_owned()
    }

    /// Its path: all that this process needs of the file tree is below it.
    pub fn stage_path(&self) -> &Path {
        self.stage.path()
    }

    /// Where the mail of `recipient` goes.
    pub fn find(&self, recipient: &Address) -> Result<(Lane, Place), Fault> {
        match &self.wanted.local.deliver {
            Deliver::Maildir(template) => self.mailbox(recipient, template, Format::Maildir),
            Deliver::Mbox(template) => self.mailbox(recipient, template, Format::Mbox),
            Deliver::Pipe(words) => self.command(recipient, words),
            Deliver::Lmtp(hop) => Err(Fault::transient(
                Enhanced(4, 3, 5),
                format!("local mail goes to {hop}, not to mailboxes"),
            )),
        }
    }

    fn mailbox(
        &self,
        recipient: &Address,
        template: &Template,
        format: Format,
    ) -> Result<(Lane, Place), Fault> {
        let user = self.user(recipient)?;
        let state = self.wanted.state.to_string_lossy();
        let Split { home: at_home, base, rest } = split(template, &state);
        if let Some(own) = &self.own {
            let variables = Variables { user: &user, recipient, home: "", state: &state };
            let path = relative(&rest, &variables);
            return Ok((Lane::Own, Place::Mailbox(Mailbox { base: own.clone(), path, format })));
        }
        let account = self.account(&user)?;
        let home = account.home.to_string_lossy();
        let variables = Variables { user: &user, recipient, home: &home, state: &state };
        let base = if at_home { account.home.clone() } else { base.into() };
        let mbox = format == Format::Mbox;
        let place = WorkerPlace::Mailbox { base, path: relative(&rest, &variables), mbox };
        Ok((Lane::Worker(account.name.as_str().into()), Place::Worker(place)))
    }

    fn command(&self, recipient: &Address, words: &[Template]) -> Result<(Lane, Place), Fault> {
        let user = self.user(recipient)?;
        let (lane, home) = match self.wanted.local.users {
            Users::Any => ("", "/".into()),
            Users::System => {
                let account = self.account(&user)?;
                (account.name.as_str(), account.home.to_string_lossy())
            }
        };
        let state = self.wanted.state.to_string_lossy();
        let variables = Variables { user: &user, recipient, home: &home, state: &state };
        let words = words.iter().map(|word| expand(&word.0, &variables)).collect();
        Ok((Lane::Worker(lane.into()), Place::Worker(WorkerPlace::Command(words))))
    }

    /// The name of the recipient's mailbox, by the rule that policy has judged RCPT with. It is asked
    /// again here, where paths and arguments are made: what was accepted may be queued for days.
    fn user(&self, recipient: &Address) -> Result<String, Fault> {
        self.mailboxes.find(recipient.local()).map_err(|NoMailbox| Fault::no_such_user())
    }

    fn account(&self, user: &str) -> Result<&Account, Fault> {
        self.wanted.environment.account(user).ok_or_else(Fault::no_such_user)
    }
}

fn open_base(path: PathBuf, owner: Option<(u32, u32)>) -> io::Result<Base> {
    let new = !path.exists();
    let base = Base::open(path, true)?;
    if let (true, Some((user, group))) = (new, owner) {
        std::os::unix::fs::fchown(base.directory(), Some(user), Some(group))?;
    }
    Ok(base)
}

fn split(template: &Template, state: &str) -> Split {
    let pieces = &template.0;
    let home = matches!(pieces.first(), Some(Piece::Home));
    let pieces = &pieces[usize::from(home)..];
    let fixed = pieces.iter().take_while(|piece| matches!(piece, Piece::Text(_) | Piece::State));
    let count = fixed.clone().count();
    let mut text = String::new();
    for piece in fixed {
        match piece {
            Piece::Text(part) => text.push_str(part),
            _ => text.push_str(state),
        }
    }
    if count == pieces.len() {
        text.truncate(text.trim_end_matches('/').len());
    }
    let (base, beginning) = match (home, text.rsplit_once('/')) {
        (true, _) => (String::new(), text.as_str()),
        (false, Some(("", name))) => ("/".to_owned(), name),
        (false, Some((base, name))) => (base.to_owned(), name),
        (false, None) => (".".to_owned(), text.as_str()),
    };
    let mut rest = vec![Piece::Text(beginning.trim_start_matches('/').into())];
    rest.extend_from_slice(&pieces[count..]);
    Split { home, base, rest }
}

fn relative(pieces: &[Piece], variables: &Variables<'_>) -> String {
    expand(pieces, variables).trim_matches('/').to_owned()
}

fn expand(pieces: &[Piece], variables: &Variables<'_>) -> String {
    let mut out = String::new();
    for piece in pieces {
        out.push_str(match piece {
            Piece::Text(text) => text,
            Piece::State => variables.state,
            Piece::User => variables.user,
            Piece::Domain => variables.recipient.domain().as_str(),
            Piece::Home => variables.home,
        });
    }
    out
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
        let recipient = Address::parse("bob@example.org", false).unwrap();
        let variables =
            Variables { user: "bob", recipient: &recipient, home: "/home/bob", state: "/state" };
        for (pieces, home, base, path) in [
            (&["{state}", "/mail/", "{user}", "/"][..], false, "/state/mail", "bob"),
            (&["/var/mail/", "{user}"], false, "/var/mail", "bob"),
            (&["/m/x-", "{user}", ".mbox"], false, "/m", "x-bob.mbox"),
            (
                &["/m/", "{domain}", "/", "{user}", "/Maildir/"],
                false,
                "/m",
                "example.org/bob/Maildir",
            ),
            (&["{home}", "/Maildir/"], true, "", "Maildir"),
            (&["/srv/all/"], false, "/srv", "all"),
            (&["/", "{user}"], false, "/", "bob"),
        ] {
            let split = split(&template(pieces), "/state");
            assert_eq!((split.home, split.base.as_str()), (home, base), "{pieces:?}");
            assert_eq!(relative(&split.rest, &variables), path);
        }
    }
}
