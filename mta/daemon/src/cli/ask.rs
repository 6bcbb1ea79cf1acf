//! The conversation with the queue process: one request, one answer, in turn.
//!
//! Must never wait without a bound. If no queue process is there, the error names the socket and the setting.

use super::config::{self, Config};
use super::print::Failure;
use super::{EX_NOPERM, EX_PROTOCOL, EX_UNAVAILABLE};
use bytes::BytesMut;
use link::LinkError;
use link::admin::{self, Answer, Request};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Name of the socket below `state`.
pub const ADMIN_SOCKET: &str = "control.sock";
/// Longest wait for an answer; sorting a queue of millions takes seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest path that fits into a `sockaddr_un` (unix(7): 108 with the final NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A connection to the queue process.
pub struct Asker {
    stream: UnixStream,
    patience: Duration,
    input: BytesMut,
}

impl Asker {
    /// Connects to the queue process with this state directory.
    pub fn connect(state: &Path) -> io::Result<Asker> {
        let stream = connect(&state.join(ADMIN_SOCKET))?;
        let mut asker = Asker { stream, patience: ANSWER_TIMEOUT, input: BytesMut::new() };
        asker.patience(ANSWER_TIMEOUT)?;
        Ok(asker)
    }

    /// Sets the longest wait for an answer.
    pub fn patience(&mut self, longest: Duration) -> io::Result<()> {
        self.patience = longest;
        self.stream.set_read_timeout(Some(longest))?;
        self.stream.set_write_timeout(Some(longest))
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        let invalid = |error: LinkError| io::Error::new(ErrorKind::InvalidData, error);
        self.stream.write_all(&admin::encode(request).map_err(invalid)?)?;
        let mut chunk = [0u8; 65_536];
        loop {
            if let Some(answer) = admin::decode_answer(&mut self.input).map_err(invalid)? {
                return Ok(answer);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.input.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    if path.as_os_str().as_bytes().len() <= SOCKET_PATH_BYTES_MAX {
        return UnixStream::connect(path);
    }
    // By its descriptor the directory has a short name, at any depth.
    let directory = File::open(directory)?;
    UnixStream::connect(
        Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name),
    )
}

/// Connection to the queue process of these settings, with errors for people.
pub(super) struct QueueConnection {
    asker: Asker,
}

impl QueueConnection {
    pub fn of(config: &Config) -> Result<QueueConnection, Failure> {
        let settings = config::load(config)?;
        let asker = Asker::connect(&settings.state)
            .map_err(|error| not_there(&error, &settings.state, config))?;
        Ok(QueueConnection { asker })
    }

    pub fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        match self.asker.ask(request) {
            Ok(Answer::Refused(why)) => Err(Failure::new(super::EX_FOUND, why)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(broken(&error, self.asker.patience)),
        }
    }

    pub fn patience(&mut self, longest: Duration) -> Result<(), Failure> {
        self.asker.patience(longest).map_err(|error| broken(&error, longest))
    }
}

fn not_there(error: &io::Error, state: &Path, config: &Config) -> Failure {
    let socket = state.join(ADMIN_SOCKET);
    let (code, advice) = match error.kind() {
        ErrorKind::PermissionDenied => {
            (EX_NOPERM, "Only root and the user that posthaste runs as may ask it.")
        }
        _ => (EX_UNAVAILABLE, "Is posthaste running, and with the same settings file?"),
    };
    Failure::new(
        code,
        format!(
            "cannot reach the queue process at {}: {error}\n\
             {advice}\n\
             The socket is below the setting `state` = {:?}, from {}.\n\
             Another file is named with --config FILE or POSTHASTE_CONFIG.",
            socket.display(),
            state.display().to_string(),
            config.shown()
        ),
    )
}

fn broken(error: &io::Error, patience: Duration) -> Failure {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            Failure::new(
                EX_UNAVAILABLE,
                "the queue process hung up; it may be restarting, try again",
            )
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let seconds = patience.as_secs();
            let text = format!(
                "no answer from the queue process in {seconds} s; it may be waiting for the disk"
            );
            Failure::new(EX_UNAVAILABLE, text)
        }
        _ => Failure::new(EX_PROTOCOL, format!("the queue process: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_queue_process_is_told_which_socket_and_which_setting() {
        let root = tempfile::tempdir().unwrap();
        let error = Asker::connect(root.path()).err().unwrap();
        let config = Config { path: "/etc/mine.toml".into(), named: true };
        let failure = not_there(&error, root.path(), &config);
        assert_eq!(failure.code, EX_UNAVAILABLE);
        let state = root.path().display();
        for part in [
            format!("at {state}/control.sock: No such file or directory"),
            format!("`state` = \"{state}\", from /etc/mine.toml"),
            "--config FILE or POSTHASTE_CONFIG".into(),
        ] {
            assert!(failure.text.contains(&part), "{part} in {}", failure.text);
        }
        let denied = not_there(&ErrorKind::PermissionDenied.into(), root.path(), &config);
        assert_eq!(denied.code, EX_NOPERM);
    }
}
