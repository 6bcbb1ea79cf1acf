//! Memory that envelopes take. Every queue, cache and session with a bound in bytes counts this way.
//!
//! Must never count less than the allocator takes: a bound on such sums must hold as a bound on the process's memory.

use crate::{Address, Envelope, Recipient, ReversePath};

/// Returns the memory that an allocation of `bytes` takes from jemalloc, which this mailer uses.
///
/// jemalloc rounds up to size classes: 16 bytes apart up to 128, then four classes for each doubling. It adds a page to
/// each allocation of 16 KiB or more, so that they do not all start at the same place of the processor's cache.
pub const fn allocation_bytes(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => {
            let class = bytes.next_multiple_of(bytes.next_power_of_two() / 8);
            if class < LARGE_BYTES_MIN { class } else { class + PAGE_BYTES }
        }
    }
}

const LARGE_BYTES_MIN: usize = 16 << 10;
const PAGE_BYTES: usize = 4 << 10;

impl Address {
    /// Returns the bytes that the texts of this address take, without the struct itself.
    fn heap_bytes(&self) -> usize {
        allocation_bytes(self.as_str().len()) + allocation_bytes(self.domain().as_str().len())
    }
}

impl Recipient {
    /// Returns the bytes that this recipient takes: the struct, its address with the second copy of the domain, and
    /// ORCPT. Does not include spare capacity of the vector that holds it.
    pub fn memory_bytes(&self) -> usize {
        let orcpt = self.orcpt.as_deref().map_or(0, |text| allocation_bytes(text.len()));
        size_of::<Recipient>() + self.address.heap_bytes() + orcpt
    }
}

impl Envelope {
    /// Returns the bytes that this envelope takes, with all its texts and the spare capacity of its list of recipients.
    /// Visits every recipient, so callers should keep the result.
    pub fn memory_bytes(&self) -> usize {
        let sender = match &self.from.sender {
            ReversePath::Null => 0,
            ReversePath::Address(address) => address.heap_bytes(),
        };
        let texts = [self.from.envid.as_deref().unwrap_or_default(), &*self.origin.helo];
        let texts: usize = texts.into_iter().map(|text| allocation_bytes(text.len())).sum();
        let list = allocation_bytes(self.recipients.capacity() * size_of::<Recipient>());
        let own = |one: &Recipient| one.memory_bytes() - size_of::<Recipient>();
        let recipients: usize = self.recipients.iter().map(own).sum();
        size_of::<Envelope>() + sender + texts + list + recipients
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MailFrom, Notify, Origin, Protocol, Timestamp};

    #[test]
    fn an_allocation_is_rounded_up_to_its_class() {
        let cases = [
            (0, 0),
            (1, 8),
            (9, 16),
            (17, 32),
            (100, 112),
            (128, 128),
            (129, 160),
            (257, 320),
            (1_024, 1_024),
            (1_025, 1_280),
            (14_000, 14 << 10),
            (LARGE_BYTES_MIN, LARGE_BYTES_MIN + PAGE_BYTES),
            (70_000, 84 << 10),
        ];
        for (bytes, class) in cases {
            assert_eq!(allocation_bytes(bytes), class, "{bytes}");
        }
    }

    #[test]
    fn a_recipient_is_counted_with_its_domain_twice_and_its_orcpt() {
        let domain = format!("{0}.{0}.{0}.test", "d".repeat(60));
        let address = Address::parse(&format!("{}@{domain}", "l".repeat(64)), false).unwrap();
        let short = Recipient { address, notify: Notify::DEFAULT, orcpt: None };
        let long = Recipient { orcpt: Some("o".repeat(500).into()), ..short.clone() };
        let texts = 64 + 1 + 2 * domain.len();
        assert!(short.memory_bytes() >= size_of::<Recipient>() + texts);
        assert_eq!(long.memory_bytes(), short.memory_bytes() + 512);
    }

    #[test]
    fn an_envelope_is_counted_with_the_room_that_its_list_has() {
        let origin = Origin { client: None, helo: "client.test".into(), protocol: Protocol::Esmtp };
        let sender = ReversePath::Address(Address::parse("a@example.test", false).unwrap());
        let mut envelope = Envelope {
            from: MailFrom { envid: Some("id".into()), ..MailFrom::new(sender) },
            origin,
            arrived: Timestamp::default(),
            recipients: Vec::new(),
        };
        let empty = envelope.memory_bytes();
        assert_eq!(empty, size_of::<Envelope>() + 16 + 16 + 8 + 16);
        envelope.recipients = Vec::with_capacity(64);
        assert_eq!(envelope.memory_bytes(), empty + 64 * size_of::<Recipient>());
    }
}
