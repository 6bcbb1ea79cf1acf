//! The config process: reads and checks the settings file, returns a checked copy, and ends.
//!
//! Started by master for each start and each reload, with the file already open. Gives up everything except reading,
//! writing and memory (`Role::Config`). Sends one answer to master and accepts no message. Must never leave it to
//! master to parse what people wrote.

use crate::jail::{self, JailError, Privilege, Profile, Role};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use settings::{Settings, System};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Upper bound on what is read of a settings file.
const TEXT_BYTES_MAX: u64 = 8 << 20;
// Enough of a file that is too long is read for `settings` to report that.
const _: () = assert!(TEXT_BYTES_MAX > settings::TEXT_BYTES_MAX as u64);

/// Upper bound on an answer. No answer of ours is longer.
const ANSWER_BYTES_MAX: u64 = 32 << 20;

/// The environment variable with the name of the file for error messages.
pub const SHOWN: &str = "POSTHASTE_SETTINGS_SHOWN";

/// Runs the role. The file is standard input, and the answer is written to standard output.
pub fn role() -> Result<(), ConfigError> {
    let file = std::env::var(SHOWN).unwrap_or_else(|_| "settings".into());
    let input = rustix::io::dup(std::io::stdin())?;
    let output = rustix::io::dup(std::io::stdout())?;
    // The ids in the settings are not known yet.
    let privilege = jail::privilege(Role::Config, jail::IDS_FIRST);
    run(input, output, &file, privilege, super::wiring::parent())
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Checked(Box<Settings>),
    /// The errors in the file, as text for its author.
    Refused(String),
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file has errors. The text lists all of them.
    #[error("{0}")]
    Refused(String),
    /// The file could not be read, or the answer could not be written.
    #[error("cannot read the settings: {0}")]
    Io(#[from] std::io::Error),
    /// The process could not enter its jail.
    #[error(transparent)]
    Jail(#[from] JailError),
    /// The process ended without an answer, or its answer cannot be decoded.
    #[error("the config process gave no answer: {0}")]
    NoAnswer(postcard::Error),
    /// The answer is longer than any that we write.
    #[error("the config process gave more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
}

/// Does the work of the process: enters the jail, reads the file `input` and writes the answer to `output`. `file` is the
/// name for error messages. Facts about the host are collected before the process enters the jail.
pub fn run(
    input: OwnedFd,
    output: OwnedFd,
    file: &str,
    privilege: Privilege,
    parent: i32,
) -> Result<(), ConfigError> {
    let system = system();
    jail::enter(&Profile::new(Role::Config, privilege).ends_with(parent))?;
    let mut text = Vec::new();
    File::from(input).take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
    let answer = answer(&text, file, &system);
    let bytes = postcard::to_stdvec(&answer).map_err(ConfigError::NoAnswer)?;
    Ok(File::from(output).write_all(&bytes)?)
}

fn answer(text: &[u8], file: &str, system: &System) -> Answer {
    match settings::load(text, file, system) {
        Ok(settings) => Answer::Checked(Box::new(settings)),
        Err(problems) => Answer::Refused(settings::render(&problems)),
    }
}

/// Returns the facts about the host and our user that the settings depend on.
pub fn system() -> System {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let root = rustix::process::geteuid().is_root();
    let (xdg, home) = (path("XDG_STATE_HOME"), path("HOME"));
    System {
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        state: settings::state_default(root, xdg.as_deref(), home.as_deref()),
    }
}

/// Reads the answer in master, until the process closes its end.
pub fn read(answer: OwnedFd) -> Result<Settings, ConfigError> {
    let mut bytes = Vec::new();
    File::from(answer).take(ANSWER_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > ANSWER_BYTES_MAX {
        return Err(ConfigError::TooLarge);
    }
    match postcard::from_bytes(&bytes).map_err(ConfigError::NoAnswer)? {
        Answer::Checked(settings) => Ok(*settings),
        Answer::Refused(problems) => Err(ConfigError::Refused(problems)),
    }
}

impl From<Errno> for ConfigError {
    fn from(error: Errno) -> ConfigError {
        ConfigError::Io(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jail::User;
    use settings::ListenAddress;

    /// Runs the process on `text` and returns what master reads.
    fn asked(text: &[u8]) -> Result<Settings, ConfigError> {
        let (read, write) = std::io::pipe().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
        let parent = std::process::id() as i32;
        let privilege = match rustix::process::geteuid().is_root() {
            true => Privilege::Root(User { uid: 60_801, gid: 60_801, groups: Vec::new() }),
            false => Privilege::Ordinary,
        };
        // SAFETY: the child runs the process and ends; it never returns into the test harness.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let done = run(file.into(), OwnedFd::from(write), "posthaste.toml", privilege, parent);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(done.is_err())) };
        }
        drop(write);
        let settings = super::read(read.into());
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        settings
    }

    #[test]
    fn a_good_file_becomes_checked_settings() {
        let text = b"hostname = \"mx.test\"\nstate = \"/srv/p\"\n[processes]\nreceive = 3\n";
        let settings = asked(text).unwrap();
        assert_eq!((settings.state, settings.processes.receive), (PathBuf::from("/srv/p"), 3));
        let plain = ListenAddress::Tcp("127.0.0.1:2525".parse().unwrap());
        assert_eq!(settings.listen.len(), 1);
        assert_eq!(settings.listen[0].address, plain);
        assert_eq!(settings.hostname.as_str(), "mx.test");
    }

    #[test]
    fn n117_a_bad_file_becomes_the_text_to_show() {
        let Err(ConfigError::Refused(shown)) = asked(b"hostname = \"mx.test\"\nhostnam = 5") else {
            panic!("not refused")
        };
        assert!(shown.contains("posthaste.toml:2:1: hostnam"), "{shown}");
    }

    #[test]
    fn a_process_that_writes_nothing_or_nonsense_gives_no_settings() {
        for said in [&b""[..], b"\x00", b"\x07nonsense", b"\x01\xff"] {
            let (read, mut write) = std::io::pipe().unwrap();
            write.write_all(said).unwrap();
            drop(write);
            let read = super::read(read.into());
            assert!(matches!(read, Err(ConfigError::NoAnswer(_))), "{said:?}: {read:?}");
        }
    }
}
