//! Connections that end too early, hops that keep them open too long, and missing extensions (D150, D151, D159,
//! D160, D172, D173, D176).
//!
//! Must never report a message as lost before the queue is empty.

use crate::hop::{ALL, Hop, PIPELINING, PLAIN};
use crate::support::{Client, Daemon, Setup, token, until};
use crate::{HURRY, Place, case};
use std::time::{Duration, Instant};

#[test]
fn d150_a_connection_lost_after_the_dot_doubles_at_most_and_never_loses() {
    let rules: &[&[(&str, &str)]] =
        &[&[(".", "!")], &[(".", "250!")], &[(".", "!"), (".", "!"), (".", "!")]];
    let mut cases = Vec::new();
    for hello in [ALL, PIPELINING, PLAIN] {
        for rules in rules {
            let story = if rules.len() == 3 { "T451 T451 T451 D250" } else { "T451 D250" };
            // `250` without its line end is not an answer: the hop may have kept the message.
            let hop = Hop::start(hello, rules);
            cases.push((hop, story));
        }
    }
    let place = Place::start(cases.iter().map(|(hop, _)| ("smtp", hop.clone())).collect());
    for number in 0..cases.len() {
        place.send(number, 1, "");
    }
    for (number, (hop, story)) in cases.iter().enumerate() {
        let address = format!("r0@c{number}.test");
        until(&format!("{story} of {address}"), || (place.story(&address) == *story).then_some(()));
        let taken = hop.seen(|seen| seen.taken.len());
        assert_eq!(taken, story.split(' ').count(), "each attempt at most once");
    }
    until("an empty queue", || (place.daemon.queued() == 0).then_some(()));
}

#[test]
fn d151_a_connection_lost_within_the_body_is_tried_again_and_arrives_whole() {
    let cases = [ALL, PIPELINING, PLAIN].map(|hello| {
        case(hello, &[("half", ""), ("half", "")], &["T451 T451 D250", "T451 T451 D250"])
    });
    let place = Place::run(&cases);
    for hop in &place.hops {
        let data = hop.seen(|seen| seen.taken[0].data.clone());
        let text = String::from_utf8(data).unwrap();
        assert!(text.contains("dot\r\n") && text.matches("6789\r\n").count() == 2, "{text}");
    }
}

#[test]
fn d159_a_tarpit_and_a_hop_that_does_not_read_hold_their_own_slots_only() {
    // One hop sends single bytes, one sends nothing, and one answers 354 and stops reading.
    let tarpit = Hop::start(PLAIN, &[("", "~220 hop that takes its time"); 50]);
    let silent = Hop::start(PLAIN, &[("", "zzz"); 50]);
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let deaf_port = deaf.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in deaf.incoming().flatten() {
            use std::io::Write;
            let _ = stream.write_all(b"220 x\r\n250 x\r\n250 x\r\n250 x\r\n354 go\r\n");
            kept.push(stream);
        }
    });
    let well = Hop::start(ALL, &[]);
    let route = |name: &str, port| {
        format!("[[route]]\ndomain = \"{name}.test\"\nto = \"smtp:127.0.0.1:{port}\"\n")
    };
    let setup = Setup {
        routes: [
            ("tarpit", tarpit.port),
            ("silent", silent.port),
            ("deaf", deaf_port),
            ("well", well.port),
        ]
        .map(|(name, port)| route(name, port))
        .concat(),
        tables: "[destination.default]\nconnections = 3\nstart_connections = 3\n".into(),
        ..Setup::default()
    };
    let daemon = Daemon::start(setup);
    let mut client = Client::ready(daemon.port);
    for number in 0..60 {
        for domain in ["tarpit", "silent", "deaf"] {
            client.envelope("a@client.test", &format!("b{number}@{domain}.test"));
            client.ask("DATA", 354);
            let line = "0123456789012345678901234567890123456789012345678901234567890\r\n";
            client.send(format!("Subject: x\r\n\r\n{}.\r\n", line.repeat(20_000 / 63)));
            client.expect(250);
        }
    }
    until("the tarpit to be full", || (tarpit.seen(|seen| seen.open) == 3).then_some(()));
    until("the silent one to be full", || (silent.seen(|seen| seen.open) == 3).then_some(()));
    for number in 0..100 {
        client.envelope("a@client.test", &format!("w{number}@well.test"));
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
        client.expect(250);
    }
    until("mail for the good one", || (well.seen(|seen| seen.taken.len()) == 100).then_some(()));
    for hop in [&tarpit, &silent] {
        assert!(hop.seen(|seen| seen.open_max) <= 3);
    }
    daemon.works();
    until("the others to be all there is", || (daemon.queued() == 180).then_some(()));
    assert!(daemon.stop().0 < Duration::from_secs(10), "they hold up no stop");
}

