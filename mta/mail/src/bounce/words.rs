//! The part of a notice for people: what happened, who said so, and what to do.
//!
//! Must never let a line of a stranger's text begin at the first column.
//!
//! Tools that parse bounces know those of Postfix. The subject, the first line, the recipient in angle brackets with a
//! colon, "in reply to" and the words for expiry are therefore the same as there.

use super::original::Returned;
use super::status::status_code;
use super::text::{bounded, harmless, quoted_printable};
use super::{BounceKind, Form, Notice, RecipientTexts};
use crate::trace::rfc5322_date;
use crate::{Recipient, Report, Stage};
use std::fmt::Write;

pub(super) fn subject(kind: BounceKind) -> &'static str {
    match kind {
        BounceKind::Failed | BounceKind::Expired => "Undelivered Mail Returned to Sender",
        BounceKind::Delayed => "Delayed mail (still being tried)",
        BounceKind::Relayed => "Mail relayed (no further confirmation will follow)",
        BounceKind::Delivered => "Mail delivered",
    }
}

pub(super) fn headers(words: &str, form: Form) -> String {
    let (charset, encoding) = match (words.is_ascii(), form) {
        (true, _) => ("us-ascii", "7bit"),
        (false, Form::Utf8) => ("utf-8", "8bit"),
        (false, _) => ("utf-8", "quoted-printable"),
    };
    format!(
        "Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n"
    )
}

/// Encodes the words as `headers` announces.
pub(super) fn encode(words: String, form: Form) -> Vec<u8> {
    if words.is_ascii() || form == Form::Utf8 {
        words.into_bytes()
    } else {
        quoted_printable(words.as_bytes())
    }
}

/// Returns the maximum length of the words after encoding.
pub(super) fn encoded_len(words: &str, form: Form) -> usize {
    if form == Form::Utf8Encoded { words.len() * QP_GROWTH_MAX } else { words.len() }
}

pub(super) fn words(
    notice: &Notice<'_>,
    told: &RecipientTexts,
    returned: Returned,
    form: Form,
) -> String {
    let host = harmless(notice.hostname, false);
    let mut out = format!("This is the mail system at host {host}.\r\n\r\n{}", opening(notice));
    out.push_str(&told.words);
    if told.is_cut {
        let max = told.reply_bytes_max;
        let _ =
            write!(out, "\r\nReplies are shown up to {max} bytes; [...] marks what is cut.\r\n");
    }
    if told.entries < notice.recipients.len() {
        out.push_str("\r\nOther notices tell you about further recipients.\r\n");
    }
    let _ = write!(
        out,
        "\r\nYour message arrived here on {}\r\nand has the queue id {}.",
        rfc5322_date(notice.envelope.arrived),
        notice.id
    );
    let content = match returned {
        Returned::Whole => "It is attached.".into(),
        Returned::Start(bytes) => {
            let all = notice.original_bytes;
            format!("The first {bytes}\r\nof its {all} bytes are attached, the rest is cut.")
        }
        Returned::Headers => String::from("Its headers are attached."),
    };
    let _ = write!(
        out,
        " {content}\r\nIf you need help, send this notice to <{}>.\r\n",
        harmless(notice.postmaster.as_str(), form == Form::Utf8)
    );
    out
}

/// Returns what happened, in one or two sentences.
fn opening(notice: &Notice<'_>) -> String {
    match (notice.kind, notice.retry_until) {
        (BounceKind::Failed, _) => {
            "Your message could not be delivered to the recipients below.\r\n\
             It will not be tried again.\r\n"
                .into()
        }
        (BounceKind::Expired, Some(until)) => format!(
            "Your message could not be delivered in time to the recipients below.\r\n\
             It was tried until {}.\r\n\
             It will not be tried again.\r\n",
            rfc5322_date(until)
        ),
        (BounceKind::Expired, None) => {
            "Your message could not be delivered in time to the recipients below.\r\n\
             It will not be tried again.\r\n"
                .into()
        }
        (BounceKind::Delayed, Some(until)) => format!(
            "Your message has not been delivered to the recipients below yet.\r\n\
             It will be tried until {}.\r\n\
             You need not send it again.\r\n",
            rfc5322_date(until)
        ),
        (BounceKind::Delayed, None) => {
            "Your message has not been delivered to the recipients below yet.\r\n\
             It will be tried again. You need not send it again.\r\n"
                .into()
        }
        (BounceKind::Relayed, _) => {
            "Your message was handed on for the recipients below, to a server\r\n\
             that sends no confirmations. You may not hear of it again.\r\n"
                .into()
        }
        (BounceKind::Delivered, _) => {
            "Your message was delivered to the recipients below.\r\n".into()
        }
    }
}

