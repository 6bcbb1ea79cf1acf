//! Slow, silent and misbehaving clients, and large numbers of clients: the faults N098 to N105, by number.
//!
//! Must never measure the machine: each bound here is many times what a loaded machine needs.

#![allow(clippy::unwrap_used)]

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
fn n099_idle_connections_are_limited_for_each_client_and_in_total_and_hold_up_nobody() {
    let tables = "[limits]\nconnections = 300\nconnections_per_client = 50\n".to_string();
    let place = start(tables);
    let port = place.daemon.port;
    let mut idle = Vec::new();
    let mut turned_away = 0;
    for _ in 0..60 {
        let mut client = Client::connect_from("127.0.0.9", port);
        match client.next_reply() {
            Some(reply) if reply.code == 220 => idle.push(client),
            reply => {
                let reply = reply.expect("421 before the end of the connection");
                assert_eq!((reply.code, reply.enhanced()), (421, "4.7.0"));
                turned_away += 1;
            }
        }
    }
    assert_eq!((idle.len(), turned_away), (50, 10), "of one client");
    for _ in 0..300 {
        let mut client = Client::connect(port);
        match client.next_reply() {
            Some(reply) if reply.code == 220 => idle.push(client),
            reply => {
                let reply = reply.expect("421 before the end of the connection");
                assert_eq!((reply.code, reply.enhanced()), (421, "4.7.0"));
            }
        }
    }
    assert_eq!(idle.len(), 300, "in total");
    // One connection is free again. Mail is delivered over it while 299 connections are idle.
    drop(idle.pop());
    until("the free place", || {
        let mut client = Client::connect(port);
        client.next_reply().filter(|reply| reply.code == 220)
    });
    drop(idle.split_off(290));
    until("some more free places", || {
        let mut client = Client::connect(port);
        client.next_reply().filter(|reply| reply.code == 220)
    });
    place.daemon.works();
}

#[test]
fn r211_a_listener_whose_connections_are_all_taken_leaves_another_one_its_own() {
    let submission = support::free_port();
    let tables = format!(
        "[limits]\nconnections = 100\n[[listen]]\naddress = \"127.0.0.1:{submission}\"\nconnections = 10\n"
    );
    let place = start(tables);
    // More than the other listener ever accepts.
    let mut busy: Vec<_> = (0..60).map(|_| Client::connect(place.daemon.port)).collect();
    busy.iter_mut().for_each(|client| drop(client.expect(220)));
    let mut idle: Vec<_> = (0..10).map(|_| Client::connect(submission)).collect();
    idle.iter_mut().for_each(|client| drop(client.expect(220)));
    let refused = Client::connect(submission).reply();
    assert_eq!((refused.code, refused.enhanced()), (421, "4.7.0"));
    place.daemon.works();
    drop(idle.pop());
    until("the free place", || (Client::connect(submission).reply().code == 220).then_some(()));
}

#[test]
fn n099_ten_thousand_idle_connections_take_little_memory_and_mail_flows() {
    let idle_max = raise_descriptor_limit(10_500) as usize - 500;
    if idle_max < 10_000 {
        eprintln!("the hard limit of open files leaves {idle_max} connections");
    }
    let place = start(String::new());
    let before = memory_bytes(&place.daemon);
    let idle: Vec<Client> = (0..idle_max)
        .map(|_| {
            let mut client = Client::connect(place.daemon.port);
            client.expect(220);
            client
        })
        .collect();
    let after = memory_bytes(&place.daemon);
    let each = after.saturating_sub(before) / idle_max as u64;
    assert!(each < 32 * 1024, "{each} bytes for each idle connection");
    place.daemon.works();
    drop(idle);
    place.daemon.works();
}

#[test]
fn n100_a_flood_of_reset_connections_leaks_no_descriptor_and_no_place() {
    const PLACES: usize = 500;
    let place = start(format!("[limits]\nconnections = {PLACES}\n"));
    place.daemon.works();
    let before = until("quiet", || quiet_descriptors(&place.daemon));
    for number in 0..5_000 {
        let mut client = Client::connect(place.daemon.port);
        if number % 10 == 0 {
            client.expect(220);
        }
        client.reset();
    }
    let all: Vec<Client> = until("all places to be free", || {
        let greeted = |_| {
            let mut client = Client::connect(place.daemon.port);
            (client.reply().code == 220).then_some(client)
        };
        (0..PLACES).map(greeted).collect()
    });
    drop(all);
    until("the descriptors to be closed", || {
        (descriptors(&place.daemon) <= before + 8).then_some(())
    });
    place.daemon.works();
}

