//! An attempt over the addresses that were found.
//!
//! Must never let time pass that the test does not set.

use super::*;

fn message() -> Box<OutboundMessage> {
    let address = Address::parse("r@d.test", false).unwrap();
    Box::new(OutboundMessage {
        from: MailFrom::new(ReversePath::Null),
        recipients: vec![Recipient { address, notify: Notify::DEFAULT, orcpt: None }; 2],
        body_bytes: 3,
        content: Some(Bytes::from_static(b"a\r\n")),
    })
}

/// What each server does, by the last number of its address.
fn attempt(zone: &str, servers: &[(&str, &str)]) -> (Vec<String>, Vec<Outcome>) {
    attempt_knowing(&DeadAddresses::default(), zone, servers)
}

fn attempt_knowing(
    dead: &DeadAddresses,
    zone: &str,
    servers: &[(&str, &str)],
) -> (Vec<String>, Vec<Outcome>) {
    let hop = NextHop::Mx(Domain::parse("d.test").unwrap());
    let (rules, settings) = (Arc::new(rules()), Arc::new(client::Settings::for_tests()));
    let limits = Limits::for_tests();
    let mut session =
        OutboundSession::new(&hop, message(), rules, settings, limits, dead.clone(), at(0));
    let (mut tried, mut outcomes) = (Vec::new(), Vec::new());
    while let Some(output) = session.poll() {
        match output {
            Output::Ask(question) => {
                let answer = answer(zone, &question);
                session.handle(Input::Answer { question, answer, chance: 3 }, at(0));
            }
            Output::Connect(target) => {
                tried.push(target.peer().to_string());
                let server = servers.iter().find(|(name, _)| *name == &*target.name);
                match server.map(|(_, says)| *says) {
                    None => session.handle(Input::ConnectFailed("connection refused"), at(0)),
                    Some("silence") => {
                        let due = session.next_wakeup().unwrap();
                        let now = Now { monotonic: due, ..Now::default() };
                        session.handle(Input::Session(client::Input::Tick), now);
                    }
                    Some(says) => {
                        session.handle(Input::Connected, at(0));
                        let input = client::Input::Received(says.as_bytes());
                        session.handle(Input::Session(input), at(0));
                        session.handle(Input::Session(client::Input::Lost), at(0));
                    }
                }
            }
            Output::Session(client::Output::Done { outcomes: told, .. }) => outcomes = told,
            Output::Session(client::Output::Close) => {}
            Output::Session(other) => panic!("{other:?}"),
        }
    }
    assert!(session.is_closed());
    (tried, outcomes)
}

#[test]
fn addresses_are_tried_until_one_greets_and_the_most_hopeful_reason_is_told() {
    let zone = "d.test MX 10 a.test; d.test MX 20 b.test; a.test A 192.0.2.1; b.test A 192.0.2.2";
    let good = "220 b\r\n250 b\r\n250 m\r\n250 r\r\n250 r\r\n354 go\r\n250 kept\r\n";
    for (servers, tried, expected) in [
        (&[("a.test", good)][..], 1, (Stage::End, 250)),
        (&[("b.test", good)], 2, (Stage::End, 250)),
        (&[("a.test", "silence"), ("b.test", good)], 2, (Stage::End, 250)),
        (&[("a.test", "421 busy\r\n"), ("b.test", good)], 2, (Stage::End, 250)),
        (&[("a.test", "554 go away\r\n"), ("b.test", good)], 2, (Stage::End, 250)),
        (&[("a.test", ""), ("b.test", good)], 2, (Stage::End, 250)),
        (&[("a.test", "220 a\r\n451 later\r\n"), ("b.test", good)], 2, (Stage::End, 250)),
        (&[], 2, (Stage::Connect, 451)),
        (&[("a.test", "554 no\r\n"), ("b.test", "554 no\r\n")], 2, (Stage::Greeting, 554)),
        (&[("a.test", "554 no\r\n")], 2, (Stage::Connect, 451)),
        (&[("b.test", "554 no\r\n")], 2, (Stage::Connect, 451)),
        // Once it has greeted us the peer decides, not the next one.
        (&[("a.test", "220 a\r\n250 a\r\n550 no\r\n")], 1, (Stage::Mail, 550)),
        (&[("a.test", "220 a\r\n250 a\r\n"), ("b.test", good)], 1, (Stage::Mail, 451)),
    ] {
        let (peers, outcomes) = attempt(zone, servers);
        assert_eq!(peers.len(), tried, "{servers:?}");
        for outcome in &outcomes {
            let report = outcome.report();
            assert_eq!((report.stage, report.reply.code), expected, "{servers:?}");
            assert_eq!(matches!(outcome, Outcome::Failed(_)), expected.1 >= 500);
        }
        assert_eq!(outcomes.len(), 2);
    }
}

