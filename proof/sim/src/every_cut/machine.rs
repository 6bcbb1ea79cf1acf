//! The queue process with its disk, a receiving and a sending end, and a world outside that takes,
//! puts off and refuses: one thread, driven step by step.
//!
//! Must never do for the mailer what the daemon does not do for it.

use super::Settings;
use super::ledger::{Answer, Deletion, Ledger, OWN_INCARNATION, Subject, Verdict, notice_about};
use super::recovered::{Recovered, recover};
use super::tap::Tap;
use super::work::LONG_LIVED;
use bytes::{Bytes, BytesMut};
use link::admin::{Action, Answer as Told, Filter};
use link::control::Role;
use link::receive::{ReceiverEnd, ReceiverEvent};
use link::send::{CHUNK_BYTES_MAX, SenderEnd, SenderEvent};
use mail::{Enhanced, Envelope, MessageId, Now, Outcome, Reply, Report, Stage, TransactionId};
use queue::{LogEvent, Output, Queue, ReadDone, SenderKey};
use spool::{Begun, Io, IoDone, Unsynced};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use world::sim::{Clock, Disk, Rng};
use world::{Clock as _, Rng as _};

const BUILD: u64 = 1;
const RECEIVER: u16 = 0;
const SENDER: SenderKey = SenderKey(Role::Send, 0);
/// Attempts that the sending process has at once.
const CAPACITY: u32 = 6;

/// A mailer that runs.
pub struct Machine {
    /// The disk, with a copy from before each step.
    pub tap: Arc<Tap>,
    /// Virtual.
    pub clock: Clock,
    /// Decides what happens next.
    pub chance: Rng,
    /// What the world outside knows.
    pub ledger: Ledger,
    /// The next hops take everything.
    pub takes_all: bool,
    /// The figures of the former incarnations of the queue process.
    pub past: Vec<spool::Usage>,
    /// The copies from while the queue process was started again, and what was known then.
    pub starting: Option<(Vec<Disk>, Ledger)>,
    queue: Queue,
    settings: Settings,
    incarnation: u64,
    receiver: ReceiverEnd,
    sender: SenderEnd,
    under_way: Vec<UnderWay>,
    /// What the disk has done and the queue has not heard: the power may go in between.
    done: Option<IoDone>,
    trying: Vec<Trying>,
    /// Results that the mailer has not said it has recorded.
    unrecorded: Vec<(u64, Vec<(Subject, bool)>)>,
    questions: BTreeMap<u64, (TransactionId, Action)>,
    last_question: u64,
    last_transaction: u64,
}

enum UnderWay {
    Io(Io),
    /// Its bytes are written, its sync is not yet called.
    Written(Unsynced),
    Read(queue::Read),
}

struct Trying {
    attempt: Box<link::send::Attempt>,
    body: Vec<u8>,
    whole: bool,
}

enum Say {
    Take,
    PutOff,
    Refuse,
}

/// Master's key, the same for each incarnation of queue.
const SEAL_KEY: [u64; 2] = [7, 8];

impl Machine {
    /// Starts on an empty disk.
    pub fn start(
        disk: Disk,
        settings: Settings,
        seed: u64,
        clock: Clock,
        ignores_syncs: bool,
    ) -> Result<Machine, String> {
        let tap = Arc::new(if ignores_syncs { Tap::ignoring_syncs(disk) } else { Tap::new(disk) });
        let incarnation = 1 + (seed & 0xffff) * 16;
        let found = recover(&*tap, &settings, incarnation, clock.now())?;
        let ledger = Ledger::default();
        ledger.judge(&found)?;
        Ok(Machine::resume(tap, settings, ledger, found, incarnation, clock))
    }

