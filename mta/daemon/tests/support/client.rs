//! A client that sends exactly the given bytes, cut as requested, and reads replies.
//!
//! Must never correct the bytes that it sends.

use super::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

/// One reply: its code, and its lines without the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    pub lines: Vec<String>,
}

impl Reply {
    /// True for 5yz.
    pub fn is_refusal(&self) -> bool {
        self.code / 100 == 5
    }

    /// True if a line begins with this word, such as an EHLO keyword.
    pub fn offers(&self, word: &str) -> bool {
        self.lines.iter().any(|line| line.split(' ').next() == Some(word))
    }

    /// The enhanced code, such as `5.1.1`.
    pub fn enhanced(&self) -> &str {
        self.lines[0].split(' ').next().unwrap_or("")
    }
}

/// One connection to the daemon.
pub struct Client {
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    /// Connects and sends nothing.
    pub fn connect(port: u16) -> Client {
        Client::over(TcpStream::connect(("127.0.0.1", port)).unwrap())
    }

    /// Connects from this address of the loopback network.
    pub fn connect_from(from: &str, port: u16) -> Client {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrV4::new(from.parse().unwrap(), 0)).unwrap();
        connect(&socket, &SocketAddrV4::new([127, 0, 0, 1].into(), port)).unwrap();
        Client::over(TcpStream::from(socket))
    }

    pub fn over(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, input: Vec::new() }
    }

    /// Connects, reads the greeting and sends EHLO.
    pub fn ready(port: u16) -> Client {
        let mut client = Client::connect(port);
        client.expect(220);
        client.ask("EHLO client.test", 250);
        client
    }

    /// The same from an address that may not relay.
    pub fn stranger(port: u16) -> Client {
        let mut client = Client::connect_from("127.0.0.9", port);
        client.expect(220);
        client.ask("EHLO stranger.test", 250);
        client
    }

    /// Starts a transaction from `sender` to `recipient` and returns after the 354.
    pub fn in_data(port: u16, sender: &str, recipient: &str) -> Client {
        let mut client = Client::ready(port);
        client.envelope(sender, recipient);
        client.ask("DATA", 354);
        client
    }

    /// Sends MAIL and one RCPT.
    pub fn envelope(&mut self, sender: &str, recipient: &str) {
        self.ask(&format!("MAIL FROM:<{sender}>"), 250);
        self.ask(&format!("RCPT TO:<{recipient}>"), 250);
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends in segments of `piece` bytes, with a pause after each.
    pub fn send_cut(&mut self, bytes: impl AsRef<[u8]>, piece: usize, rest: Duration) {
        for bytes in bytes.as_ref().chunks(piece) {
            self.send(bytes);
            std::thread::sleep(rest);
        }
    }

    /// Sends bytes to a peer that may close meanwhile. Returns whether all bytes were sent.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends one command line. Returns the reply.
    pub fn command(&mut self, line: &str) -> Reply {
        self.send(format!("{line}\r\n"));
        self.reply()
    }

    /// Sends one command line whose reply must have this code.
    pub fn ask(&mut self, line: &str, code: u16) -> Reply {
        let reply = self.command(line);
        assert_eq!(reply.code, code, "to {line:.200?}: {reply:?}");
        reply
    }

    /// Reads the next reply, which must have this code.
    pub fn expect(&mut self, code: u16) -> Reply {
        let reply = self.reply();
        assert_eq!(reply.code, code, "{reply:?}");
        reply
    }

    /// Reads the next reply. The connection must not end before it.
    pub fn reply(&mut self) -> Reply {
        self.next_reply().expect("a reply, but the connection was closed")
    }

    /// Reads the next reply, or returns `None` if the connection has ended, by FIN or RST.
    pub fn next_reply(&mut self) -> Option<Reply> {
        let mut lines = Vec::new();
        loop {
            let line = self.line()?;
            let code = line.get(..3).and_then(|code| code.parse::<u16>().ok());
            let code = code.unwrap_or_else(|| panic!("not a reply: {line:?}"));
            lines.push(line.get(4..).unwrap_or("").to_string());
            match line.as_bytes().get(3) {
                Some(b'-') => {}
                _ => return Some(Reply { code, lines }),
            }
        }
    }

    /// Reads all replies until the connection ends.
    pub fn replies_to_the_end(&mut self) -> Vec<Reply> {
        std::iter::from_fn(|| self.next_reply()).collect()
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                let line = line.strip_suffix(b"\r\n").expect("replies end in CRLF");
                return Some(String::from_utf8(line.to_vec()).unwrap());
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    panic!("no reply within {PATIENCE:?}")
                }
                Err(_) => return None,
            }
        }
    }

    /// True if the peer sends nothing for this time and the connection stays open.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        if !self.input.is_empty() {
            return false;
        }
        self.stream.set_read_timeout(Some(time)).unwrap();
        let mut bytes = [0; 4096];
        let result = self.stream.read(&mut bytes);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match result {
            Ok(count) => {
                self.input.extend_from_slice(&bytes[..count]);
                false
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Ends the connection with RST instead of FIN.
    pub fn reset(self) {
        use rustix::net::sockopt::set_socket_linger;
        set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Closes this side: the peer reads the end of the connection.
    pub fn half_close(&mut self) {
        // The peer may have closed first.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// The address of this client as the daemon sees it.
    pub fn address(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }
}
