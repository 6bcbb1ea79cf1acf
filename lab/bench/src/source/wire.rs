//! The source's end of one connection: whole writes, replies read line by line, one timer for all of it.
//!
//! Must never set a timer for each reply: thousands of sessions wait at once.

use crate::net::Stream;
use bytes::{Buf, BytesMut};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Sleep;

/// Upper bound on the bytes of a reply.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Bytes reserved at first for replies.
const INPUT_BYTES: usize = 2048;

/// A time limit for each operation, with one timer that is reset only when it expires.
pub struct Patience {
    time: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    /// Creates a limit of `time` for each operation.
    pub fn new(time: Duration) -> Patience {
        Patience { time, timer: Box::pin(tokio::time::sleep(time)) }
    }

    /// Returns the result of `work`, or an error if it takes too long.
    pub async fn wait<T>(&mut self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let mut work = pin!(work);
        let mut end = None;
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            let end = *end.get_or_insert_with(|| Instant::now() + self.time);
            while self.timer.as_mut().poll(context).is_ready() {
                if Instant::now() >= end {
                    return Poll::Ready(Err(ErrorKind::TimedOut.into()));
                }
                self.timer.as_mut().reset(end.into());
            }
            Poll::Pending
        })
        .await
    }
}

/// One connection.
pub struct Wire {
    stream: Stream,
    input: BytesMut,
    /// The moment at which the kernel had accepted the last write.
    pub written: Instant,
}

impl Wire {
    /// Creates a connection over this stream.
    pub fn new(stream: Stream) -> Wire {
        let input = BytesMut::with_capacity(INPUT_BYTES);
        Wire { stream, input, written: Instant::now() }
    }

    /// Writes all bytes.
    pub async fn write(&mut self, patience: &mut Patience, bytes: &[u8]) -> io::Result<()> {
        patience.wait(self.stream.write_all(bytes)).await?;
        self.written = Instant::now();
        Ok(())
    }

    /// Reads the next reply with all its lines (RFC 5321 4.2) and returns its code; `look` gets each line.
    pub async fn reply_with(
        &mut self,
        patience: &mut Patience,
        mut look: impl FnMut(&[u8]),
    ) -> io::Result<u16> {
        loop {
            while let Some(end) = memchr::memchr(b'\n', &self.input) {
                let line = &self.input[..end];
                look(line);
                let code = code(line).ok_or(ErrorKind::InvalidData)?;
                let more = line.get(3) == Some(&b'-');
                self.input.advance(end + 1);
                if !more {
                    return Ok(code);
                }
            }
            if self.input.len() > REPLY_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            if patience.wait(self.stream.read_buf(&mut self.input)).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads the next reply and returns its code.
    pub async fn reply(&mut self, patience: &mut Patience) -> io::Result<u16> {
        self.reply_with(patience, |_| {}).await
    }
}

fn code(line: &[u8]) -> Option<u16> {
    let digits = line.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    Some(digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_an_error_and_what_does_not_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ms = Duration::from_millis;
            let mut patience = Patience::new(ms(200));
            // Together longer than the timer, each of them shorter.
            for _ in 0..4 {
                let short = async { tokio::time::sleep(ms(70)).await };
                patience
                    .wait(async {
                        short.await;
                        Ok(())
                    })
                    .await
                    .unwrap();
            }
            let endless = patience.wait(std::future::pending::<io::Result<()>>()).await;
            assert_eq!(endless.unwrap_err().kind(), ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_code_is_three_digits() {
        assert_eq!(code(b"250-x\r"), Some(250));
        assert_eq!((code(b"25"), code(b"+50 x"), code(b"")), (None, None, None));
    }
}
