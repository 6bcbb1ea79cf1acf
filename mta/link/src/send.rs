//! Queue and a sending process (send or local): attempts and bodies out, outcomes back.
//!
//! Must never let an outcome be lost by the restart of either end: the sending end keeps each
//! until the queue end says that it is recorded, and says it again to a new queue process.
//!
//! A body crosses once for each sending process: it comes with the first attempt that needs it
//! and both ends keep the same count of unacknowledged attempts; the sending end may drop it
//! when that is zero. Bodies over [`INLINE_BYTES_MAX`] are fetched in chunks instead.

use crate::bounds::{
    ATTEMPT_RECIPIENTS_MAX, OUTCOME_REST_BYTES, PEER_BYTES_MAX, PIECE_BYTES_MAX,
    REPLY_TEXT_BYTES_MAX, RESULT_BYTES_MAX,
};
use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::{MailFrom, MessageId, NextHop, Outcome, Recipient, Wall};
use serde::{Deserialize, Serialize};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Largest body (with our own headers) in bytes that comes along with its first attempt.
pub const INLINE_BYTES_MAX: u64 = 64 << 10;
/// Longest chunk in bytes that may be fetched at once.
pub const CHUNK_BYTES_MAX: u32 = 256 << 10;
/// Attempts that a sending process may say it has under way, those with a result that is not
/// recorded included. For a process that was taken over: each costs a look.
pub const UNDER_WAY_MAX: usize = 1_000_000;
const _: () = assert!(INLINE_BYTES_MAX as usize <= PIECE_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_MAX as usize <= PIECE_BYTES_MAX);

/// One try of some recipients of one message at one next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Unique over all lives of the queue process.
    pub id: u64,
    /// Seals the attempt, its message and recipients for the process that it is given to: what
    /// that process says to be under way is believed by this alone.
    pub seal: u64,
    /// The message.
    pub message: MessageId,
    /// The next hop, and how much this process may do there at once.
    pub route: Route,
    /// MAIL FROM.
    pub from: MailFrom,
    /// When the message came, and when this attempt became due.
    pub times: Times,
    /// The size of the message.
    pub body: BodySize,
    /// The index in the envelope and the recipient.
    pub recipients: Vec<(u32, Recipient)>,
}

/// The next hop of an attempt, with its limits for one sending process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The next hop.
    pub hop: NextHop,
    /// Upper bound on the connections of this process to this next hop.
    pub connections_max: u32,
    /// Upper bound on the messages of one connection.
    pub messages_per_connection_max: u32,
}

/// What happened to a message before an attempt, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When the last byte of the message was received.
    pub arrived: Wall,
    /// When this attempt became due: the end of the station `schedule`.
    pub due: Wall,
}

/// The size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodySize {
    /// Our own headers and the sender's bytes together.
    pub bytes: u64,
    /// Our own headers, which come first.
    pub prefix_bytes: u32,
}

#[cfg(any(test, feature = "testing"))]
impl Attempt {
    /// An attempt for tests: these recipients of a message of three octets from the null sender,
    /// whose id is that of the attempt.
    pub fn sample(id: u64, recipients: &[&str]) -> Attempt {
        let recipient = |address: &&str| {
            let address = mail::Address::parse(address, false).expect("the test gives an address");
            Recipient { address, notify: mail::Notify::DEFAULT, orcpt: None }
        };
        Attempt {
            id,
            seal: 0,
            message: MessageId(id),
            route: Route {
                hop: NextHop::Local,
                connections_max: 1,
                messages_per_connection_max: 1,
            },
            from: MailFrom::new(mail::ReversePath::Null),
            times: Times::default(),
            body: BodySize { bytes: 3, prefix_bytes: 0 },
            recipients: (0..).zip(recipients.iter().map(recipient)).collect(),
        }
    }
}

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Result {
    /// The attempt.
    pub attempt: u64,
    /// Its message.
    pub message: MessageId,
    /// One for each recipient of the attempt.
    pub outcomes: Vec<(u32, Outcome)>,
}

/// An attempt that a sending process has under way, told to a new queue process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// The attempt's id in the former life.
    pub attempt: u64,
    /// As it came with the attempt.
    pub seal: u64,
    /// The message.
    pub message: MessageId,
    /// Indices.
    pub recipients: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
