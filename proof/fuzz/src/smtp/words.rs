//! Command lines with their parameters, and replies.
//!
//! Must never take a refusal for a fault: what counts is what was accepted.

use crate::input::{Input, pieces};
use crate::memory;
use ::smtp::client::{Garbage, Offers, ReplyReader};
use ::smtp::command::{self, Command};
use ::smtp::params;
use mail::{Address, Notify, Reply, Ret};

/// Lines by themselves, apart from any session.
pub fn commands(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        // IDNA takes 4 bytes for each character that a source route's names are mapped to.
        let idna_bytes = if line.is_ascii() { 0 } else { 64 * line.len() };
        let parsed = memory::within(4_096 + idna_bytes, || command::parse(line));
        match parsed {
            Ok(command) => accepted(command, line),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn accepted(command: Command<'_>, line: &[u8]) {
    assert!(line.iter().all(|byte| !byte.is_ascii_control()));
    if let Some(printed) = printed(command) {
        assert_eq!(command::parse(printed.as_bytes()), Ok(command), "{printed}");
    }
    match command {
        Command::Mail(path) => {
            mail_parameters(path.parameters);
            one_address(path.mailbox);
        }
        Command::Rcpt(path) => {
            rcpt_parameters(path.parameters, false);
            rcpt_parameters(path.parameters, true);
            one_address(path.mailbox);
        }
        _ => {}
    }
}

/// What was parsed, in one spelling; `None` where the spelling was dropped on the way.
fn printed(command: Command<'_>) -> Option<String> {
    Some(match command {
        Command::Helo(name) => format!("HELO {name}"),
        Command::Ehlo(name) => format!("ehlo  {name}"),
        Command::Lhlo(name) => format!("LHLO {name} "),
        // After a source route that was taken off another may stand: no address begins so.
        Command::Mail(path) | Command::Rcpt(path) if path.mailbox.starts_with('@') => {
            assert!(Address::parse(path.mailbox, true).is_err());
            return None;
        }
        Command::Mail(path) => format!("MAIL FROM:<{}>{}", path.mailbox, path.parameters),
        Command::Rcpt(path) => format!("RCPT TO:<@a.b:{}>{}", path.mailbox, path.parameters),
        Command::Bdat { size, last } => format!("BDAT {size}{}", if last { " LAST" } else { "" }),
        Command::Data => "DATA".into(),
        Command::Rset => "RSET".into(),
        Command::Noop => "NOOP x".into(),
        Command::Quit => "QUIT".into(),
        Command::Vrfy => "VRFY x".into(),
        Command::Expn => "EXPN x".into(),
        Command::Help => "HELP".into(),
        Command::Auth => "AUTH".into(),
        Command::Unimplemented => "ETRN".into(),
    })
}

fn one_address(mailbox: &str) {
    if let Ok(address) = Address::parse(mailbox, true) {
        // What is accepted stands inside the `<>` of the commands that pass it on.
        let line = format!("RCPT TO:<{address}>");
        let again = command::parse(line.as_bytes());
        assert!(matches!(again, Ok(Command::Rcpt(path)) if path.mailbox == mailbox), "{line}");
    }
}

fn mail_parameters(text: &str) {
    let found = match params::mail(text) {
        Ok(found) => found,
        Err(reply) => return harmless(&reply),
    };
    let mut line = String::new();
    if let Some(size) = found.size {
        line += &format!(" SIZE={size}");
    }
    if let Some(body) = found.body {
        line += if body == mail::BodyKind::EightBit { " body=8bitmime" } else { " BODY=7BIT" };
    }
    if found.smtputf8 {
        line += " SMTPUTF8";
    }
    if let Some(ret) = found.ret {
        line += if ret == Ret::Full { " RET=FULL" } else { " RET=HDRS" };
    }
    if let Some(envid) = found.envid {
        assert!(is_one_word(envid));
        line += &format!(" ENVID={envid}");
    }
    let again = params::mail(&line).expect("what was accepted is accepted again");
    let fields = |of: &params::MailParameters<'_>| {
        (of.size, of.body, of.smtputf8, of.ret, of.envid.map(String::from))
    };
    assert_eq!(fields(&again), fields(&found));
}

fn rcpt_parameters(text: &str, utf8: bool) {
    let found = match params::rcpt(text, utf8) {
        Ok(found) => found,
        Err(reply) => return harmless(&reply),
    };
    let mut line = String::new();
    if let Some(notify) = found.notify.filter(|notify| *notify != Notify::DEFAULT) {
        line += &format!(" NOTIFY={}", notify.parameter().expect("one was given"));
    }
    if let Some(orcpt) = found.orcpt {
        assert!(is_one_word(orcpt) && (utf8 || orcpt.is_ascii()));
        line += &format!(" ORCPT={orcpt}");
    }
    assert_eq!(params::rcpt(&line, utf8), Ok(found));
}

/// Can stand in a command of ours, and nothing after it is read otherwise.
pub fn is_one_word(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|c| c == ' ' || c.is_control())
}

/// Checks that a refusal can be written to a client: its code, and no character that could begin a line.
fn harmless(reply: &Reply) {
    assert!(matches!(reply.code, 400..=599), "{reply}");
    assert!(reply.text.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{reply}");
}

/// Replies one after the other, in one piece and cut.
pub fn replies(data: &[u8]) {
    let mut input = Input(data);
    let cuts = input.short();
    let stream = input.rest();
    let whole = read(stream, &[]);
    assert_eq!(read(stream, cuts), whole);
    assert_eq!(read(stream, &[1]), whole);
    for reply in &whole.0 {
        peer_reply(reply);
    }
}

/// All replies, how it ended, and whether one is half there.
fn read(stream: &[u8], cuts: &[u8]) -> (Vec<Reply>, Option<Garbage>, bool) {
    let mut reader = ReplyReader::default();
    let mut replies = Vec::new();
    for piece in pieces(stream, cuts) {
        let mut rest = piece;
        while !rest.is_empty() {
            match reader.take(rest) {
                Err(garbage) => return (replies, Some(garbage), false),
                Ok((taken, reply)) => {
                    assert!(taken > 0 && (reply.is_some() || taken == rest.len()));
                    rest = &rest[taken..];
                    replies.extend(reply);
                }
            }
        }
    }
    (replies, None, reader.is_amid())
}

/// What every reply of a peer is once it was read.
fn peer_reply(reply: &Reply) {
    assert!(matches!(reply.code, 200..=599));
    assert!(reply.enhanced.is_none_or(|code| u16::from(code.0) == reply.code / 100));
    assert!(reply.text.chars().all(|c| c.is_ascii_graphic() || c == ' ' || c == '\n'), "{reply:?}");
    assert!(reply.text.len() <= 8 << 10);
    if reply.text.lines().all(|line| line.len() < 2_000) {
        let mut wire = Vec::new();
        reply.encode(&mut wire);
        assert_eq!(read(&wire, &[]), (vec![reply.clone()], None, false));
    }
    let offers = Offers::parse(&reply.text);
    for limit in [offers.mail_max, offers.rcpt_max, offers.rcpt_domain_max] {
        assert_ne!(limit, Some(0));
    }
}
