//! A message for delivery to mailboxes, received in pieces and stored once for all its recipients. A small message stays
//! in memory. A large one is stored in a file without a name.
//!
//! Must never hold more than `MEMORY_BYTES_MAX` of one message in memory.

use super::text::ToLf;
use mail::ReversePath;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use smtp::server::{DeliveredTo, HeaderScan};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Upper bound in bytes on a message in memory. A larger message is stored in a file without a name.
pub const MEMORY_BYTES_MAX: usize = 512 * 1024;
/// Bytes that are copied at a time from a stored message to a mailbox.
const COPY_BYTES: usize = 256 * 1024;

/// A complete message. Its lines end with LF.
#[derive(Debug)]
pub struct LocalMessage {
    sender: ReversePath,
    content: Content,
    delivered_to: DeliveredTo,
}

#[derive(Debug)]
enum Content {
    Memory(Vec<u8>),
    Staged(File, u64),
}

/// Receives a message in pieces.
#[derive(Debug)]
pub struct Intake {
    sender: ReversePath,
    /// `None` if the lines already end with LF.
    lf: Option<ToLf>,
    memory: Vec<u8>,
    staged: Option<(File, u64)>,
    /// The scan that receive uses as well. With a different scan, a message could be accepted and then fail as a loop.
    header: HeaderScan,
}

impl Intake {
    /// Begins a message from `sender`.
    pub fn new(sender: ReversePath) -> Intake {
        let lf = Some(ToLf::default());
        Intake { sender, lf, memory: Vec::new(), staged: None, header: HeaderScan::default() }
    }

    /// Begins a message whose lines another process of ours has already converted.
    pub fn as_it_is(sender: ReversePath) -> Intake {
        Intake { lf: None, ..Intake::new(sender) }
    }

    /// Adds the next bytes. `stage` is a directory in which a file without a name can be made for a large message.
    pub fn push(&mut self, piece: &[u8], stage: BorrowedFd<'_>) -> io::Result<()> {
        for part in piece.chunks(MEMORY_BYTES_MAX / 4) {
            let before = self.memory.len();
            match &mut self.lf {
                Some(lf) => lf.push(part, &mut self.memory),
                None => self.memory.extend_from_slice(part),
            }
            self.header.look(&self.memory[before..]);
            if self.memory.len() >= MEMORY_BYTES_MAX / 2 {
                self.spill(stage)?;
            }
        }
        Ok(())
    }

    /// Ends the message.
    pub fn finish(mut self) -> io::Result<LocalMessage> {
        if let Some(lf) = &mut self.lf {
            let before = self.memory.len();
            lf.finish(&mut self.memory);
            self.header.look(&self.memory[before..]);
        }
        let content = match self.staged {
            None => Content::Memory(self.memory),
            Some((mut file, bytes)) => {
                file.write_all(&self.memory)?;
                Content::Staged(file, bytes + self.memory.len() as u64)
            }
        };
        let delivered_to = self.header.delivered_to();
        Ok(LocalMessage { sender: self.sender, content, delivered_to })
    }

    fn spill(&mut self, stage: BorrowedFd<'_>) -> io::Result<()> {
        let (file, bytes) = match &mut self.staged {
            Some(staged) => staged,
            None => self.staged.insert((nameless(stage)?, 0)),
        };
        file.write_all(&self.memory)?;
        *bytes += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }
}

impl LocalMessage {
    /// MAIL FROM.
    pub fn sender(&self) -> &ReversePath {
        &self.sender
    }

    /// Returns the size in bytes, with LF as the line end.
    pub fn bytes(&self) -> u64 {
        match &self.content {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::Staged(_, bytes) => *bytes,
        }
    }

    /// Returns whether a `Delivered-To` field of the header names this address.
    pub fn was_delivered_to(&self, address: &str) -> bool {
        self.delivered_to.names(address)
    }

