//! Subjects that a file describes: a command that starts the mailer, or the address of a running one.
//!
//! Must never accept a setup that the description has no placeholder for.

use super::versions::Versions;
use super::{
    Duty, Logging, Phase, Setup, Site, Subject, directory, fill, make_mailboxes, usual_recipient,
};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use std::net::ToSocketAddrs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::Spanned;

/// The format of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptions {
    #[serde(default)]
    subject: Vec<Given>,
}

/// One description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    name: Spanned<String>,
    command: Option<Spanned<Vec<String>>>,
    address: Option<Spanned<String>>,
    version: Says,
    #[serde(default = "only_relay")]
    duties: Spanned<Vec<Duty>>,
    recipient: Option<String>,
    queued: Option<Vec<String>>,
    flush: Option<Vec<String>>,
    #[serde(default)]
    settings: Vec<String>,
    user: Option<Spanned<String>>,
    /// Whether a client should not wait for the reply to QUIT.
    #[serde(default)]
    left_without_goodbye: bool,
    #[serde(skip)]
    here: PathBuf,
}

/// A text, or a command that prints one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Says {
    Text(String),
    Command(Vec<String>),
}

fn only_relay() -> Spanned<Vec<Duty>> {
    Spanned::new(0..0, vec![Duty::Relay])
}

/// Reads a file of descriptions. Errors name the file and the line.
pub fn load(path: &Path) -> Result<Vec<Box<dyn Subject>>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let here = path.canonicalize()?.parent().context("a file lies in a directory")?.to_path_buf();
    let at = |span: Range<usize>, what: &str| {
        let line = 1 + text[..span.start.min(text.len())].matches('\n').count();
        anyhow!("{}:{line}: {what}", path.display())
    };
    let descriptions: Descriptions = toml::from_str(&text)
        .map_err(|error| at(error.span().unwrap_or_default(), error.message()))?;
    if descriptions.subject.is_empty() {
        bail!("{}: no [[subject]] in it", path.display());
    }
    let mut names: Vec<String> =
        super::builtin().iter().map(|subject| subject.name().into()).collect();
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for mut given in descriptions.subject {
        given.check(&names).map_err(|(span, what)| at(span, &what))?;
        names.push(given.name().into());
        given.here.clone_from(&here);
        subjects.push(Box::new(given));
    }
    Ok(subjects)
}

impl Given {
    fn check(&self, names: &[String]) -> Result<(), (Range<usize>, String)> {
        let name = self.name.get_ref();
        let wrong = |span: Range<usize>, what: String| Err((span, what));
        let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(letter) {
            return wrong(self.name.span(), format!("`{name}` is no name: letters, digits, - _ ."));
        }
        if names.contains(name) {
            return wrong(self.name.span(), format!("there is a subject `{name}` already"));
        }
        let words = self.command.as_ref().map(|words| (words.span(), words.get_ref().is_empty()));
        match (words, &self.address) {
            (Some((span, true)), _) => return wrong(span, "`command` is empty".into()),
            (Some(_), None) => {}
            (None, Some(address)) => {
                if address.get_ref().to_socket_addrs().is_err() {
                    let what = format!("`{}` is not ADDRESS:PORT", address.get_ref());
                    return wrong(address.span(), what);
                }
            }
            _ => {
                let what = format!("`{name}` needs either `command` or `address`");
                return wrong(self.name.span(), what);
            }
        }
        if let Some(user) = self.user.as_ref().filter(|_| self.address.is_some()) {
            return wrong(user.span(), "`user` is for a `command`".into());
        }
        if self.duties.get_ref().contains(&Duty::Hold) && self.queued.is_none() {
            let what = "who can hold mail has to say how much it holds: `queued`".into();
            return wrong(self.duties.span(), what);
        }
        Ok(())
    }

    fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// Returns whether the command has a placeholder for this value.
    fn has_place_for(&self, name: &str) -> bool {
        let place = format!("{{{name}}}");
        let words = self.command.as_ref().map(|words| words.get_ref().as_slice());
        words.unwrap_or_default().iter().any(|word| word.contains(&place))
    }

