//! What an operator asks and orders, in the words of the command line.
//!
//! Must never show a byte of a message's body.

use crate::reads::ReadFor;
use crate::record::AnswerTo;
use crate::shelf::Opened;
use crate::{Output, Queue};
use link::admin::{self, Acted, Action, Answer, Filter};
use mail::{MessageId, Now};
use scheduler::{Candidates, Explanation, Order, PAGE_BYTES_MAX, Page};
use std::time::Duration;

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
        let summary = self.summary(now);
        Answer::Summary(admin::Summary {
            messages: summary.messages,
            recipients: summary.recipients,
            active: summary.active,
            deferred: summary.deferred,
            held: summary.held,
            oldest_seconds: summary.oldest_seconds,
            attempts_in_flight: summary.attempts_in_flight,
            destinations_backing_off: summary.destinations_backing_off,
            destinations: summary.destinations.into_iter().map(destination).collect(),
        })
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
        let page = self.select(filter, after, rows_max, now);
        Answer::Page(admin::Page {
            rows: page.rows.into_iter().map(row).collect(),
            next: page.next,
        })
    }

    fn select(&self, filter: &Filter, after: Option<MessageId>, rows_max: usize, now: Now) -> Page {
        let wanted = scheduler::Filter {
            destination: filter.destination.clone(),
            sender: filter.sender.clone(),
            recipient: filter.recipient.clone(),
            older: filter.older_seconds.map(Duration::from_secs),
            state: filter.state.map(|state| match state {
                admin::State::Active => scheduler::State::Active,
                admin::State::Deferred => scheduler::State::Deferred,
                admin::State::Held => scheduler::State::Held,
            }),
        };
        if filter.ids.is_empty() {
            return self.scheduler.list(&wanted, after, rows_max, now);
        }
        let mut ids = filter.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        let ids = ids.into_iter().filter(|id| after.is_none_or(|after| *id > after));
        let mut ids = ids.peekable();
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(id) = ids.next_if(|_| rows.len() < rows_max && bytes < PAGE_BYTES_MAX) {
            let found = self.scheduler.row_of(id, &wanted, now);
            bytes += found.as_ref().map_or(0, scheduler::Row::bytes_shown);
            rows.extend(found);
        }
        let next = ids.peek().and(rows.last()).map(|row| row.message);
        Page { rows, next }
    }

    /// `queue explain`.
    pub fn admin_explain(&self, message: MessageId, first: u32, now: Now) -> Answer {
        // One more than is shown: where the next page begins.
        let max = admin::EXPLAINED_MAX as usize + 1;
        match self.scheduler.explain_from(message, first, max, now) {
            Some(found) => Answer::Explanation(Box::new(explanation(found))),
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
        let page = self.select(filter, after, ACTED_MAX, now);
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

fn destination(found: scheduler::DestinationSummary) -> admin::Destination {
    admin::Destination {
        hop: found.hop,
        waiting: found.waiting,
        ready: found.ready,
        in_flight: found.in_flight,
        allowed: found.allowed,
        failures: found.failures,
    }
}

fn row(found: scheduler::Row) -> admin::Row {
    let recipient = |found: scheduler::RowRecipient| admin::RowRecipient {
        recipient: found.recipient,
        address: found.address,
        hop: found.hop,
        last: found.last,
        due: found.due,
    };
    admin::Row {
        message: found.message,
        sender: found.sender,
        arrived: found.arrived,
        bytes: found.bytes,
        priority: found.priority,
        state: match found.state {
            scheduler::State::Active => admin::State::Active,
            scheduler::State::Deferred => admin::State::Deferred,
            scheduler::State::Held => admin::State::Held,
        },
        recipients: found.recipients,
        waiting: found.waiting.into_iter().map(recipient).collect(),
    }
}

fn explanation(found: Explanation) -> admin::Explanation {
    let mut left = found.recipients.into_iter();
    let page: Vec<_> = left.by_ref().take(admin::EXPLAINED_MAX as usize).map(waiting).collect();
    let station = |verb: &str, at| admin::Station { verb: verb.to_owned(), at };
    admin::Explanation {
        message: found.message,
        sender: found.sender,
        arrived: found.arrived,
        bytes: found.bytes,
        priority: found.priority,
        held: found.held.map(held_by),
        expires: found.expires,
        stations: vec![station("receive", found.arrived)],
        recipients: page,
        recipient_next: left.next().map(|waiting| waiting.recipient),
    }
}

fn waiting(found: scheduler::Waiting) -> admin::Waiting {
    admin::Waiting {
        recipient: found.recipient,
        address: found.address,
        hop: found.hop,
        gate: gate(found.gate),
        since: found.since,
        attempts: found.attempts,
        last: found.last,
        next_try: found.next_try,
    }
}

fn held_by(held: scheduler::HeldBy) -> admin::HeldBy {
    match held {
        scheduler::HeldBy::Policy => admin::HeldBy::Policy,
        scheduler::HeldBy::Operator => admin::HeldBy::Operator,
        scheduler::HeldBy::Losses => admin::HeldBy::Losses,
        scheduler::HeldBy::Route => admin::HeldBy::Route,
    }
}

fn gate(found: scheduler::Gate) -> admin::Gate {
    use scheduler::Gate;
    match found {
        Gate::Held(held) => admin::Gate::Held(held_by(held)),
        Gate::InFlight => admin::Gate::InFlight,
        Gate::RetryAt(at) => admin::Gate::RetryAt(at),
        Gate::DestinationBackoff { until, failures, last } => {
            admin::Gate::DestinationBackoff { until, failures, last }
        }
        Gate::DestinationConcurrency { in_flight, allowed, connections } => {
            admin::Gate::DestinationConcurrency { in_flight, allowed, connections }
        }
        Gate::RateLimit(until) => admin::Gate::RateLimit(until),
        Gate::ProcessLimit { attempts_in_flight_max } => {
            admin::Gate::ProcessLimit { attempts_in_flight_max }
        }
        Gate::Suspect => admin::Gate::Suspect,
        Gate::FairShare { ready } => admin::Gate::FairShare { ready },
        Gate::Route => admin::Gate::Route,
    }
}
