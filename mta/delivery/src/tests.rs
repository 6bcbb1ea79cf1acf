//! The rules of MX and the way over several addresses, against a small invented DNS.

mod route;
mod session;

use crate::dead::DeadAddresses;
use crate::outbound_session::{Input, Limits, OutboundSession, Output};
use crate::resolve::{Answer, Answers, Mx, Question};
use crate::route::{Choice, MX_HOSTS_MAX, Ourselves, Rules, Search, Target, Where};
use bytes::Bytes;
use mail::{
    Address, Domain, Host, Instant, MailFrom, NextHop, Notify, Now, Outcome, Recipient,
    ReversePath, Stage,
};
use proptest::prelude::*;
use smtp::client::{self, OutboundMessage};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A zone in words: `name MX 10 host`, `name A address`, `name FAILS`; a name that does not
/// occur does not exist.
fn answer(zone: &str, question: &Question) -> Answer {
    let lines = || zone.split(';').map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of = |name: &str| lines().filter(|line| line.first() == Some(&name)).collect::<Vec<_>>();
    match question {
        Question::Mx(name) => {
            let records = of(name.as_str());
            Answer::Mx(facts(&records, "MX", |line| Mx {
                preference: line[2].parse().unwrap(),
                host: line.get(3).copied().unwrap_or_default().into(),
            }))
        }
        Question::Addresses(name) => {
            let records = of(name.as_str());
            Answer::Addresses(facts(&records, "A", |line| line[2].parse().unwrap()))
        }
    }
}

fn rules() -> Rules {
    let ourselves = Ourselves {
        names: vec!["mx.us.test".into()],
        addresses: vec!["192.0.2.99".parse().unwrap()],
    };
    Rules { ourselves, ..Rules::for_tests() }
}

fn at(seconds: u64) -> Now {
    Now { monotonic: Instant::ZERO + Duration::from_secs(seconds), ..Now::default() }
}

fn facts<T>(records: &[Vec<&str>], kind: &str, fact: impl Fn(&[&str]) -> T) -> Answers<T> {
    let found: Vec<_> =
        records.iter().filter(|line| line[1] == kind).map(|line| fact(line)).collect();
    match records.first() {
        None => Answers::NoName,
        Some(_) if !found.is_empty() => Answers::Found(found),
        Some(line) if line[1] == "FAILS" || line[1] == format!("FAILS-{kind}") => {
            Answers::Unknown("SERVFAIL".into())
        }
        Some(_) => Answers::NoRecord,
    }
}