    /// Returns the site with directories of the subject's own.
    fn own(&self, site: &Site) -> [(&'static str, PathBuf); 3] {
        [("queue", &site.queue), ("work", &site.work), ("log", &site.log)]
            .map(|(name, path)| (name, path.join(self.name())))
    }

    fn filled(&self, site: &Site, word: &str) -> String {
        let setup = &site.setup;
        let mut word = word.replace("{here}", &self.here.display().to_string());
        for (name, path) in self.own(site) {
            word = word.replace(&format!("{{{name}}}"), &path.display().to_string());
        }
        for (name, value) in [
            ("duty", format!("{:?}", setup.duty).to_lowercase()),
            ("logging", format!("{:?}", setup.logging).to_lowercase()),
            ("directories", setup.directories.to_string()),
            ("disks", setup.disks.to_string()),
            ("order", setup.order.clone()),
            ("runners", setup.runners.to_string()),
            ("recipients_per_transaction", setup.recipients_per_transaction.to_string()),
        ] {
            word = word.replace(&format!("{{{name}}}"), &value);
        }
        fill(site, &word)
    }

    fn program(&self, site: &Site, words: &[String]) -> Option<Command> {
        let mut words = words.iter().map(|word| self.filled(site, word));
        let mut command = Command::new(words.next()?);
        command.args(words);
        Some(command)
    }

    /// Runs a command and returns what it prints.
    fn ask(&self, site: &Site, words: &[String]) -> Result<String> {
        let mut command = self.program(site, words).context("an empty command")?;
        let output = command.output().with_context(|| format!("{command:?}"))?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?}: {}", error.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    /// Returns user and group id of the account that it runs as.
    fn owner(&self) -> Result<Option<(u32, u32)>> {
        let Some(user) = &self.user else { return Ok(None) };
        let accounts = std::fs::read_to_string("/etc/passwd")?;
        let fields = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut named = fields.filter(|fields| fields[0] == user.get_ref() && fields.len() > 3);
        let fields = named.next().with_context(|| format!("no user {}", user.get_ref()))?;
        Ok(Some((fields[2].parse()?, fields[3].parse()?)))
    }
}

impl Subject for Given {
    fn name(&self) -> &str {
        Given::name(self)
    }

    fn version(&self, site: &Site, _: &Versions) -> Result<String> {
        match &self.version {
            Says::Text(text) => Ok(text.clone()),
            Says::Command(words) => self.ask(site, words),
        }
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        if !self.duties.get_ref().contains(&setup.duty) {
            return Some("its description does not name this duty".into());
        }
        if setup.logging == Logging::None && !self.has_place_for("logging") {
            return Some("its description has no place for {logging}".into());
        }
        let share = setup.recipients_per_transaction;
        let usual = Setup::default().recipients_per_transaction;
        if share != usual && !self.has_place_for("recipients_per_transaction") {
            return Some("its description has no place for {recipients_per_transaction}".into());
        }
        let names = ["directories", "disks", "order", "runners"];
        let can: Vec<&str> = names.into_iter().filter(|name| self.has_place_for(name)).collect();
        setup.beyond(&can)
    }

    fn configure(&self, site: &Site) -> Result<Vec<PathBuf>> {
        if self.command.is_some() {
            let owner = self.owner()?.map(|(user, _)| user);
            for (_, path) in self.own(site) {
                directory(&path, owner)?;
            }
            make_mailboxes(site)?;
        }
        Ok(self.settings.iter().map(|path| self.filled(site, path).into()).collect())
    }

    fn command(&self, site: &Site, _: Phase) -> Option<Command> {
        let program = self.program(site, self.command.as_ref()?.get_ref())?;
        // A user who is not there has been reported by `configure`.
        let Some((user, group)) = self.owner().ok()? else { return Some(program) };
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={group}")]);
        command.arg("--init-groups").arg(program.get_program()).args(program.get_args());
        Some(command)
    }

    fn address(&self, site: &Site) -> String {
        let given = self.address.as_ref().map(|address| address.get_ref().clone());
        given.unwrap_or_else(|| format!("127.0.0.1:{}", site.port))
    }

