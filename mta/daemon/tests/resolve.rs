//! The resolver against a real name server on a loopback port.
//!
//! Must never ask a server outside this machine.

#![allow(clippy::unwrap_used)]

mod support;

use daemon::resolve::{Resolver, Sources};
use delivery::resolve::{Answer, Answers, Question};
use mail::Domain;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{free_port, until};

struct Dnsmasq {
    child: Child,
    at: SocketAddr,
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dnsmasq {
    /// Answers for all of `test` and refuses the rest.
    fn start(records: &[String]) -> Option<Dnsmasq> {
        let tool = "/usr/sbin/dnsmasq";
        if !needs::met(&[needs::Need::Program(tool)]) {
            return None;
        }
        let port = free_port();
        let mut command = Command::new(tool);
        command.args(["-k", "-C", "/dev/null", "--no-resolv", "--no-hosts", "--bind-interfaces"]);
        command.args(["--listen-address=127.0.0.1", "--pid-file=", "--local=/test/"]);
        command.args([format!("--port={port}"), "--edns-packet-max=512".into()]);
        if rustix::process::geteuid().is_root() {
            command.args(["--user=nobody", "--group=nogroup"]);
        }
        let child = command.args(records).stderr(Stdio::inherit()).spawn().unwrap();
        let dnsmasq = Dnsmasq { child, at: ([127, 0, 0, 1], port).into() };
        until("dnsmasq", || std::net::TcpStream::connect(dnsmasq.at).ok());
        Some(dnsmasq)
    }
}

fn resolver(servers: &[SocketAddr]) -> Resolver {
    let (resolv_conf, hosts) = ("nameserver 127.0.0.1\nsearch test\n", "192.0.2.77 hosted.test\n");
    Resolver::new(&Sources { servers, resolv_conf, hosts, timeout: Duration::from_secs(1) })
}

fn words(answer: Answer) -> String {
    fn of<T>(answers: Answers<T>, word: impl Fn(T) -> String) -> String {
        match answers {
            Answers::Found(found) => {
                let mut words: Vec<_> = found.into_iter().map(word).collect();
                words.sort();
                words.join(" ")
            }
            Answers::NoRecord => "no record".into(),
            Answers::NoName => "no name".into(),
            Answers::Unknown(_) => "unknown".into(),
        }
    }
    match answer {
        Answer::Mx(answers) => of(answers, |mx| format!("{}:{}", mx.preference, mx.host)),
        Answer::Addresses(answers) => of(answers, |address| address.to_string()),
    }
}

fn mx(domain: &str) -> Question {
    Question::Mx(Domain::parse(domain).unwrap())
}

fn addresses(name: &str) -> Question {
    Question::Addresses(Domain::parse(name).unwrap())
}

#[tokio::test]
async fn answers_of_a_name_server_become_facts() {
    let mut records: Vec<String> = [
        "--mx-host=two.test,A.two.test,10",
        "--mx-host=two.test,b.two.test,20",
        "--host-record=a.two.test,192.0.2.1",
        "--host-record=a.two.test,192.0.2.2",
        "--host-record=both.test,192.0.2.3,2001:db8::3",
        "--host-record=six.test,2001:db8::6",
        "--cname=alias.test,a.two.test",
        "--txt-record=text.test,x",
        "--mx-host=null.test,.,0",
    ]
    .map(String::from)
    .into();
    // More than 512 octets, and more than 4,096: the answer comes by TCP.
    for host in 0..200 {
        records
            .push(format!("--mx-host=many.test,a-long-name-of-a-host-{host:03}.many.test,{host}"));
    }
    let Some(dnsmasq) = Dnsmasq::start(&records) else { return };
    let resolver = resolver(&[dnsmasq.at]);
    for (question, expected) in [
        (mx("two.test"), "10:a.two.test 20:b.two.test"),
        (addresses("a.two.test"), "192.0.2.1 192.0.2.2"),
        (addresses("six.test"), "2001:db8::6"),
        (addresses("hosted.test"), "192.0.2.77"),
        // D163: an alias.
        (addresses("alias.test"), "192.0.2.1 192.0.2.2"),
        // D164, D166
        (mx("both.test"), "no record"),
        (mx("text.test"), "no record"),
        (addresses("text.test"), "no record"),
        (mx("none.test"), "no name"),
        (addresses("none.test"), "no name"),
        // The search list does not apply to mail: `two` is not `two.test`.
        (mx("two"), "unknown"),
        // D162
        (mx("null.test"), "0:"),
        // D165: this server refuses.
        (mx("elsewhere.example"), "unknown"),
        (addresses("elsewhere.example"), "unknown"),
    ] {
        assert_eq!(words(resolver.ask(&question).await), expected, "{question:?}");
    }
    let both = words(resolver.ask(&addresses("both.test")).await);
    assert!(both.starts_with("192.0.2.3"), "{both}");
    let Answer::Mx(Answers::Found(many)) = resolver.ask(&mx("many.test")).await else {
        panic!("the long answer did not come");
    };
    assert_eq!(many.len(), 200);
}

#[tokio::test]
async fn d165_a_server_that_is_silent_or_gone_is_not_an_answer() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let gone = SocketAddr::from(([127, 0, 0, 1], free_port()));
    for server in [silent.local_addr().unwrap(), gone] {
        let started = Instant::now();
        let answer = resolver(&[server]).ask(&mx("two.test")).await;
        assert_eq!(words(answer), "unknown");
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}

/// A server that answers each question with these bytes after its id.
fn crooked(reply: fn(&[u8]) -> Vec<u8>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut room = [0; 2048];
        while let Ok((count, from)) = socket.recv_from(&mut room) {
            let _ = socket.send_to(&reply(&room[..count]), from);
        }
    });
    at
}

