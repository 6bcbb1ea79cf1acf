//! What a stranger's words become in the headers we write and in the notices we send.
//!
//! Must never accept a line that a stranger could have made into a header, a field or a boundary.

use crate::input::Input;
use mail::bounce::{BounceKind, Excerpt, Notice, bounce};
use mail::trace::{delivered_to, received, return_path, rfc3339_date, rfc5322_date};
use mail::{
    Address, BodyKind, Enhanced, Envelope, MailFrom, MessageId, Notify, Origin, Protocol,
    Recipient, Reply, Report, Ret, ReversePath, Stage, Timestamp,
};
use smtp::xtext;

const PROTOCOLS: [Protocol; 6] = [
    Protocol::Smtp,
    Protocol::Esmtp,
    Protocol::Lmtp,
    Protocol::Utf8Smtp,
    Protocol::Utf8Lmtp,
    Protocol::Local,
];
const KINDS: [BounceKind; 5] = [
    BounceKind::Failed,
    BounceKind::Delayed,
    BounceKind::Relayed,
    BounceKind::Delivered,
    BounceKind::Expired,
];
const STAGES: [Stage; 10] = [
    Stage::Resolve,
    Stage::Connect,
    Stage::Greeting,
    Stage::Hello,
    Stage::Mail,
    Stage::Rcpt,
    Stage::Data,
    Stage::End,
    Stage::Mailbox,
    Stage::Here,
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn address(bytes: &[u8]) -> Address {
    let spare = || Address::parse("x@y.test", false).expect("it is one");
    Address::parse(&text(bytes), true).unwrap_or_else(|_| spare())
}

/// xtext there and back, and a notice about whatever came in the fields of a delivery.
pub fn dsn_fields(data: &[u8]) {
    let mut input = Input(data);
    xtexts(input.short());
    notice(&mut input);
}

fn xtexts(plain: &[u8]) {
    let mut encoded = String::new();
    xtext::encode(plain, &mut encoded);
    assert_eq!(xtext::decode(&encoded).as_deref(), Some(plain));
    assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()));
    let Ok(text) = std::str::from_utf8(plain) else { return };
    match xtext::decode(text) {
        Some(plain) => {
            let printable = plain.iter().all(|byte| matches!(byte, b' '..=b'~'));
            assert_eq!(xtext::is_printable(text), printable);
        }
        None => assert!(!xtext::is_printable(text)),
    }
}

fn notice(input: &mut Input<'_>) {
    let flags = input.byte();
    let kind = KINDS[input.below(5)];
    let excerpt = match input.below(3) {
        0 => Excerpt::Whole,
        1 => Excerpt::Start(input.byte().into()),
        _ => Excerpt::Headers,
    };
    let wall = Timestamp::from_micros(input.u64() as i64);
    let recipient = Recipient {
        address: address(input.short()),
        notify: Notify::of(true, true, true),
        orcpt: (flags & 2 != 0).then(|| text(input.short()).into()),
    };
    let second = Recipient { address: address(input.short()), ..recipient.clone() };
    let envelope = Envelope {
        from: MailFrom {
            sender: ReversePath::Address(address(input.short())),
            ret: (flags & 4 != 0).then_some(Ret::Full),
            envid: (flags & 8 != 0).then(|| text(input.short()).into()),
            body: BodyKind::EightBit,
            smtputf8: flags & 16 != 0,
        },
        origin: Origin { client: None, helo: "h".into(), protocol: Protocol::Esmtp },
        arrived: wall,
        recipients: vec![recipient, second],
    };
    let enhanced = Enhanced(input.byte(), input.u16(), input.u16());
    let report = Report {
        stage: STAGES[input.below(10)],
        reply: Reply {
            code: 200 + u16::from(input.byte()) * 2,
            enhanced: (flags & 32 != 0).then_some(enhanced),
            text: text(input.short()).into(),
        },
        peer: text(input.short()).into(),
        from_peer: flags & 64 != 0,
    };
    let original = input.rest();
    let postmaster = address(b"postmaster@mx.test");
    let told = [(0, report.clone()), (1, report.clone()), (7, report)];
    let notice = Notice {
        kind,
        hostname: "mx.test",
        postmaster: &postmaster,
        id: MessageId(33),
        envelope: &envelope,
        recipients: &told,
        excerpt,
        original,
        original_bytes: original.len() as u64,
        now: wall,
        retry_until: (flags & 128 != 0).then_some(wall),
    };
    let made = bounce(&notice).expect("the sender is not null, and all is wanted");
    assert_eq!(made.envelope.from.sender, ReversePath::Null);
    assert_eq!(made.envelope.recipients[0].notify, Notify::NEVER);
    whole(&made.bytes, original);
}

