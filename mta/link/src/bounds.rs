//! Upper bounds on what one frame carries, derived from [`FRAME_BYTES_MAX`].
//!
//! Must never allow an end to make a frame that the other end refuses. Each part that can grow is counted in the bytes that
//! it takes in a frame, and refused or divided where it grows.
//!
//! | frame | grows with | bounded by |
//! |---|---|---|
//! | `Accept` | recipients | [`RECIPIENTS_BYTES_MAX`], compared at each RCPT |
//! | `Accept`, `Stage` | piece of a body | [`PIECE_BYTES_MAX`], a constant of the session |
//! | `Attempt` | recipients | [`RECIPIENTS_BYTES_MAX`] and [`ATTEMPT_RECIPIENTS_MAX`] |
//! | `Result` | recipients times replies | [`RESULT_BYTES_MAX`]: replies are cut, each also to [`REPLY_TEXT_BYTES_MAX`] |
//! | `UnderWay` | recipients | one frame for each attempt, smaller than the attempt's own |
//! | `Question`, `Recorded` | transactions, attempts | `TRANSACTIONS_MAX`, `RECORDED_MAX` |
//! | answer to an operator | rows | a second request with half of the rows |

use crate::frame::FRAME_BYTES_MAX;
use mail::Recipient;

/// Upper bound on the bytes of all recipients of one envelope or one attempt, as [`recipient_bytes`] counts them: 50,000
/// recipients with 671 bytes each.
pub const RECIPIENTS_BYTES_MAX: usize = 32 << 20;
/// Maximum number of recipients of one attempt. The range of `recipients_per_message` allows no more.
pub const ATTEMPT_RECIPIENTS_MAX: usize = 100_000;
/// Upper bound on the bytes of a body in one frame: a piece that a session hands over, or a small body that comes with its
/// attempt.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Upper bound on the bytes of all outcomes of one attempt. Above it, the text of each reply is cut to its share: 335 bytes
/// for each of 100,000 recipients.
pub const RESULT_BYTES_MAX: usize = 32 << 20;

/// Upper bound on the text of one reply in bytes, so that one record of the spool can hold an outcome. A client keeps as much
/// of a reply. Longer text is cut.
pub const REPLY_TEXT_BYTES_MAX: usize = 8 << 10;
/// Upper bound on the name of a peer in bytes.
pub const PEER_BYTES_MAX: usize = 2 << 10;

/// Upper bound on the rest of a frame: sender (320 and 255), HELO (2,048), ENVID (100), next hop (a name of 255 or a path of
/// 107) and numbers.
const REST_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(RECIPIENTS_BYTES_MAX + PIECE_BYTES_MAX + REST_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(RESULT_BYTES_MAX + REST_BYTES_MAX <= FRAME_BYTES_MAX);
// The rest of an outcome fits into its share.
const _: () = assert!(RESULT_BYTES_MAX / ATTEMPT_RECIPIENTS_MAX > 2 * OUTCOME_REST_BYTES);

/// Bytes of an outcome besides the texts of its reply and its peer: an index (5), two variants and two flags (4), a code (3),
/// an enhanced code (8) and two lengths (6).
pub(crate) const OUTCOME_REST_BYTES: usize = 32;

/// Bytes of a recipient besides its texts: three lengths (3 each), the position of the `@` (3), an index (5), NOTIFY (1) and
/// a flag for ORCPT (1).
const RECIPIENT_REST_BYTES: usize = 20;

/// Returns an upper bound on the bytes of a recipient in a frame: its three texts and a constant. Sessions count the same in
/// memory.
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
