//! Recipients that are the same mailbox, recipients that have none, and clients of a Unix socket: R212 to R221.
//!
//! Must never read more of a mailbox than its files.

use crate::support::{Client, Daemon, Setup, until};
use crate::{RECIPIENTS_MAX, place};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Returns `count` spellings of one local part of at least ten letters.
fn spellings(word: &str, count: usize) -> Vec<String> {
    let cased = |bits: usize| -> String {
        let case = |(at, letter): (usize, char)| match bits >> at & 1 {
            0 => letter,
            _ => letter.to_ascii_uppercase(),
        };
        word.char_indices().map(case).collect()
    };
    let forms = |bits: usize| {
        let word = cased(bits);
        [word.clone(), format!("\"{word}\""), format!("\"\\{word}\"")]
    };
    (0..).flat_map(forms).take(count).collect()
}

#[test]
fn r212_one_mailbox_in_a_thousand_spellings_gets_one_copy_and_its_sender_one_notice() {
    let sender = "spelling-sender@sink.test";
    let mut client = Client::ready(place().daemon.port);
    client.ask(&format!("MAIL FROM:<{sender}>"), 250);
    let all = spellings("spellingbee", RECIPIENTS_MAX);
    let lines = all.iter().map(|word| format!("RCPT TO:<{word}@local.test> NOTIFY=SUCCESS\r\n"));
    client.send(lines.collect::<String>());
    for word in &all {
        assert_eq!(client.reply().code, 250, "{word}");
    }
    client.ask("DATA", 354);
    client.send("Subject: r212-token\r\n\r\nx\r\n.\r\n");
    client.expect(250);
    place().daemon.wait_in_mailbox("spellingbee", "r212-token");
    let notices = || {
        let all = place().sink.mails();
        all.iter().filter(|mail| mail.to.iter().any(|to| to.contains(sender))).count()
    };
    until("the notice", || (notices() > 0).then_some(()));
    let left = || place().daemon.queue(&["--recipient", sender]).len();
    until("the queue to have no more", || (left() == 0).then_some(()));
    assert_eq!((notices(), place().daemon.mailbox("spellingbee").len()), (1, 1));
}

#[test]
fn r213_mail_for_the_postmaster_is_in_the_mailbox_that_the_settings_name() {
    let daemon = Daemon::start(Setup { top: "postmaster = \"ann\"".into(), ..Setup::default() });
    let all = ["postmaster", "PostMaster@local.test", "postmaster@mx.local.test"];
    for (number, to) in all.iter().enumerate() {
        let mut client = Client::stranger(daemon.port);
        client.envelope("a@client.test", to);
        client.ask("DATA", 354);
        client.send(format!("Subject: to-{number}\r\n\r\nx\r\n.\r\n"));
        client.expect(250);
        daemon.wait_in_mailbox("ann", &format!("to-{number}"));
    }
    // The postmaster and ann have the same mailbox.
    let mut client = Client::stranger(daemon.port);
    client.ask("MAIL FROM:<a@client.test>", 250);
    for to in ["ann@local.test", "postmaster@local.test"] {
        client.ask(&format!("RCPT TO:<{to}>"), 250);
    }
    client.ask("DATA", 354);
    client.send("Subject: once\r\n\r\nx\r\n.\r\n");
    client.expect(250);
    daemon.wait_in_mailbox("ann", "once");
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    assert_eq!(
        (daemon.mailbox("ann").len(), daemon.mailbox("postmaster").len()),
        (all.len() + 1, 0)
    );
}

#[test]
fn r213_accounts_that_get_no_mail_are_refused_at_rcpt() {
    let daemon = Daemon::start(Setup {
        top: "postmaster = \"ann@sink.test\"".into(),
        routes: "users = \"system\"\n".into(),
        deliver: "maildir:{home}/Maildir/".into(),
        sink_port: place().sink.port,
        ..Setup::default()
    });
    let mut client = Client::stranger(daemon.port);
    client.ask("MAIL FROM:<a@client.test>", 250);
    for user in ["root", "ROOT", "\"root\"", "nobody-of-this-name"] {
        let reply = client.ask(&format!("RCPT TO:<{user}@local.test>"), 550);
        assert_eq!(reply.enhanced(), "5.1.1", "{user}");
    }
    client.ask("RCPT TO:<postmaster@local.test>", 250);
    client.ask("DATA", 354);
    client.send("Subject: r213-elsewhere\r\n\r\nx\r\n.\r\n");
    client.expect(250);
    let came = || {
        let all = place().sink.mails();
        let found = all.iter().find(|mail| mail.to.iter().any(|to| to.contains("ann@sink.test")));
        found.map(|mail| mail.to.clone())
    };
    until("the postmaster's mail at the sink", came);
}

