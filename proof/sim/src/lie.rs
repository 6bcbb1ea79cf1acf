//! What a sending process says that was taken over: queue must not believe it.
//! Must never say what an honest process could say.

use crate::net::StreamId;
use crate::plan::{Lie, Station};
use crate::stage::World;
use link::send::UnderWay;
use mail::{Enhanced, MessageId, Outcome, Reply, Report, Stage};
use serde::Serialize;

/// What such a process can write: the same as `link::send` does.
#[derive(Debug, Serialize)]
#[allow(dead_code, reason = "the variants before the ones in use give them their numbers")]
enum ToQueue {
    Hello { build: u64, incarnation: u64, capacity: u32 },
    UnderWay(UnderWay),
    AllTold,
    Result(link::send::Result),
    Fetch { attempt: u64, message: MessageId, offset: u64, bytes: u32 },
}

/// Says a lie of this kind of a former or another process's attempt; `is_under_way` names the attempts of this
/// process itself.
pub fn tell(
    kind: Lie,
    from: Station,
    link: StreamId,
    is_under_way: impl Fn(u64) -> bool,
    world: &mut World,
) {
    let theirs = world.given.iter().rev().find(|given| given.to != from);
    let own = world.given.iter().rev().find(|given| given.to == from);
    let Some(theirs) = theirs else { return };
    let own = own.filter(|own| is_under_way(own.attempt));
    let delivered = Outcome::Delivered { report: report(), relayed: true };
    let outcomes = theirs.recipients.iter().map(|index| (*index, delivered.clone())).collect();
    let message = theirs.message;
    let false_words = match (kind, own) {
        (Lie::Outcome, _) => {
            let attempt = theirs.attempt;
            ToQueue::Result(link::send::Result { attempt, message, outcomes })
        }
        (Lie::Message, Some(own)) if own.message != message => {
            let attempt = own.attempt;
            ToQueue::Result(link::send::Result { attempt, message, outcomes })
        }
        (Lie::Fetch, Some(own)) if own.message != message => {
            ToQueue::Fetch { attempt: own.attempt, message, offset: 0, bytes: 1_000 }
        }
        _ => return,
    };
    let bytes = link::frame::encode(&false_words, &[]).expect("it is short").to_vec();
    world.log(|| format!("{from:?} lies: {false_words:?}"));
    match kind {
        Lie::Outcome => world.lie(link, bytes),
        // Queue ignores it of an attempt that it has ended meanwhile.
        Lie::Message | Lie::Fetch => world.poison(link, 1, bytes),
    }
}

fn report() -> Report {
    Report {
        stage: Stage::Mailbox,
        reply: Reply::new(250, Enhanced(2, 0, 0), "a lie"),
        peer: "mailbox".into(),
        from_peer: false,
    }
}