    fn recipient(&self, site: &Site) -> String {
        self.recipient.clone().unwrap_or_else(|| usual_recipient(site))
    }

    fn flush(&self, site: &Site) -> Option<Command> {
        self.program(site, self.flush.as_ref()?)
    }

    fn needs_machines_network(&self) -> bool {
        self.address.is_some()
    }

    fn is_left_without_goodbye(&self) -> bool {
        self.left_without_goodbye
    }

    /// Returns 0 if the description does not say how to count: only a subject that holds mail must.
    fn queued(&self, site: &Site) -> Result<u64> {
        let Some(words) = &self.queued else { return Ok(0) };
        let said = self.ask(site, words)?;
        said.parse().with_context(|| format!("`queued` printed `{said}`, which is no number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Box<dyn Subject>>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        load(file.path())
    }

    #[test]
    fn what_is_wrong_with_a_description_is_said_with_its_line() {
        let version = "version = \"1\"";
        for (text, line, words) in [
            (format!("\n[[subject]]\nname = \"x\"\n{version}"), 3, "either `command` or `address`"),
            (
                format!("[[subject]]\nname = \"x\"\naddress = \"here\"\n{version}"),
                3,
                "ADDRESS:PORT",
            ),
            (format!("[[subject]]\nname = \"x\"\ncommand = []\n{version}"), 3, "is empty"),
            (
                format!("[[subject]]\nname = \"postfix\"\naddress = \"[::1]:25\"\n{version}"),
                2,
                "already",
            ),
            (
                format!("[[subject]]\nname = \"a/b\"\naddress = \"[::1]:25\"\n{version}"),
                2,
                "no name",
            ),
            (format!("[[subject]]\nname = \"x\"\n{version}\ncolour = 1"), 4, "colour"),
            (format!("[[subject]]\nname = \"x\"\n{version}\n\nduties = [\"fly\"]"), 5, "fly"),
            (
                format!("[[subject]]\nname=\"x\"\n{version}\ncommand=[\"x\"]\nduties=[\"hold\"]"),
                5,
                "`queued`",
            ),
            (
                format!("[[subject]]\nname=\"x\"\n{version}\naddress=\"[::1]:25\"\nuser=\"x\""),
                5,
                "`user`",
            ),
        ] {
            let error = read(&text).err().unwrap().to_string();
            assert!(error.contains(&format!(":{line}: ")) && error.contains(words), "{error}");
        }
        assert!(read("").err().unwrap().to_string().contains("no [[subject]]"));
    }

    #[test]
    fn a_setup_without_a_place_in_the_command_is_refused() {
        let with = |words: &str| {
            let text = "[[subject]]\nname = \"x\"\nversion = \"1\"\ncommand = [\"x\"";
            read(&format!("{text}{words}]")).unwrap().remove(0)
        };
        let asked = [
            (Setup { directories: 5, ..Setup::default() }, ", \"-d{directories}\""),
            (Setup { runners: 5, ..Setup::default() }, ", \"{runners}\""),
            (Setup { order: "host".into(), ..Setup::default() }, ", \"{order}\""),
            (Setup { logging: Logging::None, ..Setup::default() }, ", \"{logging}\""),
            (
                Setup { recipients_per_transaction: 1, ..Setup::default() },
                ", \"{recipients_per_transaction}\"",
            ),
        ];
        assert!(with("").refuses(&Setup::default()).is_none());
        for (setup, words) in asked {
            assert!(with("").refuses(&setup).is_some(), "{words}");
            assert!(with(words).refuses(&setup).is_none(), "{words}");
        }
        assert!(with("").refuses(&Setup { duty: Duty::Mbox, ..Setup::default() }).is_some());
    }

    #[test]
    fn the_descriptions_that_come_along_can_be_read() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../subjects");
        let names = ["aiosmtpd", "already-running", "kumomta"];
        let of = |name: &str| load(&place.join(format!("{name}.toml"))).unwrap();
        let needs = names.map(|name| of(name)[0].needs_machines_network());
        assert_eq!(needs, [false, true, false]);
    }
}
