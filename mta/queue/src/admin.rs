//! What an operator asks and orders, in the words of the command line.
//!
//! Must never show a byte of a message's body.

use crate::reads::ReadFor;
use crate::record::AnswerTo;
use crate::shelf::Opened;
use crate::{Output, Queue};
use link::admin::{self, Acted, Action, Answer, Filter};
use mail::{MessageId, Now};
use scheduler::{Candidates, Order, PAGE_BYTES_MAX};

/// Messages that one call of an action looks at: the loop of the process is not held up longer.
const ACTED_MAX: usize = 2_000;

// A page ends with the row that goes beyond its bound: recipients with the longest addresses and replies of 8 KiB.
const ROW_BYTES_MAX: usize = 2_048 + scheduler::RECIPIENTS_SHOWN_MAX * (8 << 10 | 2_048);
const _: () = assert!(PAGE_BYTES_MAX + ROW_BYTES_MAX < admin::ANSWER_BYTES_MAX);
// An explanation has as much for each of its recipients.
const _: () = assert!(admin::EXPLAINED_MAX as usize * (8 << 10 | 2_048) < admin::ANSWER_BYTES_MAX);

impl Queue {
    /// `queue summary`.
    pub fn admin_summary(&self, now: Now) -> Answer {
        Answer::Summary(self.summary(now))
    }

    /// `queue list`.
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

    /// `queue explain`.
    pub fn admin_explain(&self, message: MessageId, first: u32, now: Now) -> Answer {
        let max = admin::EXPLAINED_MAX as usize;
        match self.scheduler.explain_from(message, first, max, now) {
            Some(explanation) => Answer::Explanation(explanation.into()),
            None => Answer::Unknown(message),
        }
    }

    /// `queue show`: answered by an output with this number once the message has been read.
    pub fn admin_show(&mut self, question: u64, message: MessageId, now: Now) {
        self.read(message, ReadFor::Show { question }, now);
    }

    pub(crate) fn shown(
        &mut self,
        question: u64,
        message: MessageId,
        opened: &Opened,
        content: &[u8],
    ) {
        let end = header_end(content).min(admin::HEADERS_BYTES_MAX);
        let shown = admin::Shown {
            message,
            bytes: opened.bytes,
            envelope: (*opened.envelope).clone(),
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

    /// `queue hold | release | retry | delete`, a part of it: answered by an output with this
    /// number once what was done would survive a power cut.
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

    /// Reads the index for a run in this order; sorting is the caller's, who has a clock.
    pub fn read_order(&mut self, order: Order) -> Candidates {
        self.scheduler.read_candidates(order)
    }

    /// Has everything tried now, in the order of the candidates; says how many.
    pub fn run_order(&mut self, candidates: &Candidates, now: Now) -> usize {
        self.scheduler.run(candidates, now)
    }
}

/// The length of the header section, its last line end included.
fn header_end(content: &[u8]) -> usize {
    content.windows(4).position(|four| four == b"\r\n\r\n").map_or(content.len(), |at| at + 2)
}
