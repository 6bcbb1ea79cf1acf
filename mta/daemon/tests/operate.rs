//! The effect of a postmaster's commands on a running mailer.
//!
//! Must never use the daemon except through its command line, its sink and its mailboxes.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};
use support::{Client, Daemon, Script, Setup, Sink, token, until};

/// The local parts that the sink accepts. All others get 451.
static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn take(user: &str) {
    TAKEN.lock().unwrap().insert(user.to_owned());
}

/// The argument of RCPT: `TO:<user@sink.test>`.
fn answer(argument: &str) -> String {
    let user = argument.split(['<', '@']).nth(1).unwrap_or("");
    match TAKEN.lock().unwrap().contains(user) {
        true => "250 2.1.5 Ok".into(),
        false => "451 4.2.1 Not now".into(),
    }
}

fn start() -> (Daemon, Sink) {
    let sink = Sink::start(Script { rcpt: answer, ..Script::default() });
    (Daemon::with_sink(&sink), sink)
}

/// The daemon of the tests that look only at their own messages.
fn place() -> &'static (Daemon, Sink) {
    static PLACE: OnceLock<(Daemon, Sink)> = OnceLock::new();
    PLACE.get_or_init(start)
}

/// Sends a message that the sink refuses once. Returns its queue id.
fn deferred(daemon: &Daemon, user: &str) -> String {
    let recipient = format!("{user}@sink.test");
    send(daemon, &recipient);
    until("a deferred message", || {
        let rows = daemon.queue(&["--recipient", &recipient, "--state", "deferred"]);
        rows.first().map(|row| row["id"].as_str().unwrap().to_owned())
    })
}

fn send(daemon: &Daemon, recipient: &str) {
    let mut client = Client::in_data(daemon.port, "a@client.test", recipient);
    client.send(format!("Subject: to {recipient}\r\n\r\nbody\r\n.\r\n"));
    client.expect(250);
    client.ask("QUIT", 221);
}

