//! Requests of operators, as the command line sends them.
//!
//! Must never show a byte of a message's body.

use crate::message_cache::CachedMessage;
use crate::reads::ReadFor;
use crate::record::AnswerTo;
use crate::{Output, Queue};
use link::admin::{self, Acted, Action, Answer, Filter};
use mail::{MessageId, Now};
use scheduler::{Candidates, Order, PAGE_BYTES_MAX};

/// Upper bound on the messages of one action's call, so that it does not hold up the loop of the process.
const ACTED_MAX: usize = 2_000;

// The last row of a page may go beyond the bound of the page. The longest row has recipients with the longest addresses and
// replies of 8 KiB.
const ROW_BYTES_MAX: usize = 2_048 + scheduler::RECIPIENTS_SHOWN_MAX * (8 << 10 | 2_048);
const _: () = assert!(PAGE_BYTES_MAX + ROW_BYTES_MAX < admin::ANSWER_BYTES_MAX);
// A recipient of an explanation takes as much.
const _: () = assert!(admin::EXPLAINED_MAX as usize * (8 << 10 | 2_048) < admin::ANSWER_BYTES_MAX);

impl Queue {
    /// Answers `queue summary`.
    pub fn admin_summary(&self, now: Now) -> Answer {
        Answer::Summary(self.summary(now))
    }

    /// Answers `queue list`.
    pub fn admin_list(
        &self,
        filter: &Filter,
        after: Option<MessageId>,
        rows_max: u32,
        now: Now,
    ) -> Answer {
        let rows_max = rows_max.clamp(1, admin::ROWS_MAX) as usize;
        Answer::Page(self.scheduler.list(filter, after, rows_max, now))
    }

    /// Answers `queue explain` with a page of recipients that begins with index `first`.
    pub fn admin_explain(&self, message: MessageId, first: u32, now: Now) -> Answer {
        let max = admin::EXPLAINED_MAX as usize;
        match self.scheduler.explain_from(message, first, max, now) {
            Some(explanation) => Answer::Explanation(explanation.into()),
            None => Answer::Unknown(message),
        }
    }

    /// Begins to answer `queue show`. The answer is an output with this number, made when the message has been read.
    pub fn admin_show(&mut self, question: u64, message: MessageId, now: Now) {
        self.read(message, ReadFor::Show { question }, now);
    }

    pub(crate) fn shown(
        &mut self,
        question: u64,
        message: MessageId,
        cached: &CachedMessage,
        content: &[u8],
    ) {
        let end = header_end(content).min(admin::HEADERS_BYTES_MAX);
        let shown = admin::Shown {
            message,
            bytes: cached.bytes,
            envelope: (*cached.envelope).clone(),
            headers: content[..end].to_vec(),
        };
        self.output.push_back(Output::Answer(question, Answer::Shown(Box::new(shown))));
    }

    pub(crate) fn not_shown(&mut self, question: u64, message: MessageId, text: &str) {
        let answer = match self.scheduler.contains(message) {
            true => Answer::Refused(format!("message {message} cannot be read: {text}")),
            false => Answer::Unknown(message),
        };
        self.output.push_back(Output::Answer(question, answer));
    }

    /// Applies an action to some of the messages that a filter selects. The answer is an output with this number, made when the
    /// changes would survive a power cut.
    pub fn admin_act(
        &mut self,
        question: u64,
        action: Action,
        filter: &Filter,
        after: Option<MessageId>,
        dry_run: bool,
        now: Now,
    ) {
        let page = self.scheduler.list(filter, after, ACTED_MAX, now);
        let mut acted = Acted { next: page.next, ..Acted::default() };
        let mut messages = Vec::new();
        for row in page.rows {
            if dry_run || self.act(action, row.message, now) {
                acted.messages += 1;
                acted.recipients += u64::from(row.recipients);
                acted.bytes += row.bytes;
                messages.push(row.message);
            }
        }
        let answer = Answer::Acted(acted);
        if dry_run || messages.is_empty() {
            self.output.push_back(Output::Answer(question, answer));
        } else {
            self.records.expect(AnswerTo::Operator(question, answer.into()), &messages);
        }
    }

    fn act(&mut self, action: Action, message: MessageId, now: Now) -> bool {
        match action {
            Action::Hold => self.scheduler.hold(message, now),
            Action::Release => self.scheduler.release(message, now),
            Action::Retry => self.scheduler.retry_now(message, now),
            Action::Delete => self.scheduler.delete(message, now),
            Action::Priority(priority) => self.scheduler.set_priority(message, priority, now),
        }
    }

    /// Reads the queue for a run in this order. The caller sorts, because it has a clock to time it.
    pub fn read_order(&mut self, order: Order) -> Candidates {
        self.scheduler.read_candidates(order)
    }

    /// Makes all candidates ready in their order. Returns the number of ready groups.
    pub fn run_order(&mut self, candidates: &Candidates, now: Now) -> usize {
        self.scheduler.run(candidates, now)
    }
}

/// Returns the length of the header section, including its last line end.
fn header_end(content: &[u8]) -> usize {
    content.windows(4).position(|four| four == b"\r\n\r\n").map_or(content.len(), |at| at + 2)
}
