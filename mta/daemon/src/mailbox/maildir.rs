//! Maildir: each message is a file that is written in `tmp`, synced and renamed into `new`. Then `new` is synced.
//!
//! Must never rename a file whose bytes are not durable. Must never leave a name in `new` that was not reported as
//! delivered, unless the process is killed before it can remove the name.
//!
//! The messages of a slice share their syncs. The kernel is told to begin to write the bytes of every file
//! (`sync_file_range`), then all files are synced side by side ([`super::syncs`]). This takes one commit of the file
//! system's journal and one flush of the disk. `new` needs its own sync, because ext4 and xfs lose a rename that came
//! after the file's sync. Decision 0060 has the measurements.
//!
//! Mail readers remove files that a power cut left in `tmp` after 36 hours, as Maildir specifies.

use super::place::{self, unique_name};
use super::syncs::sync_all;
use super::{Fault, MailboxDelivery, Results, Scene};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Upper bound on messages that are synced together. Each is an open file.
pub const SLICE_FILES_MAX: usize = 200;

/// An open Maildir.
struct Maildir {
    tmp: File,
    new: File,
    /// Directories in which something was made. They are synced with `new`.
    made_in: Vec<File>,
}

/// A message in `tmp`.
struct Written {
    file: File,
    name: String,
}

/// Delivers all messages.
pub(super) fn deliver(deliveries: &[&MailboxDelivery], scene: &Scene) -> Results {
    deliveries.chunks(SLICE_FILES_MAX).flat_map(|slice| deliver_slice(slice, scene)).collect()
}

fn deliver_slice(slice: &[&MailboxDelivery], scene: &Scene) -> Results {
    let mut maildirs = Maildirs::default();
    let mut buffer = Vec::new();
    let mut written: Vec<Result<(Written, usize), Fault>> = Vec::with_capacity(slice.len());
    for delivery in slice {
        written.push(maildirs.open(delivery, scene).and_then(|place| {
            let file = maildirs.get(place).write(delivery, scene, &mut buffer)?;
            Ok((file, place))
        }));
    }
    sync_or_remove(&mut written, &maildirs);
    let renamed: Vec<_> =
        written.into_iter().map(|r| r.and_then(|w| publish(w, &maildirs))).collect();
    let synced = maildirs.sync();
    renamed.into_iter().map(|r| r.and_then(|w| keep_or_remove(w, &maildirs, &synced))).collect()
}

/// The Maildirs of one slice. Each is opened once.
#[derive(Default)]
struct Maildirs {
    places: BTreeMap<(usize, String), Result<usize, Fault>>,
    open: Vec<Maildir>,
}

impl Maildirs {
    fn open(&mut self, delivery: &MailboxDelivery, scene: &Scene) -> Result<usize, Fault> {
        let mailbox = &delivery.mailbox;
        let key = (Arc::as_ptr(&mailbox.base) as usize, mailbox.path.clone());
        if let Some(known) = self.places.get(&key) {
            return known.clone();
        }
        let place = Maildir::open(delivery, scene).map(|maildir| {
            self.open.push(maildir);
            self.open.len() - 1
        });
        self.places.insert(key, place.clone());
        place
    }

    fn get(&self, place: usize) -> &Maildir {
        &self.open[place]
    }

    /// Syncs the directories that name the files, each once and all side by side.
    fn sync(&self) -> Vec<Result<(), Fault>> {
        let directories: Vec<&File> = self.open.iter().flat_map(Maildir::directories).collect();
        let mut synced = sync_all(&directories).into_iter();
        let fault = |error: io::Error| Fault::io("cannot sync the Maildir", &error);
        let mut next = |maildir: &Maildir| {
            let own: Vec<_> = synced.by_ref().take(maildir.directories().count()).collect();
            own.into_iter().collect::<io::Result<()>>().map_err(fault)
        };
        self.open.iter().map(&mut next).collect()
    }
}