    /// Goes on from a start that was judged.
    pub fn resume(
        tap: Arc<Tap>,
        settings: Settings,
        ledger: Ledger,
        found: Recovered,
        incarnation: u64,
        clock: Clock,
    ) -> Machine {
        let now = clock.now();
        let Recovered { spool, scheduler, .. } = found;
        let queue = settings.queue.clone();
        let queue =
            Queue::new(BUILD, OWN_INCARNATION + incarnation, queue, spool, scheduler, 1, now)
                .sealed_with(SEAL_KEY);
        let mut machine = Machine {
            tap,
            clock,
            chance: Rng::seeded(incarnation),
            ledger,
            takes_all: false,
            past: Vec::new(),
            starting: None,
            queue,
            settings,
            incarnation,
            receiver: ReceiverEnd::new(BUILD, incarnation),
            sender: SenderEnd::new(BUILD, incarnation, CAPACITY),
            under_way: Vec::new(),
            done: None,
            trying: Vec::new(),
            unrecorded: Vec::new(),
            questions: BTreeMap::new(),
            last_question: 0,
            last_transaction: 0,
        };
        machine.connect();
        machine
    }

    fn connect(&mut self) {
        let now = self.clock.now();
        self.queue.receiver_connected(RECEIVER);
        self.receiver.connected(now.monotonic);
        self.queue.sender_connected(SENDER, now);
        self.sender.connected();
        // A body that was fetched half is fetched again.
        for trying in self.trying.iter_mut().filter(|trying| !trying.whole) {
            trying.body.clear();
            fetch(&mut self.sender, trying);
        }
    }

    /// The queue process is killed, with all that was under way, and started again. The others
    /// live on, and what the kernel has is kept.
    pub fn restart(&mut self) -> Verdict {
        self.past.push(self.queue.usage());
        self.under_way.clear();
        self.done = None;
        self.questions.clear();
        self.incarnation += 1;
        self.receiver.disconnected(self.clock.now().monotonic);
        let now = self.clock.now();
        let found = recover(&*self.tap, &self.settings, self.incarnation, now)?;
        self.ledger.judge(&found)?;
        self.starting = Some((self.tap.take(), self.ledger.clone()));
        self.ledger.restarted(&found);
        let Recovered { spool, scheduler, .. } = found;
        let queue = self.settings.queue.clone();
        self.queue =
            Queue::new(BUILD, OWN_INCARNATION + self.incarnation, queue, spool, scheduler, 1, now)
                .sealed_with(SEAL_KEY);
        self.connect();
        self.exchange()
    }

    /// Runs the machines and carries frames until nothing moves any more.
    pub fn exchange(&mut self) -> Verdict {
        loop {
            let now = self.clock.now();
            self.queue.advance(now);
            if !(self.outputs()? | self.carry(now)? | self.events()?) {
                return Ok(());
            }
        }
    }

    fn outputs(&mut self) -> Result<bool, String> {
        let mut moved = false;
        while let Some(output) = self.queue.poll() {
            moved = true;
            match output {
                Output::Io(io) => self.under_way.push(UnderWay::Io(io)),
                Output::Read(read) => self.under_way.push(UnderWay::Read(read)),
                Output::Log(LogEvent::Alarm(alarm)) => return Err(format!("an alarm: {alarm}")),
                Output::Log(LogEvent::Damaged { message, text }) => {
                    return Err(format!("{message} damaged: {text}"));
                }
                Output::Log(_) => {}
                Output::Answer(question, answer) => self.answered(question, &answer),
            }
        }
        Ok(moved)
    }

    fn carry(&mut self, now: Now) -> Result<bool, String> {
        let mut moved = false;
        let mut take = |frames: Option<&mut VecDeque<Bytes>>| -> Option<BytesMut> {
            let bytes: BytesMut = frames?.drain(..).flatten().collect();
            moved |= !bytes.is_empty();
            (!bytes.is_empty()).then_some(bytes)
        };
        let said = |error: link::LinkError| format!("a link broke: {error}");
        if let Some(mut bytes) = take(Some(self.receiver.transmit())) {
            self.queue.receiver_input(RECEIVER, &mut bytes, now).map_err(said)?;
        }
        if let Some(mut bytes) = take(self.queue.receiver_output(RECEIVER)) {
            self.receiver.handle(&mut bytes).map_err(said)?;
        }
        if let Some(mut bytes) = take(Some(self.sender.transmit())) {
            self.queue.sender_input(SENDER, &mut bytes, now).map_err(said)?;
        }
        if let Some(mut bytes) = take(self.queue.sender_output(SENDER)) {
            self.sender.handle(&mut bytes).map_err(said)?;
        }
        Ok(moved)
    }

