//! What an operator's command line asks the queue process, and what it answers.
//!
//! Must never trust a length before its bound, and never carry a byte of a message's body.
//!
//! One frame a request, one frame an answer, in turn, over a Unix socket whose permissions decide
//! who may ask. The version stands first, so that another build is told apart from garbage:
//!
//! ```text
//! +----------------+--------------+-----------------------------+
//! | length, u32 LE | version      | Request or Answer, postcard |
//! +----------------+--------------+-----------------------------+
//! ```
//!
//! No answer is unbounded: lists come in pages, and an action over many messages is a series of
//! calls, each of which says where to go on.

use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::{Envelope, MessageId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
pub use view::{
    DestinationSummary, Explanation, Filter, Gate, HeldBy, Order, Page, Row, RowRecipient, State,
    Summary, Waiting,
};

/// Counts up with each change of these types.
pub const ADMIN_VERSION: u16 = 4;
/// Longest request in bytes: `IDS_MAX` queue ids and some text.
pub const REQUEST_BYTES_MAX: usize = 256 << 10;
/// Longest answer in bytes: a page of long rows, or the envelope of 50,000 recipients.
pub const ANSWER_BYTES_MAX: usize = frame::FRAME_BYTES_MAX;
/// Queue ids in one filter.
pub const IDS_MAX: usize = 10_000;
/// Rows in one page.
pub const ROWS_MAX: u32 = 1_000;
/// Recipients in one page of an explanation.
pub const EXPLAINED_MAX: u32 = 1_000;
/// Bytes of a message's headers in `Shown`.
pub const HEADERS_BYTES_MAX: usize = 64 << 10;

/// What the command line asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The queue in a few numbers; answered by `Summary`.
    Summary,
    /// Messages after `after`, in the order of their ids; answered by `Page`.
    List {
        /// Which.
        filter: Filter,
        /// Where the page before this one ended.
        after: Option<MessageId>,
        /// At most so many; more than `ROWS_MAX` counts as that.
        rows_max: u32,
    },
    /// One message's envelope and headers; answered by `Shown`.
    Show(MessageId),
    /// Why a message is where it is; answered by `Explanation`.
    Explain {
        /// Which.
        message: MessageId,
        /// The first recipient of the page, by index.
        recipient_first: u32,
    },
    /// Do something with the messages that pass a filter; answered by `Acted`.
    Act {
        /// What.
        action: Action,
        /// With which.
        filter: Filter,
        /// Where the call before this one ended.
        after: Option<MessageId>,
        /// Only count.
        dry_run: bool,
    },
    /// Read and sort the whole queue and start it in this order; answered by `Ran`.
    Run {
        /// Order in which the messages are tried.
        order: Order,
    },
    /// The processes and their counters; answered by `Status`.
    Status,
}

/// What can be done with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Not to be tried until released.
    Hold,
    /// Let go again.
    Release,
    /// Try deferred mail now; a hold stays.
    Retry,
    /// Remove without notice to anybody.
    Delete,
    /// -100 (last) to 100 (first).
    Priority(i8),
}

/// What the queue process answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Summary`.
    Summary(Summary),
    /// To `List`.
    Page(Page),
    /// To `Show`.
    Shown(Box<Shown>),
    /// To `Explain`.
    Explanation(Box<Explanation>),
    /// To `Act`.
    Acted(Acted),
    /// To `Run`.
    Ran(Ran),
    /// To `Status`.
    Status(Status),
    /// To anything about a message that is not in the queue.
    Unknown(MessageId),
    /// It could not be done, and why, for people.
    Refused(String),
}

/// A message's envelope and headers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Which.
    pub message: MessageId,
    /// Its size.
    pub bytes: u64,
    /// All of it.
    pub envelope: Envelope,
    /// The headers we added and those it came with, at most `HEADERS_BYTES_MAX`.
    pub headers: Vec<u8>,
}

/// What an action did, or in a dry run would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// Messages in this call.
    pub messages: u64,
    /// Their recipients that were not done.
    pub recipients: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Where to go on; `None`: that was the end.
    pub next: Option<MessageId>,
}

/// A run over the whole queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Messages in the queue.
    pub messages: u64,
    /// Time to read the index, in microseconds.
    pub read_micros: u64,
    /// Time to sort it, in microseconds.
    pub sort_micros: u64,
    /// Time to put it in line in that order, in microseconds.
    pub begin_micros: u64,
}

