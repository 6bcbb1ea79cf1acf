//! Compares our parser of commands with that of smtp-proto: lines that both accept must mean the same.
//!
//! Must never report a difference if one of the parsers refuses the line.

use crate::command::{self, Command};
use crate::params;
use ::mail::Notify;
use proptest::prelude::*;
use smtp_proto::*;

/// Returns the result of smtp-proto in the form of [`ours`], or `None` if it refuses the line or cannot be compared.
fn theirs(line: &str) -> Option<Vec<String>> {
    let wire = format!("{line}\r\n");
    let request = Request::parse(&mut wire.as_bytes().iter()).ok()?;
    Some(match request {
        Request::Ehlo { host } => vec!["ehlo".into(), host.into()],
        Request::Helo { host } => vec!["helo".into(), host.into()],
        Request::Lhlo { host } => vec!["lhlo".into(), host.into()],
        Request::Mail { from } => vec![
            "mail".into(),
            from.address.to_string(),
            from.size.to_string(),
            (from.flags & MAIL_SMTPUTF8 != 0).to_string(),
            (from.flags & MAIL_BODY_8BITMIME != 0).to_string(),
            (from.flags & MAIL_RET_FULL != 0).to_string(),
            (from.flags & MAIL_RET_HDRS != 0).to_string(),
        ],
        Request::Rcpt { to } => {
            let has = |flag| to.flags & flag != 0;
            let notify = Notify::of(
                has(RCPT_NOTIFY_SUCCESS),
                has(RCPT_NOTIFY_FAILURE),
                has(RCPT_NOTIFY_DELAY),
            );
            let notify = if has(RCPT_NOTIFY_NEVER) { Notify::NEVER } else { notify };
            vec!["rcpt".into(), to.address.to_string(), format!("{:?}", notify.parameter())]
        }
        Request::Bdat { chunk_size, is_last } => {
            vec!["bdat".into(), chunk_size.to_string(), is_last.to_string()]
        }
        Request::Data => vec!["data".into()],
        Request::Rset => vec!["rset".into()],
        Request::Quit => vec!["quit".into()],
        Request::Noop { .. } => vec!["noop".into()],
        Request::Vrfy { .. } => vec!["vrfy".into()],
        Request::Expn { .. } => vec!["expn".into()],
        Request::Help { .. } => vec!["help".into()],
        _ => return None,
    })
}

/// Returns the address without quotes, which smtp-proto removes.
fn unquoted(address: &::mail::Address) -> String {
    format!("{}@{}", address.local_unquoted(), address.domain_text())
}

/// Returns the result of our parser.
fn ours(line: &str) -> Option<Vec<String>> {
    Some(match command::parse(line.as_bytes()).ok()? {
        Command::Ehlo(name) => vec!["ehlo".into(), name.into()],
        Command::Helo(name) => vec!["helo".into(), name.into()],
        Command::Lhlo(name) => vec!["lhlo".into(), name.into()],
        Command::Mail(path) => {
            let asked = params::mail(path.parameters).ok()?;
            let address = ::mail::Address::parse(path.mailbox, asked.smtputf8).ok()?;
            vec![
                "mail".into(),
                unquoted(&address),
                asked.size.unwrap_or(0).to_string(),
                asked.smtputf8.to_string(),
                (asked.body == Some(::mail::BodyKind::EightBit)).to_string(),
                (asked.ret == Some(::mail::Ret::Full)).to_string(),
                (asked.ret == Some(::mail::Ret::Headers)).to_string(),
            ]
        }
        Command::Rcpt(path) => {
            let asked = params::rcpt(path.parameters, true).ok()?;
            let address = ::mail::Address::parse(path.mailbox, true).ok()?;
            let notify = asked.notify.unwrap_or(Notify::DEFAULT);
            vec!["rcpt".into(), unquoted(&address), format!("{:?}", notify.parameter())]
        }
        Command::Bdat { size, last } => vec!["bdat".into(), size.to_string(), last.to_string()],
        Command::Data => vec!["data".into()],
        Command::Rset => vec!["rset".into()],
        Command::Quit => vec!["quit".into()],
        Command::Noop => vec!["noop".into()],
        Command::Vrfy => vec!["vrfy".into()],
        Command::Expn => vec!["expn".into()],
        Command::Help => vec!["help".into()],
        _ => return None,
    })
}

fn verb() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "EHLO",
        "helo",
        "LHLO",
        "MAIL FROM:",
        "Mail From:",
        "RCPT TO:",
        "rcpt to:",
        "DATA",
        "RSET",
        "QUIT",
        "NOOP",
        "BDAT",
        "VRFY",
        "EXPN",
        "HELP",
    ])
}

fn path() -> impl Strategy<Value = String> {
    let local = prop_oneof!["[a-z0-9]{1,6}", "[a-z.+=!]{1,6}", "\"[a-z @]{1,5}\""];
    (local, "[a-z]{1,5}(\\.[a-z]{2,4}){0,2}")
        .prop_map(|(local, domain)| format!("<{local}@{domain}>"))
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        path(),
        "[0-9]{1,9}",
        "[a-z]{1,6}\\.[a-z]{2,3}",
        prop::sample::select(vec![
            "LAST",
            "SIZE=1000",
            "SIZE=0",
            "BODY=8BITMIME",
            "BODY=7BIT",
            "SMTPUTF8",
            "RET=FULL",
            "RET=HDRS",
            "ENVID=abc",
            "NOTIFY=NEVER",
            "NOTIFY=SUCCESS,DELAY",
            "NOTIFY=FAILURE",
            "ORCPT=rfc822;a@b.c",
            "FOO=1",
        ])
        .prop_map(String::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn where_both_accept_both_mean_the_same(verb in verb(), first in word(), rest in prop::collection::vec(word(), 0..3)) {
        let glue = if verb.ends_with(':') || first.is_empty() { "" } else { " " };
        let mut line = format!("{verb}{glue}{first}");
        for word in rest.iter().filter(|word| !word.is_empty()) {
            line.extend([" ", word]);
        }
        if let (Some(ours), Some(theirs)) = (ours(&line), theirs(&line)) {
            prop_assert_eq!(ours, theirs, "{}", line);
        }
    }
}

#[test]
fn the_usual_lines_are_accepted_by_both() {
    for line in [
        "EHLO c.test",
        "HELO c.test",
        "LHLO c.test",
        "MAIL FROM:<a@b.test>",
        "RCPT TO:<a@b.test>",
        "DATA",
        "QUIT",
        "MAIL FROM:<a@b.test> SIZE=1000 BODY=8BITMIME RET=HDRS ENVID=abc SMTPUTF8",
        "BDAT 10",
        "BDAT 10 LAST",
        "RSET",
        "RCPT TO:<a@b.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a@b.test",
        "NOOP",
        "VRFY a",
        "EXPN a",
        "HELP",
    ] {
        let both = ours(line).zip(theirs(line));
        assert!(
            both.is_some_and(|(ours, theirs)| ours == theirs),
            "{line}: {:?} {:?}",
            ours(line),
            theirs(line)
        );
    }
}
