//! The next hop: takes whatever it is sent and answers as Postfix does.
//!
//! Must never be counted.

/// One connection to it.
#[derive(Debug)]
pub struct NextHop {
    chunking: bool,
    /// What has come and is no whole line yet.
    input: Vec<u8>,
    state: State,
    /// Messages it took on this connection.
    pub taken: u64,
    /// Octets of their bodies, as they came.
    pub body_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Commands,
    /// After DATA, until the line with the dot.
    Data,
}

impl NextHop {
    /// The peer of a new connection, and its greeting. `chunking`: it offers BDAT.
    pub fn greet(chunking: bool) -> (NextHop, Vec<u8>) {
        let input = Vec::new();
        let hop = NextHop { chunking, input, state: State::Commands, taken: 0, body_bytes: 0 };
        (hop, b"220 sink.test ESMTP Postfix (Debian/GNU)\r\n".to_vec())
    }

    /// What it answers to these bytes.
    pub fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.input.extend_from_slice(bytes);
        let mut said = Vec::new();
        while let Some(at) = self.input.windows(2).position(|end| end == b"\r\n") {
            let line: Vec<u8> = self.input[..at].to_vec();
            if !self.line(&line, at + 2, &mut said) {
                break;
            }
        }
        said
    }

    /// Takes one line of this number of octets. Returns false if more octets must come first.
    fn line(&mut self, line: &[u8], octets: usize, said: &mut Vec<u8>) -> bool {
        let mut used = octets;
        if self.state == State::Data {
            self.body_bytes += octets as u64;
            if line == b"." {
                (self.state, self.taken) = (State::Commands, self.taken + 1);
                self.queued(said);
            }
        } else if let Some(argument) = line.strip_prefix(b"BDAT ") {
            let argument = String::from_utf8_lossy(argument);
            let (size, last) = argument.split_once(' ').unwrap_or((&argument, ""));
            let size: usize = size.parse().expect("BDAT has a size");
            if self.input.len() < octets + size {
                return false;
            }
            used += size;
            self.body_bytes += size as u64;
            if last == "LAST" {
                self.taken += 1;
                self.queued(said);
            } else {
                said.extend_from_slice(b"250 2.0.0 Ok\r\n");
            }
        } else {
            self.command(line, said);
        }
        self.input.drain(..used);
        true
    }

    fn queued(&self, said: &mut Vec<u8>) {
        let text = format!("250 2.0.0 Ok: queued as 4G{:08X}\r\n", self.taken);
        said.extend_from_slice(text.as_bytes());
    }

    fn command(&mut self, line: &[u8], said: &mut Vec<u8>) {
        let verb = line.get(..4).unwrap_or(line);
        let reply: &[u8] = match verb {
            b"EHLO" if self.chunking => {
                b"250-sink.test\r\n250-PIPELINING\r\n250-SIZE 10240000\r\n250-VRFY\r\n250-ETRN\r\n\
                  250-ENHANCEDSTATUSCODES\r\n250-8BITMIME\r\n250-DSN\r\n250-SMTPUTF8\r\n\
                  250 CHUNKING\r\n"
            }
            b"EHLO" => {
                b"250-sink.test\r\n250-PIPELINING\r\n250-SIZE 10240000\r\n250-VRFY\r\n250-ETRN\r\n\
                  250-ENHANCEDSTATUSCODES\r\n250-8BITMIME\r\n250-DSN\r\n250 SMTPUTF8\r\n"
            }
            b"MAIL" => b"250 2.1.0 Ok\r\n",
            b"RCPT" => b"250 2.1.5 Ok\r\n",
            b"DATA" => {
                self.state = State::Data;
                b"354 End data with <CR><LF>.<CR><LF>\r\n"
            }
            b"RSET" => b"250 2.0.0 Ok\r\n",
            b"QUIT" => b"221 2.0.0 Bye\r\n",
            other => panic!("not expected: {}", String::from_utf8_lossy(other)),
        };
        said.extend_from_slice(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_taken_whole_however_they_are_cut_and_counted() {
        let said = b"MAIL FROM:<>\r\nRCPT TO:<a@sink.test>\r\nBDAT 9 LAST\r\nQUIT\r\n\r\n.QUIT\r\n";
        for cut in 1..said.len() {
            let (mut hop, _) = NextHop::greet(true);
            let heard: Vec<u8> = said.chunks(cut).flat_map(|part| hop.hear(part)).collect();
            let heard = String::from_utf8(heard).unwrap();
            assert!(heard.ends_with("250 2.0.0 Ok: queued as 4G00000001\r\n221 2.0.0 Bye\r\n"));
            assert_eq!((hop.taken, hop.body_bytes), (1, 9));
        }
    }
}