#[tokio::test]
async fn d168_crooked_answers_harm_nobody() {
    let wrong_id = |question: &[u8]| {
        let mut reply = question.to_vec();
        reply[0] ^= 0xff;
        reply[2] |= 0x80;
        reply
    };
    let loops = |question: &[u8]| {
        let mut reply = question.to_vec();
        reply[2] |= 0x80;
        reply[7] = 1;
        let at = reply.len() as u8;
        reply.extend([0xc0, at, 0, 15, 0, 1, 0, 0, 0, 0, 0, 4, 0, 1, 0xc0, at]);
        reply
    };
    let huge = |question: &[u8]| {
        let mut reply = question.to_vec();
        reply.resize(60_000, 0xff);
        reply
    };
    let servfail = |question: &[u8]| {
        let mut reply = question[..12.min(question.len())].to_vec();
        reply[2] |= 0x80;
        reply[3] = 2;
        reply[4..12].fill(0);
        reply
    };
    let empty = |_: &[u8]| Vec::new();
    for reply in [wrong_id, loops, huge, servfail, empty] {
        let resolver = resolver(&[crooked(reply)]);
        assert_eq!(words(resolver.ask(&mx("two.test")).await), "unknown");
    }
}

/// A server that returns this number of addresses for each name, and counts the questions.
fn generous(addresses: u8) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (at, asked) = (socket.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = asked.clone();
    std::thread::spawn(move || {
        let mut room = [0; 2048];
        while let Ok((bytes, from)) = socket.recv_from(&mut room) {
            let name_end = 12 + room[12..bytes].iter().position(|byte| *byte == 0).unwrap();
            let question_end = name_end + 5;
            let is_a = room[name_end + 2] == 1;
            let mut reply = room[..question_end].to_vec();
            reply[2..4].copy_from_slice(&[0x85, 0x80]);
            reply[6..12].fill(0);
            if is_a {
                count.fetch_add(1, Relaxed);
                reply[7] = addresses;
                for last in 1..=addresses {
                    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 2, 0, 0, 4, 192, 0, 2, last]);
                }
            }
            let _ = socket.send_to(&reply, from);
        }
    });
    (at, asked)
}

#[tokio::test]
async fn a_short_answer_is_kept_and_a_long_one_is_used_and_asked_for_again() {
    for (count, questions) in [(32, 1), (33, 2)] {
        let (server, asked) = generous(count);
        let resolver = resolver(&[server]);
        for _ in 0..2 {
            let answer = resolver.ask(&addresses("many.test")).await;
            let Answer::Addresses(Answers::Found(found)) = answer else { panic!("{answer:?}") };
            assert_eq!(found.len(), usize::from(count));
        }
        assert_eq!(asked.load(Relaxed), questions, "{count} addresses");
    }
}
