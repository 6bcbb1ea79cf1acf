//! What is kept of a queued message: small fixed records, everything variable elsewhere.
//!
//! Must never grow without a look at the memory test: each byte here is megabytes there.

use crate::due::{Links, Timed};
use crate::memory::NONE;
use mail::{MessageId, Notify};
use view::HeldBy;

/// One message.
#[derive(Debug)]
pub(crate) struct Message {
    pub id: MessageId,
    /// Seconds since 1970; good until 2106.
    pub arrived: u32,
    /// 4 GiB and more are all the same here.
    pub bytes: u32,
    /// A symbol.
    pub sender: u32,
    /// Where its recipients are: in `many` if it has `MANY`, else in `singles`.
    pub recipients: u32,
    /// In the wheel of ages.
    pub links: Links,
    /// When its age is looked at next.
    pub age_tick: u32,
    pub priority: i8,
    /// `HeldBy`, 0: not held.
    pub held: u8,
    /// Attempts lost in a row.
    pub losses: u8,
    pub flags: u8,
}

/// It has more than one recipient.
pub(crate) const MANY: u8 = 1;
/// Its age was taken from the wall clock at a restart.
pub(crate) const RESTORED: u8 = 2;
/// It has expired, but something was in flight or held: the next deferral is the last.
pub(crate) const OVERDUE: u8 = 4;
/// An operator deletes it: nobody is told.
pub(crate) const DELETED: u8 = 8;
/// The time of delay notices is over.
pub(crate) const DELAY_SEEN: u8 = 16;
/// The null sender.
pub(crate) const NULL_SENDER: u8 = 32;

/// Its sender is being told of the delay, in several records: a restart must not take that for done.
pub(crate) const TELLS_DELAY: u8 = 64;

/// The recipients of a message with more than one.
#[derive(Debug, Default)]
pub(crate) struct Many {
    pub recipients: Box<[Recipient]>,
    /// Not done.
    pub left: u32,
    /// Groups by state: all, held ones, those in flight or ready for it.
    pub groups: u32,
    pub held: u32,
    pub awake: u32,
}

/// One recipient.
#[derive(Clone, Debug)]
pub(crate) struct Recipient {
    /// The local part, in `texts`.
    pub local: u32,
    /// The domain as the client wrote it, a symbol.
    pub domain: u32,
    /// The group it belongs to; `NONE`: it is done.
    pub group: u32,
    /// The last reply, in `reports`.
    pub report: u32,
    pub notify: Notify,
    pub delay_noticed: bool,
}

/// One group to come: recipients of one message that go to one destination together.
#[derive(Debug)]
pub(crate) struct RecipientGroup {
    pub message: u32,
    pub destination: u32,
    /// In the wheel of due times or in a sender queue.
    pub links: Links,
    /// Among all of its destination.
    pub roll: Links,
    /// Waiting: the tick. Ready: the sender queue, or the number its key has. In flight: the flight.
    pub place: u32,
    /// Since when it is in this state, in seconds since 1970.
    pub since: u32,
    /// The index of its recipient, or with `is_list` a list of them in `member_lists`.
    pub members: u32,
    pub attempts: u16,
    pub state: GroupState,
    pub is_list: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GroupState {
    /// Not a group: its place was given back.
    #[default]
    Vacant,
    /// Until its tick.
    Waiting,
    /// Until its destination has room and it is its turn.
    Ready,
    /// Until its outcome.
    InFlight,
    /// Until it is released.
    Held,
    /// Its route says what becomes of it; until the next `poll`.
    Routed,
}

impl GroupState {
    /// In flight or on its way there.
    pub fn is_awake(self) -> bool {
        matches!(self, GroupState::Ready | GroupState::InFlight | GroupState::Routed)
    }
}

impl Message {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn held_by(&self) -> Option<HeldBy> {
        HeldBy::from_u8(self.held)
    }
}

impl Timed for Message {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
    fn tick(&self) -> u32 {
        self.age_tick
    }
}

impl Timed for RecipientGroup {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
    fn tick(&self) -> u32 {
        self.place
    }
}

impl Default for Message {
    fn default() -> Self {
        Message {
            id: MessageId(0),
            arrived: 0,
            bytes: 0,
            sender: NONE,
            recipients: NONE,
            links: Links::default(),
            age_tick: 0,
            priority: 0,
            held: 0,
            losses: 0,
            flags: 0,
        }
    }
}

impl Default for Recipient {
    fn default() -> Self {
        Recipient {
            local: NONE,
            domain: NONE,
            group: NONE,
            report: NONE,
            notify: Notify::DEFAULT,
            delay_noticed: false,
        }
    }
}

impl Default for RecipientGroup {
    fn default() -> Self {
        RecipientGroup {
            message: NONE,
            destination: NONE,
            links: Links::default(),
            roll: Links::default(),
            place: 0,
            since: 0,
            members: NONE,
            attempts: 0,
            state: GroupState::Vacant,
            is_list: false,
        }
    }
}

const _: () = assert!(size_of::<Message>() <= 48);
const _: () = assert!(size_of::<Recipient>() <= 20);
const _: () = assert!(size_of::<RecipientGroup>() <= 44);
