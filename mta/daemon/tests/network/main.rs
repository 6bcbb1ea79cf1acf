//! Slow, silent and misbehaving clients, and large numbers of clients: the faults N098 to N105, by number.
//!
//! Must never measure the machine: each bound here is many times what a loaded machine needs.

#![allow(clippy::unwrap_used)]

mod connections;
mod memory;

#[path = "../support/mod.rs"]
mod support;

use std::io::Read;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::{Client, Daemon, Script, Setup, Sink, token, until};

/// The timeouts of the daemon with short timeouts.
const WAIT: Duration = Duration::from_secs(4);
/// Upper bound on the time from a timeout to the end of the session.
const GRACE: Duration = Duration::from_secs(20);

struct Place {
    daemon: Daemon,
    sink: Sink,
}

/// A daemon with short timeouts.
fn impatient() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let seconds = WAIT.as_secs();
        let limits =
            format!("[limits]\ncommand_timeout = \"{seconds}s\"\ndata_timeout = \"{seconds}s\"\n");
        start(limits)
    })
}

/// A daemon with the defaults.
fn patient() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| start(String::new()))
}

fn start(tables: String) -> Place {
    let sink = Sink::start(Script::default());
    let setup = Setup { sink_port: sink.port, tables, ..Setup::default() };
    Place { daemon: Daemon::start(setup), sink }
}

/// Sends single bytes until the daemon closes the connection. Returns how long that took, and the last reply.
fn drip(client: &mut Client, byte: &[u8]) -> (Duration, Option<u16>) {
    let start = Instant::now();
    let pause = Duration::from_millis(400);
    while start.elapsed() < WAIT * 3 + GRACE {
        if !client.try_send(byte) || !client.is_silent(pause) {
            break;
        }
    }
    let last = client.replies_to_the_end().pop();
    (start.elapsed(), last.map(|reply| reply.code))
}

#[test]
fn n098_who_drips_a_command_or_a_body_is_ended_and_others_are_not_held_up() {
    let port = impatient().daemon.port;
    let command = std::thread::spawn(move || drip(&mut Client::ready(port), b"N"));
    let user = token("n098");
    let address = format!("{user}@local.test");
    let body = std::thread::spawn(move || {
        drip(&mut Client::in_data(port, "a@client.test", &address), b"x")
    });
    let start = Instant::now();
    impatient().daemon.works();
    assert!(start.elapsed() < GRACE, "others had to wait");
    for (thread, limit) in [(command, WAIT), (body, WAIT * 2)] {
        let (time, last) = thread.join().unwrap();
        assert!(time + Duration::from_secs(1) > WAIT && time < limit + GRACE, "{time:?}");
        assert!(last.is_none_or(|code| code == 421), "{last:?}");
    }
    impatient().daemon.works_and_has_nothing_for(&user);
}

#[test]
fn n103_who_never_reads_replies_is_not_read_from_any_more() {
    let place = impatient();
    let before = memory_bytes(&place.daemon);
    let mut client = Client::ready(place.daemon.port);
    client.ask("MAIL FROM:<a@client.test>", 250);
    client.stream.set_nonblocking(true).unwrap();
    let start = Instant::now();
    let mut sent = 0u64;
    // A recipient may be repeated without limit, and each repetition gets a reply.
    let lines = "RCPT TO:<b@local.test>\r\n".repeat(1_000);
    // Until the daemon closes the connection, or it is certain that it accepts no more.
    while start.elapsed() < WAIT + GRACE {
        match std::io::Write::write(&mut client.stream, lines.as_bytes()) {
            Ok(count) => sent += count as u64,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(_) => break,
        }
        assert!(sent < 64 << 20, "it reads on without being read");
    }
    let grown = memory_bytes(&place.daemon).saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for one client");
    client.stream.set_nonblocking(false).unwrap();
    let mut rest = Vec::new();
    // The replies and then the end of the connection, by FIN or RST.
    let _ = client.stream.read_to_end(&mut rest);
    place.daemon.works();
}

#[test]
fn r214_a_client_that_never_reads_its_last_replies_is_left_alone_in_time() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(token("r214"));
    let seconds = WAIT.as_secs();
    let address = path.display();
    let place = start(format!(
        "[limits]\ncommand_timeout = \"{seconds}s\"\n[[listen]]\naddress = \"unix:{address}\"\n"
    ));
    place.daemon.works();
    let before = until("quiet", || quiet_descriptors(&place.daemon));
    // The last replies wait if the kernel's buffer is full with the replies to the last 8 KiB. The buffer has
    // room for about 200 KiB.
    let held: Vec<UnixStream> = (100..300)
        .step_by(5)
        .map(|kib: usize| {
            let mut client = UnixStream::connect(&path).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut greeting = [0; 512];
            assert!(client.read(&mut greeting).unwrap() > 0);
            client.write_all(b"HELO client.test\r\n").unwrap();
            assert!(client.read(&mut greeting).unwrap() > 0);
            client.write_all(b"MAIL FROM:<a@client.test>\r\n").unwrap();
            let replies =
                "RCPT TO:<b@local.test>\r\n".repeat((kib << 10) / "250 2.1.5 Ok\r\n".len());
            client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let _ = client.write_all(replies.as_bytes());
            let _ = client.write_all(b"QUIT\r\n");
            client
        })
        .collect();
    until("all sessions to be over", || (descriptors(&place.daemon) <= before).then_some(()));
    drop(held);
    let _ = std::fs::remove_file(&path);
}