#[test]
fn d160_a_destination_that_stays_down_is_told_of_twice_and_double_bounces_end() {
    let dead = crate::support::free_port();
    let setup = Setup {
        routes: format!("[[route]]\ndomain = \"*\"\nto = \"smtp:127.0.0.1:{dead}\"\n"),
        tables: format!("{HURRY}delay_notice = \"1s\"\nexpire = \"8s\"\n"),
        ..Setup::default()
    };
    let daemon = Daemon::start(setup);
    let user = token("d160");
    let mut client = Client::ready(daemon.port);
    // A local sender, the null sender, and a sender whose own server is dead too.
    let senders = [format!("{user}@local.test"), String::new(), "lost@elsewhere.test".into()];
    for sender in &senders {
        client.envelope(sender, "b@down.test");
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
        client.expect(250);
    }
    daemon.wait_in_mailbox(&user, "Action: delayed");
    daemon.wait_in_mailbox(&user, "Action: failed");
    // The notice to the third sender cannot be delivered, and no further notice is sent.
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    let notices = daemon.mailbox(&user);
    let of = |action: &str| notices.iter().filter(|text| text.contains(action)).count();
    assert_eq!((of("Action: delayed"), of("Action: failed"), notices.len()), (1, 1, 2));
    assert!(notices.iter().all(|text| text.starts_with("Return-Path: <>\n")), "{notices:?}");
    let log = daemon.log();
    let notice_to_lost = |line: &&str| line.contains("\"to\":\"<lost@elsewhere.test>\"");
    assert!(log.lines().any(|line| notice_to_lost(&line)), "the third one's notice was tried");
}

#[test]
fn d172_a_hop_without_dsn_has_the_sender_told_that_nobody_else_will() {
    let place =
        Place::start(vec![("smtp", Hop::start(PLAIN, &[])), ("smtp", Hop::start(ALL, &[]))]);
    for number in 0..2 {
        place.send(number, 1, " NOTIFY=SUCCESS");
        let address = format!("r0@c{number}.test");
        until("both", || (place.story(&address) == "D250").then_some(()));
    }
    let lines = |hop: &Hop| hop.seen(|seen| seen.lines.clone());
    assert!(
        lines(&place.hops[0]).iter().all(|line| !line.contains("NOTIFY") && !line.contains("SIZE"))
    );
    assert!(lines(&place.hops[1]).iter().any(|line| line.contains("NOTIFY=SUCCESS")));
    place.daemon.wait_in_mailbox("s0", "Action: relayed");
    until("an empty queue", || (place.daemon.queued() == 0).then_some(()));
    assert_eq!(place.daemon.mailbox("s1"), Vec::<String>::new());
}

#[test]
fn d173_a_message_larger_than_the_hop_takes_is_bounced_and_not_sent() {
    let hop = Hop::start("250-hop\r\n250-PIPELINING\r\n250 SIZE 100\r\n", &[]);
    let place = Place::start(vec![("smtp", hop)]);
    place.send(0, 1, "");
    let notice = place.daemon.wait_in_mailbox("s0", "Action: failed");
    assert!(notice.contains("Status: 5.3.4"), "{notice}");
    place.hops[0].seen(|seen| {
        assert!(seen.taken.is_empty() && !seen.lines.iter().any(|line| line.starts_with("MAIL")));
    });
}

