//! What needs no attempt: a route `error` bounces, `discard` drops, what is done is retired.
//!
//! Must never act before the first `poll`: while the log is read again, what happened goes first.

use crate::message::GroupState;
use crate::output::{NoticeKind, Record};
use crate::scheduler::Scheduler;
use mail::{Change, Enhanced, NextHop, Reply, Report, Stage};

/// Messages whose route is followed in one call.
const ROUTED_MAX: usize = 64;

impl Scheduler {
    pub(crate) fn follow_routes(&mut self) {
        for _ in 0..ROUTED_MAX {
            let Some(group) = self.routed.pop_front() else { return };
            if self.groups[group].state == GroupState::Routed {
                self.follow_route(group);
            }
        }
    }

    /// After a restart: what is done, but not retired in the log.
    pub(crate) fn retire_done(&mut self) {
        for _ in 0..ROUTED_MAX {
            let Some(id) = self.done.pop_front() else { return };
            let Some(message) = self.ids.get(id).filter(|at| self.is_done(*at)) else { continue };
            let mut record = Record::new(id);
            self.count_out(message);
            record.changes.push(self.close_message(message));
            self.record(record);
        }
    }

    fn follow_route(&mut self, group: u32) {
        let message = self.groups[group].message;
        let members = self.members(group);
        let mut record = Record::new(self.messages[message].id);
        self.count_out(message);
        self.leave(group);
        match &self.destinations[self.groups[group].destination].hop {
            NextHop::Error(text) => {
                let report = refusal(text);
                let failed = members.into_iter().map(|at| (at, report.clone())).collect();
                self.fail(message, failed, NoticeKind::Failed, &mut record);
            }
            _ => {
                members.iter().for_each(|index| self.finish(message, *index));
                let (message, recipients) = (record.message, members);
                record.changes.push(Change::Delivered { message, recipients });
            }
        }
        self.end_group(group);
        self.close_or_count(message, &mut record);
        self.record(record);
    }
}

/// `550 5.1.1 text`, `550 text` or `text`; a code that is not 5yz is taken for text.
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
