//! Which place a recipient's mail goes to, and which user delivers it there.
//! Must never make a path or an argument of a name that `policy` has not checked.

use crate::Settings;
use crate::outcome;
use crate::template::{Fill, SplitTemplate, Template};
use mail::{Address, NextHop, Reply};
use policy::NoMailbox;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `deliver`: the form of a mailbox and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deliver {
    /// A Maildir at this path.
    Maildir(Template),
    /// A file in mbox format at this path.
    Mbox(Template),
    /// Another server takes the mail by LMTP; one of `NextHop::{Lmtp, LmtpUnix}`.
    Lmtp(NextHop),
    /// A program of this name with these arguments, each expanded on its own, without a shell.
    Pipe(Vec<Template>),
}

/// Which local parts have a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Users {
    /// Each that is safe as a file name; its mailbox is created.
    Any,
    /// The accounts of the system.
    System,
}

/// How a mailbox keeps its mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Format {
    /// A directory with `tmp`, `new` and `cur`: a file for each message.
    Maildir,
    /// One file; a `From ` line separates messages. Lines of a message that begin with `From `, or with
    /// `>`s and then `From `, get one more `>` (the variety known as mboxrd, which can be undone exactly).
    Mbox,
}

/// The user that delivers a message. Batches of one delivery user follow one another; those of
/// different delivery users run side by side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryUser {
    /// This process itself, under its own user id.
    ThisProcess,
    /// A worker process that runs as the account of this name; the empty name is local's own user id.
    Account(Arc<str>),
}

/// Where one recipient's mail goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeliveryPlace {
    /// A mailbox.
    Mailbox {
        /// A directory that the administrator named, or the user's home.
        base: PathBuf,
        /// The path below `base`, in which no link is followed.
        path: String,
        /// How mail is kept there.
        format: Format,
    },
    /// A program and its arguments.
    Command(Vec<String>),
}

impl fmt::Display for DeliveryPlace {
    /// Writes the name that logs and bounces have for the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeliveryPlace::Mailbox { base, path, .. } => write!(f, "{}", base.join(path).display()),
            DeliveryPlace::Command(words) => {
                let program = words.first().map_or("", String::as_str);
                write!(f, "{}{program}", crate::PROGRAM_NAME_PREFIX)
            }
        }
    }
}

/// What is known of a recipient's place.
#[derive(Debug)]
pub(crate) enum FoundPlace {
    /// The place, and who delivers there.
    Known(DeliveryUser, DeliveryPlace),
    /// The place depends on the home of the account of this name.
    NeedsHome(String),
}

/// The rule that gives each recipient a place.
#[derive(Debug)]
pub(crate) struct PlaceRule {
    mailboxes: policy::Mailboxes,
    users: Users,
    state: String,
    /// `Err` names the server that local mail goes to instead.
    target: Result<PlaceKind, Box<str>>,
}

#[derive(Debug)]
enum PlaceKind {
    Mailbox(SplitTemplate, Format),
    Command(Vec<Template>),
}

/// The value of `{home}` if no account of the system is asked.
const NO_HOME: &str = "/";

impl PlaceRule {
    /// Makes the rule of these settings.
    pub fn new(settings: &Settings) -> PlaceRule {
        let Settings { state, deliver, users, mailboxes, .. } = settings.clone();
        let target = match deliver {
            Deliver::Maildir(template) => {
                Ok(PlaceKind::Mailbox(template.split(&state), Format::Maildir))
            }
            Deliver::Mbox(template) => Ok(PlaceKind::Mailbox(template.split(&state), Format::Mbox)),
            Deliver::Pipe(words) => Ok(PlaceKind::Command(words)),
            Deliver::Lmtp(hop) => Err(hop.to_string().into()),
        };
        PlaceRule { mailboxes, users, state, target }
    }

    /// Finds the place of a recipient's mail, as far as it is known without the system's accounts.
    pub fn find(&self, recipient: &Address) -> Result<FoundPlace, Reply> {
        let target = self.target()?;
        let name = self.mailboxes.find(recipient.local());
        let name = name.map_err(|NoMailbox| outcome::no_such_mailbox())?;
        if self.users == Users::System {
            return Ok(FoundPlace::NeedsHome(name));
        }
        let user = match target {
            PlaceKind::Command(_) => DeliveryUser::Account("".into()),
            PlaceKind::Mailbox(..) => DeliveryUser::ThisProcess,
        };
        Ok(FoundPlace::Known(user, self.place(target, recipient, &name, Path::new(NO_HOME))))
    }

    /// Finds the place of a recipient's mail whose account has this home; `None`: there is no account.
    pub fn find_at_home(
        &self,
        recipient: &Address,
        account: &str,
        home: Option<&Path>,
    ) -> Result<(DeliveryUser, DeliveryPlace), Reply> {
        let target = self.target()?;
        let home = home.ok_or_else(outcome::no_such_mailbox)?;
        let user = DeliveryUser::Account(account.into());
        Ok((user, self.place(target, recipient, account, home)))
    }

    fn target(&self) -> Result<&PlaceKind, Reply> {
        self.target.as_ref().map_err(|hop| outcome::elsewhere(hop))
    }

    fn place(
        &self,
        target: &PlaceKind,
        recipient: &Address,
        user: &str,
        home: &Path,
    ) -> DeliveryPlace {
        let home_text = home.to_string_lossy();
        let fill = Fill {
            state: &self.state,
            user,
            domain: recipient.domain().as_str(),
            home: Some(&home_text),
        };
        let expand = |template: &Template| {
            template.expand(&fill).expect("each variable has a value, the home included")
        };
        match target {
            PlaceKind::Mailbox(split, format) => {
                let base = if split.home { home.to_owned() } else { split.base.clone().into() };
                let path = expand(&split.rest).trim_matches('/').to_owned();
                DeliveryPlace::Mailbox { base, path, format: *format }
            }
            PlaceKind::Command(words) => DeliveryPlace::Command(words.iter().map(expand).collect()),
        }
    }
}