#[test]
fn r216_a_message_that_says_its_recipient_had_it_is_refused_and_nobody_hears_of_it() {
    let sender = "forged-r216@sink.test";
    let user = "r216-user";
    for field in ["Delivered-To: R216-User@local.test", "delivered-to :\r\n r216-user@Local.Test"] {
        // A small message, and a message whose first pieces are staged before its end arrives.
        for size in [10, 400_000] {
            let mut client = Client::stranger(place().daemon.port);
            client.ask(&format!("MAIL FROM:<{sender}>"), 250);
            client.ask("RCPT TO:<r216-other@local.test>", 250);
            client.ask(&format!("RCPT TO:<{user}@local.test>"), 250);
            client.ask("DATA", 354);
            client.send(format!("{field}\r\nSubject: x\r\n\r\n"));
            client.send(format!("{}\r\n.\r\n", "y\r\n".repeat(size / 3)));
            let reply = client.expect(554);
            assert_eq!(reply.enhanced(), "5.4.6");
            // The session continues.
            client.ask("RSET", 250);
        }
    }
    let to_others =
        "Delivered-To: somebody@local.test\r\nDelivered-To: r216-user@elsewhere.example";
    let mut client = Client::stranger(place().daemon.port);
    client.envelope(sender, &format!("{user}@local.test"));
    client.ask("DATA", 354);
    client.send(format!("{to_others}\r\nSubject: r216-taken\r\n\r\nx\r\n.\r\n"));
    client.expect(250);
    place().daemon.wait_in_mailbox(user, "r216-taken");
    assert_eq!(place().daemon.mailbox(user).len(), 1);
    assert!(place().daemon.mailbox("r216-other").is_empty());
    let heard = place()
        .sink
        .mails()
        .into_iter()
        .filter(|mail| mail.to.iter().any(|to| to.contains(sender)));
    assert_eq!(heard.count(), 0);
}

#[test]
fn r217_an_option_is_refused_at_rcpt_where_a_program_gets_the_name() {
    let deliver = "pipe:/bin/true {user}".into();
    let daemon = Daemon::start(Setup { deliver, ..Setup::default() });
    let mut client = Client::ready(daemon.port);
    client.ask("MAIL FROM:<a@client.test>", 250);
    for user in ["--config=x", "-oQ`id`", "\"-x\"", "\"\\-x\""] {
        client.ask(&format!("RCPT TO:<{user}@local.test>"), 550);
    }
    client.ask("RCPT TO:<a-b@local.test>", 250);
}

/// Sends these lines to a daemon over its Unix socket. Returns the codes of the replies.
fn codes(path: &Path, lines: &[&str]) -> Vec<String> {
    let stream = until("the Unix socket", || UnixStream::connect(path).ok());
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut reply = || {
        let mut line = String::from("----");
        while line.as_bytes()[3] == b'-' {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        line[..3].to_owned()
    };
    assert_eq!(reply(), "220");
    let ask = |line: &&str| {
        (&stream).write_all(format!("{line}\r\n").as_bytes()).unwrap();
        reply()
    };
    lines.iter().map(ask).collect()
}

#[test]
fn r221_clients_of_a_unix_socket_relay_only_where_a_setting_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let table = |name: &str, more: &str| {
        format!("[[listen]]\naddress = \"unix:{}\"\n{more}\n", path(name).display())
    };
    let tables = table("plain", "") + &table("open", "mode = \"0606\"\ntrusted = true");
    let _daemon = Daemon::start(Setup { tables, ..Setup::default() });
    let lines = [
        "EHLO c.test",
        "MAIL FROM:<a@client.test>",
        "RCPT TO:<b@elsewhere.example>",
        "RCPT TO:<b@local.test>",
    ];
    assert_eq!(codes(&path("plain"), &lines), ["250", "250", "554", "250"]);
    assert_eq!(codes(&path("open"), &lines), ["250", "250", "250", "250"]);
    let mode = |name| std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("plain"), mode("open")), (0o660, 0o606));
}