#[test]
fn what_the_first_peer_that_greets_says_of_each_recipient_counts() {
    let zone = "d.test MX 10 a.test; d.test MX 20 b.test; a.test A 192.0.2.1; b.test A 192.0.2.2";
    let says = "220 a\r\n250 a\r\n250 m\r\n550 no\r\n450 later\r\n";
    let (peers, outcomes) = attempt(zone, &[("a.test", says)]);
    let codes: Vec<u16> = outcomes.iter().map(|outcome| outcome.report().reply.code).collect();
    assert_eq!((peers.len(), codes), (1, vec![550, 450]));
}

#[test]
fn a_peer_has_the_whole_time_to_take_a_connection_and_the_next_one_is_tried_after_it() {
    let zone = "d.test MX 10 a.test; d.test MX 20 b.test; a.test A 192.0.2.1; b.test A 192.0.2.2";
    let hop = NextHop::Mx(Domain::parse("d.test").unwrap());
    let (rules, settings) = (Arc::new(rules()), Arc::new(client::Settings::for_tests()));
    let (limits, dead) = (Limits::for_tests(), DeadAddresses::default());
    let connect = limits.connect.as_secs();
    let mut session = OutboundSession::new(&hop, message(), rules, settings, limits, dead, at(0));
    let mut connects = Vec::new();
    for second in 0..=connect {
        session.handle(Input::Session(client::Input::Tick), at(second));
        while let Some(output) = session.poll() {
            match output {
                Output::Ask(question) => {
                    let answer = answer(zone, &question);
                    session.handle(Input::Answer { question, answer, chance: 3 }, at(second));
                }
                Output::Connect(_) => connects.push(second),
                other => {
                    assert_eq!((other, second), (Output::Session(client::Output::Close), connect))
                }
            }
        }
    }
    assert_eq!(connects, [0, connect]);
}

#[test]
fn lookups_that_take_too_long_defer_and_not_before_their_time() {
    let hop = NextHop::Mx(Domain::parse("d.test").unwrap());
    let (rules, settings) = (Arc::new(rules()), Arc::new(client::Settings::for_tests()));
    let (limits, dead) = (Limits::for_tests(), DeadAddresses::default());
    let resolve = limits.resolve.as_secs();
    let mut session = OutboundSession::new(&hop, message(), rules, settings, limits, dead, at(0));
    assert!(matches!(session.poll(), Some(Output::Ask(_))));
    session.handle(Input::Session(client::Input::Tick), at(resolve - 1));
    assert_eq!(session.poll(), None);
    session.handle(Input::Session(client::Input::Tick), at(resolve));
    let Some(Output::Session(client::Output::Done { outcomes, .. })) = session.poll() else {
        panic!("it has ended")
    };
    let deferred = |outcome: &Outcome| matches!(outcome, Outcome::Deferred(_));
    assert!(outcomes.iter().all(deferred) && outcomes[0].report().stage == Stage::Resolve);
}

#[test]
fn a_line_takes_the_next_message_over_the_same_connection() {
    let hop = NextHop::LmtpUnix("/run/lmtp".into());
    let (rules, settings) = (Arc::new(rules()), Arc::new(client::Settings::for_tests()));
    let (limits, dead) = (Limits::for_tests(), DeadAddresses::default());
    let mut session = OutboundSession::new(&hop, message(), rules, settings, limits, dead, at(0));
    assert!(!session.can_send() && session.session().is_none());
    session.handle(Input::Connected, at(0));
    let good = "220 g\r\n250 g\r\n250 m\r\n250 r\r\n250 r\r\n354 go\r\n250 kept\r\n250 kept\r\n";
    session.handle(Input::Session(client::Input::Received(good.as_bytes())), at(0));
    assert!(session.can_send());
    session.handle(Input::Session(client::Input::Send(message())), at(0));
    assert!(!session.can_send());
    assert_eq!(session.session().map(client::Session::mails), Some(2));
}

