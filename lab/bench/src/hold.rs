//! `posthaste-lab hold`: many clients that connect and then do nothing, or hardly anything.
//!
//! Must never finish a message: its purpose is to occupy connections.

use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc};

/// Upper bound on concurrent connection attempts.
const OPENING_MAX: usize = 100;
/// Connections from one address: there are 28,000 ports.
const FROM_ONE_ADDRESS_MAX: u32 = 20_000;
/// Time for a greeting, after which a connection counts as unanswered.
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for all attempts, after which a connection counts as unanswered.
const OPENING_TIME_MAX: Duration = Duration::from_secs(20);
/// Attempts of a client whose connection the kernel reset.
const KNOCKS_MAX: u32 = 5;
/// Time between two bytes of a slow client.
const BYTE_PERIOD: Duration = Duration::from_secs(1);
/// Commands of a slow client before its message; each is answered before the next.
const ENVELOPE: [&str; 4] = [
    "EHLO lab.test\r\n",
    "MAIL FROM:<slow@lab.test>\r\n",
    "RCPT TO:<user@sink.test>\r\n",
    "DATA\r\n",
];

/// The options of `hold`.
#[derive(clap::Args)]
pub struct Options {
    /// The mailer: ADDRESS:PORT
    target: SocketAddrV4,
    /// Connections
    #[arg(short, long)]
    connections: u32,
    /// The first address to come from; the next one for every 20,000
    #[arg(long, default_value = "127.1.0.1")]
    from: Ipv4Addr,
    /// Begin a message on each, and send a byte of it every second
    #[arg(long)]
    slow: bool,
}

/// The counts of connections, printed as a JSON line when each has been tried.
#[derive(Debug, Default, Serialize)]
struct Held {
    /// Open, and greeted.
    held: u32,
    /// Greeted with another code than 220, or refused in the envelope.
    refused: BTreeMap<u16, u32>,
    /// Neither greeted nor refused within five seconds, or not connected within twenty.
    unanswered: u32,
    /// Not even connected.
    failed: u32,
}

/// The result of one connection.
enum Fate {
    Held,
    Refused(u16),
    Unanswered,
    Failed,
}

/// Opens all connections, prints the counts, and keeps the connections until it is killed.
pub fn run(options: &Options) -> Result<()> {
    crate::net::allow_many_sockets();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (sender, mut fates) = mpsc::unbounded_channel();
        let opening = Arc::new(Semaphore::new(OPENING_MAX));
        for number in 0..options.connections {
            let (sender, opening) = (sender.clone(), opening.clone());
            let client = Client {
                target: options.target,
                from: from(options.from, number),
                is_slow: options.slow,
            };
            tokio::spawn(async move { client.live(&opening, sender).await });
        }
        drop(sender);
        let mut held = Held::default();
        let end = tokio::time::Instant::now() + OPENING_TIME_MAX;
        for _ in 0..options.connections {
            match tokio::time::timeout_at(end, fates.recv()).await {
                Ok(Some(Fate::Held)) => held.held += 1,
                Ok(Some(Fate::Refused(code))) => *held.refused.entry(code).or_default() += 1,
                Ok(Some(Fate::Unanswered)) | Err(_) => held.unanswered += 1,
                Ok(Some(Fate::Failed) | None) => held.failed += 1,
            }
        }
        println!("{}", serde_json::to_string(&held)?);
        std::future::pending().await
    })
}

fn from(first: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(first).wrapping_add(number / FROM_ONE_ADDRESS_MAX))
}

struct Client {
    target: SocketAddrV4,
    from: Ipv4Addr,
    is_slow: bool,
}

impl Client {
    /// Connects, reports the result, and stays until the mailer ends the connection.
    async fn live(self, opening: &Semaphore, said: mpsc::UnboundedSender<Fate>) {
        let stream = {
            let _turn = opening.acquire().await;
            let mut last = Err(Fate::Failed);
            for _ in 0..KNOCKS_MAX {
                last = self.come_in().await;
                if !matches!(last, Err(Fate::Failed)) {
                    break;
                }
            }
            last
        };
        match stream {
            Err(fate) => drop(said.send(fate)),
            Ok(stream) => {
                let _ = said.send(Fate::Held);
                let _ = self.stay(stream).await; // whoever ends it, it is over
            }
        }
    }

    async fn come_in(&self) -> Result<BufReader<TcpStream>, Fate> {
        let stream = self.connect().await.map_err(|_| Fate::Failed)?;
        let mut stream = BufReader::with_capacity(512, stream);
        let code = tokio::time::timeout(GREETING_TIME_MAX, self.begin(&mut stream)).await;
        match code {
            Err(_) => Err(Fate::Unanswered),
            Ok(Err(_)) => Err(Fate::Failed),
            Ok(Ok(0)) => Ok(stream),
            Ok(Ok(code)) => Err(Fate::Refused(code)),
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        crate::net::come_from(&socket, self.from.into())?;
        tokio::time::timeout(GREETING_TIME_MAX, socket.connect(self.target.into())).await?
    }

    /// Goes up to the point where the client stays. Returns the code of a refusal, or 0.
    async fn begin(&self, stream: &mut BufReader<TcpStream>) -> io::Result<u16> {
        let code = reply(stream).await?;
        if code != 220 || !self.is_slow {
            return Ok(if code == 220 { 0 } else { code });
        }
        for command in ENVELOPE {
            stream.get_mut().write_all(command.as_bytes()).await?;
            let code = reply(stream).await?;
            if code >= 400 {
                return Ok(code);
            }
        }
        Ok(0)
    }

    async fn stay(&self, mut stream: BufReader<TcpStream>) -> io::Result<()> {
        if !self.is_slow {
            reply(&mut stream).await?;
            return Ok(());
        }
        loop {
            stream.get_mut().write_all(b"x").await?;
            tokio::time::sleep(BYTE_PERIOD).await;
        }
    }
}

/// Reads a reply and returns its code.
async fn reply(stream: &mut BufReader<TcpStream>) -> io::Result<u16> {
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.as_bytes().get(3) != Some(&b'-') {
            let code = line.get(..3).and_then(|code| code.parse().ok());
            return code.ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_twenty_thousand_come_from_an_address_of_their_own() {
        let first = Ipv4Addr::new(127, 1, 0, 1);
        assert_eq!(from(first, 19_999), first);
        assert_eq!(from(first, 20_000), Ipv4Addr::new(127, 1, 0, 2));
        assert_eq!(from(first, 49_999), Ipv4Addr::new(127, 1, 0, 3));
    }
}
