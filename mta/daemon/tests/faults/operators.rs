//! Operators at work during deliveries, crashes and a disk that does not answer: X194, X195, X197, X198, X201.
//!
//! Must never count a command as confirmed unless it succeeded.

use crate::field::{Field, Promised, RETRY};
use crate::support::{Client, Daemon, Script, Setup, Sink, until};
#[cfg(debug_assertions)]
use crate::support::{daemon::signal_to, token};
use link::admin::{Request, encode};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Sends `count` messages on one connection and returns their queue ids.
fn hand_over(daemon: &Daemon, recipient: &str, count: usize) -> Vec<String> {
    let mut client = Client::ready(daemon.port);
    let mut hand = || {
        client.envelope("a@sink.test", recipient);
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nx\r\n.\r\n");
        client.expect(250).lines[0].rsplit(' ').next().unwrap().to_string()
    };
    (0..count).map(|_| hand()).collect()
}

#[cfg(debug_assertions)]
fn troubles(daemon: &Daemon) -> (String, Option<i32>) {
    let output = daemon.command(&["status"]);
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), output.status.code())
}

#[test]
#[cfg(debug_assertions)]
fn x194_a_disk_that_does_not_answer_shows_in_status_and_clients_hear_451() {
    use crate::support::faults::{FREEZE_ALL, Faults, Point};
    let faults = Faults::new();
    let limits = "[limits]\ncommit_timeout = \"6s\"\nsession_memory_bytes_max = \"1MiB\"\nconnections = 80\n";
    let field = Field::start(Setup {
        environment: faults.environment(),
        tables: limits.into(),
        ..Setup::default()
    });
    let daemon = &field.daemon;
    assert_eq!(troubles(daemon).1, Some(0));
    let mut early = Client::ready(daemon.port);
    let mut whole = Client::in_data(daemon.port, "a@client.test", "b@sink.test");
    let mut large = Client::in_data(daemon.port, "a@client.test", "large@sink.test");
    faults.arm(FREEZE_ALL, &[(Point::BeforeWrite, 1)]);
    let token = token("stuck");
    whole.send(format!("Subject: {token}\r\n\r\nx\r\n.\r\n"));
    let mut sending = large.stream.try_clone().unwrap();
    let filling = std::thread::spawn(move || {
        let _ = sending.write_all("a body that finds no room\r\n".repeat(200_000).as_bytes());
        let _ = sending.write_all(b".\r\n");
    });
    let said = until("status to say it", || {
        let (said, code) = troubles(daemon);
        said.contains("TROUBLE: the disk has not answered for").then_some((said, code))
    });
    assert_eq!(said.1, Some(1), "{}", said.0);
    until("new mail to be refused", || {
        let reply = early.command("MAIL FROM:<a@client.test>");
        early.ask("RSET", 250);
        (reply.code == 451).then_some(())
    });
    // The result is unknown (RFC 1047), so the connection ends.
    assert_eq!(whole.next_reply(), None);
    let refused = large.next_reply().map(|reply| reply.code);
    assert!(matches!(refused, None | Some(421 | 451 | 452)), "{refused:?}");
    filling.join().unwrap();
    faults.thaw();
    until("status to be well", || (troubles(daemon).1 == Some(0)).then_some(()));
    field.sink.wait(&token);
    assert_eq!(field.sink.with(&token).len(), 1);
    until("new mail to be taken", || {
        let code = early.command("MAIL FROM:<a@client.test>").code;
        early.ask("RSET", 250);
        (code == 250).then_some(())
    });
    daemon.works();
}

#[test]
#[cfg(debug_assertions)]
fn x194_a_queue_process_that_hangs_shows_in_status_and_clients_hear_451() {
    let limits = "[limits]\ncommit_timeout = \"2s\"\n";
    let field = Field::start(Setup { tables: limits.into(), ..Setup::default() });
    let daemon = &field.daemon;
    let mut early = Client::ready(daemon.port);
    let mut whole = Client::in_data(daemon.port, "a@client.test", "b@sink.test");
    let queue = daemon.pids_of("queue")[0];
    signal_to(queue, libc::SIGSTOP);
    whole.send("Subject: x\r\n\r\nx\r\n.\r\n");
    until("new mail to be refused", || {
        let reply = early.command("MAIL FROM:<a@client.test>");
        early.ask("RSET", 250);
        (reply.code == 451).then_some(())
    });
    let (said, code) = troubles(daemon);
    assert!(said.contains("no answer from the queue process"), "{said}");
    assert!(code.is_some_and(|code| code != 0));
    signal_to(queue, libc::SIGCONT);
    assert_eq!(troubles(daemon).1, Some(0));
    daemon.works();
}

/// Numbers of messages at the start. `POSTHASTE_QUEUE_SIZES=1000,10000,100000` prints the table.
fn sizes() -> Vec<usize> {
    let sizes = std::env::var("POSTHASTE_QUEUE_SIZES").unwrap_or("100,400".into());
    sizes.split(',').map(|size| size.parse().unwrap()).collect()
}

#[test]
fn x195_a_start_after_a_kill_finds_the_whole_queue_however_long_it_is() {
    let daemon = Daemon::start(Setup::default());
    let mut there = 0;
    for size in sizes() {
        std::thread::scope(|scope| {
            let more = size - there;
            let daemon = &daemon;
            (0..4).for_each(|nth| {
                let part = (more + nth) / 4;
                scope.spawn(move || hand_over(daemon, "b@hold.test", part));
            });
        });
        there = size;
        daemon.kill_all();
        let began = Instant::now();
        daemon.start_again();
        let greets = began.elapsed();
        assert_eq!(daemon.queued(), size as u64);
        println!("{size} queued: greets {} ms after the start", greets.as_millis());
    }
}