impl Maildir {
    /// Opens the Maildir if it and its three directories belong to the recipient alone. Makes missing directories.
    fn open(delivery: &MailboxDelivery, scene: &Scene) -> Result<Maildir, Fault> {
        let mailbox = &delivery.mailbox;
        let refuse = |directory: &File| place::refuse_not_theirs(directory, scene.groups);
        let own = mailbox.base.open_below(mailbox.path.trim_matches('/')).map_err(cannot_open)?;
        refuse(&own.directory)?;
        let mut made_in = own.made_in;
        let mut below = |name: &str| {
            let opened = place::open_below(own.directory.as_fd(), name).map_err(cannot_open)?;
            refuse(&opened.directory)?;
            made_in.extend(opened.made_in);
            Ok::<_, Fault>(opened.directory)
        };
        let (tmp, new) = (below("tmp")?, below("new")?);
        below("cur")?;
        Ok(Maildir { tmp, new, made_in })
    }

    /// Writes one message to `tmp`, and tells the kernel to begin to write it to the disk.
    fn write(
        &self,
        delivery: &MailboxDelivery,
        scene: &Scene,
        buffer: &mut Vec<u8>,
    ) -> Result<Written, Fault> {
        let name = file_name(scene);
        let fault = |error: io::Error| Fault::io("cannot write into the Maildir", &error);
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.tmp, &name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| fault(error.into()))?;
        let mut file = File::from(file);
        match write_message(&mut file, delivery, buffer) {
            Ok(()) => {
                begin_writing(&file);
                Ok(Written { file, name })
            }
            Err(error) => {
                remove(&self.tmp, &name);
                Err(fault(error))
            }
        }
    }

    /// Returns the directories that must be synced before the names in `new` are durable.
    fn directories(&self) -> impl Iterator<Item = &File> {
        self.made_in.iter().chain([&self.new])
    }
}

fn cannot_open(error: io::Error) -> Fault {
    Fault::io("cannot open the Maildir", &error)
}

fn write_message(
    file: &mut File,
    delivery: &MailboxDelivery,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    buffer.clear();
    super::trace_lines(&delivery.message, &delivery.recipient, buffer);
    let Some(text) = delivery.message.in_memory() else {
        file.write_all(buffer)?;
        return delivery.message.pieces(&mut |piece| file.write_all(piece));
    };
    buffer.extend_from_slice(text);
    file.write_all(buffer)
}

/// Tells the kernel to begin to write the file to the disk. A failure does not matter, because a sync follows.
fn begin_writing(file: &File) {
    // SAFETY: the descriptor is open, and the call uses no memory of ours.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Syncs all files that were written. Removes files that cannot be synced.
fn sync_or_remove(written: &mut [Result<(Written, usize), Fault>], maildirs: &Maildirs) {
    let files: Vec<&File> = written.iter().flatten().map(|(written, _)| &written.file).collect();
    let mut synced = sync_all(&files).into_iter();
    for result in written {
        let Ok((file, place)) = result else { continue };
        if let Err(error) = synced.next().expect("sync_all answers each file") {
            remove(&maildirs.get(*place).tmp, &file.name);
            *result = Err(Fault::io("cannot sync the message", &error));
        }
    }
}

/// Renames a file from `tmp` into `new`, where mail readers see it.
fn publish(
    (written, place): (Written, usize),
    maildirs: &Maildirs,
) -> Result<(String, usize), Fault> {
    let maildir = maildirs.get(place);
    match rustix::fs::renameat(&maildir.tmp, &written.name, &maildir.new, &written.name) {
        Ok(()) => Ok((written.name, place)),
        Err(error) => {
            remove(&maildir.tmp, &written.name);
            Err(Fault::io("cannot move the message into new", &error.into()))
        }
    }
}

fn keep_or_remove(
    (name, place): (String, usize),
    maildirs: &Maildirs,
    synced: &[Result<(), Fault>],
) -> Result<(), Fault> {
    if synced[place].is_err() {
        remove(&maildirs.get(place).new, &name);
    }
    synced[place].clone()
}

/// Removes a message that was not delivered. A failure is ignored, because the fault that led here is reported.
fn remove(directory: &File, name: &str) {
    let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
}

/// Returns a file name as Maildir specifies it, `seconds.M<microseconds>P…Q…R….host`, with `/` and `:` of the host in octal.
fn file_name(scene: &Scene) -> String {
    let micros = scene.now.micros();
    let host = scene.hostname.replace('/', "\\057").replace(':', "\\072");
    format!("{}.M{:06}{}.{host}", scene.now.seconds(), micros.rem_euclid(1_000_000), unique_name())
}