/// The JSON that a command prints. The command must succeed.
fn json(daemon: &Daemon, arguments: &[&str]) -> Value {
    let output = daemon.command(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The text that a command prints for people. The command must succeed.
fn text(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.command(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn gate(daemon: &Daemon, id: &str) -> Value {
    json(daemon, &["queue", "explain", "--json", id])["recipients"][0]["gate"].clone()
}

#[test]
fn a_held_message_says_so_and_goes_when_it_is_released_not_when_it_is_flushed() {
    let (daemon, sink) = place();
    let user = token("hold");
    let id = deferred(daemon, &user);
    assert_eq!(gate(daemon, &id), "retry");
    let last = json(daemon, &["queue", "explain", "--json", &id])["recipients"][0]["last"].clone();
    assert_eq!((&last["code"], &last["enhanced"]), (&451.into(), &"4.2.1".into()));
    assert_eq!(json(daemon, &["queue", "hold", "--json", &id])["messages"], 1);
    assert_eq!(gate(daemon, &id), "held");
    let words = text(daemon, &["queue", "explain", &id]);
    assert!(words.contains("held: held by an operator"), "{words}");
    assert_eq!(daemon.queue(&["--state", "held", &id]).len(), 1);
    // Neither flush, retry nor run releases the message, although the sink would accept it now.
    take(&user);
    let flushed = token("flush");
    let other = deferred(daemon, &flushed);
    take(&flushed);
    for command in [&["queue", "retry", &id][..], &["queue", "run"], &["queue", "flush"]] {
        text(daemon, command);
    }
    sink.wait(&flushed);
    until("the flushed message to leave", || daemon.queue(&[&other]).is_empty().then_some(()));
    assert_eq!(gate(daemon, &id), "held");
    assert!(sink.with(&user).is_empty());
    assert_eq!(json(daemon, &["queue", "release", "--json", &id])["messages"], 1);
    sink.wait(&user);
    until("the released message to leave", || daemon.queue(&[&id]).is_empty().then_some(()));
    let gone = daemon.command(&["queue", "explain", &id]);
    assert_eq!(gone.status.code(), Some(1), "{}", String::from_utf8_lossy(&gone.stderr));
}

#[test]
fn a_retried_message_is_sent_and_the_others_still_wait() {
    let (daemon, sink) = place();
    let (chosen, other) = (token("retry"), token("waits"));
    let (first, second) = (deferred(daemon, &chosen), deferred(daemon, &other));
    take(&chosen);
    let retried = json(daemon, &["queue", "retry", "--json", "--dry-run", &first]);
    assert_eq!((&retried["messages"], &retried["dry_run"]), (&1.into(), &true.into()));
    assert_eq!(gate(daemon, &first), "retry");
    json(daemon, &["queue", "retry", "--json", &first]);
    sink.wait(&chosen);
    assert_eq!(daemon.queue(&[&second]).len(), 1);
    assert!(sink.with(&other).is_empty());
    text(daemon, &["queue", "delete", "--yes", &second]);
}

#[test]
fn what_is_deleted_is_counted_first_and_stays_deleted_after_a_restart() {
    let (daemon, sink) = start();
    let ids: Vec<String> = ["one", "two"].map(|name| deferred(&daemon, &token(name))).into();
    send(&daemon, "b@hold.test");
    let by_sender = ["queue", "delete", "--json", "--sender", "a@client.test"];
    let would = json(&daemon, &[&by_sender[..], &["--dry-run"]].concat());
    assert_eq!((&would["messages"], &would["dry_run"]), (&3.into(), &true.into()));
    assert_eq!(would["recipients"], 3);
    assert_eq!(daemon.queued(), 3);
    // No user is there to confirm.
    let asked = daemon.command(&["queue", "delete", &ids[0]]);
    assert!(!asked.status.success());
    assert_eq!(daemon.queued(), 3);
    // No option says which messages.
    assert_eq!(daemon.command(&["queue", "delete", "--yes"]).status.code(), Some(2));
    let did = json(&daemon, &["queue", "delete", "--json", "--yes", &ids[0]]);
    assert_eq!((&did["messages"], &did["dry_run"]), (&1.into(), &false.into()));
    let left = |daemon: &Daemon| -> BTreeSet<String> {
        daemon.queue(&[]).iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let before = left(&daemon);
    assert!(before.len() == 2 && !before.contains(&ids[0]), "{before:?}");
    daemon.stop();
    daemon.start_again();
    assert_eq!(left(&daemon), before, "after a restart");
    text(&daemon, &["queue", "delete", "--yes", "--all"]);
    assert_eq!(daemon.queued(), 0);
    // A confirmed command survives a crash directly after it.
    daemon.kill();
    daemon.start_again();
    assert_eq!(daemon.queued(), 0, "after a crash");
    assert!(sink.mails().is_empty(), "deleted mail was sent, or its sender told");
}

#[test]
fn a_hold_survives_a_restart() {
    let (daemon, sink) = start();
    let user = token("kept");
    let id = deferred(&daemon, &user);
    text(&daemon, &["queue", "hold", &id]);
    take(&user);
    daemon.kill();
    daemon.start_again();
    assert_eq!(gate(&daemon, &id), "held");
    assert!(sink.with(&user).is_empty());
    text(&daemon, &["queue", "release", "--recipient", &format!("{user}@sink.test")]);
    sink.wait(&user);
}

#[test]
fn a_run_says_how_long_reading_and_sorting_took_in_every_order() {
    let (daemon, sink) = start();
    let users: Vec<String> = (0..20).map(|_| token("run")).collect();
    for user in &users {
        send(&daemon, &format!("{user}@sink.test"));
    }
    until("all to be deferred", || {
        (daemon.summary()["deferred"].as_u64() == Some(20)).then_some(())
    });
    for order in ["fair", "priority", "arrival", "destination", "modified", "id", "random", "none"]
    {
        let ran = json(&daemon, &["queue", "run", "--json", "--order", order]);
        assert_eq!(ran["order"], order);
        let seconds = |name: &str| ran[name].as_f64().unwrap();
        let sum = seconds("read_seconds") + seconds("sort_seconds");
        assert!((sum - seconds("sum_seconds")).abs() < 1e-9, "{ran}");
        assert!((0.0..60.0).contains(&seconds("begin_seconds")), "{ran}");
        assert!(seconds("read_seconds") >= 0.0 && sum < 60.0, "{ran}");
        assert!(ran["messages"].as_u64().unwrap() <= 20);
    }
    until("all to be deferred again", || {
        (daemon.summary()["deferred"].as_u64() == Some(20)).then_some(())
    });
    users.iter().for_each(|user| take(user));
    let words = text(&daemon, &["queue", "run", "--order", "id"]);
    assert!(words.starts_with("order id, 20 messages: read "), "{words}");
    for part in [" s, sort ", " s, sum ", " s; begun in "] {
        assert!(words.contains(part), "{words}");
    }
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    assert_eq!(sink.mails().len(), 20);
    assert!(!daemon.command(&["queue", "run", "--order", "best"]).status.success());
}

#[test]
fn a_summary_has_the_fields_that_tools_rely_on_and_they_add_up() {
    let (daemon, _sink) = start();
    let (held, waiting) = (deferred(&daemon, &token("sum")), deferred(&daemon, &token("sum")));
    text(&daemon, &["queue", "hold", &held]);
    let summary = daemon.summary();
    let field = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("{name}: {summary}"));
    assert_eq!((field("messages"), field("recipients")), (2, 2), "{summary}");
    assert_eq!((field("active"), field("deferred"), field("held")), (0, 1, 1), "{summary}");
    assert!(field("oldest_seconds") < 600, "{summary}");
    assert_eq!(daemon.queue(&["--state", "deferred"])[0]["id"], waiting.as_str());
}

#[test]
fn status_names_the_processes_that_there_are_and_counts_what_they_did() {
    let (daemon, sink) = start();
    let user = token("status");
    take(&user);
    send(&daemon, &format!("{user}@sink.test"));
    sink.wait(&user);
    let status = until("the delivery in the counters", || {
        let status = json(&daemon, &["status", "--json"]);
        let queue = status["processes"][0].clone();
        (queue["counters"]["delivered"].as_u64() == Some(1)).then_some(status)
    });
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    let queue = &status["processes"][0];
    assert_eq!(queue["role"], "queue");
    assert_eq!(queue["counters"]["accepted"], 1);
    assert_eq!(daemon.pids_of("queue"), [queue["pid"].as_u64().unwrap() as u32]);
    let roles: BTreeSet<&str> = status["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["local", "queue", "receive", "send"].into());
    let words = text(&daemon, &["status"]);
    assert!(words.contains("delivered=1"), "{words}");
}

#[test]
fn too_much_memory_for_sessions_puts_off_new_mail_and_ends_no_session() {
    let tables = "[processes]\nreceive = 1\n[limits]\nsession_memory_bytes_max = \"1MiB\"\nconnections = 80\n".into();
    let daemon = Daemon::start(Setup { tables, ..Setup::default() });
    let user = token("memory");
    let early = format!("{user}@local.test");
    let mut waiting = Client::ready(daemon.port);
    // Each client holds the first chunk of its message. The reply to BDAT shows that the chunk is counted, so
    // the reply to the next client does not depend on how far receive has read the others.
    let mut large: Vec<Client> = Vec::new();
    // There is no room for another chunk, but for further connections.
    let mut idle: Vec<Client> = Vec::new();
    let body = "0123456789012345678901234567890123456789\r\n".repeat(1_000);
    let chunk = format!("Subject: large\r\n\r\n{body}");
    let refused = until("421 for a new connection", || {
        let mut client = Client::connect(daemon.port);
        let greeting = client.reply();
        if greeting.code != 220 {
            return Some(greeting);
        }
        client.ask("EHLO large.test", 250);
        let transaction = [
            "MAIL FROM:<a@client.test>\r\n".to_owned(),
            format!("RCPT TO:<{early}>\r\n"),
            format!("BDAT {}\r\n{chunk}", chunk.len()),
        ];
        let mut replies = transaction.iter().map(|command| {
            client.send(command);
            client.reply()
        });
        let Some(put_off) = replies.find(|reply| reply.code != 250) else {
            large.push(client);
            return None;
        };
        assert_eq!((put_off.code, put_off.enhanced()), (452, "4.3.1"), "{put_off:?}");
        idle.push(client);
        None
    });
    assert_eq!((refused.code, refused.enhanced()), (421, "4.3.2"), "{refused:?}");
    // The rest of the memory may suffice for a sender and a recipient, but not for a chunk of a body.
    let rcpt = format!("RCPT TO:<{early}>");
    let commands = ["MAIL FROM:<a@client.test>", &rcpt, "DATA"];
    let deferred = commands.iter().map(|line| waiting.command(line)).find(|r| r.code != 250);
    let deferred = deferred.expect("DATA never has 250");
    assert_eq!((deferred.code, deferred.enhanced()), (452, "4.3.1"), "{deferred:?}");
    waiting.ask("RSET", 250);
    // The open transactions end and free their memory.
    let count = large.len();
    assert!((10..30).contains(&count), "{count} times 42 KB to 64 KiB in 1 MiB");
    for mut client in large {
        client.ask("BDAT 0 LAST", 250);
        client.ask("QUIT", 221);
    }
    drop(idle);
    until("room for new connections", || {
        (Client::connect(daemon.port).reply().code == 220).then_some(())
    });
    waiting.ask("MAIL FROM:<a@client.test>", 250);
    until("all of them", || (daemon.mailbox(&user).len() == count).then_some(()));
    daemon.works();
}