/// The number of messages of each kind.
const EACH: usize = 8;

/// Runs a command until it succeeds, even while the daemon is restarted.
fn insist(daemon: &Daemon, arguments: &[&str]) {
    until("a command to be confirmed", || daemon.command(arguments).status.success().then_some(()));
}

#[test]
fn x197_commands_beside_deliveries_and_kills_bring_nothing_deleted_back_and_lose_nothing() {
    static OPEN: AtomicBool = AtomicBool::new(false);
    let sink = Sink::start(Script {
        rcpt: |argument| match OPEN.load(SeqCst) || argument.contains("now@") {
            true => "250 2.1.5 Ok".into(),
            false => "451 4.7.1 Later".into(),
        },
        ..Script::default()
    });
    let setup = Setup { sink_port: sink.port, tables: RETRY.into(), ..Setup::default() };
    let daemon = &Daemon::start(setup);
    let waiting = hand_over(daemon, "deferred@sink.test", 3 * EACH);
    let (deleted, rest) = waiting.split_at(EACH);
    let (held, retried) = rest.split_at(EACH);
    let busy = AtomicBool::new(true);
    let flows = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let each = |list: Vec<String>, command: &'static [&'static str]| {
            move || list.iter().for_each(|id| insist(daemon, &[command, &[id.as_str()]].concat()))
        };
        let work = [
            scope.spawn(each(deleted.to_vec(), &["queue", "delete", "--yes"])),
            scope.spawn(each(held.to_vec(), &["queue", "hold"])),
            scope.spawn(each(retried.to_vec(), &["queue", "retry"])),
        ];
        scope.spawn(|| {
            while busy.load(SeqCst) {
                daemon.command(&["queue", "list", "--json"]);
            }
        });
        scope.spawn(|| {
            while busy.load(SeqCst) {
                let load = crate::support::load::Load::start(1, daemon.port, "now@sink.test");
                load.wait_for_more(3);
                flows.fetch_add(load.stop().len() as u64, SeqCst);
            }
        });
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(250));
            daemon.kill_all();
            daemon.start_again();
        }
        work.into_iter().for_each(|work| work.join().unwrap());
        busy.store(false, SeqCst);
    });
    assert!(flows.load(SeqCst) > 0, "mail flows meanwhile");
    OPEN.store(true, SeqCst);
    until("all but the held to leave", || (daemon.queued() == EACH as u64).then_some(()));
    let came = |id: &String| sink.with(id).len();
    assert_eq!(deleted.iter().map(came).sum::<usize>(), 0, "deleted, confirmed, delivered");
    assert_eq!(held.iter().map(came).sum::<usize>(), 0, "held, confirmed, delivered");
    assert!(retried.iter().all(|id| came(id) >= 1), "lost");
    insist(daemon, &["queue", "release", "--recipient", "deferred@sink.test"]);
    until("the held to leave", || (daemon.queued() == 0).then_some(()));
    assert!(held.iter().all(|id| came(id) >= 1), "lost");
}

#[test]
fn x198_what_an_operator_saw_confirmed_as_deleted_stays_deleted_after_a_kill() {
    let daemon = Daemon::start(Setup::default());
    let ids = hand_over(&daemon, "b@hold.test", 3 * EACH);
    for part in ids.chunks(EACH).take(2) {
        let ids: Vec<&str> = part.iter().map(String::as_str).collect();
        insist(&daemon, &[&["queue", "delete", "--yes"], &ids[..]].concat());
        daemon.kill_all();
        daemon.start_again();
        let left = daemon.queue(&[]);
        let left: Vec<&str> = left.iter().map(|entry| entry["id"].as_str().unwrap()).collect();
        assert!(ids.iter().all(|id| !left.contains(id)), "deleted, confirmed, and there again");
    }
    assert_eq!(daemon.queued(), EACH as u64, "what nobody deleted is there");
}

/// More connections than the queue process serves at the same time.
const SILENT: usize = 80;

#[test]
fn x201_a_flood_of_questions_and_askers_that_never_read_change_nothing_for_mail() {
    let field = Field::start(Setup::default());
    let socket = field.daemon.directory.join("state/control.sock");
    let question = encode(&Request::Status).unwrap();
    let load = field.load(2);
    load.wait_for_more(3);
    let stop = AtomicBool::new(false);
    let answers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // Some clients send requests and never read, others send nothing.
        let mut deaf = Vec::new();
        for nth in 0..SILENT {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.set_nonblocking(true).unwrap();
            while nth % 2 == 0 && stream.write(&question).is_ok() {}
            deaf.push(stream);
        }
        for _ in 0..4 {
            scope.spawn(|| {
                let mut stream = UnixStream::connect(&socket).unwrap();
                let mut answer = [0; 64 << 10];
                while !stop.load(SeqCst) {
                    let asked = stream.write_all(&question);
                    match asked.and_then(|()| stream.read(&mut answer)) {
                        Ok(length) if length > 0 => drop(answers.fetch_add(1, SeqCst)),
                        // This client was disconnected among the silent ones and connects again.
                        _ => stream = UnixStream::connect(&socket).unwrap(),
                    }
                }
            });
        }
        load.wait_for_more(20);
        until("answers for those who read", || (answers.load(SeqCst) > 100).then_some(()));
        load.wait_for_more(20);
        stop.store(true, SeqCst);
    });
    let mut promised = Promised::default();
    load.stop(&mut promised);
    let count = field.judge(&promised);
    assert!(count.lost.is_empty() && count.twice == 0, "{count:?}");
    field.daemon.works();
}
