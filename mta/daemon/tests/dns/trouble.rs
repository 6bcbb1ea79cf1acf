//! The DNS fails, lies or is silent (D165, D167, D168): mail waits and is delivered after the DNS has
//! recovered.
//!
//! Must never accept a bounce as a result.

use crate::support::until;
use crate::{HURRY, World};

#[test]
fn d165_what_the_dns_cannot_say_now_waits_and_goes_when_it_can() {
    let zone = "
        servfail.test CODE 2
        notimp.test CODE 4
        refused.test CODE 5
        silent.test SILENCE
        truncated.test TRUNCATED
        lame.test LAME
        host-fails.test MX 10 mx.host-fails.test
        mx.host-fails.test CODE 2
    ";
    let domains = [
        "servfail.test",
        "notimp.test",
        "refused.test",
        "silent.test",
        "truncated.test",
        "lame.test",
        "host-fails.test",
    ];
    let Some(world) = World::start(zone, &["198.51.100.1"], HURRY) else { return };
    world.waits(&domains);
    assert_eq!(world.daemon.queued(), domains.len() as u64);
    for domain in domains {
        assert_eq!(world.daemon.mailbox(&format!("s-{domain}")), Vec::<String>::new());
    }
    world.daemon.works();
    for domain in domains {
        world.dns.set(&format!("{domain} A 198.51.100.1"));
    }
    world.dns.set("host-fails.test MX 10 mx.host-fails.test\nmx.host-fails.test A 198.51.100.1");
    for domain in domains {
        until(&format!("mail for {domain}"), || {
            (world.hops[0].deliveries(&format!("<b@{domain}>")) == 1).then_some(())
        });
    }
    until("an empty queue", || (world.daemon.queued() == 0).then_some(()));
}

#[test]
fn d167_what_a_validating_server_calls_bogus_waits_and_unsigned_mail_flows() {
    // RFC 4035 5.5: a validating server answers SERVFAIL for bogus data, even if only the host's records are
    // bogus.
    let zone = "
        bogus.test CODE 2
        host-is-bogus.test MX 10 mx.bogus.test
        mx.bogus.test CODE 2
        unsigned.test MX 10 mx.unsigned.test
        mx.unsigned.test A 198.51.100.1
    ";
    let Some(world) = World::start(zone, &["198.51.100.1"], HURRY) else { return };
    world.waits(&["bogus.test", "host-is-bogus.test"]);
    world.arrives(&[("unsigned.test", 0)]);
    assert_eq!(world.daemon.queued(), 2);
}

#[test]
fn d168_malformed_answers_and_absurd_times_crash_nobody() {
    let zone = "
        zero.test MX 10 zero-host.test
        zero.test TTL 0
        zero-host.test A 198.51.100.1
        zero-host.test TTL 0
        ever.test A 198.51.100.1
        ever.test TTL 2147483648
        longest.test A 198.51.100.1
        longest.test TTL 4294967295
    ";
    let Some(world) = World::start(zone, &["198.51.100.1"], HURRY) else { return };
    // The header: an answer, one question, one record.
    let header = |records: u8| vec![0x81, 0x80, 0, 1, 0, records, 0, 0, 0, 0];
    let question =
        |name: &str| [&[name.len() as u8][..], name.as_bytes(), b"\x04test\0\0\x0f\0\x01"].concat();
    let mx = |name: &str, data: &[u8]| {
        let length = (data.len() as u16).to_be_bytes();
        [&header(1)[..], &question(name), b"\xc0\x0c\0\x0f\0\x01\0\0\0\x3c", &length, data].concat()
    };
    let own_place = |name: &str| (12 + question(name).len() + 12 + 2) as u8;
    let raws = [
        // Names that point at themselves, at later bytes, at the end, and past the end.
        ("loop", mx("loop", &[0, 1, 0xc0, own_place("loop")])),
        (
            "forward",
            mx("forward", &[0, 1, 0xc0, own_place("forward") + 2, 0xc0, own_place("forward")]),
        ),
        ("beyond", mx("beyond", &[0, 1, 0xff, 0xff])),
        ("label", mx("label", &[0, 1, 63, b'a'])),
        ("short", mx("short", &[0])),
        // More records announced than present, another question, no question, no bytes, 60 kB of bytes.
        ("lies", [&header(200)[..], &question("lies")].concat()),
        ("another", mx("someone", &[0, 1, 0])),
        ("none", vec![0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("nothing", Vec::new()),
        ("large", [&header(1)[..], &question("large"), &vec![0xff; 60_000]].concat()),
    ];
    for (name, bytes) in &raws {
        world.dns.set_raw(&format!("{name}.test"), bytes.clone());
    }
    let names: Vec<String> = raws.iter().map(|(name, _)| format!("{name}.test")).collect();
    world.waits(&names.iter().map(String::as_str).collect::<Vec<_>>());
    world.arrives(&[("zero.test", 0), ("ever.test", 0), ("longest.test", 0)]);
    assert_eq!(world.daemon.queued(), raws.len() as u64, "none of them bounced");
    for (name, _) in &raws {
        world.dns.set(&format!("{name}.test A 198.51.100.1"));
    }
    until("all of them", || {
        let count: usize =
            names.iter().map(|name| world.hops[0].deliveries(&format!("<b@{name}>"))).sum();
        (count == raws.len()).then_some(())
    });
    world.daemon.works();
}
