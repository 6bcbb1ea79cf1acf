//! A name server that gives the answers of a script, correct or broken.
//!
//! Must never cache, because each question is counted.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

pub const A: u16 = 1;
pub const CNAME: u16 = 5;
pub const MX: u16 = 15;
pub const AAAA: u16 = 28;

/// What the server answers about a name.
#[derive(Clone, Debug)]
pub enum Fact {
    Mx(u16, String),
    Address(IpAddr),
    Alias(String),
    /// A code such as SERVFAIL or REFUSED, to any question.
    Code(u8),
    /// The same, only to questions about MX records.
    MxCode(u8),
    /// No answer.
    Silence,
    /// A truncated answer, and no server at TCP.
    Truncated,
    /// A referral to an unnamed server.
    Lame,
    /// These bytes after the question's id.
    Raw(Vec<u8>),
    /// The time to live of the records.
    Ttl(u32),
}

type Zone = HashMap<String, Vec<Fact>>;

/// A running name server.
#[derive(Clone)]
pub struct Server {
    pub at: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

impl Server {
    /// Serves this zone. Each line is a fact: `name MX 10 host`, `name A address`, `name CNAME host`, `name
    /// CODE 2`, `name MX-CODE 3`, `name SILENCE`, `name TRUNCATED`, `name LAME`, `name TTL 0`.
    pub fn start(lines: &str) -> Server {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let listener = TcpListener::bind(at).unwrap();
        let server = Server { at, zone: Arc::default(), asked: Arc::default() };
        server.set(lines);
        let by_udp = server.clone();
        std::thread::spawn(move || {
            let mut room = [0; 2048];
            while let Ok((count, from)) = socket.recv_from(&mut room) {
                if let Some(reply) = by_udp.reply(&room[..count], true) {
                    let _ = socket.send_to(&reply, from);
                }
            }
        });
        let by_tcp = server.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let server = by_tcp.clone();
                std::thread::spawn(move || -> std::io::Result<()> {
                    loop {
                        let mut length = [0; 2];
                        stream.read_exact(&mut length)?;
                        let mut question = vec![0; u16::from_be_bytes(length).into()];
                        stream.read_exact(&mut question)?;
                        let Some(reply) = server.reply(&question, false) else { return Ok(()) };
                        stream.write_all(&(reply.len() as u16).to_be_bytes())?;
                        stream.write_all(&reply)?;
                    }
                });
            }
        });
        server
    }

    /// Replaces all facts about the names in these lines.
    pub fn set(&self, lines: &str) {
        let mut new = Zone::new();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u32>().unwrap();
            let fact = match words[1] {
                "MX" => Fact::Mx(number(2) as u16, words.get(3).copied().unwrap_or("").into()),
                "A" | "AAAA" => Fact::Address(words[2].parse().unwrap()),
                "CNAME" => Fact::Alias(words[2].into()),
                "CODE" => Fact::Code(number(2) as u8),
                "MX-CODE" => Fact::MxCode(number(2) as u8),
                "SILENCE" => Fact::Silence,
                "TRUNCATED" => Fact::Truncated,
                "LAME" => Fact::Lame,
                "TTL" => Fact::Ttl(number(2)),
                other => panic!("{other}"),
            };
            new.entry(words[0].into()).or_default().push(fact);
        }
        self.zone.lock().unwrap().extend(new);
    }

    /// Answers any question about a name with these bytes.
    pub fn set_raw(&self, name: &str, bytes: Vec<u8>) {
        self.zone.lock().unwrap().insert(name.into(), vec![Fact::Raw(bytes)]);
    }

    /// The number of questions about a name, of any type.
    pub fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    /// The number of all questions.
    pub fn questions(&self) -> usize {
        self.asked.lock().unwrap().values().sum()
    }

    fn reply(&self, question: &[u8], udp: bool) -> Option<Vec<u8>> {
        let (name, kind, end) = read(question)?;
        *self.asked.lock().unwrap().entry(name.clone()).or_default() += 1;
        let zone = self.zone.lock().unwrap();
        let mut reply = question[..end].to_vec();
        // The header: an answer, recursion available, one question, no records yet.
        (reply[2], reply[3]) = (0x81, 0x80);
        reply[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
        let Some(facts) = zone.get(&name) else {
            reply[3] |= 3;
            return Some(reply);
        };
        for fact in facts {
            match fact {
                Fact::Code(code) => reply[3] |= code,
                Fact::MxCode(code) if kind == MX => reply[3] |= code,
                Fact::Silence => return None,
                Fact::Truncated if udp => reply[2] |= 2,
                Fact::Truncated => return None,
                Fact::Lame => {
                    reply[3] = 0;
                    reply[9] = 1;
                    record(&mut reply, &name, 2, 60, &encoded("ns.nobody.test"));
                }
                Fact::Raw(bytes) => return Some([&question[..2], bytes].concat()),
                _ => {}
            }
        }
        if reply[3] == 0x80 && reply[2] == 0x81 {
            let count = answers(&mut reply, &zone, &name, kind);
            reply[6..8].copy_from_slice(&count.to_be_bytes());
            if udp && reply.len() > 512 {
                reply.truncate(end);
                reply[2] |= 2;
                reply[6..8].fill(0);
            }
        }
        Some(reply)
    }
}

/// The records of a name, including those of the name that it is an alias for.
fn answers(reply: &mut Vec<u8>, zone: &Zone, name: &str, kind: u16) -> u16 {
    let (mut count, mut name) = (0, name.to_string());
    for _ in 0..4 {
        let facts = zone.get(&name).cloned().unwrap_or_default();
        let ttl = facts.iter().find_map(|fact| match fact {
            Fact::Ttl(ttl) => Some(*ttl),
            _ => None,
        });
        let mut alias = None;
        for fact in &facts {
            let data = match fact {
                Fact::Mx(preference, host) if kind == MX => {
                    (MX, [&preference.to_be_bytes()[..], &encoded(host)].concat())
                }
                Fact::Address(IpAddr::V4(address)) if kind == A => (A, address.octets().to_vec()),
                Fact::Address(IpAddr::V6(address)) if kind == AAAA => {
                    (AAAA, address.octets().to_vec())
                }
                Fact::Alias(target) => {
                    alias = Some(target.clone());
                    (CNAME, encoded(target))
                }
                _ => continue,
            };
            count += 1;
            record(reply, &name, data.0, ttl.unwrap_or(1), &data.1);
        }
        let Some(target) = alias else { return count };
        if !zone.contains_key(&target) {
            reply[3] |= 3;
            return count;
        }
        name = target;
    }
    count
}

fn record(reply: &mut Vec<u8>, name: &str, kind: u16, ttl: u32, data: &[u8]) {
    reply.extend(encoded(name));
    reply.extend(kind.to_be_bytes());
    reply.extend([0, 1]);
    reply.extend(ttl.to_be_bytes());
    reply.extend((data.len() as u16).to_be_bytes());
    reply.extend(data);
}

/// A name in the format of DNS.
fn encoded(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(label.len() as u8);
        out.extend(label.bytes());
    }
    out.push(0);
    out
}

/// The name and the type of the question, and the position of its end.
fn read(question: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(question.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*question.get(at)?, *question.get(at + 1)?]);
    Some((labels.join("."), kind, at + 4))
}