/// Appends what happened to one recipient, after an empty line.
pub(super) fn recipient(
    out: &mut String,
    kind: BounceKind,
    recipient: &Recipient,
    report: &Report,
    reply_bytes_max: usize,
    form: Form,
) {
    out.push_str("\r\n");
    let unicode = form != Form::Ascii;
    let code = status_code(kind, report);
    let address = harmless(recipient.address.as_str(), unicode);
    let what = if kind == BounceKind::Expired { ": delivery time expired" } else { meaning(&code) };
    let _ = write!(out, "<{address}>: status {code}{what}\r\n");
    let peer = bounded(&harmless(&report.peer, unicode), PEER_BYTES_MAX);
    let who = match (report.from_peer, peer.is_empty()) {
        (true, false) => format!("{peer} said{}:", in_reply(report.stage)),
        (true, true) => format!("the other side said{}:", in_reply(report.stage)),
        (false, false) => format!("{peer}:"),
        (false, true) => "here:".into(),
    };
    let _ = write!(out, "      {who}\r\n");
    let prefix = match (report.from_peer, report.reply.enhanced) {
        (true, Some(enhanced)) => format!("{} {enhanced} ", report.reply.code),
        (true, None) => format!("{} ", report.reply.code),
        (false, _) => String::new(),
    };
    for line in bounded(&report.reply.text, reply_bytes_max).split('\n') {
        wrap(out, &harmless(&format!("{prefix}{line}"), unicode));
    }
}

/// Appends a line of a stranger's text, indented and wrapped.
fn wrap(out: &mut String, line: &str) {
    let mut rest = line.trim_end();
    loop {
        let mut end = rest.floor_char_boundary(WRAP_BYTES_MAX);
        if end < rest.len() {
            end = rest[..end].rfind(' ').filter(|at| *at > 0).unwrap_or(end);
        }
        let _ = write!(out, "          {}\r\n", &rest[..end]);
        rest = rest[end..].trim_start();
        if rest.is_empty() {
            return;
        }
    }
}

fn in_reply(stage: Stage) -> &'static str {
    match stage {
        Stage::Greeting => " in its greeting",
        Stage::Hello => " (in reply to EHLO command)",
        Stage::Mail => " (in reply to MAIL FROM command)",
        Stage::Rcpt => " (in reply to RCPT TO command)",
        Stage::Data => " (in reply to DATA command)",
        Stage::End => " (in reply to end of DATA command)",
        Stage::Resolve | Stage::Connect | Stage::Mailbox | Stage::Here => "",
    }
}

/// Returns the meaning of the most common codes (RFC 3463 3), so that nobody needs to look them up.
fn meaning(code: &str) -> &'static str {
    let detail = code.split_once('.').map_or("", |(_, detail)| detail);
    match detail {
        "1.1" => ": there is no such mailbox",
        "1.2" => ": there is no such domain",
        "1.3" => ": the address is not well-formed",
        "1.10" => ": the domain takes no mail",
        "2.1" => ": the mailbox is disabled",
        "2.2" => ": the mailbox is full",
        "2.3" => ": the message is too large for the mailbox",
        "3.1" => ": the mail system is full",
        "3.4" => ": the message is too large",
        "4.1" => ": the server does not answer",
        "4.2" => ": the connection broke",
        "4.3" => ": the domain's name servers do not answer",
        "4.4" => ": no server could be found for the domain",
        "4.6" => ": the message runs in a circle",
        "4.7" => ": it could not be delivered in time",
        "6.3" => ": the server does not take such content",
        "6.7" => ": the server does not take international addresses",
        "7.1" => ": it was refused by policy",
        _ => "",
    }
}

/// Upper bound on the bytes that one byte becomes in quoted-printable.
const QP_GROWTH_MAX: usize = 3;
/// The bytes after which a reply is wrapped, without its indentation.
const WRAP_BYTES_MAX: usize = 100;
/// Upper bound in bytes on the name of a peer.
const PEER_BYTES_MAX: usize = 400;
