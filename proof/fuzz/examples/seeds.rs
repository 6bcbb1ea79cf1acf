//! Writes the seeds that are bytes of `link` and of the spool: `cargo run -p fuzz --example seeds`,
//! after a change of what crosses between processes or lies on the disk.
//! Must never write a seed that is longer than it needs to be.

use bytes::{Bytes, BytesMut};
use link::admin::{self, Action, Filter, Order, Request};
use link::control::{FromMaster, Role, ToMaster};
use link::receive::{QueueEnd, ReceiverEnd};
use link::send::{self, SenderEnd};
use mail::*;
use serde::Serialize;
use settings::{HostEnvironment, ProcessConfig, System, load};
use spool::format::message::{ChunkAt, ChunkPlace, encode_head};
use std::path::Path;

fn put(target: &str, name: &str, front: &[u8], bytes: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    std::fs::write(folder.join(name), [front, bytes].concat()).expect("the seed can be written");
}

fn post<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("memory takes any number of bytes")
}

fn address(text: &str) -> Address {
    Address::parse(text, true).expect("it is one")
}

fn envelope() -> Envelope {
    Envelope {
        from: MailFrom {
            sender: ReversePath::Address(address("a@b.test")),
            ret: Some(Ret::Full),
            envid: Some("id".into()),
            body: BodyKind::EightBit,
            smtputf8: true,
        },
        origin: Origin {
            client: Some([192, 0, 2, 1].into()),
            helo: "h".into(),
            protocol: Protocol::Esmtp,
        },
        arrived: Timestamp::from_micros(7),
        recipients: vec![Recipient {
            address: address("é@bücher.test"),
            notify: Notify::NEVER,
            orcpt: Some("rfc822;x".into()),
        }],
    }
}

fn report() -> Report {
    Report {
        stage: Stage::Rcpt,
        reply: Reply::new(451, Enhanced(4, 2, 1), "later"),
        peer: "mx[192.0.2.1]:25".into(),
        from_peer: true,
    }
}

fn stream(frames: &mut std::collections::VecDeque<Bytes>) -> Vec<u8> {
    frames.drain(..).flatten().collect()
}

fn main() {
    records();
    receive();
    sending();
    operators();
    crossing();
    snapshots();
}

fn records() {
    let chunk = |at| ChunkPlace { at, length: 5, checksum: 9 };
    let chunks =
        [chunk(ChunkAt::Before(40)), chunk(ChunkAt::Segment { slot: 1, epoch: 2, offset: 3 })];
    let mut record = Vec::new();
    encode_head(
        &mut record,
        MessageId(5),
        TransactionId { incarnation: 1, number: 2 },
        10,
        &chunks,
        b"A: b\r\n",
    );
    put("spool_records", "message", &[], &[&record[..], &post(&envelope())].concat());
    let message = MessageId(5);
    let changes = [
        Change::Delivered { message, recipients: vec![0] },
        Change::Failed { message, recipients: vec![0, 1] },
        Change::Due {
            message,
            recipients: vec![0],
            due: Timestamp::from_micros(9),
            attempts: 3,
            report: report(),
        },
        Change::Priority { message, priority: -5 },
    ];
    for (number, change) in changes.iter().enumerate() {
        put("spool_records", &format!("change-{number}"), &[], &post(change));
    }
}

fn receive() {
    let mut receiver = ReceiverEnd::new(1, 9);
    receiver.connected(Instant::ZERO);
    receiver.stage(1, b"half");
    receiver.accept(1, envelope(), b"rest");
    receiver.stage(2, b"x");
    receiver.unstage(2);
    let said = stream(receiver.transmit());
    put("link_receive", "from-receiver", &[0], &said);
    let mut queue = QueueEnd::new(1, 100_000);
    queue.handle(&mut BytesMut::from(&said[..])).expect("it is honest");
    receiver.accept(2, envelope(), b"whole");
    receiver.stage(3, b"first");
    receiver.accept(3, envelope(), b"last");
    queue.handle(&mut stream(receiver.transmit())[..].into()).expect("it is honest");
    for number in [2, 3] {
        let transaction = TransactionId { incarnation: 9, number };
        queue.committed(Durable::attested(MessageId(number), transaction));
    }
    queue.unknown(TransactionId { incarnation: 9, number: 4 });
    queue.refused(TransactionId { incarnation: 9, number: 5 }, mail::Refusal::Full);
    queue.credit();
    put("link_receive", "from-queue", &[1], &stream(queue.transmit()));
    receiver.connected(Instant::ZERO);
    put("link_receive", "question", &[0], &stream(receiver.transmit()));
}

fn attempt(body_bytes: u64) -> send::Attempt {
    let envelope = envelope();
    send::Attempt {
        id: 3,
        seal: 7,
        message: MessageId(5),
        route: send::AttemptRoute {
            hop: NextHop::Smtp(Host::Name(Domain::parse("mx.test").expect("it is one")), 25),
            connections_max: 5,
            messages_per_connection_max: 10,
        },
        from: envelope.from,
        times: send::Times { arrived: Timestamp::from_micros(1), due: Timestamp::from_micros(2) },
        body: send::BodySize { bytes: body_bytes, prefix_bytes: 2 },
        recipients: envelope.recipients.into_iter().map(|recipient| (0, recipient)).collect(),
    }
}

