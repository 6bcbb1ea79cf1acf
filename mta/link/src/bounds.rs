//! Upper bounds on what one frame carries, derived from [`FRAME_BYTES_MAX`].
//!
//! Must never let an end make a frame that the other end refuses: what grows is counted here,
//! in the bytes that it takes in a frame, and refused or divided where it grows.
//!
//! The arithmetic, in bytes:
//!
//! | frame | grows with | bounded by |
//! |---|---|---|
//! | `Accept` | recipients | [`RECIPIENTS_BYTES_MAX`], asked at each RCPT |
//! | `Accept`, `Stage` | the piece of a body | [`PIECE_BYTES_MAX`], a constant of the session |
//! | `Attempt` | recipients | [`RECIPIENTS_BYTES_MAX`] and [`ATTEMPT_RECIPIENTS_MAX`] |
//! | `Result` | recipients times what a peer replied | [`RESULT_BYTES_MAX`]: replies are cut, each also to [`REPLY_TEXT_BYTES_MAX`] |
//! | `UnderWay` | recipients | one frame for each attempt, smaller than the attempt's own |
//! | `Question`, `Recorded` | transactions, attempts | `TRANSACTIONS_MAX`, `RECORDED_MAX` |
//! | answer to an operator | rows | asked for again with half of the rows |

use crate::frame::FRAME_BYTES_MAX;
use mail::Recipient;

/// Upper bound on the bytes of all recipients of one envelope, and of one attempt, as
/// [`recipient_bytes`] counts them: 50,000 recipients with 671 bytes each.
pub const RECIPIENTS_BYTES_MAX: usize = 32 << 20;
/// Upper bound on the recipients of one attempt; `recipients_per_message` allows no more.
pub const ATTEMPT_RECIPIENTS_MAX: usize = 100_000;
/// Upper bound on the bytes of a body that one frame carries: a piece that a session hands over,
/// or a small body that goes with its attempt.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Upper bound on the outcomes of one attempt in one frame. With more, the text of each reply is
/// cut to its share: 335 bytes for each of 100,000 recipients.
pub const RESULT_BYTES_MAX: usize = 32 << 20;

/// Upper bound on the text of one reply in an outcome, which one record of the spool has to hold: as
/// much as a client keeps of a reply. Longer text is cut.
pub const REPLY_TEXT_BYTES_MAX: usize = 8 << 10;
/// The same of the peer's name.
pub const PEER_BYTES_MAX: usize = 2 << 10;

/// All the rest of a frame: sender (320 and 255), HELO (2,048), ENVID (100), next hop (a name of
/// 255 or a path of 107) and numbers.
const REST_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(RECIPIENTS_BYTES_MAX + PIECE_BYTES_MAX + REST_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(RESULT_BYTES_MAX + REST_BYTES_MAX <= FRAME_BYTES_MAX);
// What a cut outcome keeps besides its texts fits into its share.
const _: () = assert!(RESULT_BYTES_MAX / ATTEMPT_RECIPIENTS_MAX > 2 * OUTCOME_REST_BYTES);

/// What an outcome takes besides the texts of its reply and its peer: an index (5), two variants
/// and two flags (4), a code (3), an enhanced code (8) and two lengths (6).
pub(crate) const OUTCOME_REST_BYTES: usize = 32;

/// What a recipient takes besides its texts: three lengths (3 each), the place of the `@` (3), an
/// index in front of it (5), NOTIFY (1) and whether there is an ORCPT (1).
const RECIPIENT_REST_BYTES: usize = 20;

/// Returns an upper bound on the bytes that a recipient takes in a frame. It is also what counts
/// in memory: the three texts and a constant.
pub fn recipient_bytes(recipient: &Recipient) -> usize {
    let address = &recipient.address;
    let orcpt = recipient.orcpt.as_deref().map_or(0, str::len);
    address.as_str().len() + address.domain().as_str().len() + orcpt + RECIPIENT_REST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Address, Notify};

    fn recipient(local: usize, domain: &str, orcpt: Option<usize>) -> Recipient {
        let address = Address::parse(&format!("{}@{domain}", "x".repeat(local)), true).unwrap();
        let orcpt = orcpt.map(|length| format!("rfc822;{}", "y".repeat(length)).into());
        Recipient { address, notify: Notify::of(true, true, true), orcpt }
    }

    #[test]
    fn a_recipient_never_takes_more_than_it_is_counted_for_and_little_less() {
        let label = "d".repeat(63);
        let long = format!("{label}.{label}.{label}.{}", "e".repeat(60));
        let umlauts = format!("{}.test", "ü".repeat(40));
        for domain in ["a.test", &long, &umlauts, "[127.0.0.1]", "[IPv6:::1]"] {
            for (local, orcpt) in [(1, None), (64, Some(0)), (64, Some(493))] {
                let recipient = recipient(local, domain, orcpt);
                let real = postcard::to_stdvec(&(u32::MAX, &recipient)).unwrap().len();
                let counted = recipient_bytes(&recipient);
                assert!(counted >= real, "{domain} {local} {orcpt:?}: {counted} < {real}");
                assert!(counted <= real + RECIPIENT_REST_BYTES, "{counted} for {real}");
            }
        }
    }
}
