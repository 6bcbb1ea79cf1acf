//! The client's end of one SMTP or LMTP connection: its state, its inputs and outputs, and which
//! command each reply answers.
//!
//! Must never report a recipient as delivered without the peer's own 2yz after the last byte.

use super::body::BodyOut;
use super::delivery::Delivery;
use super::ending::own;
use super::message::OutboundMessage;
use super::offers::Offers;
use super::replies::{Garbage, ReplyReader};
use super::scan::{Scan, ScanPart};
use super::settings::{Dialect, Settings};
use bytes::Bytes;
use mail::{Enhanced, Instant, Now, Outcome, Reply};
use std::collections::VecDeque;
use std::sync::Arc;

/// While more bytes than this wait to be written, nothing more of a body is framed.
pub(super) const UNWRITTEN_BYTES_MAX: usize = 512 * 1024;

/// What the driver tells the session.
#[derive(Debug)]
pub enum Input<'a> {
    /// Bytes from the peer.
    Received(&'a [u8]),
    /// The peer has closed, or the connection broke.
    Lost,
    /// The next message. Allowed before the greeting and while `can_send` is true.
    Send(Box<OutboundMessage>),
    /// The bytes that `Output::NeedBody` asked for.
    Body(Bytes),
    /// The bytes that `Output::NeedBody` asked for cannot be read.
    BodyFailed,
    /// The time of `next_wakeup` has come.
    Tick,
    /// There are no more messages: QUIT ends the connection.
    Quit,
}

/// What the driver has to do, besides writing what `transmit` returns.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Bring these bytes of the message with `Input::Body`.
    NeedBody {
        /// Where they begin in the message.
        offset: u64,
        /// How many bytes to bring.
        bytes: u32,
    },
    /// The message has ended.
    Done {
        /// The message.
        message: Box<OutboundMessage>,
        /// The outcomes, in the order of its recipients.
        outcomes: Vec<Outcome>,
    },
    /// The peer closed a connection that was used before, and had answered nothing of this message.
    /// The message has not failed: the driver gives it to a new connection at once.
    Unsent(Box<OutboundMessage>),
    /// Write what `transmit` returns, then close the connection.
    Close,
}

/// The command or the data that a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Await {
    Greeting,
    /// EHLO or LHLO.
    Ehlo,
    Helo,
    Rset,
    Mail,
    /// The recipient at this place in the message.
    Rcpt(usize),
    Data,
    /// The last byte, for all accepted recipients.
    End,
    /// The last byte, for the recipient at this place (RFC 2033 4.2).
    EndOf(usize),
}

/// The state of the session, named by what it expects.
#[derive(Debug)]
pub(super) enum State {
    /// The greeting, or the answer to EHLO, LHLO or HELO.
    ExpectHello,
    /// The next message.
    Idle,
    /// Bytes of the message, which are searched for 8-bit octets before MAIL. `offset` is where
    /// the next bytes begin.
    ExpectScan { scan: Scan, offset: u64, part: ScanPart },
    /// Replies to commands or to the end of the data.
    ExpectReplies,
    /// Bytes of the message, which are sent.
    ExpectBody(BodyOut),
    /// Nothing: the session is over.
    Closed,
}

/// What the peer may still have of a transaction that has ended here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerTransaction {
    /// Nothing: MAIL may follow.
    None,
    /// Its sender, and perhaps recipients: RSET comes first.
    Half,
}

/// The client's end of one connection.
#[derive(Debug)]
pub struct Session {
    pub(super) settings: Arc<Settings>,
    pub(super) dialect: Dialect,
    /// `host[address]:port` for reports.
    pub(super) peer: Box<str>,
    pub(super) state: State,
    pub(super) awaited: VecDeque<Await>,
    pub(super) reader: ReplyReader,
    pub(super) offers: Offers,
    pub(super) delivery: Option<Delivery>,
    /// Transactions that were begun.
    pub(super) mails: u32,
    /// Messages that have ended on this connection.
    pub(super) messages_ended: u32,
    pub(super) peer_transaction: PeerTransaction,
    pub(super) out: Vec<u8>,
    pub(super) written: usize,
    pub(super) outputs: VecDeque<Output>,
    /// When the session began to wait for the first of `awaited`.
    pub(super) since: Instant,
}

