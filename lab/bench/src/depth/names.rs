//! A name server for as many domains as are wanted, each with a mail server at an address of its own. Told to be silent it
//! answers nothing: to a mailer the network is away, and what it has queued waits.
//!
//! Must never be reachable from outside the room, whose network is its own.

use crate::room;
use anyhow::{Context, Result};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The address of the server.
pub const ADDRESS: &str = "127.0.0.1:53";
/// The port of the mail servers.
pub const SMTP_PORT: u16 = 25;
/// The recipient in the source's form; `{r}` is random.
pub const RECIPIENT: &str = "user{m}@d{r}.test";
/// Domains with addresses.
pub const DESTINATIONS_MAX: u32 = 1_000_000;
/// All of them belong to this machine, and are none of its loopback addresses.
const NETWORK: &str = "10.64.0.0/10";
const FIRST_ADDRESS: u32 = 0x0A40_0100;
const QUESTION_BYTES_MAX: usize = 512;
const TTL_SECONDS: u32 = 3600;
const HEADER_BYTES: usize = 12;
const TYPE_A: u16 = 1;
const TYPE_MX: u16 = 15;
/// A pointer to the question's name (RFC 1035 4.1.4).
const POINTER: [u8; 2] = [0xC0, HEADER_BYTES as u8];

/// The server, on a thread that ends with the process.
pub struct Names {
    silent: Arc<AtomicBool>,
}

impl Names {
    /// Adds the addresses to the room and starts the server, silent at first.
    pub fn serve() -> Result<Names> {
        room::run("ip", ["route", "add", "local", NETWORK, "dev", "lo"])?;
        let socket = UdpSocket::bind(ADDRESS).context(ADDRESS)?;
        let silent = Arc::new(AtomicBool::new(true));
        let names = Names { silent: silent.clone() };
        std::thread::spawn(move || {
            let mut question = [0; QUESTION_BYTES_MAX];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                if silent.load(Relaxed) {
                    continue;
                }
                if let Some(reply) = reply(&question[..length]) {
                    let _ = socket.send_to(&reply, from); // who is gone does not want it
                }
            }
        });
        Ok(names)
    }

    /// Makes the server silent, or lets it answer.
    pub fn silence(&self, silent: bool) {
        self.silent.store(silent, Relaxed);
    }
}

/// Returns the reply to a question (RFC 1035 4.1); `None` if it is none.
fn reply(asked: &[u8]) -> Option<Vec<u8>> {
    let (name_end, label) = name(asked)?;
    let end = name_end + 4;
    let kind = u16::from_be_bytes([*asked.get(name_end)?, *asked.get(name_end + 1)?]);
    let question = asked.get(HEADER_BYTES..end)?;
    let data = label.and_then(|label| answer(kind, label));
    let code = if label.is_some() { 0 } else { 3 };
    let mut reply = asked[..2].to_vec();
    reply.extend([0x84, 0x80 | code, 0, 1, 0, u8::from(data.is_some()), 0, 0, 0, 0]);
    reply.extend(question);
    if let Some(data) = data {
        reply.extend(POINTER);
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1]);
        reply.extend(TTL_SECONDS.to_be_bytes());
        reply.extend((data.len() as u16).to_be_bytes());
        reply.extend(data);
    }
    Some(reply)
}

/// Returns where the name ends, and N if it is `dN.test`.
fn name(asked: &[u8]) -> Option<(usize, Option<u32>)> {
    let (mut at, mut labels) = (HEADER_BYTES, Vec::new());
    loop {
        let length = usize::from(*asked.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(asked.get(at..at + length)?.to_ascii_lowercase());
        at += length;
    }
    let number = |label: &[u8]| std::str::from_utf8(label.strip_prefix(b"d")?).ok()?.parse().ok();
    let known = |number: &u32| *number < DESTINATIONS_MAX;
    match &labels[..] {
        [own, test] if test == b"test" => Some((at, number(own).filter(known))),
        _ => Some((at, None)),
    }
}

/// Each domain is its own mail server.
fn answer(kind: u16, number: u32) -> Option<Vec<u8>> {
    match kind {
        TYPE_A => Some((FIRST_ADDRESS + number).to_be_bytes().to_vec()),
        TYPE_MX => Some([&[0, 10], &POINTER[..]].concat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut asked = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            asked.push(label.len() as u8);
            asked.extend(label.bytes());
        }
        asked.extend([0, (kind >> 8) as u8, kind as u8, 0, 1]);
        asked
    }

    #[test]
    fn each_domain_is_its_own_mail_server_at_an_address_of_its_own() {
        let address = |number: u32| {
            let reply = reply(&question(&format!("D{number}.test"), TYPE_A)).unwrap();
            assert_eq!((&reply[..4], reply[7]), (&[7, 9, 0x84, 0x80][..], 1));
            reply[reply.len() - 4..].to_vec()
        };
        assert_eq!(address(0), [10, 64, 1, 0]);
        assert_eq!(address(100_000), [10, 65, 135, 160]);
        let mx = reply(&question("d7.test", TYPE_MX)).unwrap();
        assert_eq!(mx[mx.len() - 4..], [0, 10, 0xC0, 12]);
    }

    #[test]
    fn what_is_not_there_is_denied_and_garbage_is_not_answered() {
        let none = |name, kind| reply(&question(name, kind)).map(|reply| (reply[3] & 15, reply[7]));
        assert_eq!(none("d7.test", 28), Some((0, 0)));
        assert_eq!(none("d1000000.test", TYPE_A), Some((3, 0)));
        assert_eq!(none("x.d7.test", TYPE_A), Some((3, 0)));
        let whole = question("d7.test", TYPE_A);
        (0..whole.len()).for_each(|length| assert_eq!(reply(&whole[..length]), None));
    }
}
