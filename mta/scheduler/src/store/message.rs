//! The records of queued messages: small and of fixed size, with everything variable elsewhere.
//!
//! Must never grow without a look at the memory test: each byte here is megabytes there.

use crate::due::{Links, Timed};
use crate::memory::NONE;
use mail::{MessageId, Notify};
use view::HeldBy;

/// One message.
#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub id: MessageId,
    /// Time of arrival in seconds since 1970; sufficient until 2106.
    pub arrived: u32,
    /// Size in bytes; `u32::MAX` stands for all larger sizes.
    pub bytes: u32,
    /// Symbol of the MAIL FROM address.
    pub sender: u32,
    /// Place of its recipients: in `many` if the flag `MANY` is set, else in `singles`.
    pub recipients: u32,
    /// Links in the wheel of ages.
    pub links: Links,
    /// Tick at which its age is checked next.
    pub age_tick: u32,
    pub priority: i8,
    /// Discriminant of `HeldBy`; 0 if the message is not held.
    pub held: u8,
    /// Attempts lost in a row.
    pub losses: u8,
    pub flags: u8,
}

/// The message has more than one recipient.
pub(crate) const MANY: u8 = 1;
/// The age of the message was taken from the wall clock at a restart.
pub(crate) const RESTORED: u8 = 2;
/// The message has expired while something was in flight or held: the next deferral is the last one.
pub(crate) const OVERDUE: u8 = 4;
/// An operator deletes the message: nobody is notified.
pub(crate) const DELETED: u8 = 8;
/// The mark of age for the delay notice has passed.
pub(crate) const DELAY_SEEN: u8 = 16;
/// The sender is the null sender.
pub(crate) const NULL_SENDER: u8 = 32;
/// The delay notice is being sent in several records: a restart must not take it for finished.
pub(crate) const TELLS_DELAY: u8 = 64;

/// Recipients of a message with more than one.
#[derive(Debug, Default)]
pub(crate) struct Many {
    pub recipients: Box<[QueuedRecipient]>,
    /// Number of unfinished recipients.
    pub left: u32,
    /// Number of groups: all, those that are held, those that are ready or in flight.
    pub groups: u32,
    pub held: u32,
    pub awake: u32,
}

/// One recipient.
#[derive(Clone, Debug)]
pub(crate) struct QueuedRecipient {
    /// Text of the local part; `NONE` if the recipient is finished.
    pub local: u32,
    /// Symbol of the domain, as the client wrote it.
    pub domain: u32,
    /// The group it belongs to; `NONE` if the recipient is finished.
    pub group: u32,
    /// The last report.
    pub report: u32,
    pub notify: Notify,
    pub delay_noticed: bool,
}

/// Recipients of one message that go to one destination together: the unit that is scheduled.
#[derive(Debug)]
pub(crate) struct RecipientGroup {
    pub message: u32,
    pub destination: u32,
    /// Links in the wheel of due times or in a sender queue.
    pub links: Links,
    /// Links in the roll of its destination.
    pub roll: Links,
    /// Depends on the state. Waiting: the tick. Ready: the sender queue, or the number in its key. In flight: the
    /// flight.
    pub place: u32,
    /// Time of the last change of state, in seconds since 1970.
    pub since: u32,
    /// Index of its only recipient, or with `is_list` the place of its list of members.
    pub members: u32,
    pub attempts: u16,
    pub state: GroupState,
    pub is_list: bool,
}

/// State of a group, named by what the group waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GroupState {
    /// No group: the place is free.
    #[default]
    Vacant,
    /// Waits for its tick.
    Waiting,
    /// Waits for a turn at its destination.
    Ready,
    /// Waits for the outcome of its attempt.
    InFlight,
    /// Waits for its release.
    Held,
    /// Waits for the next `poll`, which carries out its route.
    Routed,
}

impl GroupState {
    /// Returns true if the group is in flight or ready for it.
    pub fn is_awake(self) -> bool {
        matches!(self, GroupState::Ready | GroupState::InFlight | GroupState::Routed)
    }
}

impl QueuedMessage {
    /// Returns true if one of these flags is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Holder of the message, if it is held.
    pub fn held_by(&self) -> Option<HeldBy> {
        HeldBy::from_u8(self.held)
    }
}

impl Timed for QueuedMessage {
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

impl Default for QueuedMessage {
    fn default() -> Self {
        QueuedMessage {
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

impl Default for QueuedRecipient {
    fn default() -> Self {
        QueuedRecipient {
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

const _: () = assert!(size_of::<QueuedMessage>() <= 48);
const _: () = assert!(size_of::<QueuedRecipient>() <= 20);
const _: () = assert!(size_of::<RecipientGroup>() <= 44);
