//! Delivery status notices: bounce, delay notice, and notices of success (RFC 3461, 3462, 3464,
//! 6533), as complete messages with their envelope.
//!
//! Must never answer the null sender, never tell a recipient's sender what was not asked for with
//! NOTIFY, and never let a peer's or a client's text become a header, a field or a boundary. Must
//! never make a notice whose text about recipients is longer than `NOTICE_TEXT_BYTES_MAX`.

mod original;
mod status;
mod text;
mod words;

use crate::trace::rfc5322_date;
use crate::{
    Address, Envelope, MailFrom, MessageId, Notify, Origin, Protocol, Recipient, Report, Ret,
    ReversePath, Wall,
};
use original::{OriginalPart, original_part};
use text::{harmless, is_clean};

/// What the notice tells (RFC 3464 2.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// These recipients will never get it.
    Failed,
    /// The same, because it has been tried for too long. The evidence is that of the last attempt.
    Expired,
    /// They have not got it yet; it will be tried again.
    Delayed,
    /// They were handed to a server that will send no notice (RFC 3461 5.2.2).
    Relayed,
    /// They have it.
    Delivered,
}

/// How much of the original message goes into a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// Its first lines, up to so many bytes.
    Start(usize),
    /// Its headers only.
    Headers,
}

/// The facts of one notice.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// What it tells, the same for all its recipients.
    pub kind: Kind,
    /// Our name.
    pub hostname: &'a str,
    /// Whom people may ask: the From of the notice.
    pub postmaster: &'a Address,
    /// The queue id of the original message.
    pub id: MessageId,
    /// The envelope of the original message.
    pub envelope: &'a Envelope,
    /// Index in the envelope, and the evidence. The notice tells of the first ones, as many as fit;
    /// further notices tell of the others.
    pub recipients: &'a [(u32, Report)],
    /// How much of the original is in `original`: what `part` told.
    pub part: Part,
    /// The original message, or at least its headers, CRLF as it was received.
    pub original: &'a [u8],
    /// The size of the original message.
    pub original_bytes: u64,
    /// The time of the notice and of the last attempt.
    pub now: Wall,
    /// Until when it will be tried (`Delayed`), or was (`Expired`).
    pub retry_until: Option<Wall>,
}

/// A finished notice: to be staged like any message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounce {
    /// From the null sender to the original's sender.
    pub envelope: Envelope,
    /// The complete message, CRLF, no line over 998 octets but the original's own.
    pub bytes: Vec<u8>,
}

/// Recipients in one notice; more recipients are told of in several notices, so that each notice is bounded.
pub const NOTICE_RECIPIENTS_MAX: usize = 1_000;

/// What a notice says about its recipients, for people and for machines, is at most this long, in
/// bytes, unless one recipient alone takes more.
pub const NOTICE_TEXT_BYTES_MAX: usize = 384 << 10;

/// The longest reply that a notice shows, in bytes,
const REPLY_BYTES_MAX: usize = 4_096;
/// and the length up to which each of many is shown.
const REPLY_BYTES_MIN: usize = 512;
/// Within these two, all replies of a notice share this.
const REPLIES_BYTES_MAX: usize = 64 << 10;

// Replies are shown twice: to people and to machines.
const _: () = assert!(2 * REPLIES_BYTES_MAX < NOTICE_TEXT_BYTES_MAX);
const _: () = assert!(2 * 2 * REPLY_BYTES_MAX <= REPLIES_BYTES_MAX);

/// What a notice says about its recipients, and how many of those it was given that covers.
struct Told {
    /// For people.
    words: String,
    /// For machines.
    fields: String,
    /// Entries of `Notice::recipients`.
    entries: usize,
    /// Replies were cut to this length, in bytes.
    reply_bytes_max: usize,
    /// At least one was.
    is_cut: bool,
}

/// How much of a message of `bytes` a notice returns (RFC 3461 4.3 and 6.2): more than its headers
/// only in a bounce whose sender did not ask for headers only, and no more than
/// `original_bytes_max`.
pub fn part(kind: Kind, envelope: &Envelope, bytes: u64, original_bytes_max: u64) -> Part {
    let is_bounce = matches!(kind, Kind::Failed | Kind::Expired);
    match is_bounce && envelope.from.ret != Some(Ret::Headers) {
        false => Part::Headers,
        true if bytes <= original_bytes_max => Part::Whole,
        true => Part::Start(usize::try_from(original_bytes_max).unwrap_or(usize::MAX)),
    }
}

