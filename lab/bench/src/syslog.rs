//! A receiver for `/dev/log`, so that mailers that log by syslog(3) pay what that costs elsewhere.
//!
//! Must never sync, as Debian's own does not for mail, and never keep more in memory than one line.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread::JoinHandle;

/// Upper bound on a line; longer ones are cut off.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Runs until it is dropped.
pub struct Syslog {
    socket: UnixDatagram,
    thread: Option<JoinHandle<()>>,
}

impl Syslog {
    /// Takes lines at `socket` and appends them to `file`. Who logs waits where the file is slow: the kernel holds a
    /// few hundred lines, as for any syslog daemon.
    pub fn start(socket: &Path, file: &Path) -> Result<Syslog> {
        let _ = std::fs::remove_file(socket); // of a mailer that ran before
        let listener = UnixDatagram::bind(socket).with_context(|| socket.display().to_string())?;
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
        let mut options = File::options();
        let file = options.create(true).append(true).open(file);
        let file = file.context("the log of /dev/log")?;
        let socket = listener.try_clone()?;
        let thread = std::thread::Builder::new().name("syslog".into());
        let thread = Some(thread.spawn(move || copy(&listener, file))?);
        Ok(Syslog { socket, thread })
    }
}

impl Drop for Syslog {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both); // the thread sees the end
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn copy(listener: &UnixDatagram, mut file: File) {
    let mut line = vec![0; LINE_BYTES_MAX + 1];
    // An empty datagram is the end: a line has at least its priority.
    while let Ok(bytes @ 1..) = listener.recv(&mut line[..LINE_BYTES_MAX]) {
        line[bytes] = b'\n';
        if file.write_all(text(&line[..=bytes])).is_err() {
            return;
        }
    }
}

/// Without the priority in front and the NUL or line end that some send along.
fn text(line: &[u8]) -> &[u8] {
    let end = line.iter().position(|byte| *byte == b'<').filter(|at| *at == 0);
    let begin = end.and_then(|_| line.iter().position(|byte| *byte == b'>')).map_or(0, |at| at + 1);
    &line[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_stands_in_the_file_without_its_priority() {
        let place = tempfile::tempdir().unwrap();
        let [socket, file] = ["socket", "file"].map(|name| place.path().join(name));
        let syslog = Syslog::start(&socket, &file).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.send_to(b"<22>Nov 21 07:00:00 sendmail[1]: one", &socket).unwrap();
        client.send_to(b"two > one", &socket).unwrap();
        drop(syslog);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "Nov 21 07:00:00 sendmail[1]: one\ntwo > one\n");
        // The next mailer's goes on in the same file.
        let syslog = Syslog::start(&socket, &file).unwrap();
        client.send_to(&[b'x'; 20_000], &socket).unwrap();
        drop(syslog);
        let length = std::fs::metadata(&file).unwrap().len();
        assert_eq!(length, text.len() as u64 + LINE_BYTES_MAX as u64 + 1);
    }
}
