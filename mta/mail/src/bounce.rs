//! Delivery status notices: bounces, delay notices and notices of success (RFC 3461, 3462, 3464, 6533), as complete
//! messages with their envelopes.
//!
//! Must never answer the null sender, never report what the sender excluded with NOTIFY, and never let a peer's or a
//! client's text become a header, a field or a boundary. Must never make a notice whose text about recipients is longer
//! than `NOTICE_TEXT_BYTES_MAX`.

mod original;
mod status;
mod text;
mod words;

use crate::trace::rfc5322_date;
use crate::{
    Address, Envelope, MailFrom, MessageId, Notify, Origin, Protocol, Recipient, Report, Ret,
    ReversePath, Timestamp,
};
use original::{OriginalPart, original_part};
use text::{harmless, is_clean};

/// What a notice reports about its recipients (RFC 3464 2.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BounceKind {
    /// Delivery has failed for good.
    Failed,
    /// Delivery has been tried for too long. The evidence is that of the last attempt.
    Expired,
    /// The message has not been delivered yet. Delivery will be tried again.
    Delayed,
    /// The message was relayed to a server that sends no notices (RFC 3461 5.2.2).
    Relayed,
    /// The message has been delivered.
    Delivered,
}

/// How much of the original message goes into a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excerpt {
    /// All of it.
    Whole,
    /// Its first lines, up to this number of bytes.
    Start(usize),
    /// Only its headers.
    Headers,
}

/// The facts of one notice.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// What the notice reports. It is the same for all its recipients.
    pub kind: BounceKind,
    /// Our host name.
    pub hostname: &'a str,
    /// The postmaster's address: the From of the notice.
    pub postmaster: &'a Address,
    /// The queue id of the original message.
    pub id: MessageId,
    /// The envelope of the original message.
    pub envelope: &'a Envelope,
    /// The recipients by their index in the envelope, with the evidence. The notice covers the first ones, as many as
    /// fit. Further notices cover the others.
    pub recipients: &'a [(u32, Report)],
    /// How much of the original is in `original`, as returned by [`excerpt`].
    pub excerpt: Excerpt,
    /// The original message or at least its headers, with CRLF as received.
    pub original: &'a [u8],
    /// The size of the original message.
    pub original_bytes: u64,
    /// The time of the notice and of the last attempt.
    pub now: Timestamp,
    /// The end of the time in which delivery is tried, for `Delayed` and `Expired`.
    pub retry_until: Option<Timestamp>,
}

/// A finished notice, ready to be staged like any message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounce {
    /// From the null sender to the original's sender.
    pub envelope: Envelope,
    /// The complete message with CRLF. Only lines of the original can be longer than 998 octets.
    pub bytes: Vec<u8>,
}

/// Upper bound on the recipients in one notice. More recipients are reported in several notices.
pub const NOTICE_RECIPIENTS_MAX: usize = 1_000;

/// Upper bound in bytes on what a notice says about its recipients, for people and for machines together. The text about
/// a single recipient may be longer.
pub const NOTICE_TEXT_BYTES_MAX: usize = 384 << 10;

/// Upper bound in bytes on a reply that a notice shows.
const REPLY_BYTES_MAX: usize = 4_096;
/// The bytes of each reply that a notice shows even if it has many recipients.
const REPLY_BYTES_MIN: usize = 512;
/// The bytes that all replies of a notice share, within the two bounds above.
const REPLIES_BYTES_MAX: usize = 64 << 10;

// Replies are shown twice: for people and for machines.
const _: () = assert!(2 * REPLIES_BYTES_MAX < NOTICE_TEXT_BYTES_MAX);
const _: () = assert!(2 * 2 * REPLY_BYTES_MAX <= REPLIES_BYTES_MAX);

/// What a notice says about its recipients.
struct RecipientTexts {
    /// The text for people.
    words: String,
    /// The fields for machines.
    fields: String,
    /// The number of entries of `Notice::recipients` that the text covers.
    entries: usize,
    /// The length in bytes to which replies were cut.
    reply_bytes_max: usize,
    /// True if at least one reply was cut.
    is_cut: bool,
}