/// Whether a recipient's NOTIFY asks for such a notice (RFC 3461 4.1).
pub fn is_wanted(kind: Kind, notify: Notify) -> bool {
    match kind {
        Kind::Failed | Kind::Expired => notify.failure(),
        Kind::Delayed => notify.delay(),
        Kind::Relayed | Kind::Delivered => notify.success(),
    }
}

/// Makes the notice; `None` where nobody is to be told: the sender is null (RFC 5321 4.5.5), or
/// no recipient's NOTIFY asks for it.
pub fn bounce(notice: &Notice<'_>) -> Option<Bounce> {
    first_bounce(notice).0
}

/// Makes the first notice of those that the recipients need, and says of how many it tells: at
/// least one, if there is one.
pub fn first_bounce(notice: &Notice<'_>) -> (Option<Bounce>, usize) {
    let ReversePath::Address(sender) = &notice.envelope.from.sender else {
        return (None, notice.recipients.len());
    };
    let entries = notice.recipients.len().min(NOTICE_RECIPIENTS_MAX);
    let notice = &Notice { recipients: &notice.recipients[..entries], ..*notice };
    if wanted(notice).next().is_none() {
        return (None, entries);
    }
    let form = Form::of(notice.envelope, sender, wanted(notice).map(|(_, recipient, _)| recipient));
    let told = tell(notice, form);
    let entries = told.entries;
    (Some(finished(notice, sender, told, form)), entries)
}

/// The recipients that are told of: their place among those given, and the evidence.
fn wanted<'a>(
    notice: &Notice<'a>,
) -> impl Iterator<Item = (usize, &'a Recipient, &'a Report)> + use<'a> {
    let (kind, envelope) = (notice.kind, notice.envelope);
    notice.recipients.iter().enumerate().filter_map(move |(at, (index, report))| {
        let recipient = envelope.recipients.get(*index as usize)?;
        is_wanted(kind, recipient.notify).then_some((at, recipient, report))
    })
}

/// Writes about one recipient after the other until the notice is full.
fn tell(notice: &Notice<'_>, form: Form) -> Told {
    let share = REPLIES_BYTES_MAX / notice.recipients.len().max(1);
    let reply_bytes_max = share.clamp(REPLY_BYTES_MIN, REPLY_BYTES_MAX);
    let mut told = Told {
        words: String::new(),
        fields: String::new(),
        entries: notice.recipients.len(),
        reply_bytes_max,
        is_cut: false,
    };
    for (at, recipient, report) in wanted(notice) {
        let before = (told.words.len(), told.fields.len());
        words::recipient(&mut told.words, notice.kind, recipient, report, reply_bytes_max, form);
        status::recipient(&mut told.fields, notice, recipient, report, reply_bytes_max, form);
        if before.0 > 0
            && words::encoded_len(&told.words, form) + told.fields.len() > NOTICE_TEXT_BYTES_MAX
        {
            told.words.truncate(before.0);
            told.fields.truncate(before.1);
            told.entries = at;
            break;
        }
        told.is_cut |= report.reply.text.len() > reply_bytes_max;
    }
    told
}

fn finished(notice: &Notice<'_>, sender: &Address, told: Told, form: Form) -> Bounce {
    let bytes = assemble(notice, sender, told, form);
    let eight_bit = !bytes.is_ascii();
    // The body's kind is undeclared: a notice that a next hop without 8BITMIME does not get is lost.
    let from = MailFrom {
        smtputf8: form == Form::Utf8,
        ..MailFrom::new(ReversePath::Null).with_bytes(eight_bit)
    };
    let envelope = Envelope {
        from,
        origin: Origin { client: None, helo: "".into(), protocol: Protocol::Local },
        arrived: notice.now,
        // RFC 3461 6.1: the only NOTIFY that a notice may carry.
        recipients: vec![Recipient { address: sender.clone(), notify: Notify::NEVER, orcpt: None }],
    };
    Bounce { envelope, bytes }
}

