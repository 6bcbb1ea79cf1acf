//! A large crowd of mail for one slow domain, and many dead domains: other mail is still delivered (D174,
//! D175).
//!
//! The scheduler's tests repeat this with 100,000 messages under virtual time.
//!
//! Must never measure time: the other mail arrives while the crowd still waits.

use crate::World;
use crate::hop::{Hop, PLAIN};
use crate::support::{Client, until};

/// Sends pipelined, one recipient per message.
fn send_many(world: &World, count: usize, recipient: impl Fn(usize) -> String) {
    let mut client = Client::ready(world.daemon.port);
    for number in 0..count {
        client.send(format!(
            "MAIL FROM:<list@client.test>\r\nRCPT TO:<{}>\r\nDATA\r\n",
            recipient(number)
        ));
        for code in [250, 250, 354] {
            client.expect(code);
        }
        client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
        client.expect(250);
    }
    client.ask("QUIT", 221);
}

#[test]
fn d174_mail_passes_by_three_thousand_messages_for_a_slow_domain() {
    const SLOW: usize = 3_000;
    let mut zone = String::from("slow.test A 198.51.100.2\n");
    (0..50).for_each(|number| zone += &format!("other{number}.test A 198.51.100.1\n"));
    let Some(world) = World::start(&zone, &["198.51.100.1"], "") else { return };
    let slowly = format!("~250 2.0.0 {}\r\n", "kept, ".repeat(40));
    let rules = vec![(".", slowly.as_str()); SLOW];
    let slow = Hop::at_with("198.51.100.2:25", PLAIN, &rules);
    send_many(&world, SLOW, |number| format!("r{number}@slow.test"));
    until("the slow one to be busy", || (slow.seen(|seen| seen.open) >= 5).then_some(()));
    send_many(&world, 200, |number| format!("r{number}@other{}.test", number % 50));
    until("the mail of the others", || {
        (world.hops[0].seen(|seen| seen.taken.len()) == 200).then_some(())
    });
    let taken = slow.seen(|seen| seen.taken.len());
    assert!(taken < SLOW - 200, "{taken} of {SLOW}: it was not slow enough to show anything");
    assert!(slow.seen(|seen| seen.open_max) <= 100, "no more connections than one destination has");
    world.daemon.works();
}

#[test]
fn d175_mail_passes_by_ten_thousand_dead_domains_in_bounded_descriptors() {
    const DEAD: usize = 10_000;
    let mut zone = String::from("known.test A 198.51.100.1\n");
    for number in 0..DEAD {
        // Half of the domains neither accept nor refuse connections. Of the others, some refuse, and some have
        // a name server that does not answer.
        let fact = match number % 4 {
            0 | 1 => "A 198.51.100.66",
            2 => "A 198.51.100.67",
            _ => "SILENCE",
        };
        zone += &format!("dead{number}.test {fact}\n");
    }
    let tables = format!("[limits]\nrecipients_max = {DEAD}\n");
    let Some(world) = World::start(&zone, &["198.51.100.1"], &tables) else { return };
    let _full = full("198.51.100.66:25");
    world.arrives(&[("known.test", 0)]);
    let dead: Vec<String> = (0..DEAD).map(|number| format!("b@dead{number}.test")).collect();
    world.send("list", &dead.iter().map(String::as_str).collect::<Vec<_>>());
    let in_flight = || world.daemon.summary()["attempts_in_flight"].as_u64().unwrap();
    until("the dead ones to take all they may", || (in_flight() >= 550).then_some(()));
    let delivered = || world.hops[0].seen(|seen| seen.taken.len());
    for number in 1..=20 {
        world.send("list", &["b@known.test"]);
        until("mail for one who answers", || (delivered() == 1 + number).then_some(()));
        world.daemon.works();
    }
    let send = world.daemon.pids_of("send");
    let files = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let files: usize = send.iter().map(files).sum();
    assert!(files < 1_500, "{files} descriptors");
    let summary = world.daemon.summary();
    let left = summary["recipients"].as_u64().unwrap();
    assert_eq!(left, DEAD as u64, "{summary}");
    assert!(in_flight() <= 1_000);
}

/// An address that accepts no connection, because its backlog is full.
fn full(place: &str) -> Vec<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
    let place: std::net::SocketAddr = place.parse().unwrap();
    let (inet, stream) = (AddressFamily::INET, SocketType::STREAM);
    let listener = socket_with(inet, stream, SocketFlags::empty(), None).unwrap();
    bind(&listener, &place).unwrap();
    listen(&listener, 0).unwrap();
    let mut sockets = vec![listener];
    for _ in 0..4 {
        let guest = socket_with(inet, stream, SocketFlags::NONBLOCK, None).unwrap();
        let _ = connect(&guest, &place);
        sockets.push(guest);
    }
    sockets
}