    fn events(&mut self) -> Result<bool, String> {
        let mut moved = false;
        while let Some(event) = self.receiver.poll() {
            moved = true;
            self.heard(event)?;
        }
        while let Some(event) = self.sender.poll() {
            moved = true;
            self.ordered(event)?;
        }
        let sender = &self.sender;
        let ledger = &mut self.ledger;
        self.unrecorded.retain(|(attempt, results)| {
            let open = sender.is_open(*attempt);
            if !open {
                results.iter().for_each(|(subject, ends)| ledger.recorded(subject, *ends));
            }
            open
        });
        Ok(moved)
    }

    /// What the clients hear.
    fn heard(&mut self, event: ReceiverEvent) -> Verdict {
        let incarnation = self.receiver.incarnation();
        let of = |number| TransactionId { incarnation, number };
        let (number, answer) = match event {
            ReceiverEvent::Promised { number, durable } => {
                (number, Answer::Promised(durable.message()))
            }
            ReceiverEvent::Refused { number, .. } => (number, Answer::Refused),
            ReceiverEvent::Abandoned { .. } | ReceiverEvent::Credit => return Ok(()),
        };
        match self.ledger.sent.get_mut(&of(number)) {
            Some(sent) if sent.answer == Answer::None => sent.answer = answer,
            other => return Err(format!("{answer:?} for {number}, which is {other:?}")),
        }
        Ok(())
    }

    /// What the sending process is told.
    fn ordered(&mut self, event: SenderEvent) -> Verdict {
        match event {
            SenderEvent::Attempt { attempt, body } => {
                let (whole, body) = (body.is_some(), body.unwrap_or_default().to_vec());
                let trying = Trying { attempt, body, whole };
                if !whole {
                    fetch(&mut self.sender, &trying);
                }
                self.trying.push(trying);
            }
            SenderEvent::Chunk { attempt, offset, bytes } => {
                let is = |trying: &&mut Trying| trying.attempt.id == attempt;
                let Some(trying) = self.trying.iter_mut().find(is) else { return Ok(()) };
                if offset == trying.body.len() as u64 && !trying.whole {
                    trying.body.extend_from_slice(&bytes);
                    trying.whole = trying.body.len() as u64 == trying.attempt.body.bytes;
                    if !trying.whole {
                        fetch(&mut self.sender, trying);
                    }
                }
            }
            SenderEvent::ChunkBad { attempt } => {
                // The message was deleted meanwhile: the attempt ends before the final dot.
                let is = |trying: &Trying| trying.attempt.id == attempt;
                let Some(at) = self.trying.iter().position(is) else { return Ok(()) };
                let trying = self.trying.swap_remove(at);
                let message = trying.attempt.message;
                let of = self.ledger.promised(message);
                let sent = of.and_then(|of| self.ledger.sent.get(&of));
                if sent.is_none_or(|sent| sent.deletion == Deletion::None) {
                    return Err(format!("{message} cannot be read"));
                }
                let put_off = |(index, _): &(u32, _)| (*index, outcome(&Say::PutOff));
                let outcomes = trying.attempt.recipients.iter().map(put_off).collect();
                self.sender.result(link::send::Result { attempt, message, outcomes });
            }
        }
        Ok(())
    }

    fn answered(&mut self, question: u64, answer: &Told) {
        let Some((of, action)) = self.questions.remove(&question) else { return };
        let acted = matches!(answer, Told::Acted(acted) if acted.messages == 1);
        let Some(sent) = self.ledger.sent.get_mut(&of).filter(|_| acted) else { return };
        match action {
            Action::Delete => sent.deletion = Deletion::Sure,
            // They are answered in the order in which they were asked.
            _ if !sent.hold.asked.is_empty() => sent.hold.sure = sent.hold.asked.remove(0),
            _ => {}
        }
    }