/// Which alphabet the notice may use. A notice needs SMTPUTF8 on its way only if its own
/// recipient does: a sender with an ASCII address may well sit behind a server without it, and a
/// notice that cannot be sent is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Everything as RFC 3464 has it.
    Ascii,
    /// RFC 6533's types, encoded so that they pass where there is no SMTPUTF8 and no 8BITMIME.
    Utf8Encoded,
    /// RFC 6533's types, as they are.
    Utf8,
}

impl Form {
    fn of<'a>(
        envelope: &Envelope,
        sender: &Address,
        mut told: impl Iterator<Item = &'a Recipient>,
    ) -> Form {
        if !sender.is_ascii() {
            Form::Utf8
        } else if envelope.from.smtputf8 || told.any(|recipient| !recipient.address.is_ascii()) {
            Form::Utf8Encoded
        } else {
            Form::Ascii
        }
    }
}

fn assemble(notice: &Notice<'_>, sender: &Address, told: Told, form: Form) -> Vec<u8> {
    let original = original_part(notice, form);
    let words = words::words(notice, &told, original.returned, form);
    let status = status::status(notice, &told);
    let name = name(notice);
    let boundary = boundary(&name, [words.as_bytes(), status.as_bytes(), &original.body]);
    let mut out = head(notice, sender, &name, &boundary, form).into_bytes();
    let mut part = |headers: String, body: &[u8]| {
        out.extend_from_slice(format!("\r\n--{boundary}\r\n{headers}\r\n").as_bytes());
        out.extend_from_slice(body);
    };
    part(words::headers(&words, form), &words::encode(words, form));
    part(status::headers(&status, form), status.as_bytes());
    let OriginalPart { headers, body, .. } = original;
    part(headers, &body);
    out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    out
}

/// The headers of the notice itself (RFC 3462 1, RFC 3834 5).
fn head(notice: &Notice<'_>, sender: &Address, name: &str, boundary: &str, form: Form) -> String {
    let report_type =
        if form == Form::Ascii { "delivery-status" } else { "global-delivery-status" };
    let host = harmless(notice.hostname, false);
    format!(
        "Date: {date}\r\n\
         From: Mail Delivery System <{from}>\r\n\
         To: <{to}>\r\n\
         Subject: {subject}\r\n\
         Message-ID: <{name}@{host}>\r\n\
         Auto-Submitted: auto-replied\r\n\
         MIME-Version: 1.0\r\n\
         Content-Type: multipart/report; report-type={report_type};\r\n\
         \tboundary=\"{boundary}\"\r\n\
         \r\n\
         This is a delivery status notice in MIME format.\r\n",
        date = rfc5322_date(notice.now),
        from = harmless(notice.postmaster.as_str(), form == Form::Utf8),
        to = harmless(sender.as_str(), form == Form::Utf8),
        subject = words::subject(notice.kind),
    )
}

/// A name that no other notice has: the queue id, what is told, about whom first, and when.
fn name(notice: &Notice<'_>) -> String {
    let word = match notice.kind {
        Kind::Failed => "failed",
        Kind::Expired => "expired",
        Kind::Delayed => "delayed",
        Kind::Relayed => "relayed",
        Kind::Delivered => "delivered",
    };
    let first = notice.recipients.first().map_or(0, |(index, _)| *index);
    format!("{}.{word}.{first}.{}", notice.id, notice.now.micros())
}

/// A boundary that occurs in none of the parts (RFC 2046 5.1.1). A part of n bytes rules out at
/// most n of the candidates, so the search ends.
fn boundary(name: &str, parts: [&[u8]; 3]) -> String {
    let occurs = |candidate: &str| {
        parts.iter().any(|part| part.windows(candidate.len()).any(|w| w == candidate.as_bytes()))
    };
    (0u64..)
        .map(|number| format!("=_{name}.{number}"))
        .find(|candidate| !occurs(candidate))
        .expect("a finite text holds finitely many candidates")
}

/// `Content-Transfer-Encoding` of a part that goes as it is (RFC 2045 6.2).
fn as_it_is(body: &[u8]) -> &'static str {
    debug_assert!(is_clean(body));
    if body.is_ascii() { "7bit" } else { "8bit" }
}

#[cfg(test)]
mod tests;
