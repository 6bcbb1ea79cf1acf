//! What is done to the mailer: a workload that reaches all that a spool can do, in few steps.
//!
//! Must never depend on anything but its seed.

use super::ledger::{Answer, Deletion, Verdict, recipient_text, sender_text};
use super::machine::Machine;
use bytes::Bytes;
use link::admin::Action;
use mail::{
    Address, Envelope, MailFrom, MessageId, Notify, Origin, Protocol, Recipient, ReversePath,
    TransactionId,
};
use std::time::Duration;
use world::{Clock as _, Rng as _};

/// What a workload is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Things done to the mailer, each followed by a few steps of its own.
    pub acts: u32,
    /// The queue process is killed and started again before these.
    pub restart_at: [u32; 2],
    /// The disk lies: it says that it has synced and has not. For showing that this is found.
    pub ignores_syncs: bool,
}

/// This message is put off and held from its first second on, so that it is copied forward at last.
pub const LONG_LIVED: u32 = 2;
/// These are long: the first comes in several chunks, the others through the bulk lane.
const LONG: [(u32, usize); 3] = [(5, 6_000), (8, 15_000), (24, 13_000)];

/// Does the n-th thing.
pub fn act(machine: &mut Machine, plan: &Plan, nth: u32) -> Verdict {
    if plan.restart_at.contains(&nth) {
        machine.restart()?;
    }
    let long = LONG.iter().find(|(number, _)| *number == nth);
    match (machine.chance.below(16), long) {
        (_, Some((_, bytes))) => send(machine, nth, *bytes)?,
        _ if nth == LONG_LIVED => send(machine, nth, 700)?,
        (0..9, _) => {
            let bytes = 100 + machine.chance.below(1200) as usize;
            send(machine, nth, bytes)?;
        }
        (9, _) => machine.give_up(&[b'x'; 5_000])?,
        (10 | 11, _) => operate(machine, Action::Hold)?,
        (12 | 13, _) => operate(machine, Action::Release)?,
        _ => operate(machine, Action::Delete)?,
    }
    let held = machine.ledger.numbered(LONG_LIVED);
    if let Some((of, message)) = held.filter(|(_, sent)| !sent.hold.sure).and_then(|(of, sent)| {
        let Answer::Promised(message) = sent.answer else { return None };
        sent.hold.asked.is_empty().then_some((of, message))
    }) {
        machine.act_on(of, message, Action::Hold)?;
    }
    machine.clock.advance(Duration::from_millis(machine.chance.below(12)));
    Ok(())
}

/// An operator picks any message that was promised.
fn operate(machine: &mut Machine, action: Action) -> Verdict {
    let may = |sent: &super::ledger::Sent| sent.deletion == Deletion::None;
    let spared = machine.ledger.numbered(LONG_LIVED).map(|(of, _)| of);
    let live: Vec<(TransactionId, MessageId)> = machine
        .ledger
        .sent
        .iter()
        .filter(|(of, sent)| may(sent) && Some(**of) != spared)
        .filter_map(|(of, sent)| match sent.answer {
            Answer::Promised(message) => Some((*of, message)),
            _ => None,
        })
        .collect();
    // The younger ones are more likely to be there still.
    let back = machine.chance.below(live.len().min(4) as u64) as usize;
    match live.iter().rev().nth(back) {
        Some((of, message)) => machine.act_on(*of, *message, action),
        None => Ok(()),
    }
}

fn send(machine: &mut Machine, number: u32, bytes: usize) -> Verdict {
    let piece = 500 + machine.chance.below(3_000) as usize;
    let mut body = format!("Subject: message {number}\r\n\r\n").into_bytes();
    while body.len() < bytes {
        let line = format!("{number} {:016x}\r\n", machine.chance.u64());
        body.extend_from_slice(line.as_bytes());
    }
    let envelope = envelope(machine, number);
    machine.send(number, envelope, Bytes::from(body), piece)
}

fn envelope(machine: &Machine, number: u32) -> Envelope {
    let address = |text: &str| Address::parse(text, false).expect("the workload's addresses parse");
    let notify = if number % 7 == 3 { Notify::NEVER } else { Notify::DEFAULT };
    let recipient = |index| {
        let address = address(&recipient_text(number, index));
        Recipient { address, notify, orcpt: None }
    };
    let sender = match number % 9 {
        4 => ReversePath::Null,
        _ => ReversePath::Address(address(&sender_text(number))),
    };
    Envelope {
        from: MailFrom::new(sender),
        origin: Origin { client: None, helo: "client.test".into(), protocol: Protocol::Esmtp },
        arrived: machine.clock.now().wall,
        recipients: (0..1 + number % 3).map(recipient).collect(),
    }
}