/// The processes and their counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// What is not as it should be, a sentence each; none is well.
    pub troubles: Vec<String>,
    /// One line each.
    pub processes: Vec<Process>,
    /// Queue's streams to the other processes, one line each.
    pub streams: Vec<Stream>,
}

/// The stream between queue and one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// `receive`, `send` or `local`.
    pub role: String,
    /// The process's number among those of its role.
    pub number: u32,
    /// Whether there is one now.
    pub up: bool,
    /// How often it was begun again, the process having gone on.
    pub renewals: u32,
    /// Why it was lost the last time; empty if it never was.
    pub loss: String,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// `master`, `queue`, `receive`...
    pub role: String,
    /// Its number among those of its role.
    pub number: u32,
    /// Its process id.
    pub pid: u32,
    /// How long it has been up.
    pub uptime_seconds: u64,
    /// How often it was started again.
    pub restarts: u32,
    /// Name and value, such as `accepted` and 17.
    pub counters: Vec<(String, u64)>,
}

/// Makes the frame of a request or an answer.
pub fn encode<T: Serialize>(item: &T) -> Result<Bytes, LinkError> {
    let body = postcard::to_stdvec(item).map_err(|_| LinkError::Garbage)?;
    if body.len() + VERSION_BYTES_MAX > ANSWER_BYTES_MAX {
        return Err(LinkError::FrameTooLong);
    }
    frame::encode(&ADMIN_VERSION, &body)
}

/// Takes the next request; `None` until it is whole.
pub fn decode_request(input: &mut BytesMut) -> Result<Option<Request>, LinkError> {
    let request = decode(input, REQUEST_BYTES_MAX)?;
    match &request {
        Some(Request::List { filter, .. } | Request::Act { filter, .. })
            if filter.ids.len() > IDS_MAX =>
        {
            Err(LinkError::NotAccepted)
        }
        _ => Ok(request),
    }
}

/// Takes the next answer; `None` until it is whole.
pub fn decode_answer(input: &mut BytesMut) -> Result<Option<Answer>, LinkError> {
    decode(input, ANSWER_BYTES_MAX)
}

fn decode<T: DeserializeOwned>(
    input: &mut BytesMut,
    bytes_max: usize,
) -> Result<Option<T>, LinkError> {
    let length = input.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    if length > bytes_max {
        return Err(LinkError::FrameTooLong);
    }
    let Some((version, body)) = frame::decode::<u16>(input)? else { return Ok(None) };
    if version != ADMIN_VERSION {
        return Err(LinkError::WrongBuild);
    }
    match postcard::take_from_bytes(&body) {
        Ok((item, [])) => Ok(Some(item)),
        _ => Err(LinkError::Garbage),
    }
}

