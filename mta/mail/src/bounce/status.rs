//! The part of a notice for machines: `message/delivery-status` and its global variant (RFC 3464 2, RFC 6533 4).
//!
//! Must never show an address or a reply in a form that a parser of fields could misread.

use super::text::{bounded, decode_xtext, fold, harmless};
use super::{BounceKind, Form, Notice, RecipientTexts, as_it_is};
use crate::trace::rfc5322_date;
use crate::{Address, Recipient, Report, Stage};
use std::fmt::Write;

pub(super) fn headers(body: &str, form: Form) -> String {
    let kind = if form == Form::Ascii { "delivery-status" } else { "global-delivery-status" };
    format!(
        "Content-Type: message/{kind}\r\nContent-Transfer-Encoding: {}\r\n",
        as_it_is(body.as_bytes())
    )
}

pub(super) fn status(notice: &Notice<'_>, told: &RecipientTexts) -> String {
    let mut out = String::new();
    let host = harmless(notice.hostname, false);
    fold(&mut out, "Reporting-MTA", &format!("dns; {host}"));
    if let Some(envid) = &notice.envelope.from.envid {
        // RFC 3464 2.2.1: decoded. A text that decodes to something unsafe is shown encoded.
        let shown = decode_xtext(envid).unwrap_or_else(|| harmless(envid, false));
        fold(&mut out, "Original-Envelope-Id", &bounded(&shown, ENVID_BYTES_MAX));
    }
    fold(&mut out, "Arrival-Date", &rfc5322_date(notice.envelope.arrived));
    fold(&mut out, "X-Posthaste-Queue-Id", &notice.id.to_string());
    out.push_str(&told.fields);
    out
}

/// Appends the group of fields of one recipient (RFC 3464 2.3), after an empty line.
pub(super) fn recipient(
    out: &mut String,
    notice: &Notice<'_>,
    recipient: &Recipient,
    report: &Report,
    reply_bytes_max: usize,
    form: Form,
) {
    out.push_str("\r\n");
    if let Some(orcpt) = &recipient.orcpt {
        fold(out, "Original-Recipient", &original_recipient(orcpt, form));
    }
    fold(out, "Final-Recipient", &typed(&recipient.address, form));
    fold(out, "Action", action(notice.kind));
    fold(out, "Status", &status_code(notice.kind, report));
    if let Some(host) = remote_mta(report) {
        fold(out, "Remote-MTA", &format!("dns; {host}"));
    }
    let diagnosis = harmless(&diagnosis(notice.kind, report), form == Form::Utf8);
    fold(out, "Diagnostic-Code", &bounded(&diagnosis, reply_bytes_max));
    fold(out, "Last-Attempt-Date", &rfc5322_date(notice.now));
    if let (BounceKind::Delayed, Some(until)) = (notice.kind, notice.retry_until) {
        fold(out, "Will-Retry-Until", &rfc5322_date(until));
    }
}

/// Returns the value of Diagnostic-Code. The type is `smtp` only if a peer sent the reply, and then the value is the
/// reply alone (RFC 3464 2.3.6).
fn diagnosis(kind: BounceKind, report: &Report) -> String {
    match (report.from_peer, kind) {
        (true, _) => format!("smtp; {}", report.reply),
        (false, BounceKind::Expired) => {
            format!("x-posthaste; 554 {EXPIRED} delivery time expired; {}", report.reply.text)
        }
        (false, _) => format!("x-posthaste; {}", report.reply),
    }
}

fn action(kind: BounceKind) -> &'static str {
    match kind {
        BounceKind::Failed | BounceKind::Expired => "failed",
        BounceKind::Delayed => "delayed",
        BounceKind::Relayed => "relayed",
        BounceKind::Delivered => "delivered",
    }
}

/// Returns the status of a recipient (RFC 3464 2.3.4): the peer's enhanced code if it fits the class of the reply,
/// otherwise the class alone. Expiry has its own code.
pub(super) fn status_code(kind: BounceKind, report: &Report) -> String {
    if kind == BounceKind::Expired {
        return EXPIRED.into();
    }
    let class = match (kind, report.reply.code / 100) {
        (BounceKind::Relayed | BounceKind::Delivered, _) => 2,
        (BounceKind::Delayed, _) => 4,
        (BounceKind::Failed | BounceKind::Expired, 4) => 4,
        (BounceKind::Failed | BounceKind::Expired, _) => 5,
    };
    match report.reply.enhanced {
        Some(code) if u16::from(code.0) == class && code.1 <= 999 && code.2 <= 999 => {
            code.to_string()
        }
        _ => format!("{class}.0.0"),
    }
}

/// Returns the host of `host[address]:port`, or the address as a literal. Returns `None` if no server replied
/// (RFC 3464 2.3.5).
fn remote_mta(report: &Report) -> Option<String> {
    if !report.from_peer || matches!(report.stage, Stage::Mailbox | Stage::Here | Stage::Resolve) {
        return None;
    }
    let peer = harmless(&report.peer, false);
    let (host, rest) = peer.split_once('[').unwrap_or((&peer, ""));
    let shown = match (host.trim(), rest.split_once(']')) {
        ("", Some((address, _))) => format!("[{address}]"),
        (host, _) => host.to_string(),
    };
    (!shown.is_empty()).then_some(shown)
}

/// Returns ORCPT as `type; address`. The address is decoded if the result is safe.
fn original_recipient(orcpt: &str, form: Form) -> String {
    let (kind, address) = orcpt.split_once(';').unwrap_or(("rfc822", orcpt));
    let kind = harmless(kind, false);
    let shown = if kind.eq_ignore_ascii_case("utf-8") && form != Form::Ascii {
        // RFC 6533 3: this type has its own encoding, which needs no decoding here.
        address.chars().map(|c| unicode_xtext(c, form)).collect()
    } else {
        decode_xtext(address).unwrap_or_else(|| harmless(address, false))
    };
    format!("{kind}; {}", bounded(&shown, ORCPT_BYTES_MAX))
}

/// Returns an address with its type (RFC 6533 3).
fn typed(address: &Address, form: Form) -> String {
    if address.is_ascii() {
        return format!("rfc822; {}", harmless(address.as_str(), false));
    }
    let text: String = address.as_str().chars().map(|c| unicode_xtext(c, form)).collect();
    format!("utf-8; {text}")
}

/// Returns one character of an address of type utf-8. Non-ASCII characters become `\x{…}` unless the notice is UTF-8
/// (RFC 6533 3, utf-8-addr-xtext).
fn unicode_xtext(c: char, form: Form) -> String {
    let mut out = String::new();
    if c.is_ascii_graphic() {
        out.push(c);
    } else if !c.is_ascii() && form == Form::Utf8 {
        out.push_str(&harmless(&c.to_string(), true));
    } else {
        let _ = write!(out, "\\x{{{:02X}}}", c as u32);
    }
    out
}

/// The code for "delivery time expired", permanent (RFC 3463 3.5).
const EXPIRED: &str = "5.4.7";
/// Upper bound in bytes on an envelope id (RFC 3461 4.4: 100 characters before encoding).
const ENVID_BYTES_MAX: usize = 400;
/// Upper bound in bytes on an original recipient (RFC 3461 4.2: 500 characters).
const ORCPT_BYTES_MAX: usize = 800;