/// Three parts, whose lines are ours; only the last holds the original's bytes.
fn whole(bytes: &[u8], original: &[u8]) {
    let mark = bytes.windows(10).position(|ten| ten == b"boundary=\"").expect("it has one") + 10;
    let end = bytes[mark..].iter().position(|byte| *byte == b'"').expect("it ends") + mark;
    let boundary = [b"\r\n--", &bytes[mark..end]].concat();
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(boundary.len()).position(|window| window == boundary) {
        parts.push(&rest[..at]);
        rest = &rest[at + boundary.len()..];
    }
    assert_eq!((parts.len(), rest), (4, &b"--\r\n"[..]), "{}", text(bytes));
    let head = parts[0].windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    fields(&parts[0][..head + 2], HEAD);
    for (part, names) in [(parts[1], PART), (parts[2], PART), (parts[3], PART)] {
        let at = part.windows(4).position(|four| four == b"\r\n\r\n").expect("a part's head");
        fields(&part[2..at + 2], names);
    }
    let at = parts[2].windows(4).position(|four| four == b"\r\n\r\n").expect("found before");
    for group in text(&parts[2][at + 4..]).split("\r\n\r\n") {
        fields(group.as_bytes(), STATUS);
    }
    for part in &parts[..3] {
        lines(part);
    }
    let clean = original.split(|byte| *byte == b'\n').all(|line| line.len() <= 998);
    if clean {
        lines(parts[3]);
    }
}

const HEAD: &[&str] = &[
    "Date",
    "From",
    "To",
    "Subject",
    "Message-ID",
    "Auto-Submitted",
    "MIME-Version",
    "Content-Type",
];
const PART: &[&str] = &["Content-Type", "Content-Transfer-Encoding"];
const STATUS: &[&str] = &[
    "Reporting-MTA",
    "Original-Envelope-Id",
    "Arrival-Date",
    "X-Posthaste-Queue-Id",
    "Original-Recipient",
    "Final-Recipient",
    "Action",
    "Status",
    "Remote-MTA",
    "Diagnostic-Code",
    "Last-Attempt-Date",
    "Will-Retry-Until",
];

/// Nothing but fields of these names, each once, and their folded lines.
fn fields(section: &[u8], names: &[&str]) {
    let mut seen = Vec::new();
    for line in text(section).trim_end().split("\r\n") {
        if line.starts_with([' ', '\t']) {
            assert!(!seen.is_empty() && !line.trim().is_empty(), "{line:?}");
            continue;
        }
        let name = line.split(':').next().unwrap_or_default();
        assert!(names.contains(&name), "{line:?}");
        assert!(!seen.contains(&name.to_owned()), "{name} twice");
        seen.push(name.to_owned());
    }
}

/// CRLF at every line's end and nowhere else, no control characters, no line over 998 octets.
fn lines(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(
            line.len() <= 998 && !line.contains(&b'\r') && !line.contains(&0),
            "{}",
            text(line)
        );
    }
}

/// The headers we put before a message.
pub fn trace_headers(data: &[u8]) {
    let mut input = Input(data);
    let protocol = PROTOCOLS[input.below(6)];
    let client = match input.byte() {
        0..=63 => None,
        64..=127 => Some(std::net::IpAddr::from(input.u32().to_be_bytes())),
        _ => Some(std::net::IpAddr::from(
            [input.u64(), input.u64()]
                .map(u64::to_be_bytes)
                .as_flattened()
                .first_chunk::<16>()
                .copied()
                .unwrap_or_default(),
        )),
    };
    let wall = Timestamp::from_micros(input.u64() as i64);
    let recipient = address(input.short());
    let origin = Origin { client, helo: text(input.short()).into(), protocol };
    let hostname = text(input.short());
    for to in [None, Some(&recipient)] {
        let line = received(&origin, MessageId(input.u64()), &hostname, wall, to);
        one_field(&line, "Received");
        let utf8 = matches!(protocol, Protocol::Utf8Smtp | Protocol::Utf8Lmtp);
        assert!(utf8 || line.is_ascii());
    }
    one_field(&return_path(&ReversePath::Address(recipient.clone())), "Return-Path");
    one_field(&delivered_to(&recipient), "Delivered-To");
    for date in [rfc5322_date(wall), rfc3339_date(wall)] {
        assert!(date.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{date}");
    }
}

fn one_field(line: &[u8], name: &str) {
    fields(line, &[name]);
    lines(line);
    assert!(line.ends_with(b"\r\n") && std::str::from_utf8(line).is_ok());
}