fn greeted(port: u16, from: &str) -> Option<Client> {
    let mut client = Client::connect_from(from, port);
    (client.reply().code == 220).then_some(client)
}

#[test]
fn n104_segments_of_any_size_make_the_same_message() {
    let place = patient();
    let conversation = |token: &str| {
        format!(
            "MAIL FROM:<{token}@client.test>\r\nRCPT TO:<b@sink.test>\r\nBDAT 14\r\nSubject: x\r\n\r\n\
             BDAT 70006 LAST\r\n{}\r\n.a\r\nQUIT\r\n",
            "y".repeat(70_000)
        )
    };
    let mut bodies = Vec::new();
    for (piece, rest) in [(1, 0), (7, 0), (1_460, 1), (65_536, 1), (1 << 20, 0)] {
        let token = token("n104");
        let mut client = Client::ready(place.daemon.port);
        client.send_cut(conversation(&token), piece, Duration::from_millis(rest));
        let codes: Vec<u16> = client.replies_to_the_end().iter().map(|r| r.code).collect();
        assert_eq!(codes, [250, 250, 250, 250, 221], "by {piece}");
        bodies.push(place.sink.wait(&token).body().to_vec());
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert_eq!(bodies[0].len(), 70_006);
}

#[test]
fn n104_a_way_that_cuts_and_delays_both_directions_changes_nothing() {
    let place = patient();
    let port = rough_way(place.daemon.port);
    for by_bdat in [false, true] {
        let token = token("n104");
        let body = format!("Subject: x\r\n\r\n{}\r\n..dot\r\nend\r\n", "y\r\n".repeat(2_000));
        let mut client = Client::ready(port);
        client.envelope(&format!("{token}@client.test"), "b@sink.test");
        if by_bdat {
            client.send(format!("BDAT {} LAST\r\n{}", body.len(), body));
        } else {
            client.ask("DATA", 354);
            client.send(body.replace("..dot", "...dot") + ".\r\n");
        }
        client.expect(250);
        client.ask("QUIT", 221);
        let arrived = place.sink.wait(&token);
        assert!(arrived.text().ends_with(&body), "{}", arrived.text());
    }
}

/// A port whose connections lead to another port, in pieces of any size and with pauses. A user of TCP notices
/// lost and reordered packets in no other way.
fn rough_way(to: u16) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let carry = |mut from: std::net::TcpStream, mut to: std::net::TcpStream, mut chance: u64| {
        to.set_nodelay(true).unwrap();
        let mut room = [0; 700];
        loop {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let piece = (chance >> 33) as usize % room.len() + 1;
            std::thread::sleep(Duration::from_millis(chance >> 40 & 7));
            match from.read(&mut room[..piece]) {
                Ok(count) if count > 0 => {
                    if std::io::Write::write_all(&mut to, &room[..count]).is_err() {
                        return;
                    }
                }
                _ => return drop(to.shutdown(std::net::Shutdown::Write)),
            }
        }
    };
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            let server = std::net::TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (back, forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || carry(client, server, number as u64));
            std::thread::spawn(move || carry(back, forth, number as u64 + 7));
        }
    });
    port
}

#[test]
fn n105_who_is_silent_after_354_hears_421_in_time() {
    let place = impatient();
    let user = token("n105");
    let mut client =
        Client::in_data(place.daemon.port, "a@client.test", &format!("{user}@local.test"));
    let start = Instant::now();
    let reply = client.next_reply();
    let time = start.elapsed();
    let reply = reply.expect("421 before the end of the connection");
    assert_eq!((reply.code, reply.enhanced()), (421, "4.4.2"), "{reply:?}");
    assert!(time + Duration::from_secs(1) > WAIT && time < WAIT + GRACE, "{time:?}");
    place.daemon.works_and_has_nothing_for(&user);
}

/// Resident memory of all processes of a daemon, without shared files.
fn memory_bytes(daemon: &Daemon) -> u64 {
    daemon.pids().into_iter().filter_map(rss_anon).sum()
}

/// The same for one process.
fn rss_anon(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?.to_string();
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn descriptors(daemon: &Daemon) -> usize {
    let of = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |fds| fds.count());
    daemon.pids().into_iter().map(of).sum()
}

/// The number of descriptors, once it has not changed for a while.
fn quiet_descriptors(daemon: &Daemon) -> Option<usize> {
    let before = descriptors(daemon);
    std::thread::sleep(Duration::from_millis(300));
    (descriptors(daemon) == before).then_some(before)
}