#[test]
fn the_addresses_of_one_attempt_are_bounded() {
    let mut zone = String::new();
    for host in 0..9 {
        zone += &format!("d.test MX {host} h{host}.test; h{host}.test A 192.0.2.{};", host + 1);
    }
    let (tried, outcomes) = attempt(&zone, &[]);
    assert_eq!(tried.len(), Limits::for_tests().addresses_max);
    assert!(matches!(outcomes[0], Outcome::Deferred(_)));
}

#[test]
fn r237_seven_dead_mail_servers_before_a_good_one_take_two_attempts() {
    let mut zone = String::new();
    for host in 1..9 {
        zone += &format!("d.test MX {host} h{host}.test; h{host}.test A 192.0.2.{host};");
    }
    let good = "220 g\r\n250 g\r\n250 m\r\n250 r\r\n250 r\r\n354 go\r\n250 kept\r\n";
    let hosts = |tried: Vec<String>| {
        tried.iter().map(|peer| peer[..2].to_string()).collect::<Vec<_>>().join(" ")
    };
    for dying in ["silence", "421 busy\r\n", "554 no\r\n", "220 h\r\n451 later\r\n", ""] {
        let names: Vec<String> = (1..8).map(|host| format!("h{host}.test")).collect();
        let mut servers: Vec<_> = names.iter().map(|name| (name.as_str(), dying)).collect();
        servers.push(("h8.test", good));
        let dead = DeadAddresses::default();
        let (tried, _) = attempt_knowing(&dead, &zone, &servers);
        assert_eq!(hosts(tried), "h1 h2 h3 h4 h5");
        let (tried, outcomes) = attempt_knowing(&dead, &zone, &servers);
        assert_eq!(hosts(tried), "h1 h2 h6 h7 h8", "{dying:?}");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Delivered { .. })));
        // The best one has recovered.
        servers[0].1 = good;
        assert_eq!(hosts(attempt_knowing(&dead, &zone, &servers).0), "h1");
        servers[0].1 = dying;
        let (tried, _) = attempt_knowing(&dead, &zone, &servers);
        assert_eq!(hosts(tried), "h1 h2 h3 h4 h8");
    }
}

#[test]
fn r237_where_an_attempt_reaches_all_addresses_none_is_remembered_as_dead() {
    let zone = |hosts: std::ops::Range<usize>| -> String {
        let host = |n| format!("d.test MX {n} h{n}.test; h{n}.test A 192.0.2.{n};");
        hosts.map(host).collect()
    };
    let (dead, all) = (DeadAddresses::default(), Limits::for_tests().addresses_max);
    let (first, _) = attempt_knowing(&dead, &zone(1..all + 1), &[]);
    let (tried, _) = attempt_knowing(&dead, &zone(1..9), &[]);
    assert_eq!(tried, first);
}

#[test]
fn d158_a_unix_socket_that_is_not_there_defers() {
    let hop = NextHop::LmtpUnix("/run/lmtp".into());
    let (rules, settings) = (Arc::new(rules()), Arc::new(client::Settings::for_tests()));
    let (limits, dead) = (Limits::for_tests(), DeadAddresses::default());
    let mut session = OutboundSession::new(&hop, message(), rules, settings, limits, dead, at(0));
    let Some(Output::Connect(target)) = session.poll() else { panic!("it has an address") };
    assert_eq!(target.place, Where::Unix("/run/lmtp".into()));
    session.handle(Input::ConnectFailed("no such file or directory"), at(0));
    let Some(Output::Session(client::Output::Done { outcomes, .. })) = session.poll() else {
        panic!("it has ended")
    };
    assert!(matches!(&outcomes[0], Outcome::Deferred(report) if &*report.peer == "/run/lmtp"));
}
