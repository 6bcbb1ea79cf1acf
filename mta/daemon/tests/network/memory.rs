//! Clients that fill the memory of sessions: R211.
//!
//! Must never compare with the memory of another process than those of its own daemon.

use super::*;

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
