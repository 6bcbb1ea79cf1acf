//! The scheduler's parts, and how a message comes into the queue.
//!
//! Must never scan: each event touches what it is about and nothing else.

use crate::age::Ages;
use crate::clock::{Clock, wall_seconds};
use crate::destinations::DestinationTable;
use crate::flights::Flights;
use crate::outbox::Outbox;
use crate::output::{Arrival, ArrivingRecipient, DestinationId};
use crate::replay::ReplayState;
use crate::retries::Retries;
use crate::rng::Rng;
use crate::route::RoutedGroups;
use crate::settings::{DestinationLimits, Settings};
use crate::store::Store;
use crate::store::message::{NULL_SENDER, QueuedMessage};
use crate::turns::Turns;
use mail::{MessageId, NextHop, Now};
use std::collections::BTreeMap;

/// Error of a call that the caller should not have made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// The id is in the queue already.
    #[error("message {0} is in the queue already")]
    Duplicate(MessageId),
    /// The message has no recipients.
    #[error("message {0} has no recipients")]
    NoRecipients(MessageId),
    /// The snapshot of a message cannot be read.
    #[error("a message's snapshot is damaged or of an unknown version")]
    BadSnapshot,
}

/// Decides which recipients are tried when, and how many at once.
///
/// Each part keeps its fields to itself, in the file that is named after it; the other files of this crate are verbs
/// over the parts.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) clock: Clock,
    pub(crate) chance: Rng,
    pub(crate) store: Store,
    pub(crate) destinations: DestinationTable,
    pub(crate) retries: Retries,
    pub(crate) ages: Ages,
    pub(crate) turns: Turns,
    pub(crate) flights: Flights,
    pub(crate) routes: RoutedGroups,
    pub(crate) outbox: Outbox,
    pub(crate) replay: ReplayState,
}

impl Scheduler {
    /// An empty queue. All random numbers come from `seed`.
    pub fn new(settings: Settings, seed: u64, now: Now) -> Self {
        let mut chance = Rng::new(seed);
        Scheduler {
            clock: Clock::new(now),
            store: Store::new(&mut chance),
            destinations: DestinationTable::new(&settings, chance.bits()),
            retries: Retries::new(&settings),
            ages: Ages::new(&settings),
            turns: Turns::new(&settings, chance.bits()),
            flights: Flights::new(&settings, &mut chance),
            routes: RoutedGroups::default(),
            outbox: Outbox::default(),
            replay: ReplayState::default(),
            chance,
        }
    }

    /// Takes new settings, which apply from now on. Looks at every destination once.
    pub fn reload(&mut self, settings: Settings, now: Now) {
        self.set_clock(now);
        self.destinations.reload(&settings, &self.store);
        self.retries.reload(&settings);
        self.ages.reload(&settings);
        self.turns.reload(&settings);
        self.flights.reload(&settings);
        self.destinations.live().into_iter().for_each(|at| self.refresh(at));
        self.set_order(settings.order);
    }

    /// Takes a promised message into the queue.
    pub fn arrive(&mut self, arrival: &Arrival, now: Now) -> Result<(), SchedulerError> {
        self.set_clock(now);
        let message = self.open_message(arrival)?;
        for (at, members) in self.by_destination(message, arrival.recipients) {
            let group = self.new_group(message, at, members);
            let to = self.first_state(group);
            self.enter(group, to);
        }
        self.store.count_in(message);
        self.start_age(message, arrival.arrived);
        Ok(())
    }

    fn open_message(&mut self, arrival: &Arrival) -> Result<u32, SchedulerError> {
        if self.contains(arrival.message) {
            return Err(SchedulerError::Duplicate(arrival.message));
        }
        if arrival.recipients.is_empty() {
            return Err(SchedulerError::NoRecipients(arrival.message));
        }
        let null = matches!(arrival.sender, mail::ReversePath::Null);
        let sender = self.store.new_sender(&arrival.sender.to_string());
        let one = |one: &ArrivingRecipient| {
            let address = one.address;
            self.store.new_recipient(address.local(), address.domain_text(), one.notify)
        };
        let recipients = arrival.recipients.iter().map(one).collect();
        let message = QueuedMessage {
            id: arrival.message,
            arrived: wall_seconds(arrival.arrived),
            bytes: u32::try_from(arrival.bytes).unwrap_or(u32::MAX),
            sender,
            priority: arrival.priority.clamp(-100, 100),
            held: arrival.held.map_or(0, |held| held as u8),
            flags: if null { NULL_SENDER } else { 0 },
            ..QueuedMessage::default()
        };
        Ok(self.store.add(message, recipients))
    }

    /// Returns recipients by destination, in the order in which the destinations are named first.
    fn by_destination(
        &mut self,
        message: u32,
        recipients: &[ArrivingRecipient],
    ) -> Vec<(u32, Vec<u32>)> {
        let mut groups: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        for (index, one) in recipients.iter().enumerate() {
            let symbol = self.store.recipient_mut(message, index as u32).domain;
            let at = self.destination(one.hop, one.address.domain().as_str(), symbol);
            let place = *places.entry(at).or_insert(groups.len());
            if place == groups.len() {
                groups.push((at, Vec::new()));
            }
            groups[place].1.push(index as u32);
        }
        groups
    }

    /// Returns the destination of a next hop, and opens it if there is none. `symbol` names the recipient's domain as the
    /// client wrote it.
    pub(crate) fn destination(
        &mut self,
        hop: &NextHop,
        recipient_domain: &str,
        symbol: u32,
    ) -> u32 {
        self.destinations.find_or_open(&mut self.store, hop, recipient_domain, symbol)
    }

    /// Returns the next hop of a destination that has mail or had mail lately.
    pub fn hop(&self, destination: DestinationId) -> Option<&NextHop> {
        self.destinations.get(destination.0).map(|found| &found.hop)
    }

    /// Returns the limits of a destination.
    pub fn limits(&self, destination: DestinationId) -> DestinationLimits {
        match self.destinations.get(destination.0) {
            Some(_) => self.destinations.limits_of(destination.0),
            None => self.destinations.limits_default(),
        }
    }

    /// Returns true if a message is in the queue.
    pub fn contains(&self, message: MessageId) -> bool {
        self.store.find(message).is_some()
    }

    /// Number of messages in the queue.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Address, Domain, Notify, ReversePath};

    #[test]
    fn a_sender_is_as_busy_as_groups_of_it_are_ready() {
        let settings = Settings { attempts_in_flight_max: 0, ..Settings::for_tests() };
        let (now, mut all) = (Now::default(), Scheduler::new(settings, 1, Now::default()));
        let sender = ReversePath::Address(Address::parse("a@from.test", true).unwrap());
        let address = Address::parse("b@to.test", true).unwrap();
        let hop = NextHop::Mx(Domain::parse("to.test").unwrap());
        for number in 1..=10 {
            let recipient =
                ArrivingRecipient { address: &address, hop: &hop, notify: Notify::DEFAULT };
            let arrival = Arrival {
                message: MessageId(number),
                arrived: now.wall,
                bytes: 1_000,
                sender: &sender,
                recipients: &[recipient],
                held: None,
                priority: 0,
            };
            all.arrive(&arrival, now).unwrap();
        }
        let symbol =
            |all: &Scheduler| all.store.message(all.store.find(MessageId(10)).unwrap()).sender;
        for left in (1..=10).rev() {
            let symbol = symbol(&all);
            assert_eq!(*all.store.symbols.busy(symbol), left);
            all.delete(MessageId(11 - u64::from(left)), now);
        }
    }
}
