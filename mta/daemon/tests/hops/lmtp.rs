//! LMTP: a reply for each recipient, servers that close in between, and missing sockets (D156 to D158).
//!
//! Must never attribute a reply to another recipient.

use crate::hop::{Hop, PLAIN};
use crate::support::{Client, Daemon, Setup, until};
use crate::{HURRY, Place, case};
use std::os::unix::net::UnixListener;

const CHUNKING: &str = "250-hop\r\n250-PIPELINING\r\n250 CHUNKING\r\n";
const PIPELINING: &str = "250-hop\r\n250-PIPELINING\r\n250 8BITMIME\r\n";

#[test]
fn d156_d157_only_recipients_without_an_answer_are_tried_again() {
    type Rules<'a> = &'a [(&'static str, &'a str)];
    let table: &[(Rules<'_>, [&'static str; 3])] = &[
        (&[], ["D250", "D250", "D250"]),
        (
            &[(".", "250 a\r\n"), (".", "452 full\r\n"), (".", "550 no\r\n")],
            ["D250", "T452 D250", "F550"],
        ),
        (&[("RCPT", "550 no\r\n"), (".", "250 a\r\n!")], ["F550", "D250", "T451 D250"]),
        (&[(".", "!")], ["T451 D250", "T451 D250", "T451 D250"]),
        (&[(".", "250 a\r\n!")], ["D250", "T451 D250", "T451 D250"]),
        (&[(".", "250 a\r\n"), (".", "250 b\r\n!")], ["D250", "D250", "T451 D250"]),
        (&[(".", "250 a\r\n"), (".", "banana\r\n!")], ["D250", "T451 D250", "T451 D250"]),
        // One reply more than there are recipients is ignored.
        (
            &[(".", "250 a\r\n"), (".", "250 b\r\n"), (".", "250 c\r\n250 d\r\n")],
            ["D250", "D250", "D250"],
        ),
        (&[("RCPT", "450 a\r\n"), ("RCPT", "550 b\r\n")], ["T450 D250", "F550", "D250"]),
    ];
    let cases: Vec<_> = [CHUNKING, PIPELINING, PLAIN]
        .into_iter()
        .flat_map(|hello| table.iter().map(move |(rules, story)| case(hello, rules, story)))
        .collect();
    let hops = cases.iter().map(|case| {
        let rules: Vec<_> =
            case.rules.iter().map(|(verb, reply)| (*verb, reply.as_str())).collect();
        ("lmtp", Hop::lmtp(case.hello, &rules))
    });
    let place = Place::start(hops.collect());
    place.tell(&cases);
}

#[test]
fn d158_a_unix_socket_that_is_missing_full_or_refuses_defers_until_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let path = |name: &str| directory.path().join(name);
    // Refused: no process listens at the socket. Full: the listener accepts no more connections.
    drop(UnixListener::bind(path("refused")).unwrap());
    let full = UnixListener::bind(path("full")).unwrap();
    // A short backlog, so that few descriptors fill it.
    rustix::net::listen(&full, 16).unwrap();
    std::fs::set_permissions(path("full"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    let guests = fill(&path("full"));
    let names = ["missing", "refused", "full"];
    let route = |name: &&str| {
        let path = path(name);
        format!("[[route]]\ndomain = \"{name}.test\"\nto = \"lmtp:unix:{}\"\n", path.display())
    };
    let routes = names.iter().map(route).collect();
    let daemon = Daemon::start(Setup { routes, tables: HURRY.into(), ..Setup::default() });
    let mut client = Client::ready(daemon.port);
    for name in names {
        client.envelope("a@client.test", &format!("b@{name}.test"));
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
        client.expect(250);
    }
    for name in names {
        let to = format!("\"to\":\"<b@{name}.test>\"");
        daemon.wait_for_log(&[&to, "\"status\":\"deferred\""]);
    }
    assert_eq!(daemon.queued(), 3);
    daemon.works();
    std::fs::remove_file(path("refused")).unwrap();
    drop((guests, full));
    std::fs::remove_file(path("full")).unwrap();
    for name in names {
        let hop = Hop::unix(&path(name));
        until(&format!("the mail for {name}"), || {
            (hop.deliveries(&format!("b@{name}.test")) == 1).then_some(())
        });
    }
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
}

/// Opens connections that are never accepted, until the backlog is full.
fn fill(path: &std::path::Path) -> Vec<std::os::fd::OwnedFd> {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let mut guests = Vec::new();
    loop {
        assert!(guests.len() < 100, "the backlog is short");
        let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK);
        let socket = socket_with(kind.0, kind.1, kind.2, None).unwrap();
        match connect(&socket, &SocketAddrUnix::new(path).unwrap()) {
            Ok(()) => guests.push(socket),
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::AGAIN);
                return guests;
            }
        }
    }
}