    /// Returns the whole text if it is in memory.
    pub(super) fn in_memory(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Memory(bytes) => Some(bytes),
            Content::Staged(..) => None,
        }
    }

    /// Passes the text to `take` piece by piece.
    pub fn pieces(&self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut at = 0;
        while let Some(piece) = self.piece_at(at)? {
            take(&piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Returns the next bytes from the offset `at`, or `None` at the end.
    pub fn piece_at(&self, at: u64) -> io::Result<Option<Cow<'_, [u8]>>> {
        if at >= self.bytes() {
            return Ok(None);
        }
        let wanted = (COPY_BYTES as u64).min(self.bytes() - at) as usize;
        match &self.content {
            Content::Memory(bytes) => Ok(Some(Cow::Borrowed(&bytes[at as usize..][..wanted]))),
            Content::Staged(file, _) => {
                let mut buffer = vec![0; wanted];
                file.read_exact_at(&mut buffer, at)?;
                Ok(Some(Cow::Owned(buffer)))
            }
        }
    }
}

/// Makes a file without a name, which disappears when it is closed, even if we are killed.
pub fn nameless(dir: BorrowedFd<'_>) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, ".", flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(File::from(fd)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let name = super::place::unique_name();
            let create = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let fd = rustix::fs::openat(dir.as_fd(), &name, create, Mode::RUSR | Mode::WUSR)?;
            rustix::fs::unlinkat(dir, &name, AtFlags::empty())?;
            Ok(File::from(fd))
        }
        Err(error) => Err(error.into()),
    }
}

/// Receives a message from a reader, for files and tests.
impl LocalMessage {
    /// Adds everything that `reader` returns.
    pub fn read(
        sender: ReversePath,
        mut reader: impl Read,
        stage: BorrowedFd<'_>,
    ) -> io::Result<LocalMessage> {
        let mut intake = Intake::new(sender);
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            match reader.read(&mut buffer)? {
                0 => return intake.finish(),
                bytes => intake.push(&buffer[..bytes], stage)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> LocalMessage {
        let dir = tempfile::tempdir().unwrap();
        let stage = File::open(dir.path()).unwrap();
        LocalMessage::read(ReversePath::Null, text.as_bytes(), stage.as_fd()).unwrap()
    }

    #[test]
    fn m064_delivered_to_lines_are_found_in_the_header_only() {
        let text = "DELIVERED-TO : a@b.test\nX: y\n Delivered-To: no@x\nDelivered-To:\n c@d.test\n\nDelivered-To: e@f\n";
        let message = message(text);
        for (address, found) in
            [("a@b.test", true), ("c@d.test", true), ("no@x", false), ("e@f", false)]
        {
            assert_eq!(message.was_delivered_to(address), found, "{address}");
        }
    }

    #[test]
    fn r216_what_was_no_loop_when_it_came_is_none_when_it_is_delivered() {
        let field = "Delivered-To: joe@a.test";
        let pad = format!("X: {}\r\n", "x".repeat(MEMORY_BYTES_MAX / 2 - field.len() - 5));
        for text in [
            // The line of an mbox, or any other that is no field, ends the header.
            format!("From ann@b.test Sat Jan  3 01:05:34 1996\r\n{field}\r\n\r\nx\r\n"),
            format!("{field}{}\r\n\r\nx\r\n", " ".repeat(600)),
            format!("{field}\u{a0}\r\n\r\nx\r\n"),
            // Cut where the message is staged, the address would be joe's.
            format!("{pad}{field}.example\r\n\r\n{}", "y\r\n".repeat(400_000)),
        ] {
            let mut seen = HeaderScan::default();
            seen.look(text.as_bytes());
            assert!(!seen.delivered_to().names("joe@a.test"));
            assert!(!message(&text).was_delivered_to("joe@a.test"), "{:.80}", text);
        }
    }

    #[test]
    fn a_large_message_is_staged_and_reads_back_as_it_came() {
        let dir = tempfile::tempdir().unwrap();
        let stage = File::open(dir.path()).unwrap();
        let line = "0123456789".repeat(7);
        let text =
            format!("Delivered-To: x@y.test\r\n\r\n{}", format!("{line}\r\n").repeat(40_000));
        let message =
            LocalMessage::read(ReversePath::Null, text.as_bytes(), stage.as_fd()).unwrap();
        assert!(message.in_memory().is_none());
        assert!(message.was_delivered_to("X@y.test"));
        let mut back = Vec::new();
        let mut largest = 0;
        message
            .pieces(&mut |piece| {
                largest = largest.max(piece.len());
                back.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
        assert!(back == text.replace("\r\n", "\n").into_bytes());
        assert_eq!(back.len() as u64, message.bytes());
        assert!(largest <= COPY_BYTES);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
