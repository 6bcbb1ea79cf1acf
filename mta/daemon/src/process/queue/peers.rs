//! The streams to the receiving and sending processes: one task each.
//!
//! Must never hold a borrow of the queue across an await.

use super::{Shared, sender_key};
use crate::io::stream::{REST_BYTES_MAX, Stream, loss};
use crate::process::child;
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::control::Role;
use queue::Queue;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::Result;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use world::real::faults::{self, Point};

/// The streams by role and number. Receiving processes come first, because clients wait for their answers.
#[derive(Default)]
pub struct Peers(RefCell<BTreeMap<(Role, u16), PeerTask>>);

struct PeerTask {
    /// Wakes the task to write frames.
    output: Rc<Notify>,
    task: AbortHandle,
}

impl Peers {
    /// Returns true if all streams have ended.
    pub fn all_gone(&self) -> bool {
        self.0.borrow().values().all(|peer| peer.task.is_finished())
    }

    /// Wakes the tasks that have frames to write or whose stream the queue has given up.
    pub fn wake(&self, queue: &mut Queue) {
        for ((role, instance), peer) in self.0.borrow().iter() {
            if output(*role, *instance, queue).is_none_or(|frames| !frames.is_empty()) {
                peer.output.notify_one();
            }
        }
    }
}

/// Starts a task for a new stream and ends the former stream of the same peer.
pub fn attend(shared: &Rc<Shared>, peer: child::PeerStream) -> Result<()> {
    let child::PeerStream { role, instance, stream: number, fd } = peer;
    let stream = Stream::new(fd)?;
    let output = Rc::new(Notify::new());
    let who = Who { role, instance, number };
    if let Some(former) = shared.peers.0.borrow_mut().remove(&(role, instance)) {
        former.task.abort();
    }
    who.connected(shared);
    let task = converse(shared.clone(), who, stream, output.clone());
    let task = tokio::task::spawn_local(task).abort_handle();
    shared.peers.0.borrow_mut().insert((role, instance), PeerTask { output, task });
    shared.moved.notify_one();
    Ok(())
}

#[derive(Clone, Copy)]
struct Who {
    role: Role,
    instance: u16,
    /// The stream's number, by which master knows it.
    number: u64,
}

impl Who {
    fn connected(self, shared: &Shared) {
        let now = shared.now();
        shared.health.stream((self.role, self.instance), true, now.monotonic);
        let mut queue = shared.queue.borrow_mut();
        match sender_key(self.role, self.instance) {
            Some(key) => queue.sender_connected(key, now),
            None => queue.receiver_connected(self.instance),
        }
    }

    fn gone(self, shared: &Shared) {
        let now = shared.now();
        shared.health.stream((self.role, self.instance), false, now.monotonic);
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
}

fn output(role: Role, instance: u16, queue: &mut Queue) -> Option<&mut VecDeque<Bytes>> {
    match sender_key(role, instance) {
        Some(key) => queue.sender_output(key),
        None => queue.receiver_output(instance),
    }
}

async fn converse(shared: Rc<Shared>, who: Who, stream: Stream, output: Rc<Notify>) {
    let ended = talk(&shared, who, stream, &output).await;
    who.gone(&shared);
    let Err(error) = ended else { return };
    if error.kind() != std::io::ErrorKind::UnexpectedEof {
        let name = who.role.name();
        shared.log.warn(&format!("conversation with {name} {} ended: {error}", who.instance));
    }
    shared.orders.say_lost(who.role, who.instance, who.number, loss(&error));
}

async fn talk(shared: &Shared, who: Who, mut stream: Stream, told: &Notify) -> Result<()> {
    loop {
        let written = {
            let mut queue = shared.queue.borrow_mut();
            let Some(frames) = output(who.role, who.instance, &mut queue) else { return Ok(()) };
            let written = if frames.is_empty() { Ok(true) } else { stream.write(frames) };
            written
                .map(|written| (written, written || unwritten_bytes(frames) <= UNWRITTEN_BYTES_MAX))
        };
        let (written, heard) = match written {
            Ok(written) => written,
            // The stream has ended. What the process said last is still read: it may contain results.
            Err(error) => {
                let rest = stream.read_rest(REST_BYTES_MAX, |input| who.input(shared, input));
                shared.moved.notify_one();
                return rest.map_err(std::io::Error::other).and(Err(error));
            }
        };
        tokio::select! {
            ready = stream.ready(!written), if heard => ready?,
            ready = stream.writable(), if !heard => {
                ready?;
                continue;
            }
            () = told.notified() => continue,
        }
        if let Some(input) = stream.read()? {
            faults::reach(Point::PeerSpoke);
            who.input(shared, input).map_err(std::io::Error::other)?;
            shared.moved.notify_one();
        }
    }
}

/// Upper bound on the bytes that wait for a process before the queue stops reading from it. The processes of this
/// mailer always read, so this is no deadlock.
const UNWRITTEN_BYTES_MAX: usize = 64 << 20;

fn unwritten_bytes(frames: &VecDeque<Bytes>) -> usize {
    frames.iter().map(Bytes::len).sum()
}
