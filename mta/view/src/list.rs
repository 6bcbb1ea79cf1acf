//! Lists of messages: the filter that selects messages, and the pages of rows that a list consists of.
//!
//! Must never hold more of a message's recipients than `RECIPIENTS_SHOWN_MAX`.

use mail::{MessageId, NextHop, Report, Timestamp};
use serde::{Deserialize, Serialize};

/// Maximum number of recipients in a row.
pub const RECIPIENTS_SHOWN_MAX: usize = 20;

/// Conditions that a message must meet, all of them. An empty filter selects every message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Queue ids; an empty list does not restrict the selection.
    pub ids: Vec<MessageId>,
    /// Pattern for a recipient's domain or for the text of a next hop.
    pub destination: Option<String>,
    /// Pattern for the MAIL FROM address; an empty pattern selects the null sender.
    pub sender: Option<String>,
    /// Pattern for the address of an unfinished recipient.
    pub recipient: Option<String>,
    /// Minimum age in seconds.
    pub older_seconds: Option<u64>,
    /// State of the message.
    pub state: Option<State>,
}

impl Filter {
    /// Returns true if the filter selects every message.
    pub fn is_all(&self) -> bool {
        *self == Filter::default()
    }
}

/// State of a message as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// At least one recipient is in flight or ready for an attempt.
    Active,
    /// All recipients wait for the retry schedule.
    Deferred,
    /// The message is held.
    Held,
}

/// Some of the messages that a filter selects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListPage {
    /// Messages in the order of their ids.
    pub rows: Vec<Row>,
    /// Id after which the next page continues; `None` on the last page. An empty page may have a next page, because
    /// one call looks at a bounded number of messages.
    pub next: Option<MessageId>,
}

/// One message of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Queue id of the message.
    pub message: MessageId,
    /// Address given to MAIL FROM; empty for the null sender.
    pub sender: String,
    /// Time at which the message arrived.
    pub arrived: Timestamp,
    /// Size in bytes. Sizes of 4 GiB and more are shown as 4 GiB.
    pub bytes: u64,
    /// Priority from -100 (last) to 100 (first).
    pub priority: i8,
    /// State of the message as a whole.
    pub state: State,
    /// Number of unfinished recipients.
    pub recipients: u32,
    /// The first unfinished recipients, up to `RECIPIENTS_SHOWN_MAX`.
    pub waiting: Vec<RowRecipient>,
}

impl Row {
    /// Returns the memory that the row takes in a page, including its texts.
    pub fn bytes_shown(&self) -> usize {
        let recipient = |one: &RowRecipient| {
            let last = one.last.as_ref().map_or(0, |last| last.peer.len() + last.reply.text.len());
            size_of::<RowRecipient>() + one.address.len() + last
        };
        size_of::<Row>() + self.sender.len() + self.waiting.iter().map(recipient).sum::<usize>()
    }
}

/// One recipient of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowRecipient {
    /// Index in the envelope.
    pub recipient: u32,
    /// Address given to RCPT TO.
    pub address: String,
    /// Next hop of the recipient's mail.
    pub hop: NextHop,
    /// Last reply in full.
    pub last: Option<Report>,
    /// Time for which the retry schedule has the next attempt, if the recipient waits for the schedule.
    pub due: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_passes_every_message_only_if_nothing_is_in_it() {
        let text = || Some(String::new());
        let filters = [
            Filter { ids: vec![MessageId(1)], ..Filter::default() },
            Filter { destination: text(), ..Filter::default() },
            Filter { sender: text(), ..Filter::default() },
            Filter { recipient: text(), ..Filter::default() },
            Filter { older_seconds: Some(0), ..Filter::default() },
            Filter { state: Some(State::Held), ..Filter::default() },
        ];
        assert!(Filter::default().is_all() && !filters.iter().any(Filter::is_all));
    }
}
