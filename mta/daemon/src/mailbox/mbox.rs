//! mbox: a mailbox is one file. Messages are appended under its locks, and one sync serves all its messages of a batch.
//!
//! Must never leave part of a message at the end: on any failure the file is truncated after the last complete message.
//! Only a power cut during an append can leave part of a message; the format cannot prevent that.

use super::lock::{self, LockError, MboxLock};
use super::text::{QuoteFrom, from_line};
use super::{Fault, Mailbox, MailboxDelivery, Results, Scene, place};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes that are gathered for one write.
const BUFFER_BYTES: usize = 1024 * 1024;
/// The time between two tries to take a lock that another program holds.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// Delivers all messages. Mailboxes that other programs have locked come last, so that they delay no other mailbox.
pub(super) fn deliver(deliveries: &[&MailboxDelivery], scene: &Scene) -> Results {
    let mut boxes: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    for (i, delivery) in deliveries.iter().enumerate() {
        boxes.entry(delivery.mailbox.display()).or_default().push(i);
    }
    let mut results: Results = vec![Ok(()); deliveries.len()];
    let mut busy = Vec::new();
    for members in boxes.into_values() {
        match deliver_box(&members, deliveries, scene, &mut results) {
            Attempted::Done => {}
            Attempted::Busy => busy.push(members),
        }
    }
    wait_for(busy, deliveries, scene, &mut results);
    results
}

enum Attempted {
    Done,
    Busy,
}

fn wait_for(
    mut busy: Vec<Vec<usize>>,
    all: &[&MailboxDelivery],
    scene: &Scene,
    results: &mut Results,
) {
    let until = Instant::now() + scene.lock_wait_max;
    while !busy.is_empty() && Instant::now() < until {
        std::thread::sleep(LOCK_POLL);
        busy.retain(|members| matches!(deliver_box(members, all, scene, results), Attempted::Busy));
    }
    for i in busy.into_iter().flatten() {
        results[i] = Err(Fault::busy());
    }
}

/// Delivers all messages for one mailbox with one lock, few writes and one sync.
fn deliver_box(
    members: &[usize],
    all: &[&MailboxDelivery],
    scene: &Scene,
    results: &mut Results,
) -> Attempted {
    let chosen: Vec<&MailboxDelivery> = members.iter().map(|&i| all[i]).collect();
    let outcome = open_box(&chosen[0].mailbox, scene).and_then(|mbox| match mbox.lock() {
        Ok(lock) => Ok(Some(mbox.append(&chosen, scene, lock))),
        Err(LockError::Busy) => Ok(None),
        Err(LockError::Io(error)) => Err(cannot_open(&error)),
    });
    match outcome {
        Ok(None) => return Attempted::Busy,
        Ok(Some(appended)) => {
            members.iter().zip(appended).for_each(|(&i, result)| results[i] = result);
        }
        Err(fault) => {
            members.iter().for_each(|&i| results[i] = Err(fault.clone()));
        }
    }
    Attempted::Done
}

/// Opens the mailbox if it belongs to its recipient alone.
fn open_box(mailbox: &Mailbox, scene: &Scene) -> Result<Mbox, Fault> {
    let mbox = Mbox::open(mailbox).map_err(|error| cannot_open(&error))?;
    place::refuse_not_theirs(&mbox.file, scene.groups)?;
    Ok(mbox)
}

fn cannot_open(error: &io::Error) -> Fault {
    Fault::io("cannot open the mailbox", error)
}

/// An open mbox.
struct Mbox {
    directory: File,
    name: String,
    file: File,
    /// Directories in which a name may not be durable.
    made_in: Vec<File>,
}