    /// An operator acts on one message.
    pub fn act_on(&mut self, of: TransactionId, message: MessageId, action: Action) -> Verdict {
        let Some(sent) = self.ledger.sent.get_mut(&of) else { return Ok(()) };
        match action {
            Action::Delete if sent.deletion == Deletion::None => sent.deletion = Deletion::Asked,
            Action::Hold => sent.hold.asked.push(true),
            Action::Release => sent.hold.asked.push(false),
            _ => return Ok(()),
        }
        self.last_question += 1;
        self.questions.insert(self.last_question, (of, action));
        let filter = Filter { ids: vec![message], ..Filter::default() };
        let now = self.clock.now();
        self.queue.admin_act(self.last_question, action, &filter, None, false, now);
        self.exchange()
    }

    /// A client hands over a message; the pieces are as its packets fell.
    pub fn send(&mut self, number: u32, envelope: Envelope, body: Bytes, piece: usize) -> Verdict {
        self.last_transaction += 1;
        let (incarnation, number_of) = (self.receiver.incarnation(), self.last_transaction);
        let transaction = TransactionId { incarnation, number: number_of };
        self.ledger.send(number, transaction, envelope.clone(), body.clone());
        let mut pieces: Vec<&[u8]> = body.chunks(piece.max(1)).collect();
        let last = pieces.pop().unwrap_or_default();
        for piece in pieces {
            self.receiver.stage(number_of, piece);
            self.exchange()?;
        }
        self.receiver.accept(number_of, envelope, last);
        self.exchange()
    }

    /// A client begins and gives up.
    pub fn give_up(&mut self, body: &[u8]) -> Verdict {
        self.last_transaction += 1;
        self.receiver.stage(self.last_transaction, body);
        self.exchange()?;
        self.receiver.unstage(self.last_transaction);
        self.exchange()
    }

    /// One thing happens, chosen by chance: a part of an I/O, as on threads, or an answer of a
    /// next hop. `false`: there is nothing that could.
    pub fn step(&mut self) -> Result<bool, String> {
        if let Some(done) = self.done.take() {
            self.queue.io_done(done, self.clock.now());
        }
        self.exchange()?;
        let ready: Vec<usize> =
            (0..self.trying.len()).filter(|at| self.trying[*at].whole).collect();
        let choices = self.under_way.len() + ready.len();
        if choices == 0 {
            return Ok(false);
        }
        let at = self.chance.below(choices as u64) as usize;
        match at.checked_sub(self.under_way.len()) {
            None => self.execute(at),
            Some(at) => self.try_one(ready[at])?,
        }
        self.exchange()?;
        Ok(true)
    }

    fn execute(&mut self, at: usize) {
        match self.under_way.swap_remove(at) {
            UnderWay::Io(io) => match spool::begin(&*self.tap, io) {
                Begun::Unsynced(unsynced) => self.under_way.push(UnderWay::Written(unsynced)),
                Begun::Done(done) => self.done = Some(done),
            },
            UnderWay::Written(unsynced) => self.done = Some(unsynced.sync(&*self.tap)),
            UnderWay::Read(read) => {
                let done: ReadDone = queue::perform(&*self.tap, read);
                self.queue.read_done(done, self.clock.now());
            }
        }
    }

    /// A next hop answers.
    fn try_one(&mut self, at: usize) -> Verdict {
        let Trying { attempt, body, .. } = self.trying.swap_remove(at);
        let (mut outcomes, mut results) = (Vec::new(), Vec::new());
        for (index, _) in &attempt.recipients {
            let subject = self.subject(&attempt, &body, *index)?;
            let say = self.say(&subject);
            match say {
                Say::Take => self.ledger.delivered(&subject)?,
                Say::Refuse => self.ledger.refused(&subject),
                Say::PutOff => self.ledger.deferred(&subject),
            }
            results.push((subject, !matches!(say, Say::PutOff)));
            outcomes.push((*index, outcome(&say)));
        }
        // One whose message has ended meanwhile is not open any more.
        if self.sender.is_open(attempt.id) {
            self.unrecorded.push((attempt.id, results));
        }
        let (message, attempt) = (attempt.message, attempt.id);
        self.sender.result(link::send::Result { attempt, message, outcomes });
        Ok(())
    }