enum ToSender {
    Welcome {
        build: u64,
    },
    /// Tail: the body, if `inline`.
    Attempt {
        attempt: Box<Attempt>,
        inline: bool,
    },
    /// Tail: the bytes.
    Chunk {
        attempt: u64,
        offset: u64,
    },
    ChunkBad {
        attempt: u64,
    },
    Recorded {
        attempts: Vec<u64>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
enum ToQueue {
    Hello {
        build: u64,
        life: u64,
        capacity: u32,
    },
    /// After `Hello`: an attempt that is under way, the latest first.
    UnderWay(UnderWay),
    /// Nothing else is under way.
    AllTold,
    Result(Result),
    Fetch {
        attempt: u64,
        message: MessageId,
        offset: u64,
        bytes: u32,
    },
    /// It takes no more attempts, and ends when those that it has begun have ended.
    Drains,
}

/// What the sending process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum SenderEvent {
    /// Try this. `body` is there when `body_bytes` is at most [`INLINE_BYTES_MAX`].
    Attempt { attempt: Box<Attempt>, body: Option<Bytes> },
    /// The answer to a fetch, in the order of the fetches of one attempt.
    Chunk { attempt: u64, offset: u64, bytes: Bytes },
    /// The body is damaged: end the attempt before the final dot.
    ChunkBad { attempt: u64 },
}

/// The sending process's end.
#[derive(Debug)]
pub struct SenderEnd {
    build: u64,
    life: u64,
    capacity: u32,
    welcomed: bool,
    drains: bool,
    /// Attempts without a result, and results that are not recorded.
    open: BTreeMap<u64, Open>,
    next_number: u64,
    bodies: HashMap<MessageId, (Bytes, u32)>,
    output: VecDeque<Bytes>,
    events: VecDeque<SenderEvent>,
}

#[derive(Debug)]
struct Open {
    /// Counts up as attempts come.
    number: u64,
    seal: u64,
    message: MessageId,
    recipients: Vec<u32>,
    result: Option<Bytes>,
    holds_body: bool,
}

impl SenderEnd {
    /// `life` is drawn at random at the start of the process; `capacity` is how many attempts
    /// it takes at once.
    pub fn new(build: u64, life: u64, capacity: u32) -> Self {
        SenderEnd {
            build,
            life,
            capacity,
            welcomed: false,
            drains: false,
            open: BTreeMap::new(),
            next_number: 0,
            bodies: HashMap::new(),
            output: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// A stream to a queue process is there: says what is under way and repeats each result
    /// that was not recorded. Fetches under way are to be made again by the caller.
    pub fn connected(&mut self) {
        self.output.clear();
        self.welcomed = false;
        self.bodies.clear();
        for open in self.open.values_mut() {
            open.holds_body = false;
        }
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_unstable_by_key(|(_, open)| open.number);
        let results: Vec<_> = open.iter().filter_map(|(_, open)| open.result.clone()).collect();
        let hello = ToQueue::Hello { build: self.build, life: self.life, capacity: self.capacity };
        self.output.push_back(frame::encode_short(&hello));
        let under_way = open.iter().rev().map(|(attempt, open)| UnderWay {
            attempt: **attempt,
            seal: open.seal,
            message: open.message,
            recipients: open.recipients.clone(),
        });
        // Each is shorter than the attempt that it is about, which came in one frame.
        let under_way = under_way.map(|one| frame::encode_short(&ToQueue::UnderWay(one)));
        self.output.extend(under_way);
        self.output.push_back(frame::encode_short(&ToQueue::AllTold));
        if self.drains {
            self.output.push_back(frame::encode_short(&ToQueue::Drains));
        }
        self.output.extend(results);
    }

    /// This process was told to end: it takes no more attempts, and those that it has not begun, or
    /// cannot end in time, are no fault of theirs. The queue process is told so over each stream.
    pub fn drain(&mut self) {
        if !std::mem::replace(&mut self.drains, true) {
            self.output.push_back(frame::encode_short(&ToQueue::Drains));
        }
    }

    /// Takes what has arrived.
    pub fn handle(&mut self, input: &mut BytesMut) -> std::result::Result<(), LinkError> {
        while let Some((message, tail)) = frame::decode::<ToSender>(input)? {
            self.accept(message, tail)?;
        }
        Ok(())
    }

    fn accept(&mut self, message: ToSender, tail: Bytes) -> std::result::Result<(), LinkError> {
        match message {
            ToSender::Welcome { build } if build != self.build => Err(LinkError::WrongBuild),
            ToSender::Welcome { .. } => {
                self.welcomed = true;
                Ok(())
            }
            _ if !self.welcomed => Err(LinkError::NotAccepted),
            ToSender::Attempt { attempt, inline } => self.attempt(attempt, inline.then_some(tail)),
            ToSender::Chunk { attempt, offset } => {
                self.events.push_back(SenderEvent::Chunk { attempt, offset, bytes: tail });
                Ok(())
            }
            ToSender::ChunkBad { attempt } => {
                self.events.push_back(SenderEvent::ChunkBad { attempt });
                Ok(())
            }
            ToSender::Recorded { attempts } => {
                attempts.into_iter().for_each(|attempt| self.recorded(attempt));
                Ok(())
            }
        }
    }

    fn attempt(
        &mut self,
        attempt: Box<Attempt>,
        inline: Option<Bytes>,
    ) -> std::result::Result<(), LinkError> {
        if attempt.recipients.len() > ATTEMPT_RECIPIENTS_MAX {
            return Err(LinkError::Garbage);
        }
        let small = attempt.body.bytes <= INLINE_BYTES_MAX;
        let body = match (small, inline) {
            (true, inline) => Some(self.body(attempt.message, inline)?),
            (false, None) if !self.bodies.contains_key(&attempt.message) => None,
            (false, _) => return Err(LinkError::Garbage),
        };
        self.next_number += 1;
        let open = Open {
            number: self.next_number,
            seal: attempt.seal,
            message: attempt.message,
            recipients: attempt.recipients.iter().map(|(index, _)| *index).collect(),
            result: None,
            holds_body: body.is_some(),
        };
        self.open.insert(attempt.id, open);
        self.events.push_back(SenderEvent::Attempt { attempt, body });
        Ok(())
    }

    /// The small body of a message for one more attempt: it came along, or came before.
    fn body(
        &mut self,
        message: MessageId,
        inline: Option<Bytes>,
    ) -> std::result::Result<Bytes, LinkError> {
        // A copy of its own: the frame shares its allocation with many others, which one slow
        // attempt would keep alive.
        let own = inline.map(|body| Bytes::copy_from_slice(&body));
        let (body, users) = match (self.bodies.entry(message), own) {
            (Entry::Occupied(held), None) => held.into_mut(),
            (Entry::Occupied(mut held), Some(own)) => {
                held.insert((own, 0));
                held.into_mut()
            }
            (Entry::Vacant(place), Some(own)) => place.insert((own, 0)),
            (Entry::Vacant(_), None) => return Err(LinkError::Garbage),
        };
        *users += 1;
        Ok(body.clone())
    }

    fn recorded(&mut self, attempt: u64) {
        let Some(open) = self.open.remove(&attempt) else { return };
        if !open.holds_body {
            return;
        }
        if let Entry::Occupied(mut held) = self.bodies.entry(open.message) {
            held.get_mut().1 -= 1;
            if held.get().1 == 0 {
                held.remove();
            }
        }
    }

    /// Says what became of an attempt; kept until the queue process has recorded it. Replies that
    /// are too long in sum are cut. Returns the result as it was said.
    pub fn result(&mut self, mut result: Result) -> Result {
        let Some(open) = self.open.get_mut(&result.attempt) else { return result };
        cut_to_bound(&mut result);
        let message = ToQueue::Result(result);
        let frame = frame::encode(&message, &[])
            .expect("outcomes of an attempt fit into a frame once they are cut");
        open.result = Some(frame.clone());
        self.output.push_back(frame);
        match message {
            ToQueue::Result(result) => result,
            _ => unreachable!("the message was made of a result"),
        }
    }

    /// Asks for bytes of a body that is not inline.
    pub fn fetch(&mut self, attempt: u64, message: MessageId, offset: u64, bytes: u32) {
        let bytes = bytes.min(CHUNK_BYTES_MAX);
        let fetch = ToQueue::Fetch { attempt, message, offset, bytes };
        self.output.push_back(frame::encode_short(&fetch));
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// Frames to be written, in order.
    pub fn output(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }

    /// True if there are frames to be written.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether this attempt is without a result, or its result not known to be recorded.
    pub fn is_open(&self, attempt: u64) -> bool {
        self.open.contains_key(&attempt)
    }

    /// Whether this attempt has no result yet.
    pub fn is_under_way(&self, attempt: u64) -> bool {
        self.open.get(&attempt).is_some_and(|open| open.result.is_none())
    }

    /// Whether there are results of which it is not known that they are recorded.
    pub fn has_results(&self) -> bool {
        self.open.values().any(|open| open.result.is_some())
    }

    /// Attempts that have no result yet.
    pub fn under_way(&self) -> usize {
        self.open.values().filter(|open| open.result.is_none()).count()
    }
}

/// Cuts peers and replies to their bounds, and to equal shares of the bound of all if they exceed that
/// in sum. More outcomes than an attempt can have recipients are dropped: those recipients are
/// deferred.
fn cut_to_bound(result: &mut Result) {
    result.outcomes.truncate(ATTEMPT_RECIPIENTS_MAX);
    let mut sum = 0;
    for (_, outcome) in &mut result.outcomes {
        sum += OUTCOME_REST_BYTES + cut_report(outcome, PEER_BYTES_MAX, REPLY_TEXT_BYTES_MAX);
    }
    if sum <= RESULT_BYTES_MAX {
        return;
    }
    let share = RESULT_BYTES_MAX / result.outcomes.len() - OUTCOME_REST_BYTES;
    for (_, outcome) in &mut result.outcomes {
        let peer = outcome.report().peer.len().min(share / 2);
        cut_report(outcome, peer, share - peer);
    }
}

/// Gives back how many bytes are left.
fn cut_report(outcome: &mut Outcome, peer_bytes_max: usize, text_bytes_max: usize) -> usize {
    let (Outcome::Delivered { report, .. } | Outcome::Deferred(report) | Outcome::Failed(report)) =
        outcome;
    cut(&mut report.peer, peer_bytes_max);
    cut(&mut report.reply.text, text_bytes_max);
    report.peer.len() + report.reply.text.len()
}

/// Whether `cut_to_bound` would leave it as it is, but for the sum.
fn is_bounded(result: &Result) -> bool {
    let fits = |(_, outcome): &(u32, Outcome)| {
        let report = outcome.report();
        report.peer.len() <= PEER_BYTES_MAX && report.reply.text.len() <= REPLY_TEXT_BYTES_MAX
    };
    result.outcomes.len() <= ATTEMPT_RECIPIENTS_MAX && result.outcomes.iter().all(fits)
}

#[inline]
fn cut(text: &mut Box<str>, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        *text = text[..end].into();
    }
}

/// What the queue process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum QueueEvent {
    /// The sending process is there.
    Hello { life: u64, capacity: u32 },
    /// It has this under way from former lives or streams of ours; the latest comes first.
    UnderWay(UnderWay),
    /// It has told all that it has under way.
    AllTold,
    /// It was told to end. It takes no more attempts, and those that it does not end are made again.
    Drains,
    /// What became of an attempt. To be answered with [`QueueEnd::recorded`] when durable.
    Result(Result),
    /// To be answered with [`QueueEnd::chunk`].
    Fetch { attempt: u64, message: MessageId, offset: u64, bytes: u32 },
}

/// What a queue process waits for before it hears results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    ExpectHello,
    /// With how many were told so far.
    ExpectUnderWay(usize),
    Over,
}

/// The queue process's end; made anew for each stream.
#[derive(Debug)]
pub struct QueueEnd {
    build: u64,
    greeting: Greeting,
    /// Message of each unacknowledged attempt that shares an inline body.
    open: HashMap<u64, MessageId>,
    held: HashMap<MessageId, u32>,
    /// Attempts that wait for the answer to a fetch: one each.
    fetching: HashSet<u64>,
    output: VecDeque<Bytes>,
    events: VecDeque<QueueEvent>,
}

impl QueueEnd {
    /// A stream to a sending process is there.
    pub fn new(build: u64) -> Self {
        QueueEnd {
            build,
            greeting: Greeting::ExpectHello,
            open: HashMap::new(),
            held: HashMap::new(),
            fetching: HashSet::new(),
            output: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes what has arrived.
    pub fn handle(&mut self, input: &mut BytesMut) -> std::result::Result<(), LinkError> {
        while let Some((message, _)) = frame::decode::<ToQueue>(input)? {
            match self.greeting {
                Greeting::Over => self.take(message)?,
                _ => self.greet(message)?,
            }
        }
        Ok(())
    }

    fn greet(&mut self, message: ToQueue) -> std::result::Result<(), LinkError> {
        match (self.greeting, message) {
            (Greeting::ExpectHello, ToQueue::Hello { build, .. }) if build != self.build => {
                return Err(LinkError::WrongBuild);
            }
            (Greeting::ExpectHello, ToQueue::Hello { life, capacity, .. }) => {
                self.greeting = Greeting::ExpectUnderWay(0);
                let welcome = ToSender::Welcome { build: self.build };
                self.output.push_back(frame::encode_short(&welcome));
                self.events.push_back(QueueEvent::Hello { life, capacity });
            }
            (Greeting::ExpectUnderWay(told), ToQueue::UnderWay(one))
                if told < UNDER_WAY_MAX && one.recipients.len() <= ATTEMPT_RECIPIENTS_MAX =>
            {
                self.greeting = Greeting::ExpectUnderWay(told + 1);
                self.events.push_back(QueueEvent::UnderWay(one));
            }
            (Greeting::ExpectUnderWay(_), ToQueue::AllTold) => {
                self.greeting = Greeting::Over;
                self.events.push_back(QueueEvent::AllTold);
            }
            _ => return Err(LinkError::NotAccepted),
        }
        Ok(())
    }

    fn take(&mut self, message: ToQueue) -> std::result::Result<(), LinkError> {
        match message {
            ToQueue::Drains => self.events.push_back(QueueEvent::Drains),
            ToQueue::Result(result) if is_bounded(&result) => {
                self.events.push_back(QueueEvent::Result(result))
            }
            ToQueue::Fetch { attempt, message, offset, bytes } if self.fetching.insert(attempt) => {
                let bytes = bytes.min(CHUNK_BYTES_MAX);
                self.events.push_back(QueueEvent::Fetch { attempt, message, offset, bytes });
            }
            _ => return Err(LinkError::NotAccepted),
        }
        Ok(())
    }

    /// Whether the other end holds this message's inline body, so that it need not be read.
    pub fn holds(&self, message: MessageId) -> bool {
        self.held.contains_key(&message)
    }

    /// Hands out an attempt. `body` must be there when it is small and not [`held`](Self::holds), and
    /// goes along only then. Refuses an attempt that does not fit into a frame.
    pub fn attempt(
        &mut self,
        attempt: Attempt,
        body: Option<&[u8]>,
    ) -> std::result::Result<(), LinkError> {
        let small = attempt.body.bytes <= INLINE_BYTES_MAX;
        let (id, message) = (attempt.id, attempt.message);
        let users = small.then(|| self.held.entry(message));
        let body = match &users {
            Some(Entry::Vacant(_)) => body,
            _ => None,
        };
        debug_assert!(body.is_some() || !matches!(users, Some(Entry::Vacant(_))));
        let header = ToSender::Attempt { inline: body.is_some(), attempt: Box::new(attempt) };
        self.output.push_back(frame::encode(&header, body.unwrap_or_default())?);
        if let Some(users) = users {
            *users.or_insert(0) += 1;
            self.open.insert(id, message);
        }
        Ok(())
    }

    /// Answers a fetch with at most [`CHUNK_BYTES_MAX`].
    pub fn chunk(&mut self, attempt: u64, offset: u64, bytes: &[u8]) {
        match frame::encode(&ToSender::Chunk { attempt, offset }, bytes) {
            Ok(frame) => {
                self.fetching.remove(&attempt);
                self.output.push_back(frame);
            }
            Err(_) => self.chunk_bad(attempt),
        }
    }

    /// Answers a fetch of a damaged body.
    pub fn chunk_bad(&mut self, attempt: u64) {
        self.fetching.remove(&attempt);
        self.output.push_back(frame::encode_short(&ToSender::ChunkBad { attempt }));
    }

    /// The results of these attempts are durable, or need not be.
    pub fn recorded(&mut self, attempts: Vec<u64>) {
        for attempt in &attempts {
            let Some(message) = self.open.remove(attempt) else { continue };
            if let Entry::Occupied(mut users) = self.held.entry(message) {
                *users.get_mut() -= 1;
                if *users.get() == 0 {
                    users.remove();
                }
            }
        }
        self.output.push_back(frame::encode_short(&ToSender::Recorded { attempts }));
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<QueueEvent> {
        self.events.pop_front()
    }

    /// Frames to be written, in order.
    pub fn output(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Address, Enhanced, Notify, Reply, Report, Stage};

    fn attempt(id: u64, message: u64, body_bytes: u64) -> Attempt {
        let mut attempt = Attempt::sample(id, &["a@example.org"]);
        (attempt.seal, attempt.message, attempt.body.bytes) =
            (id * 10, MessageId(message), body_bytes);
        attempt
    }

    fn result(id: u64, message: u64) -> Result {
        let report = Report {
            stage: Stage::End,
            reply: Reply::new(250, Enhanced(2, 0, 0), "ok"),
            peer: "".into(),
            from_peer: true,
        };
        let outcomes = vec![(0, Outcome::Delivered { report, relayed: false })];
        Result { attempt: id, message: MessageId(message), outcomes }
    }

    fn carry(from: &mut VecDeque<Bytes>) -> BytesMut {
        from.drain(..).flatten().collect()
    }

    /// What a new stream's greeting tells: attempts and their seals.
    fn told(queue: &mut QueueEnd) -> Vec<(u64, u64)> {
        assert!(matches!(queue.poll(), Some(QueueEvent::Hello { .. })));
        let mut told = Vec::new();
        loop {
            match queue.poll() {
                Some(QueueEvent::UnderWay(one)) => told.push((one.attempt, one.seal)),
                Some(QueueEvent::AllTold) => return told,
                other => panic!("{other:?}"),
            }
        }
    }

    fn pair() -> (SenderEnd, QueueEnd) {
        let (mut sender, mut queue) = (SenderEnd::new(1, 7, 10), QueueEnd::new(1));
        sender.connected();
        queue.handle(&mut carry(sender.output())).unwrap();
        assert_eq!(queue.poll(), Some(QueueEvent::Hello { life: 7, capacity: 10 }));
        assert_eq!(queue.poll(), Some(QueueEvent::AllTold));
        sender.handle(&mut carry(queue.output())).unwrap();
        (sender, queue)
    }

    #[test]
    fn a_small_body_crosses_once_for_two_attempts_and_again_after_both_are_recorded() {
        let (mut sender, mut queue) = pair();
        queue.attempt(attempt(1, 5, 3), Some(b"abc")).unwrap();
        assert!(queue.holds(MessageId(5)));
        // What is held does not go along, although it is there.
        queue.attempt(attempt(2, 5, 3), Some(b"xyz")).unwrap();
        sender.handle(&mut carry(queue.output())).unwrap();
        for _ in 0..2 {
            let Some(SenderEvent::Attempt { body, .. }) = sender.poll() else { panic!() };
            assert_eq!(body.unwrap(), "abc");
        }
        assert_eq!((sender.under_way(), sender.has_results()), (2, false));
        sender.result(result(1, 5));
        sender.result(result(2, 5));
        assert_eq!((sender.under_way(), sender.has_results()), (0, true));
        queue.recorded(vec![1]);
        assert!(queue.holds(MessageId(5)));
        queue.recorded(vec![2]);
        assert!(!queue.holds(MessageId(5)));
        sender.handle(&mut carry(queue.output())).unwrap();
        assert!(!sender.has_results());
        assert!(sender.bodies.is_empty() && sender.open.is_empty());
    }

    #[test]
    fn an_attempt_whose_body_is_not_there_or_may_not_be_is_garbage() {
        let small = |id, inline| (attempt(id, 5, 3), inline);
        let large = |id, inline| (attempt(id, 5, INLINE_BYTES_MAX + 1), inline);
        for attempts in
            [vec![small(1, false)], vec![large(1, true)], vec![small(1, true), large(2, false)]]
        {
            let (mut sender, last) = (pair().0, attempts.len() - 1);
            for (at, (attempt, inline)) in attempts.into_iter().enumerate() {
                let expected = if at == last { Err(LinkError::Garbage) } else { Ok(()) };
                let header = ToSender::Attempt { attempt: Box::new(attempt), inline };
                let mut frame = BytesMut::from(&frame::encode(&header, b"abc").unwrap()[..]);
                assert_eq!(sender.handle(&mut frame), expected);
            }
        }
    }

    #[test]
    fn a_result_is_said_again_to_a_new_queue_process_until_it_is_recorded() {
        let (mut sender, mut queue) = pair();
        queue.attempt(attempt(1, 5, 3), Some(b"abc")).unwrap();
        queue.attempt(attempt(2, 6, 3), Some(b"abc")).unwrap();
        sender.handle(&mut carry(queue.output())).unwrap();
        sender.result(result(1, 5));
        sender.output().clear(); // the queue process died before it read it
        let mut queue = QueueEnd::new(1);
        sender.connected();
        queue.handle(&mut carry(sender.output())).unwrap();
        assert_eq!(told(&mut queue), [(2, 20), (1, 10)]);
        assert_eq!(queue.poll(), Some(QueueEvent::Result(result(1, 5))));
        assert_eq!(queue.poll(), None);
        queue.recorded(vec![1]);
        sender.handle(&mut carry(queue.output())).unwrap();
        sender.connected();
        assert_eq!(sender.output().len(), 3, "a greeting with what is under way is left to say");
    }

    #[test]
    fn what_is_under_way_is_told_with_its_seal_and_the_latest_first() {
        let (mut sender, mut queue) = pair();
        for id in [9, 3, 7] {
            queue.attempt(attempt(id, id, 3), Some(b"abc")).unwrap();
        }
        sender.handle(&mut carry(queue.output())).unwrap();
        sender.result(result(3, 3));
        sender.result(result(9, 9));
        let mut queue = QueueEnd::new(1);
        sender.connected();
        queue.handle(&mut carry(sender.output())).unwrap();
        assert_eq!(told(&mut queue), [(7, 70), (3, 30), (9, 90)]);
        assert_eq!(queue.poll(), Some(QueueEvent::Result(result(9, 9))));
        assert_eq!(queue.poll(), Some(QueueEvent::Result(result(3, 3))));
    }

    #[test]
    fn a_process_that_drains_says_so_once_over_each_stream_behind_what_is_under_way() {
        let (mut sender, mut queue) = pair();
        queue.attempt(attempt(1, 5, 3), Some(b"abc")).unwrap();
        sender.handle(&mut carry(queue.output())).unwrap();
        sender.drain();
        sender.drain();
        queue.handle(&mut carry(sender.output())).unwrap();
        assert_eq!((queue.poll(), queue.poll()), (Some(QueueEvent::Drains), None));
        sender.result(result(1, 5));
        let mut queue = QueueEnd::new(1);
        sender.connected();
        queue.handle(&mut carry(sender.output())).unwrap();
        assert_eq!(told(&mut queue), [(1, 10)]);
        let rest: Vec<_> = std::iter::from_fn(|| queue.poll()).collect();
        assert_eq!(rest, [QueueEvent::Drains, QueueEvent::Result(result(1, 5))]);
    }

    #[test]
    fn a_peer_of_another_build_or_one_that_does_not_greet_is_ended() {
        let (mut sender, mut queue) = (SenderEnd::new(1, 7, 10), QueueEnd::new(2));
        sender.connected();
        assert_eq!(queue.handle(&mut carry(sender.output())), Err(LinkError::WrongBuild));
        let fetch = ToQueue::Fetch { attempt: 1, message: MessageId(1), offset: 0, bytes: 1 };
        let mut early = BytesMut::from(&frame::encode_short(&fetch)[..]);
        assert_eq!(QueueEnd::new(1).handle(&mut early), Err(LinkError::NotAccepted));
    }

    #[test]
    fn an_attempt_has_one_fetch_at_a_time() {
        let mut queue = QueueEnd::new(1);
        let mut sender = SenderEnd::new(1, 2, 3);
        sender.connected();
        sender.fetch(7, MessageId(5), 0, 10);
        queue.handle(&mut carry(sender.output())).unwrap();
        queue.chunk(7, 0, b"chunk");
        sender.fetch(7, MessageId(5), 10, u32::MAX);
        queue.handle(&mut carry(sender.output())).unwrap();
        let Some(QueueEvent::Fetch { bytes, .. }) = std::iter::from_fn(|| queue.poll()).last()
        else {
            panic!()
        };
        assert_eq!(bytes, 256 << 10, "it gets one chunk, though it asks for more");
        sender.fetch(7, MessageId(5), 20, 10);
        assert_eq!(queue.handle(&mut carry(sender.output())), Err(LinkError::NotAccepted));
    }

    fn long_recipient(nth: usize) -> Recipient {
        let domain = format!("{}.{}.{}.test", "a".repeat(60), "b".repeat(60), "c".repeat(60));
        let address = Address::parse(&format!("{nth:064}@{domain}"), false).unwrap();
        let orcpt = Some(format!("rfc822;{}", "o".repeat(400)).into());
        Recipient { address, notify: Notify::of(true, true, true), orcpt }
    }

    #[test]
    fn r205_an_attempt_at_its_bounds_fits_into_a_frame_and_so_does_its_result() {
        let bytes = crate::bounds::recipient_bytes(&long_recipient(0));
        let count = crate::bounds::RECIPIENTS_BYTES_MAX / bytes;
        let recipients = (0..count).map(|nth| (u32::MAX - nth as u32, long_recipient(nth)));
        let mut largest = attempt(1, 5, INLINE_BYTES_MAX);
        largest.recipients = recipients.collect();
        let (mut sender, mut queue) = pair();
        queue.attempt(largest, Some(&vec![0; INLINE_BYTES_MAX as usize])).unwrap();
        sender.handle(&mut carry(queue.output())).unwrap();
        let Some(SenderEvent::Attempt { attempt, .. }) = sender.poll() else { panic!() };
        assert_eq!(attempt.recipients.len(), count);
        sender.connected();
        queue.handle(&mut carry(sender.output())).unwrap_err(); // a second greeting
        let mut queue = QueueEnd::new(1);
        sender.connected();
        queue.handle(&mut carry(sender.output())).unwrap();
        assert_eq!(told(&mut queue), [(1, 10)]);
    }

    #[test]
    fn r205_a_peer_that_replies_at_length_for_each_of_many_recipients_ends_no_stream() {
        for (count, text) in [(6_000, 8 << 10), (ATTEMPT_RECIPIENTS_MAX, 600), (100, 8 << 10)] {
            let (mut sender, mut queue) = pair();
            let mut many = attempt(1, 5, 3);
            let recipient = many.recipients[0].1.clone();
            many.recipients = (0..count as u32).map(|index| (index, recipient.clone())).collect();
            queue.attempt(many, Some(b"abc")).unwrap();
            sender.handle(&mut carry(queue.output())).unwrap();
            let text: Box<str> = format!("x{}", "é".repeat(text / 2 - 1)).into();
            let report = Report {
                stage: Stage::Rcpt,
                reply: Reply::new(550, Enhanced(5, 1, 1), text.clone()),
                peer: "p".repeat(320).into(),
                from_peer: true,
            };
            let outcomes = (0..count as u32).map(|at| (at, Outcome::Failed(report.clone())));
            let result = Result { attempt: 1, message: MessageId(5), outcomes: outcomes.collect() };
            sender.result(result);
            queue.handle(&mut carry(sender.output())).unwrap();
            let Some(QueueEvent::Result(result)) = queue.poll() else { panic!() };
            assert_eq!(result.outcomes.len(), count);
            let kept = result.outcomes.iter().map(|(_, outcome)| outcome.report());
            let whole = kept.filter(|kept| **kept == report).count();
            assert_eq!(whole, if count == 100 { 100 } else { 0 }, "of {count}");
            let (_, last) = result.outcomes.last().unwrap();
            let last = last.report();
            assert!(last.peer.len() > 100 && last.reply.text.len() > 100, "of {count}: {last:?}");
            assert!(text.starts_with(&*last.reply.text) && last.reply.code == 550);
        }
    }

    #[test]
    fn what_a_sending_process_tells_of_its_attempts_is_bounded() {
        let mut queue = QueueEnd::new(1);
        let told = ToQueue::UnderWay(UnderWay {
            attempt: 1,
            seal: 1,
            message: MessageId(1),
            recipients: vec![0; ATTEMPT_RECIPIENTS_MAX + 1],
        });
        let hello = frame::encode_short(&ToQueue::Hello { build: 1, life: 1, capacity: 1 });
        let mut input = BytesMut::from(&hello[..]);
        input.extend_from_slice(&frame::encode_short(&told));
        assert_eq!(queue.handle(&mut input), Err(LinkError::NotAccepted));
    }

    #[test]
    fn r219_a_reply_longer_than_any_client_keeps_is_cut_and_refused_of_a_process_that_does_not() {
        let with = |peer: usize, text: usize| {
            let mut long = result(1, 5);
            for (_, outcome) in &mut long.outcomes {
                let Outcome::Delivered { report, .. } = outcome else { panic!() };
                (report.peer, report.reply.text) =
                    ("p".repeat(peer).into(), "t".repeat(text).into());
            }
            long
        };
        let (peer, text) = (PEER_BYTES_MAX, REPLY_TEXT_BYTES_MAX);
        let (mut sender, mut queue) = pair();
        queue.attempt(attempt(1, 5, 3), Some(b"abc")).unwrap();
        sender.handle(&mut carry(queue.output())).unwrap();
        sender.result(with(peer + 1, text + 1));
        queue.handle(&mut carry(sender.output())).unwrap();
        assert_eq!(queue.poll(), Some(QueueEvent::Result(with(peer, text))));
        for (long, taken) in [
            (with(peer, text), Ok(())),
            (with(peer + 1, text), Err(LinkError::NotAccepted)),
            (with(peer, text + 1), Err(LinkError::NotAccepted)),
        ] {
            let frame = frame::encode(&ToQueue::Result(long), &[]).unwrap();
            assert_eq!(queue.handle(&mut BytesMut::from(&frame[..])), taken);
        }
    }
}