fn sending() {
    let mut queue = send::QueueEnd::new(1);
    let mut sender = SenderEnd::new(1, 2, 3);
    sender.connected();
    queue.handle(&mut stream(sender.transmit())[..].into()).expect("it is honest");
    let large = send::Attempt { id: 4, message: MessageId(6), ..attempt(1 << 20) };
    queue.attempt(attempt(4), Some(b"body")).expect("it is short");
    queue.attempt(large, None).expect("it is short");
    queue.chunk(3, 0, b"chunk");
    queue.chunk_bad(3);
    queue.recorded(vec![3, 4]);
    let said = stream(queue.transmit());
    put("link_send", "from-queue", &[0], &said);
    // The second attempt is of the same message and large: to be fetched.
    let _ = sender.handle(&mut said[..].into());
    let outcomes = vec![
        (0, Outcome::Deferred(report())),
        (1, Outcome::Delivered { report: report(), relayed: true }),
    ];
    sender.result(send::Result { attempt: 3, message: MessageId(5), outcomes });
    sender.fetch(3, MessageId(5), 0, 100);
    put("link_send", "result", &[1], &stream(sender.transmit()));
    sender.connected();
    put("link_send", "under-way", &[0], &stream(sender.transmit()));
}

fn operators() {
    let filter = Filter {
        ids: vec![MessageId(5)],
        sender: Some("*@x".into()),
        older_seconds: Some(9),
        ..Filter::default()
    };
    let requests = [
        Request::Summary,
        Request::List { filter: filter.clone(), after: None, rows_max: 10 },
        Request::Act {
            action: Action::Priority(5),
            filter,
            after: Some(MessageId(3)),
            dry_run: true,
        },
        Request::Run { order: Order::Fair },
    ];
    for (number, request) in requests.iter().enumerate() {
        put(
            "link_admin",
            &format!("request-{number}"),
            &[0, 1, 7],
            &admin::encode(request).expect("short"),
        );
    }
    let answer = admin::Answer::Refused("no".into());
    put("link_admin", "answer", &[0, 0], &admin::encode(&answer).expect("short"));
    put("link_admin", "status", &[1, 0], &post(&admin::Answer::Status(admin::Status::default())));
}

fn crossing() {
    let front = [1, 3];
    put(
        "link_frame",
        "frames",
        &front,
        &[link::frame::encode(&7u32, b"tail"), link::frame::encode(&8u32, b"")]
            .map(|frame| frame.expect("it is short"))
            .concat(),
    );
    let peer = FromMaster::Peer { role: Role::Send, instance: 3, stream: 4 };
    put("link_frame", "peer", &front, &post(&peer));
    put("link_frame", "fatal", &front, &post(&ToMaster::Fatal { text: "no".into() }));
    put("link_frame", "envelope", &front, &post(&envelope()));
    put("link_frame", "outcome", &front, &post(&Outcome::Failed(report())));
    put("link_frame", "attempt", &front, &post(&attempt(9)));
    put("link_frame", "address", &front, &post(&address("a@b.test")));
    put("link_frame", "role", &front, b"receive");
    put("addresses", "decoded", &[0], &post(&ReversePath::Address(address("a@b.test"))));
    let system = System { hostname: "host.test".into(), state: "/state".into() };
    let settings = load(b"", "x", &system).expect("an empty file is right");
    put(
        "link_frame",
        "handed",
        &front,
        &post(&ProcessConfig { settings, environment: HostEnvironment::default() }),
    );
}

fn snapshots() {
    use scheduler::{Arrival, ArrivingRecipient, Scheduler, Settings};
    let now = Now { wall: Timestamp::from_micros(1_795_000_000_000_000), ..Now::default() };
    let mut scheduler = Scheduler::new(Settings::for_tests(), 1, now);
    let (hop, envelope) = (NextHop::Mx(Domain::parse("b.test").expect("it is one")), envelope());
    let address = &envelope.recipients[0].address;
    let recipient = ArrivingRecipient { address, hop: &hop, notify: Notify::DEFAULT };
    let recipients = [recipient, recipient];
    let arrival = Arrival {
        message: MessageId(5),
        arrived: now.wall,
        bytes: 9,
        sender: &envelope.from.sender,
        recipients: &recipients,
        held: None,
        priority: 0,
    };
    scheduler.arrive(&arrival, now).expect("it is new");
    let due = Change::Due {
        message: MessageId(5),
        recipients: vec![1],
        due: now.wall,
        attempts: 2,
        report: report(),
    };
    scheduler.apply(&due, now);
    let blob = scheduler.export(MessageId(5), now).expect("it is there");
    put("spool_snapshot", "blob", &[2, 1, 1, 1, 1, 1], &blob);
    put(
        "spool_snapshot",
        "table",
        &[1, 1, 1, 1, 1, 1],
        &[&[1, 0, 0, 0, 1, 0, 0, 0][..], &[1; 48]].concat(),
    );
    put(
        "spool_snapshot",
        "entry",
        &[0, 1, 1, 1, 1, 1],
        &[&[5, 0, 0, 0, 0, 0, 0, 0][..], &[1, 0, 0, 0].repeat(6), &[2; 9]].concat(),
    );
}