/// Returns how much of a message of `bytes` a notice returns (RFC 3461 4.3 and 6.2). Only a bounce returns more than the
/// headers, up to `original_bytes_max`, and only if the sender did not ask for headers only.
pub fn excerpt(
    kind: BounceKind,
    envelope: &Envelope,
    bytes: u64,
    original_bytes_max: u64,
) -> Excerpt {
    let is_bounce = matches!(kind, BounceKind::Failed | BounceKind::Expired);
    match is_bounce && envelope.from.ret != Some(Ret::Headers) {
        false => Excerpt::Headers,
        true if bytes <= original_bytes_max => Excerpt::Whole,
        true => Excerpt::Start(usize::try_from(original_bytes_max).unwrap_or(usize::MAX)),
    }
}

/// Returns whether a recipient's NOTIFY asks for such a notice (RFC 3461 4.1).
pub fn is_wanted(kind: BounceKind, notify: Notify) -> bool {
    match kind {
        BounceKind::Failed | BounceKind::Expired => notify.failure(),
        BounceKind::Delayed => notify.delay(),
        BounceKind::Relayed | BounceKind::Delivered => notify.success(),
    }
}

/// Makes the notice. Returns `None` if the sender is null (RFC 5321 4.5.5), or if no recipient's NOTIFY asks for it.
pub fn bounce(notice: &Notice<'_>) -> Option<Bounce> {
    first_bounce(notice).0
}

/// Makes the first of the notices that the recipients need, and returns how many recipients it covers: at least one,
/// unless there is none.
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

/// Returns the recipients that the notice reports, each with its place in `Notice::recipients` and the evidence.
fn wanted<'a>(
    notice: &Notice<'a>,
) -> impl Iterator<Item = (usize, &'a Recipient, &'a Report)> + use<'a> {
    let (kind, envelope) = (notice.kind, notice.envelope);
    notice.recipients.iter().enumerate().filter_map(move |(at, (index, report))| {
        let recipient = envelope.recipients.get(*index as usize)?;
        is_wanted(kind, recipient.notify).then_some((at, recipient, report))
    })
}

/// Writes the text about one recipient after the other until the notice is full.
fn tell(notice: &Notice<'_>, form: Form) -> RecipientTexts {
    let share = REPLIES_BYTES_MAX / notice.recipients.len().max(1);
    let reply_bytes_max = share.clamp(REPLY_BYTES_MIN, REPLY_BYTES_MAX);
    let mut told = RecipientTexts {
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

fn finished(notice: &Notice<'_>, sender: &Address, told: RecipientTexts, form: Form) -> Bounce {
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

/// The character set of a notice. A notice requires SMTPUTF8 only if its own recipient does. The server of a sender with
/// an ASCII address may not offer SMTPUTF8, and a notice that cannot be sent is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The types of RFC 3464.
    Ascii,
    /// The types of RFC 6533, encoded so that they need neither SMTPUTF8 nor 8BITMIME.
    Utf8Encoded,
    /// The types of RFC 6533 without encoding.
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

fn assemble(notice: &Notice<'_>, sender: &Address, told: RecipientTexts, form: Form) -> Vec<u8> {
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

/// Returns the headers of the notice itself (RFC 3462 1, RFC 3834 5).
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

/// Returns a name that no other notice has, made of the queue id, the kind, the first recipient and the time.
fn name(notice: &Notice<'_>) -> String {
    let word = match notice.kind {
        BounceKind::Failed => "failed",
        BounceKind::Expired => "expired",
        BounceKind::Delayed => "delayed",
        BounceKind::Relayed => "relayed",
        BounceKind::Delivered => "delivered",
    };
    let first = notice.recipients.first().map_or(0, |(index, _)| *index);
    format!("{}.{word}.{first}.{}", notice.id, notice.now.micros())
}

/// Returns a boundary that occurs in none of the parts (RFC 2046 5.1.1). A part of n bytes rules out at most n
/// candidates, so the search ends.
fn boundary(name: &str, parts: [&[u8]; 3]) -> String {
    let occurs = |candidate: &str| {
        parts.iter().any(|part| part.windows(candidate.len()).any(|w| w == candidate.as_bytes()))
    };
    (0u64..)
        .map(|number| format!("=_{name}.{number}"))
        .find(|candidate| !occurs(candidate))
        .expect("a finite text holds finitely many candidates")
}

/// Returns the `Content-Transfer-Encoding` of a part that is not encoded (RFC 2045 6.2).
fn as_it_is(body: &[u8]) -> &'static str {
    debug_assert!(is_clean(body));
    if body.is_ascii() { "7bit" } else { "8bit" }
}

#[cfg(test)]
mod tests;
