//! The streams to the receiving and sending processes: one task each.
//!
//! Must never hold a borrow of the queue across an await.

use super::{Shared, sender_key};
use crate::io::stream::Stream;
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::control::Role;
use queue::Queue;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::Result;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use world::real::faults::{self, Point};

/// The streams by role and number: receiving processes first, since clients wait for what they are told.
#[derive(Default)]
pub struct Peers(RefCell<BTreeMap<(Role, u16), Peer>>);

struct Peer {
    /// There may be frames to write.
    output: Rc<Notify>,
    task: AbortHandle,
}

impl Peers {
    /// All streams have ended.
    pub fn all_gone(&self) -> bool {
        self.0.borrow().values().all(|peer| peer.task.is_finished())
    }

    /// Has the streams with frames to write look for them, and those that the queue gave up end.
    pub fn wake(&self, queue: &mut Queue) {
        for ((role, instance), peer) in self.0.borrow().iter() {
            let who = Who { role: *role, instance: *instance };
            if who.output(queue).is_none_or(|frames| !frames.is_empty()) {
                peer.output.notify_one();
            }
        }
    }
}

/// Attends to a new stream; a former one of the same peer ends.
pub fn attend(shared: &Rc<Shared>, role: Role, instance: u16, fd: OwnedFd) -> Result<()> {
    let stream = Stream::new(fd)?;
    let output = Rc::new(Notify::new());
    let who = Who { role, instance };
    if let Some(former) = shared.peers.0.borrow_mut().remove(&(role, instance)) {
        former.task.abort();
    }
    who.connected(shared);
    let task = converse(shared.clone(), who, stream, output.clone());
    let task = tokio::task::spawn_local(task).abort_handle();
    shared.peers.0.borrow_mut().insert((role, instance), Peer { output, task });
    shared.moved.notify_one();
    Ok(())
}

#[derive(Clone, Copy)]
struct Who {
    role: Role,
    instance: u16,
}

impl Who {
    fn connected(self, shared: &Shared) {
        let now = shared.now();
        let mut queue = shared.queue.borrow_mut();
        match sender_key(self.role, self.instance) {
            Some(key) => queue.sender_connected(key, now),
            None => queue.receiver_connected(self.instance),
        }
    }

    fn gone(self, shared: &Shared) {
        let now = shared.now();
        let mut queue = shared.queue.borrow_mut();
        match sender_key(self.role, self.instance) {
            Some(key) => queue.sender_gone(key, now),
            None => queue.receiver_gone(self.instance),
        }
        shared.moved.notify_one();
    }

    fn input(self, shared: &Shared, input: &mut BytesMut) -> std::result::Result<(), LinkError> {
        let now = shared.now();
        let mut queue = shared.queue.borrow_mut();
        match sender_key(self.role, self.instance) {
            Some(key) => queue.sender_input(key, input, now),
            None => queue.receiver_input(self.instance, input, now),
        }
    }

    fn output(self, queue: &mut Queue) -> Option<&mut VecDeque<Bytes>> {
        match sender_key(self.role, self.instance) {
            Some(key) => queue.sender_output(key),
            None => queue.receiver_output(self.instance),
        }
    }
}

async fn converse(shared: Rc<Shared>, who: Who, stream: Stream, output: Rc<Notify>) {
    let ended = talk(&shared, who, stream, &output).await;
    who.gone(&shared);
    if let Err(error) = ended
        && error.kind() != std::io::ErrorKind::UnexpectedEof
    {
        let name = who.role.name();
        shared.log.warn(&format!("conversation with {name} {} ended: {error}", who.instance));
    }
}

async fn talk(shared: &Shared, who: Who, mut stream: Stream, output: &Notify) -> Result<()> {
    loop {
        let (written, heard) = {
            let mut queue = shared.queue.borrow_mut();
            let Some(frames) = who.output(&mut queue) else { return Ok(()) };
            let written = frames.is_empty() || stream.write(frames)?;
            (written, written || unwritten_bytes(frames) <= UNWRITTEN_BYTES_MAX)
        };
        tokio::select! {
            ready = stream.ready(!written), if heard => ready?,
            ready = stream.writable(), if !heard => {
                ready?;
                continue;
            }
            () = output.notified() => continue,
        }
        if let Some(input) = stream.read()? {
            faults::reach(Point::PeerSpoke);
            who.input(shared, input).map_err(std::io::Error::other)?;
            shared.moved.notify_one();
        }
    }
}

/// A process that asks and does not listen is not heard while more than this waits for it. Ours
/// listen whatever they say, so that this never ends in a deadlock.
const UNWRITTEN_BYTES_MAX: usize = 64 << 20;

fn unwritten_bytes(frames: &VecDeque<Bytes>) -> usize {
    frames.iter().map(Bytes::len).sum()
}
