//! Mail that needs no attempt: a route `error` bounces it, `discard` drops it.
//!
//! Must never act before the first `poll`: until then the log is read again, and what it says goes first.

use crate::output::{MessageChanges, NoticeKind};
use crate::scheduler::Scheduler;
use crate::store::message::GroupState;
use mail::{Change, Enhanced, MessageId, NextHop, Reply, Report, Stage};
use std::collections::VecDeque;

/// Upper bound on the groups whose route is carried out in one call.
const ROUTED_MAX: usize = 64;

/// Groups and messages that wait for the next `poll` and need no attempt.
#[derive(Debug, Default)]
pub(crate) struct RoutedGroups {
    /// Groups whose route is `error` or `discard`.
    routed: VecDeque<u32>,
    /// Messages that the log has left without unfinished recipients. They are retired unless the log retires them.
    done: VecDeque<MessageId>,
}

impl RoutedGroups {
    /// Lets a group wait for `follow_routes`.
    pub fn follow_later(&mut self, group: u32) {
        self.routed.push_back(group);
    }

    pub fn has_routed(&self) -> bool {
        !self.routed.is_empty()
    }

    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }
}

impl Scheduler {
    /// Lets a message wait for `retire_done`.
    pub(crate) fn retire_later(&mut self, message: MessageId) {
        self.routes.done.push_back(message);
    }

    pub(crate) fn follow_routes(&mut self) {
        for _ in 0..ROUTED_MAX {
            let Some(group) = self.routes.routed.pop_front() else { return };
            if self.store.groups[group].state == GroupState::Routed {
                self.follow_route(group);
            }
        }
    }

    /// Retires messages that are finished but not retired in the log.
    pub(crate) fn retire_done(&mut self) {
        for _ in 0..ROUTED_MAX {
            let Some(id) = self.routes.done.pop_front() else { return };
            let Some(message) = self.store.find(id).filter(|at| self.store.is_done(*at)) else {
                continue;
            };
            let mut record = MessageChanges::new(id);
            self.store.count_out(message);
            record.changes.push(self.close_message(message));
            self.record(record);
        }
    }

    fn follow_route(&mut self, group: u32) {
        let message = self.store.groups[group].message;
        let members = self.store.members(group);
        let mut record = MessageChanges::new(self.store.message(message).id);
        self.store.count_out(message);
        self.leave(group);
        match &self.destinations[self.store.groups[group].destination].hop {
            NextHop::Error(text) => {
                let report = refusal(text);
                let failed = members.into_iter().map(|at| (at, report.clone())).collect();
                self.fail(message, failed, NoticeKind::Failed, &mut record);
            }
            _ => {
                members.iter().for_each(|index| self.store.finish(message, *index));
                let (message, recipients) = (record.message, members);
                record.changes.push(Change::Delivered { message, recipients });
            }
        }
        self.end_group(group);
        self.close_or_count(message, &mut record);
        self.record(record);
    }
}

/// Parses `550 5.1.1 text`, `550 text` or `text`. A code other than 5yz is part of the text.
fn refusal(text: &str) -> Report {
    let (code, rest) = match text.split_once(' ') {
        Some((word, rest)) if is_refusal_code(word) => (word.parse().unwrap_or(550), rest),
        _ => (550, text),
    };
    let (enhanced, rest) = match rest.split_once(' ') {
        Some((word, tail)) => parse_enhanced(word).map_or((None, rest), |code| (Some(code), tail)),
        None => (None, rest),
    };
    let reply = Reply::new(code, enhanced.unwrap_or(Enhanced(5, 0, 0)), rest);
    Report { stage: Stage::Here, reply, peer: "".into(), from_peer: false }
}

fn is_refusal_code(word: &str) -> bool {
    word.len() == 3 && word.starts_with('5') && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse_enhanced(word: &str) -> Option<Enhanced> {
    let mut parts = word.split('.');
    let (class, subject, detail) = (parts.next()?, parts.next()?, parts.next()?);
    if class != "5" || parts.next().is_some() {
        return None;
    }
    Some(Enhanced(5, subject.parse().ok()?, detail.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_error_route_may_bring_its_codes() {
        let cases = [
            ("550 5.1.1 no such user", "550 5.1.1 no such user"),
            ("521 no mail here", "521 5.0.0 no mail here"),
            ("no mail here", "550 5.0.0 no mail here"),
            ("5.7.1 no", "550 5.7.1 no"),
            ("450 4.1.1 later", "550 5.0.0 450 4.1.1 later"),
            ("", "550 5.0.0 "),
        ];
        for (text, expected) in cases {
            assert_eq!(refusal(text).reply.to_string(), expected);
        }
    }
}