    /// Whose message this is; its bytes must be what was sent, to the last.
    fn subject(
        &self,
        attempt: &link::send::Attempt,
        body: &[u8],
        index: u32,
    ) -> Result<Subject, String> {
        let (message, prefix) = (attempt.message, attempt.body.prefix_bytes as usize);
        if let Some(of) = self.sent_as(attempt) {
            let sent = &self.ledger.sent[&of];
            if body.get(prefix..) != Some(&sent.body[..]) {
                return Err(format!("{message} is delivered, and is not what was sent"));
            }
            return Ok(Subject::Recipient(of, index));
        }
        let about = notice_about(body);
        if about.is_empty() || prefix != 0 {
            return Err(format!("{message} is delivered and was never sent"));
        }
        Ok(Subject::Notice(message, about))
    }

    /// The client's message, told by its recipients.
    fn sent_as(&self, attempt: &link::send::Attempt) -> Option<TransactionId> {
        let text = attempt.recipients.first()?.1.address.to_string();
        let number = text.strip_prefix('r')?.split_once('-')?.1.split_once('@')?.0.parse().ok()?;
        self.ledger.numbered(number).map(|(of, _)| of)
    }

    /// Each recipient has a temper of its own.
    fn say(&self, subject: &Subject) -> Say {
        let Subject::Recipient(of, index) = subject else { return Say::Take };
        let recipient = &self.ledger.sent[of].recipients[*index as usize];
        if recipient.refused {
            return Say::Refuse;
        }
        if self.ledger.numbered(LONG_LIVED).is_some_and(|(long, _)| long == *of) && !self.takes_all
        {
            return Say::PutOff;
        }
        match (of.number * 5 + u64::from(*index) * 3) % 8 {
            _ if recipient.delivered > 0 || self.takes_all => Say::Take,
            1 | 4 if recipient.deferred < 1 => Say::PutOff,
            7 if recipient.deferred < 2 => Say::PutOff,
            2 | 4 | 5 => Say::Refuse,
            _ => Say::Take,
        }
    }

    /// Nothing is under way and nothing waits for an answer.
    pub fn is_idle(&self) -> bool {
        let idle = self.under_way.is_empty() && self.trying.is_empty();
        idle && self.done.is_none() && self.unrecorded.is_empty()
    }

    /// Messages in the queue.
    pub fn messages(&self) -> u64 {
        self.queue.summary(self.clock.now()).messages
    }

    /// The figures of this incarnation.
    pub fn usage(&self) -> spool::Usage {
        self.queue.usage()
    }

    /// Time goes on to the next thing that waits for it.
    pub fn wait(&mut self) -> bool {
        let Some(at) = self.queue.next_wakeup() else { return false };
        let wait = at.since(self.clock.now().monotonic) + Duration::from_micros(1);
        self.clock.advance(wait);
        true
    }
}

fn fetch(sender: &mut SenderEnd, trying: &Trying) {
    let link::send::Attempt { id: attempt, message, .. } = *trying.attempt;
    sender.fetch(attempt, message, trying.body.len() as u64, CHUNK_BYTES_MAX);
}

fn outcome(say: &Say) -> Outcome {
    let report = |code: u16, enhanced, text: &str| Report {
        stage: Stage::End,
        reply: Reply::new(code, enhanced, text),
        peer: "hop.test[192.0.2.1]:25".into(),
        from_peer: true,
    };
    match say {
        Say::Take => {
            Outcome::Delivered { report: report(250, Enhanced(2, 0, 0), "taken"), relayed: false }
        }
        Say::PutOff => Outcome::Deferred(report(451, Enhanced(4, 2, 1), "later")),
        Say::Refuse => Outcome::Failed(report(550, Enhanced(5, 1, 1), "no such user")),
    }
}