/// A `u16` in postcard.
const VERSION_BYTES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Enhanced, NextHop, Reply, Report, Stage, Wall};
    use proptest::prelude::*;

    fn any_filter() -> impl Strategy<Value = Filter> {
        let text = || proptest::option::of(any::<String>());
        let ids = proptest::collection::vec(any::<u64>().prop_map(MessageId), 0..20);
        (ids, text(), text(), text(), any::<Option<u64>>()).prop_map(
            |(ids, destination, sender, recipient, older_seconds)| Filter {
                ids,
                destination,
                sender,
                recipient,
                older_seconds,
                state: Some(State::Held),
            },
        )
    }

    fn any_request() -> impl Strategy<Value = Request> {
        let after = || any::<Option<u64>>().prop_map(|id| id.map(MessageId));
        prop_oneof![
            Just(Request::Summary),
            Just(Request::Status),
            any::<u64>().prop_map(|id| Request::Show(MessageId(id))),
            proptest::sample::select(view::ORDERS.to_vec())
                .prop_map(|(_, order)| Request::Run { order }),
            (any_filter(), after(), any::<u32>())
                .prop_map(|(filter, after, rows_max)| Request::List { filter, after, rows_max }),
            (any_filter(), after(), any::<bool>(), any::<i8>()).prop_map(
                |(filter, after, dry_run, priority)| Request::Act {
                    action: Action::Priority(priority),
                    filter,
                    after,
                    dry_run,
                }
            ),
        ]
    }

    fn explanation(address: String, text: String) -> Answer {
        let report = Report {
            stage: Stage::Rcpt,
            reply: Reply::new(450, Enhanced(4, 2, 1), text),
            peer: "mx.dest.example[192.0.2.1]:25".into(),
            from_peer: true,
        };
        Answer::Explanation(Box::new(Explanation {
            message: MessageId(7),
            sender: String::new(),
            arrived: Wall::from_micros(1),
            bytes: 4096,
            priority: 0,
            held: None,
            expires: Some(Wall::from_micros(-1)),
            recipients: vec![Waiting {
                recipient: 0,
                address,
                hop: NextHop::Local,
                gate: Gate::DestinationBackoff {
                    until: Wall::from_micros(3),
                    failures: 2,
                    last: Some(report.clone()),
                },
                since: Wall::from_micros(2),
                attempts: 3,
                last: Some(report),
                next_try: None,
            }],
            recipient_next: None,
        }))
    }

    proptest! {
        #[test]
        fn requests_and_answers_come_back_as_they_went_however_the_stream_is_cut(
            requests in proptest::collection::vec(any_request(), 1..5),
            text in any::<String>(),
            cut in 1usize..40,
        ) {
            let stream: Vec<u8> =
                requests.iter().flat_map(|request| encode(request).unwrap().to_vec()).collect();
            let (mut input, mut seen) = (BytesMut::new(), Vec::new());
            for piece in stream.chunks(cut) {
                input.extend_from_slice(piece);
                while let Some(request) = decode_request(&mut input).unwrap() {
                    seen.push(request);
                }
            }
            prop_assert_eq!(seen, requests);
            let answer = explanation(text.clone(), text);
            let mut input = BytesMut::from(&encode(&answer).unwrap()[..]);
            prop_assert_eq!(decode_answer(&mut input).unwrap(), Some(answer));
        }

        #[test]
        fn garbage_is_an_error_or_waits_for_more_but_never_panics(
            junk in proptest::collection::vec(any::<u8>(), 0..300),
            framed in any::<bool>(),
        ) {
            let bytes = if framed { frame::encode(&ADMIN_VERSION, &junk).unwrap().to_vec() } else { junk };
            let mut input = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = decode_request(&mut input) {}
            prop_assert!(input.capacity() <= REQUEST_BYTES_MAX + 8);
            let mut input = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = decode_answer(&mut input) {}
        }
    }

    #[test]
    fn the_longest_answer_is_taken_and_a_longer_one_is_not_made() {
        let text = "x".repeat(ANSWER_BYTES_MAX);
        let head = postcard::to_stdvec(&Answer::Refused(text.clone())).unwrap().len() - text.len();
        let longest = ANSWER_BYTES_MAX - VERSION_BYTES_MAX - head;
        let answer = Answer::Refused(text[..longest].to_owned());
        let mut input = BytesMut::from(&encode(&answer).unwrap()[..]);
        assert!(decode_answer(&mut input) == Ok(Some(answer)));
        let longer = Answer::Refused(text[..longest + 1].to_owned());
        assert_eq!(encode(&longer), Err(LinkError::FrameTooLong));
    }

    #[test]
    fn another_version_is_told_apart_from_garbage() {
        let mut input =
            BytesMut::from(&frame::encode(&(ADMIN_VERSION + 1), b"\xff\xff").unwrap()[..]);
        assert_eq!(decode_request(&mut input), Err(LinkError::WrongBuild));
        let mut input = BytesMut::from(&frame::encode(&ADMIN_VERSION, b"\xff\xff").unwrap()[..]);
        assert_eq!(decode_request(&mut input), Err(LinkError::Garbage));
    }

    #[test]
    fn a_request_over_its_bound_is_refused_before_it_has_arrived() {
        let length = REQUEST_BYTES_MAX as u32 + 1;
        let mut input = BytesMut::from(&length.to_le_bytes()[..]);
        assert_eq!(decode_request(&mut input), Err(LinkError::FrameTooLong));
        assert_eq!(decode_answer(&mut input), Ok(None));
        let filter = Filter { ids: vec![MessageId(0); IDS_MAX + 1], ..Filter::default() };
        let request = Request::List { filter, after: None, rows_max: 1 };
        let mut input = BytesMut::from(&encode(&request).unwrap()[..]);
        assert_eq!(decode_request(&mut input), Err(LinkError::NotAccepted));
    }
}