#[test]
fn n101_a_half_closed_connection_loses_nothing_that_was_promised() {
    let place = patient();
    let mut client = Client::ready(place.daemon.port);
    client.send("QUIT\r\n");
    client.half_close();
    assert_eq!(client.replies_to_the_end().iter().map(|r| r.code).collect::<Vec<_>>(), [221]);

    let promised = token("n101");
    let mut client =
        Client::in_data(place.daemon.port, &format!("{promised}@client.test"), "b@sink.test");
    client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
    client.half_close();
    let replies = client.replies_to_the_end();
    assert_eq!(replies.first().map(|reply| reply.code), Some(250), "{replies:?}");
    place.sink.wait(&promised);

    let user = token("n101");
    let mut client =
        Client::in_data(place.daemon.port, "a@client.test", &format!("{user}@local.test"));
    client.send("Subject: x\r\n\r\nhalf a bo");
    client.half_close();
    assert!(client.replies_to_the_end().iter().all(|reply| reply.code != 250));
    place.daemon.works_and_has_nothing_for(&user);
}

#[test]
fn n102_a_reset_in_any_state_leaves_a_whole_message_or_none() {
    let place = patient();
    let steps: &[&str] = &[
        "EHLO client.test\r\n",
        "MAIL FROM:<SENDER>\r\n",
        "RCPT TO:<b@sink.test>\r\n",
        "DATA\r\n",
        "Subject: x\r\n\r\nhalf",
        " a body\r\n.\r\n",
    ];
    let whole = "Subject: x\r\n\r\nhalf a body\r\n";
    let mut maybe = Vec::new();
    for stop in 0..=steps.len() {
        for wait_for_reply in [false, true] {
            let token = token("n102");
            let mut client = Client::connect(place.daemon.port);
            client.expect(220);
            let mut promised = false;
            for (at, step) in steps[..stop].iter().enumerate() {
                client.send(step.replace("SENDER", &format!("{token}@client.test")));
                let last = at + 1 == stop;
                if at != 4 && (!last || wait_for_reply) {
                    promised = client.reply().code == 250 && at == 5;
                }
            }
            client.reset();
            maybe.push((token, stop, promised));
        }
    }
    place.daemon.works();
    for (token, stop, promised) in maybe {
        if promised {
            place.sink.wait(&token);
        }
        for mail in place.sink.with(&token) {
            assert_eq!(stop, 6, "a message that never ended was sent on");
            assert!(mail.text().ends_with(whole), "{}", mail.text());
        }
        if stop < 6 {
            let sender = format!("{token}@client.test");
            assert_eq!(place.daemon.queue(&["--sender", &sender]).len(), 0);
        }
    }
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

#[test]
fn r211_recipients_of_ten_and_of_a_hundred_sessions_stay_within_the_memory_setting() {
    const SETTING: u64 = 24 << 20;
    // Code that runs for the first time, and memory that the allocator cannot reuse at once.
    const BESIDE: u64 = 6 << 20;
    for sessions in [10, 100] {
        let tables = format!(
            "[processes]\nreceive = 1\n[limits]\nsession_memory_bytes_max = {SETTING}\n\
             connections = 2000\n"
        );
        // An envelope may take half of a segment, which is more than the memory of all sessions.
        let spool = "segment_bytes = \"64MiB\"".into();
        let sink = Sink::start(Script::default());
        let setup = Setup { sink_port: sink.port, tables, spool, ..Setup::default() };
        let place = Place { daemon: Daemon::start(setup), sink };
        place.daemon.works();
        let receive = place.daemon.pids_of("receive")[0];
        let before = rss_anon(receive).unwrap();
        // Strangers may not use all of the memory.
        let mut clients: Vec<Client> =
            (0..sessions).map(|_| Client::ready(place.daemon.port)).collect();
        for client in &mut clients {
            client.ask("MAIL FROM:<a@client.test>", 250);
        }
        let accepted: Vec<u64> = clients.iter_mut().map(recipients_until_refused).collect();
        let grown = rss_anon(receive).unwrap().saturating_sub(before);
        assert!(grown <= SETTING + BESIDE, "{grown} bytes for {sessions} sessions");
        let taken: u64 = accepted.iter().sum();
        assert!(taken * 700 > SETTING / 2, "{taken} recipients: the setting is used");
        // No new transaction is accepted. Clients with recipients can still end their transactions.
        let reply = Client::connect(place.daemon.port).reply();
        assert_eq!((reply.code, reply.enhanced()), (421, "4.3.2"));
        let reply = clients[0].command("DATA");
        assert_eq!((reply.code, reply.enhanced()), (452, "4.3.1"));
        clients.iter_mut().for_each(|client| drop(client.ask("RSET", 250)));
        place.daemon.works();
    }
}

#[test]
fn r211_silent_strangers_with_recipients_stop_neither_trusted_clients_nor_other_networks() {
    const SETTING: u64 = 8 << 20;
    let place = start(format!(
        "[processes]\nreceive = 1\n[limits]\nsession_memory_bytes_max = {SETTING}\n\
         connections = 600\nstranger_recipients_max = 50000\n"
    ));
    let port = place.daemon.port;
    place.daemon.works();
    // Clients of four networks fill their shares. Each of them is refused more memory, and no other client is.
    let attackers = ["127.0.0.21", "127.0.0.22", "127.0.0.23", "127.0.0.24"];
    let (mut silent, mut idle) = (Vec::new(), Vec::new());
    for from in attackers {
        silent.extend(with_recipients_until_refused(from, port));
        idle.extend(connections_until_refused(port, || from.to_string()));
        stranger_sends(&place);
        place.daemon.works();
    }
    let said = until("status to say it", || {
        let output = place.daemon.command(&["status"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.contains("TROUBLE: the memory of sessions of receive 0").then_some(said)
    });
    assert!(said.contains("raise limits.session_memory_bytes_max"), "{said}");
    assert!(said.contains("session_memory_refused="), "{said}");
    place.daemon.wait_for_log(&["the memory of sessions has been short"]);
    // Clients of two more networks fill the part of all strangers. Only the reserve is left.
    for from in ["127.0.0.25", "127.0.0.26"] {
        silent.extend(with_recipients_until_refused(from, port));
    }
    let mut addresses = (0..).map(|number| format!("127.0.1.{}", number % 200 + 1));
    idle.extend(connections_until_refused(port, || addresses.next().unwrap()));
    place.daemon.works();
    // Silent clients are disconnected long before the usual five minutes, until strangers hold half of their
    // part.
    for client in &mut silent[..3] {
        let reply = client.next_reply().expect("421 before the end of the connection");
        assert_eq!((reply.code, reply.enhanced()), (421, "4.4.2"), "{reply:?}");
    }
    let stranger = until("room for another stranger", || greeted(port, "127.0.0.9"));
    sends(&place, stranger);
    drop((idle, silent));
    // The memory of the disconnected clients is available again.
    until("room for a connection", || greeted(port, attackers[0]));
    let mut again = attackers.map(|from| with_recipients_until_refused(from, port));
    again.iter_mut().flatten().for_each(|client| drop(client.ask("RSET", 250)));
    stranger_sends(&place);
    place.daemon.works();
}

fn greeted(port: u16, from: &str) -> Option<Client> {
    let mut client = Client::connect_from(from, port);
    (client.reply().code == 220).then_some(client)
}

/// A stranger of a network that holds nothing delivers a message.
fn stranger_sends(place: &Place) {
    let stranger = greeted(place.daemon.port, "127.0.0.9").expect("220 for a stranger");
    sends(place, stranger);
}

/// A client that was greeted delivers a message.
fn sends(place: &Place, mut client: Client) {
    let user = token("r211");
    client.ask("EHLO stranger.test", 250);
    client.envelope("a@stranger.test", &format!("{user}@local.test"));
    client.ask("DATA", 354);
    client.send(format!("Subject: {user}\r\n\r\nx\r\n.\r\n"));
    client.expect(250);
    place.daemon.wait_in_mailbox(&user, &user);
}

/// A stranger names as many recipients as there is memory for. It needs two transactions, because DATA needs
/// the memory of the recipients once more.
fn with_recipients_until_refused(from: &str, port: u16) -> [Client; 2] {
    [(); 2].map(|()| {
        // The memory of the disconnected clients becomes available a little later.
        let mut client = until("room for a connection", || greeted(port, from));
        client.ask("EHLO stranger.test", 250);
        client.ask("MAIL FROM:<a@stranger.test>", 250);
        assert!(recipients_until_refused(&mut client) > 0);
        client
    })
}

/// Opens connections until no more are accepted.
fn connections_until_refused(port: u16, mut from: impl FnMut() -> String) -> Vec<Client> {
    let mut open = Vec::new();
    until("421 for a new connection", || {
        let mut client = Client::connect_from(&from(), port);
        let greeting = client.reply();
        if greeting.code == 220 {
            open.push(client);
            return None;
        }
        assert_eq!((greeting.code, greeting.enhanced()), (421, "4.3.2"), "{greeting:?}");
        Some(())
    });
    open
}

/// With the least memory that `check` accepts, the commands and messages of one client never fill the memory
/// permanently.
#[test]
fn r211_in_the_least_memory_for_each_process_any_message_of_one_client_gets_through() {
    let place = start(
        "[processes]\nreceive = 12\n[limits]\nsession_memory_bytes_max = \"1MiB\"\nconnections = 80\n"
            .into(),
    );
    let clients: [fn(u16) -> Client; 2] = [Client::stranger, Client::ready];
    for client in clients {
        let mut client = client(place.daemon.port);
        let user = token("r211");
        client.ask("MAIL FROM:<a@stranger.test>", 250);
        let mut refused = Vec::new();
        for number in 0..100 {
            let reply = client.command(&format!("RCPT TO:<{user}-{number}@local.test>"));
            if reply.code != 250 {
                refused.push((reply.code, reply.enhanced().to_owned()));
            }
        }
        // The rest is sent in another transaction (RFC 5321 4.5.3.1.10).
        assert!(!refused.is_empty() && refused.len() < 100, "{} refused", refused.len());
        assert!(refused.iter().all(|reply| *reply == (452, "4.5.3".into())), "{refused:?}");
        client.ask("DATA", 354);
        let text = "Longer than the memory that the process has for all its sessions.\r\n";
        client.send(format!("Subject: {user}\r\n\r\n{}.\r\n", text.repeat(10_000)));
        client.expect(250);
        place.daemon.wait_in_mailbox(&format!("{user}-0"), &user);
    }
}

#[test]
fn r211_recipients_of_changing_sizes_that_are_given_up_leave_no_holes() {
    const SETTING: u64 = 24 << 20;
    const BESIDE: u64 = 6 << 20;
    let tables = format!(
        "[processes]\nreceive = 1\n[limits]\nsession_memory_bytes_max = {SETTING}\n\
         connections = 2000\nrefusals_max = 1000000\n"
    );
    let place = start(tables);
    place.daemon.works();
    let receive = place.daemon.pids_of("receive")[0];
    let before = rss_anon(receive).unwrap();
    let mut clients: Vec<Client> = (0..10).map(|_| Client::ready(place.daemon.port)).collect();
    for client in &mut clients {
        client.ask("MAIL FROM:<a@client.test>", 250);
    }
    for orcpt in [480, 230, 110, 400, 60, 300] {
        let orcpt = "y".repeat(orcpt);
        let mut refused = false;
        for round in 0.. {
            for (number, client) in clients.iter_mut().enumerate() {
                let line = |n| {
                    format!("RCPT TO:<{number}x{round}x{n}@local.test> ORCPT=rfc822;{orcpt}\r\n")
                };
                client.send((0..10).map(line).collect::<String>());
            }
            for client in &mut clients {
                for _ in 0..10 {
                    refused |= client.reply().code != 250;
                }
            }
            if refused {
                break;
            }
        }
        // The first client keeps recipients whose memory was allocated between that of the other clients.
        for client in &mut clients[1..] {
            client.ask("RSET", 250);
            client.ask("MAIL FROM:<a@client.test>", 250);
        }
        let grown = rss_anon(receive).unwrap().saturating_sub(before);
        assert!(grown <= SETTING + BESIDE, "{grown} bytes with ORCPT of {}", orcpt.len());
    }
    place.daemon.works();
}

/// Names recipients of the longest kind until no more are accepted, in the process or in one message. Returns
/// the number of accepted ones.
fn recipients_until_refused(client: &mut Client) -> u64 {
    let orcpt = "y".repeat(490);
    let mut accepted = 0;
    for batch in 0.. {
        let line = |n| format!("RCPT TO:<u{batch:05}x{n:02}@local.test> ORCPT=rfc822;{orcpt}\r\n");
        client.send((0..50).map(line).collect::<String>());
        let mut refused = false;
        for _ in 0..50 {
            let reply = client.reply();
            match reply.code {
                250 => accepted += 1,
                _ => {
                    let full = ["4.3.1", "4.5.3"].contains(&reply.enhanced());
                    assert!(reply.code == 452 && full, "{reply:?}");
                    refused = true;
                }
            }
        }
        if refused {
            break;
        }
    }
    accepted
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

/// Raises the limit as far as the hard limit allows. Returns the new limit.
fn raise_descriptor_limit(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(wanted);
    assert!(maximum >= 1_000, "the hard limit of open files is {maximum}");
    let current = limit.current.unwrap_or(wanted).max(wanted).min(maximum);
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum }).unwrap();
    current.min(wanted)
}