impl Session {
    /// Starts a session on a connection that was just opened. `peer` names it in reports.
    pub fn new(
        settings: Arc<Settings>,
        dialect: Dialect,
        peer: impl Into<Box<str>>,
        now: Now,
    ) -> Self {
        Session {
            settings,
            dialect,
            peer: peer.into(),
            state: State::ExpectHello,
            awaited: VecDeque::from([Await::Greeting]),
            reader: ReplyReader::default(),
            offers: Offers::default(),
            delivery: None,
            mails: 0,
            messages_ended: 0,
            peer_transaction: PeerTransaction::None,
            out: Vec::new(),
            written: 0,
            outputs: VecDeque::new(),
            since: now.monotonic,
        }
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Now) {
        if let State::Closed = self.state {
            return self.refuse(input);
        }
        match input {
            Input::Received(bytes) => self.receive(bytes, now),
            Input::Lost => {
                self.lose(own(Enhanced(4, 4, 2), "the connection was closed by the peer"))
            }
            Input::Send(message) => self.send(message, now),
            Input::Body(bytes) => self.body(&bytes, now),
            Input::BodyFailed => self.lose(own(Enhanced(4, 3, 0), "the message could not be read")),
            Input::Tick => self.tick(now),
            Input::Quit => self.quit(),
        }
    }

    /// Returns what the driver has to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When the driver has to say `Input::Tick`. `None` while no reply is awaited.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let patience = self.patience()?;
        let due = self.since + patience;
        let total = self.delivery.as_ref().map(|d| d.started + self.settings.timeouts.total);
        Some(total.map_or(due, |total| due.min(total)))
    }

    /// Returns the bytes to write to the peer.
    pub fn transmit(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// Records that this many bytes of `transmit` have been written.
    pub fn transmitted(&mut self, bytes: usize, now: Now) {
        self.written = (self.written + bytes).min(self.out.len());
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        if matches!(self.state, State::ExpectBody(_)) {
            self.since = now.monotonic;
            self.pump(now);
        } else if matches!(self.awaited.front(), Some(Await::End | Await::EndOf(_))) {
            self.since = now.monotonic;
        }
    }

    /// True if the next message may be given.
    pub fn can_send(&self) -> bool {
        let spent = self.offers.mail_max.is_some_and(|max| self.mails >= max);
        matches!(self.state, State::Idle) && !self.reader.is_amid() && !spent
    }

    /// True if the peer has greeted and no message is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// True if the session is over.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// The number of transactions that were begun on this connection.
    pub fn mails(&self) -> u32 {
        self.mails
    }

    /// The extensions that the peer offers.
    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// The name of the peer, as it was given.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

/// Replies.
impl Session {
    fn receive(&mut self, mut bytes: &[u8], now: Now) {
        while !bytes.is_empty() && !self.is_closed() {
            match self.reader.take(bytes) {
                Err(garbage) => return self.garbage(garbage),
                Ok((_, None)) => return,
                Ok((taken, Some(reply))) => {
                    bytes = &bytes[taken..];
                    self.since = now.monotonic;
                    self.answer(reply, now);
                }
            }
        }
    }

    fn answer(&mut self, reply: Reply, now: Now) {
        let Some(awaited) = self.awaited.front().copied() else {
            // The peer may close with 421 at any time (RFC 5321 3.8). Any other reply that nothing
            // asked for breaks the protocol.
            return match reply.code {
                421 => self.lose((reply, true)),
                _ => self.garbage(Garbage::Unasked),
            };
        };
        if reply.code == 421 {
            return self.lose((reply, true));
        }
        if let Some(delivery) = &mut self.delivery {
            delivery.answered |=
                !matches!(self.state, State::ExpectHello) && awaited != Await::Rset;
        }
        let at_end = matches!(awaited, Await::End | Await::EndOf(_));
        let early = at_end && matches!(self.state, State::ExpectBody(_));
        self.awaited.pop_front();
        if early && reply.code / 100 < 4 {
            return self.unfit(awaited, &reply);
        }
        match awaited {
            Await::Greeting | Await::Ehlo | Await::Helo => self.greeted(awaited, reply, now),
            Await::Rset => self.rset_answered(&reply),
            Await::Mail => self.mail_answered(reply),
            Await::Rcpt(place) => self.rcpt_answered(place, reply),
            Await::Data => self.data_answered(reply, now),
            Await::End => self.end_answered(reply),
            Await::EndOf(place) => self.end_of_answered(place, reply),
        }
        if early {
            // The peer refused the body before its end. RFC 5321 3.3 does not allow this, but some
            // peers do it. The connection cannot be used further, and recipients without an answer
            // are tried again.
            self.lose(own(Enhanced(4, 4, 2), "the peer answered before the end of the data"));
        }
        self.advance(now);
    }
}