#[test]
fn d176_an_idle_connection_that_the_hop_closed_is_replaced_at_once() {
    // After each message the hop closes the connection, with or without a reply.
    let rules: Vec<_> = (0..20)
        .map(|n| (".", if n % 2 == 0 { "250 kept\r\n!" } else { "250 kept\r\n421 idle\r\n!" }))
        .collect();
    let place =
        Place::start(vec![("smtp", Hop::start(ALL, &rules)), ("smtp", Hop::start(PLAIN, &rules))]);
    let begun = Instant::now();
    for message in 1..=10 {
        for number in 0..2 {
            place.send(number, 1, "");
            let address = format!("r0@c{number}.test");
            let wanted = vec!["D250"; message].join(" ");
            until("the next one", || (place.story(&address) == wanted).then_some(()));
        }
    }
    for (number, hop) in place.hops.iter().enumerate() {
        assert_eq!(hop.deliveries(&format!("c{number}.test")), 10, "no duplicate");
    }
    assert_eq!(place.daemon.summary()["destinations_backing_off"], 0, "{:?}", begun.elapsed());
}

#[test]
fn r235_an_expired_message_is_told_of_with_what_the_peer_said_last_and_returned_up_to_a_setting() {
    let later = vec![("RCPT", "451 4.2.0 Try again later\r\n"); 50];
    let hops =
        [Hop::start(PLAIN, &later), Hop::start(PLAIN, &[("RCPT", "550 No such user here\r\n")])];
    let route = |(number, hop): (usize, &Hop)| {
        format!("[[route]]\ndomain = \"c{number}.test\"\nto = \"smtp:127.0.0.1:{}\"\n", hop.port)
    };
    let setup = Setup {
        routes: hops.iter().enumerate().map(route).collect(),
        tables: format!("{HURRY}expire = \"4s\"\n[bounce]\noriginal_bytes_max = 100000\n"),
        ..Setup::default()
    };
    let daemon = Daemon::start(setup);
    let long = format!("Subject: x\r\n\r\n{}", "0123456789abcdef\r\n".repeat(11_111));
    let send = |user: &str, to: &str, parameters: &str, body: &str| {
        let mut client = Client::ready(daemon.port);
        client.ask(&format!("MAIL FROM:<{user}@local.test>{parameters}"), 250);
        client.ask(&format!("RCPT TO:<{to}>"), 250);
        client.ask("DATA", 354);
        client.send(format!("{body}.\r\n"));
        client.expect(250);
    };
    let users = [token("r235"), token("r235")];
    send(&users[0], "b@c0.test", "", "Subject: x\r\n\r\nbody\r\n");
    send(&users[1], "b@c1.test", " RET=FULL", &long);
    let notice = daemon.wait_in_mailbox(&users[0], "Action: failed");
    for field in [
        "Status: 5.4.7\n",
        "Remote-MTA: dns; 127.0.0.1\n",
        "Diagnostic-Code: smtp; 451 4.2.0 Try again later\n",
        ": delivery time expired\n",
        " said (in reply to RCPT TO command):\n",
    ] {
        assert!(notice.contains(field), "{field} in {notice}");
    }
    let notice = daemon.wait_in_mailbox(&users[1], "Action: failed");
    assert!(notice.contains("Diagnostic-Code: smtp; 550 No such user here\n"), "{notice:.3000}");
    assert!(notice.contains("are attached, the rest is cut."), "{notice:.3000}");
    let returned = notice.matches("0123456789abcdef\n").count() * 18;
    assert!((90_000..=100_000).contains(&returned), "{returned} bytes");
}
