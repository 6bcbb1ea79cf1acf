//! Many connections, and connections that break: N099 to N102.
//!
//! Must never hold more descriptors than the limits of the machine allow.

use super::*;

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
