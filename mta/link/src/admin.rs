//! Requests of the command line to the queue process, and their answers.
//!
//! Must never trust a length before it is compared with its bound, or carry a byte of a message's body.
//!
//! Each request is one frame, and so is its answer. They go over a Unix socket whose permissions decide who may ask. The
//! version comes first, so that another build is told apart from garbage:
//!
//! ```text
//! +----------------+--------------+-----------------------------+
//! | length, u32 LE | version      | Request or Answer, postcard |
//! +----------------+--------------+-----------------------------+
//! ```
//!
//! Every answer is bounded: lists come in pages, and an action on many messages is a series of calls, each of which says
//! where the next one continues.

use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::{Envelope, MessageId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
pub use view::{
    DestinationSummary, Explanation, Filter, Gate, HeldBy, ListPage, Order, Row, RowRecipient,
    State, Summary, WaitingRecipient,
};

/// Version of these types; incremented with each change, and with each change of the types in `view`.
pub const ADMIN_VERSION: u16 = 4;
/// Longest request in bytes: `IDS_MAX` queue ids and some text.
pub const REQUEST_BYTES_MAX: usize = 256 << 10;
/// Longest answer in bytes: a page of long rows, or the envelope of 50,000 recipients.
pub const ANSWER_BYTES_MAX: usize = frame::FRAME_BYTES_MAX;
/// Maximum number of queue ids in one filter.
pub const IDS_MAX: usize = 10_000;
/// Maximum number of rows in one page.
pub const ROWS_MAX: u32 = 1_000;
/// Maximum number of recipients in one page of an explanation.
pub const EXPLAINED_MAX: u32 = 1_000;
/// Longest header section in `Shown`, in bytes.
pub const HEADERS_BYTES_MAX: usize = 64 << 10;

/// Request of the command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for the queue in a few numbers; answered by `Summary`.
    Summary,
    /// Asks for messages in the order of their ids; answered by `Page`.
    List {
        /// Selects the messages.
        filter: Filter,
        /// Id after which the page begins: the `next` of the page before.
        after: Option<MessageId>,
        /// Maximum number of rows; a larger number than `ROWS_MAX` counts as `ROWS_MAX`.
        rows_max: u32,
    },
    /// Asks for the envelope and headers of a message; answered by `Shown`.
    Show(MessageId),
    /// Asks what the recipients of a message wait for; answered by `Explanation`.
    Explain {
        /// Queue id of the message.
        message: MessageId,
        /// Index of the first recipient of the page.
        recipient_first: u32,
    },
    /// Applies an action to the messages that a filter selects; answered by `Acted`.
    Act {
        /// The action.
        action: Action,
        /// Selects the messages.
        filter: Filter,
        /// Id after which the call begins: the `next` of the call before.
        after: Option<MessageId>,
        /// Only counts the messages.
        dry_run: bool,
    },
    /// Reads and sorts the whole queue and starts it in this order; answered by `Ran`.
    Run {
        /// Order in which the messages are tried.
        order: Order,
    },
    /// Asks for the processes and their counters; answered by `Status`.
    Status,
}

/// Action on messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Keeps a message from being tried until it is released.
    Hold,
    /// Releases a held message.
    Release,
    /// Lets deferred mail be tried now; does not release a hold.
    Retry,
    /// Deletes a message without a notice to anybody.
    Delete,
    /// Sets the priority, from -100 (last) to 100 (first).
    Priority(i8),
}

/// Answer of the queue process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Answers `Summary`.
    Summary(Summary),
    /// Answers `List`.
    Page(ListPage),
    /// Answers `Show`.
    Shown(Box<Shown>),
    /// Answers `Explain`.
    Explanation(Box<Explanation>),
    /// Answers `Act`.
    Acted(Acted),
    /// Answers `Run`.
    Ran(Ran),
    /// Answers `Status`.
    Status(Status),
    /// Answers any request about a message that is not in the queue.
    Unknown(MessageId),
    /// Refuses a request, with the reason for people.
    Refused(String),
}

/// Envelope and headers of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Queue id of the message.
    pub message: MessageId,
    /// Size in bytes.
    pub bytes: u64,
    /// The whole envelope.
    pub envelope: Envelope,
    /// Headers, including those that we added, up to `HEADERS_BYTES_MAX`.
    pub headers: Vec<u8>,
}

/// Result of an action, or of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// Number of messages in this call.
    pub messages: u64,
    /// Number of their unfinished recipients.
    pub recipients: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// Id after which the next call continues; `None` at the end.
    pub next: Option<MessageId>,
}

/// Result of a run over the whole queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Number of groups of recipients that were read.
    pub messages: u64,
    /// Time for reading the queue, in microseconds.
    pub read_micros: u64,
    /// Time for sorting, in microseconds.
    pub sort_micros: u64,
    /// Time for making all of it ready in that order, in microseconds.
    pub begin_micros: u64,
}

/// Processes and their counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Troubles, one sentence each; empty if all is well.
    pub troubles: Vec<String>,
    /// The processes, one line each.
    pub processes: Vec<Process>,
    /// Streams between queue and the other processes, one line each.
    pub streams: Vec<StreamStatus>,
}

/// Stream between queue and another process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamStatus {
    /// `receive`, `send` or `local`.
    pub role: String,
    /// Number of the process among those of its role.
    pub number: u32,
    /// True if the stream is up.
    pub up: bool,
    /// Number of times the stream was replaced while the process went on.
    pub renewals: u32,
    /// Reason of the last loss; empty if the stream was never lost.
    pub loss: String,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Name of its role.
    pub role: String,
    /// Number among the processes of its role.
    pub number: u32,
    /// Process id.
    pub pid: u32,
    /// Time since its start, in seconds.
    pub uptime_seconds: u64,
    /// Number of restarts.
    pub restarts: u32,
    /// Counters by name, such as `accepted` and 17.
    pub counters: Vec<(String, u64)>,
}

/// Encodes a request or an answer as a frame.
pub fn encode<T: Serialize>(item: &T) -> Result<Bytes, LinkError> {
    let body = postcard::to_stdvec(item).map_err(|_| LinkError::Garbage)?;
    if body.len() + VERSION_BYTES_MAX > ANSWER_BYTES_MAX {
        return Err(LinkError::FrameTooLong);
    }
    frame::encode(&ADMIN_VERSION, &body)
}

/// Takes the next request from the input; `None` until it is complete.
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

/// Takes the next answer from the input; `None` until it is complete.
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

/// Longest `u16` in postcard.
const VERSION_BYTES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Enhanced, NextHop, Reply, Report, Stage, Timestamp};
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
            arrived: Timestamp::from_micros(1),
            bytes: 4096,
            priority: 0,
            held: None,
            expires: Some(Timestamp::from_micros(-1)),
            recipients: vec![WaitingRecipient {
                recipient: 0,
                address,
                hop: NextHop::Local,
                gate: Gate::DestinationBackoff {
                    until: Timestamp::from_micros(3),
                    failures: 2,
                    last: Some(report.clone()),
                },
                since: Timestamp::from_micros(2),
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
