//! Counts the messages in the mailbox, cheaply enough to look every few milliseconds.
//!
//! Must never read a byte or list a name twice.

use super::{Duty, Site};
use crate::room;
use anyhow::{Context, Result};
use rustix::fs::inotify;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of kernel events read at a time.
const EVENT_BYTES: usize = 16 << 10;
/// The first bytes of each message in a mailbox file.
const BEGIN: &[u8] = b"From ";

/// The mailbox of a site.
pub enum Boxes {
    /// One file.
    Mbox(Mbox),
    /// A directory.
    Maildir(Maildir),
}

impl Boxes {
    /// Opens the mailbox of the room's user.
    pub fn new(site: &Site) -> Boxes {
        match site.setup.duty {
            Duty::Maildir => {
                let new = site.mail.join(room::USER_HOME).join("Maildir/new");
                Boxes::Maildir(Maildir { new, names: HashSet::new(), events: None })
            }
            _ => Boxes::Mbox(Mbox::new(site.mail.join(room::USER))),
        }
    }

    /// Returns the number of messages in the mailbox.
    pub fn count(&mut self) -> Result<u64> {
        match self {
            Boxes::Mbox(mbox) => mbox.count(),
            Boxes::Maildir(maildir) => maildir.count(),
        }
    }
}

/// See [`Boxes`].
pub struct Mbox {
    path: PathBuf,
    file: Option<File>,
    read: u64,
    messages: u64,
    /// Bytes of [`BEGIN`] matched at the start of the current line; `None` once the line differs.
    matched: Option<usize>,
}

impl Mbox {
    fn new(path: PathBuf) -> Mbox {
        Mbox { path, file: None, read: 0, messages: 0, matched: Some(0) }
    }

    fn count(&mut self) -> Result<u64> {
        if self.file.is_none() {
            let Ok(file) = File::open(&self.path) else { return Ok(0) };
            self.file = Some(file);
        }
        let file = self.file.as_ref().context("it was opened above")?;
        if file.metadata()?.len() < self.read {
            *self = Mbox::new(self.path.clone()); // cut back after a failure: from the start
            return self.count();
        }
        let mut file = file;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let bytes = file.read(&mut chunk).with_context(|| self.path.display().to_string())?;
            if bytes == 0 {
                return Ok(self.messages);
            }
            self.read += bytes as u64;
            (self.messages, self.matched) = scan(&chunk[..bytes], self.messages, self.matched);
        }
    }
}

/// Counts further lines that begin with [`BEGIN`].
fn scan(mut text: &[u8], mut messages: u64, mut matched: Option<usize>) -> (u64, Option<usize>) {
    loop {
        if let Some(already) = matched {
            let wanted = &BEGIN[already..];
            let alike = text.iter().zip(wanted).take_while(|(one, other)| one == other).count();
            if alike < wanted.len() && alike == text.len() {
                return (messages, Some(already + alike));
            }
            messages += u64::from(alike == wanted.len());
        }
        let Some(end) = memchr::memchr(b'\n', text) else { return (messages, None) };
        text = &text[end + 1..];
        matched = Some(0);
    }
}

/// See [`Boxes`].
pub struct Maildir {
    new: PathBuf,
    names: HashSet<Vec<u8>>,
    events: Option<OwnedFd>,
}

impl Maildir {
    fn count(&mut self) -> Result<u64> {
        if self.events.is_none() {
            if !self.new.is_dir() {
                return Ok(0);
            }
            let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
            let events = inotify::init(flags)?;
            let kinds = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
            inotify::add_watch(&events, &self.new, kinds)?;
            self.events = Some(events);
            self.list()?; // what came before, and perhaps what comes meanwhile: names count once
        }
        if self.listen()? {
            self.list()?;
        }
        Ok(self.names.len() as u64)
    }

    /// Reads new events. Returns true if the kernel had to drop some.
    fn listen(&mut self) -> Result<bool> {
        let events = self.events.as_ref().context("it is being watched")?;
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(events, &mut buffer);
        let mut overflow = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    overflow |= event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
                    self.names.extend(event.file_name().map(|name| name.to_bytes().to_vec()));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(overflow),
                Err(error) => return Err(error).context("inotify"),
            }
        }
    }

    fn list(&mut self) -> Result<()> {
        let entries = std::fs::read_dir(&self.new)?;
        self.names.extend(entries.flatten().map(|entry| entry.file_name().into_vec()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn messages_of_an_mbox_are_counted_as_they_grow_byte_by_byte() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("box");
        let mut mbox = Mbox::new(path.clone());
        assert_eq!(mbox.count().unwrap(), 0);
        let text = b"From a\nFro\n>From b\nx From c\n\nFrom d\nFrom e\nFr";
        let mut file = File::create(&path).unwrap();
        for byte in text {
            file.write_all(&[*byte]).unwrap();
            mbox.count().unwrap();
        }
        assert_eq!(mbox.count().unwrap(), 3);
        assert_eq!(Mbox::new(path.clone()).count().unwrap(), 3);
        file.set_len(7).unwrap();
        assert_eq!(mbox.count().unwrap(), 1, "a box that was cut back is counted anew");
    }

    #[test]
    fn a_name_in_a_maildir_counts_once_whether_listed_made_or_moved_there() {
        let place = tempfile::tempdir().unwrap();
        let new = place.path().join("new");
        let mut maildir = Maildir { new: new.clone(), names: HashSet::new(), events: None };
        assert_eq!(maildir.count().unwrap(), 0);
        std::fs::create_dir(&new).unwrap();
        std::fs::write(new.join("before"), "").unwrap();
        assert_eq!(maildir.count().unwrap(), 1);
        std::fs::write(place.path().join("tmp"), "").unwrap();
        std::fs::rename(place.path().join("tmp"), new.join("moved")).unwrap();
        for number in 0..2_000 {
            std::fs::write(new.join(format!("made{number}")), "").unwrap();
        }
        assert_eq!(maildir.count().unwrap(), 2_002);
        assert_eq!(maildir.count().unwrap(), 2_002);
    }
}