impl Mbox {
    fn open(mailbox: &Mailbox) -> io::Result<Mbox> {
        let (parent, name) = mailbox.path.rsplit_once('/').unwrap_or(("", &mailbox.path));
        if name.is_empty() {
            return Err(io::Error::other("an mbox needs a file name"));
        }
        let opened = mailbox.base.open_below(parent)?;
        let (directory, mut made_in) = (opened.directory, opened.made_in);
        let file = match open_file(&directory, name, OFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                made_in.push(directory.try_clone()?);
                open_file(&directory, name, OFlags::CREATE)?
            }
            other => other?,
        };
        Ok(Mbox { directory, name: name.to_owned(), file, made_in })
    }

    /// Locks the file. If it was replaced while we opened it, it counts as busy and is opened again.
    fn lock(&self) -> Result<MboxLock<'_>, LockError> {
        let lock = lock::lock(&self.directory, &self.name, &self.file)?;
        let open = self.file.metadata().map_err(LockError::Io)?;
        let named = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let same = (open.ino(), open.dev()) == (named.st_ino, named.st_dev);
        if same { Ok(lock) } else { Err(LockError::Busy) }
    }

    fn append(&self, chosen: &[&MailboxDelivery], scene: &Scene, lock: MboxLock<'_>) -> Results {
        let results = match self.file.metadata() {
            Ok(stat) => self.append_at(stat.len(), chosen, scene),
            Err(error) => vec![Err(Fault::io("cannot read the mailbox", &error)); chosen.len()],
        };
        drop(lock);
        results
    }

    fn append_at(&self, old: u64, chosen: &[&MailboxDelivery], scene: &Scene) -> Results {
        let mut writer = Appender::new(&self.file, old);
        let failure = writer.write_all(chosen, scene).err();
        let whole = writer.whole();
        let mut results: Results = vec![Ok(()); chosen.len()];
        if let Some(error) = failure {
            let fault = Fault::io("cannot write to the mailbox", &error);
            results[whole..].fill(Err(fault.clone()));
            if let Err(cut) = self.file.set_len(writer.end_of_whole()) {
                // Nothing was reported as delivered. The messages that are in the file are reported as failed.
                return vec![Err(Fault::io("cannot cut the mailbox back", &cut)); chosen.len()];
            }
        }
        if let Err(error) = self.sync() {
            let _ = self.file.set_len(old).and_then(|()| self.file.sync_all());
            results.fill(Err(Fault::io("cannot sync the mailbox", &error)));
        }
        results
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.made_in.iter().try_for_each(File::sync_all)
    }
}

/// Opens a regular file. Refuses symbolic links, files with several hard links, and everything else.
fn open_file(directory: &File, name: &str, more: OFlags) -> io::Result<File> {
    let flags =
        OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = if more.is_empty() { Mode::empty() } else { Mode::RUSR | Mode::WUSR };
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = File::from(rustix::fs::openat2(directory, name, flags | more, mode, beneath)?);
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
        return Err(io::Error::other("not a regular file with one name"));
    }
    Ok(file)
}

/// Appends messages with few writes, and knows how many of them are completely in the file.
struct Appender<'a> {
    file: &'a File,
    old: u64,
    written: u64,
    buffer: Vec<u8>,
    /// The end of each message, in bytes after `old`.
    ends: Vec<u64>,
}

impl<'a> Appender<'a> {
    fn new(file: &'a File, old: u64) -> Self {
        Appender { file, old, written: 0, buffer: Vec::new(), ends: Vec::new() }
    }

    fn write_all(&mut self, chosen: &[&MailboxDelivery], scene: &Scene) -> io::Result<()> {
        self.end_last_line()?;
        for delivery in chosen {
            self.message(delivery, scene)?;
            self.ends.push(self.written + self.buffer.len() as u64);
        }
        self.flush()
    }

    /// Ends the last line of the file with an empty line after it, which must come before a `From ` line.
    fn end_last_line(&mut self) -> io::Result<()> {
        let mut tail = [b'\n'; 2];
        let known = self.old.min(2);
        self.file.read_exact_at(&mut tail[2 - known as usize..], self.old - known)?;
        let missing = tail.iter().rev().take_while(|byte| **byte == b'\n').count();
        self.buffer.resize(2 - missing, b'\n');
        Ok(())
    }

    fn message(&mut self, delivery: &MailboxDelivery, scene: &Scene) -> io::Result<()> {
        self.buffer.extend_from_slice(from_line(delivery.message.sender(), scene.now).as_bytes());
        super::trace_lines(&delivery.message, &delivery.recipient, &mut self.buffer);
        let mut quote = QuoteFrom::default();
        delivery.message.pieces(&mut |piece| {
            quote.push(piece, &mut self.buffer);
            if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
        })?;
        quote.finish(&mut self.buffer);
        self.buffer.push(b'\n');
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.written += bytes as u64;
                    rest = &rest[bytes..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.clear();
        Ok(())
    }

    /// Returns how many messages are completely in the file.
    fn whole(&self) -> usize {
        self.ends.iter().take_while(|end| **end <= self.written).count()
    }

    /// Returns the offset at which the last complete message ends.
    fn end_of_whole(&self) -> u64 {
        self.old + self.whole().checked_sub(1).map_or(0, |last| self.ends[last])
    }
}
