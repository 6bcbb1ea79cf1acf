//! The messages of a plan: what clients bring, how they behave, and what becomes of each recipient.
//!
//! Must never draw from the randomness of another part: a plan would change with what is taken away.

use super::{DOMAINS, chance, one_in, pick, within};
use std::time::Duration;
use world::Rng as _;
use world::sim::Rng;

/// The purpose for the recipients of a list; the message's number is added.
const LIST_RECIPIENTS: u64 = 2_000_000;

/// The purpose for recipients that are moved to mailboxes here; the message's number is added.
const LOCAL_RECIPIENTS: u64 = 3_000_000;

/// One message.
#[derive(Clone, Debug)]
pub struct Mail {
    /// Its token.
    pub number: u32,
    /// When its client connects.
    pub at: Duration,
    /// Comes from the null sender.
    pub null_sender: bool,
    /// Its recipients.
    pub recipients: Vec<Recipient>,
    /// Octets of the body.
    pub bytes: u32,
    /// How the client behaves.
    pub client: Manner,
}

/// One recipient.
#[derive(Clone, Copy, Debug)]
pub struct Recipient {
    /// `Some`: a remote domain. `None`: a mailbox here.
    pub domain: Option<u8>,
    /// What its next hop says to it.
    pub fate: Fate,
    /// NOTIFY=NEVER.
    pub never_notify: bool,
}

/// What a next hop says to a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Takes it.
    Taken,
    /// Defers it this number of times, then takes it.
    Deferred(u8),
    /// Defers it for ever.
    Never,
    /// Refuses it.
    Refused,
}

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Sends its commands in one go.
    pub pipelining: bool,
    /// With BDAT, in pieces of this size.
    pub bdat: Option<u32>,
    /// Octets in one segment, and between segments this long.
    pub segment: usize,
    /// Between its segments.
    pub pause: Duration,
    /// What goes wrong with its connection, and after how many octets.
    pub trouble: Option<(u32, Trouble)>,
}

/// What goes wrong with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is reset.
    Reset,
    /// One side closes its half and goes on reading.
    HalfClose,
    /// One side says nothing any more.
    Silence,
}

pub(super) fn mail(seed: u64, number: u32, span: Duration, quiet: bool) -> Mail {
    let mut draw = chance(seed, 1_000 + u64::from(number));
    let most = pick(&mut draw, &[1, 1, 1, 3, 8]);
    let recipients = (0..1 + draw.below(most)).map(|_| recipient(&mut draw)).collect();
    let sizes = [0, 200, 200, 200, 3_000, 3_000, 12_000, 40_000, 90_000];
    let bytes = pick(&mut draw, &sizes);
    let bytes = bytes + draw.below(u64::from(bytes) / 4 + 1) as u32;
    let trouble = !quiet && one_in(&mut draw, 6);
    let at = draw.below(u64::from(bytes) + 400) as u32;
    let troubles = [Trouble::Reset, Trouble::Reset, Trouble::HalfClose, Trouble::Silence];
    let trouble = trouble.then(|| (at, pick(&mut draw, &troubles)));
    Mail {
        number,
        at: within(&mut draw, span),
        null_sender: one_in(&mut draw, 12),
        recipients,
        bytes,
        client: Manner {
            pipelining: one_in(&mut draw, 2),
            bdat: one_in(&mut draw, 3).then(|| pick(&mut draw, &[300, 5_000, 1 << 20])),
            segment: pick(&mut draw, &[7, 1_400, 1_400, 64 << 10]).max(bytes as usize / 60),
            pause: pick(&mut draw, &[Duration::ZERO, Duration::from_millis(20)]),
            trouble,
        },
    }
}

fn recipient(draw: &mut Rng) -> Recipient {
    let domain = (!one_in(draw, 5)).then(|| draw.below(u64::from(DOMAINS)) as u8);
    let fate = match draw.below(12) {
        0 => Fate::Refused,
        1 => Fate::Deferred(1 + draw.below(3) as u8),
        2 if one_in(draw, 3) => Fate::Never,
        _ => Fate::Taken,
    };
    Recipient { domain, fate, never_notify: one_in(draw, 15) }
}

/// Makes every other message a list, of which many recipients are refused or never taken.
pub(super) fn list(seed: u64, mut mail: Mail) -> Mail {
    let mut draw = chance(seed, LIST_RECIPIENTS + u64::from(mail.number));
    if one_in(&mut draw, 2) {
        let domain = Some(draw.below(u64::from(DOMAINS)) as u8);
        let fates = [Fate::Taken, Fate::Refused, Fate::Refused, Fate::Never];
        let many = 20 + draw.below(100);
        let one = |_| Recipient { domain, fate: pick(&mut draw, &fates), never_notify: false };
        mail.recipients.extend((0..many).map(one));
    }
    mail
}

/// Moves half of a message's recipients to mailboxes here.
pub(super) fn deliver_here(seed: u64, mut mail: Mail) -> Mail {
    let mut draw = chance(seed, LOCAL_RECIPIENTS + u64::from(mail.number));
    for recipient in &mut mail.recipients {
        recipient.domain = recipient.domain.filter(|_| one_in(&mut draw, 2));
    }
    mail
}

/// Has the recipients of the domain that takes no mail refused.
pub(super) fn refuse_closed(mut mail: Mail, closed: Option<u8>) -> Mail {
    let recipients = mail.recipients.iter_mut();
    recipients
        .filter(|recipient| closed.is_some() && recipient.domain == closed)
        .for_each(|recipient| recipient.fate = Fate::Refused);
    mail
}
