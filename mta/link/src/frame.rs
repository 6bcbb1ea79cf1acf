//! Frames on a stream: a length, a header in postcard, and raw bytes up to the frame's end.
//!
//! Must never trust a length before it has been checked against its bound.
//!
//! ```text
//! +----------------+----------------------+-----------------+
//! | length, u32 LE | header (postcard)    | tail (raw)      |
//! +----------------+----------------------+-----------------+
//!                  |<------------- length bytes ----------->|
//! ```

use crate::LinkError;
use bytes::{Buf, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

/// Longest frame in bytes, without its length. [`crate::bounds`] says what fits into it.
pub const FRAME_BYTES_MAX: usize = 48 << 20;

const LENGTH_BYTES: usize = 4;

/// Encodes one frame. Refuses a frame that [`decode`] would refuse.
pub fn encode<H: Serialize>(header: &H, tail: &[u8]) -> Result<Bytes, LinkError> {
    if tail.len() > FRAME_BYTES_MAX {
        return Err(LinkError::FrameTooLong);
    }
    let mut out = begun(header, tail.len());
    out.extend_from_slice(tail);
    finished(out)
}

/// Encodes a frame whose header ends in a list. The list is empty in `header`; its `count` elements are encoded already, in
/// `parts`, with at most `parts_bytes` bytes.
pub(crate) fn encode_with_list<'a, H: Serialize>(
    header: &H,
    count: usize,
    parts: impl Iterator<Item = &'a [u8]>,
    parts_bytes: usize,
    tail: &[u8],
) -> Result<Bytes, LinkError> {
    if parts_bytes + tail.len() > FRAME_BYTES_MAX {
        return Err(LinkError::FrameTooLong);
    }
    let mut out = begun(header, parts_bytes + tail.len());
    let empty = out.pop();
    debug_assert_eq!(empty, Some(0), "the header ends in an empty list");
    let mut out = postcard::to_extend(&count, out).expect("a number always encodes");
    parts.for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(tail);
    finished(out)
}

/// Returns a frame with its header, and with room for `more` bytes.
fn begun<H: Serialize>(header: &H, more: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(LENGTH_BYTES + 128 + more);
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    postcard::to_extend(header, out).expect("our own headers always encode")
}

fn finished(mut out: Vec<u8>) -> Result<Bytes, LinkError> {
    let length = out.len() - LENGTH_BYTES;
    if length > FRAME_BYTES_MAX {
        return Err(LinkError::FrameTooLong);
    }
    let length = u32::try_from(length).expect("FRAME_BYTES_MAX fits into 32 bits");
    out[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(Bytes::from(out))
}

/// Encodes a message whose size has a small bound: a few numbers, or a list that is bounded where it grows.
pub(crate) fn encode_short<H: Serialize>(header: &H) -> Bytes {
    encode(header, &[]).expect("a short message fits into a frame")
}

/// Takes the next frame from the input, or returns `None` if it is not complete.
pub fn decode<H: DeserializeOwned>(input: &mut BytesMut) -> Result<Option<(H, Bytes)>, LinkError> {
    let Some(length) = input.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(LinkError::FrameTooLong);
    }
    if input.len() < LENGTH_BYTES + length {
        // Reserves the known size at once: growing step by step would copy a large body several times.
        input.reserve(LENGTH_BYTES + length - input.len());
        return Ok(None);
    }
    input.advance(LENGTH_BYTES);
    let mut frame = input.split_to(length).freeze();
    let (header, tail) = postcard::take_from_bytes::<H>(&frame).map_err(|_| LinkError::Garbage)?;
    let header_bytes = frame.len() - tail.len();
    frame.advance(header_bytes);
    Ok(Some((header, frame)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_arrive_whole_however_the_stream_is_cut(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..8),
            cut in 1usize..50,
        ) {
            let stream: Vec<u8> = bodies.iter().enumerate()
                .flat_map(|(at, body)| encode(&(at as u32), body).unwrap().to_vec()).collect();
            let (mut input, mut seen) = (BytesMut::new(), Vec::new());
            for piece in stream.chunks(cut) {
                input.extend_from_slice(piece);
                while let Some((at, tail)) = decode::<u32>(&mut input).unwrap() {
                    prop_assert_eq!(at as usize, seen.len());
                    seen.push(tail.to_vec());
                }
            }
            prop_assert_eq!(seen, bodies);
        }

        #[test]
        fn garbage_never_panics_nor_allocates_without_bound(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut input = BytesMut::from(&junk[..]);
            while let Ok(Some(_)) = decode::<(u64, Option<String>, Vec<u32>)>(&mut input) {}
            prop_assert!(input.capacity() <= FRAME_BYTES_MAX + 8);
        }
    }

    #[test]
    fn r205_whatever_encode_makes_decode_takes_and_above_the_bound_it_makes_nothing() {
        // A header of `u8` takes one byte.
        let tail = vec![7; FRAME_BYTES_MAX];
        for (bytes, fits) in [(FRAME_BYTES_MAX - 1, true), (FRAME_BYTES_MAX, false)] {
            let made = encode(&1u8, &tail[..bytes]);
            assert_eq!(made.is_ok(), fits, "{bytes}");
            let Ok(frame) = made else {
                assert_eq!(made, Err(LinkError::FrameTooLong));
                continue;
            };
            let mut input = BytesMut::from(&frame[..]);
            let (header, body) = decode::<u8>(&mut input).unwrap().unwrap();
            assert_eq!((header, body.len()), (1, bytes));
        }
        let header = vec![0u8; FRAME_BYTES_MAX];
        assert_eq!(encode(&header, &[]), Err(LinkError::FrameTooLong), "a long header");
        assert_eq!(encode(&1u8, &vec![0; FRAME_BYTES_MAX + 1]), Err(LinkError::FrameTooLong));
    }

    #[test]
    fn a_frame_that_claims_too_much_ends_the_peer() {
        let mut input = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
        assert_eq!(decode::<u32>(&mut input), Err(LinkError::FrameTooLong));
    }
}
