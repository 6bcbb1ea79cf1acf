//! A campaign that never was: lines as a real one leaves them, with all that can be odd about it.

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use report::record::*;
use std::collections::BTreeMap;

/// A name that would break a page that does not escape.
pub const HOSTILE: &str = "qmail <b>&\"amp;'";
/// The sentence that a failed run of it gives.
pub const FAILURE: &str = "the greeting was <script>alert(1)</script>, not 220";
/// Why sendmail has no Maildir.
pub const ABSENCE: &str = "it has no delivery to a Maildir of its own";

/// Lots, the same each time.
pub struct Lots(u64);

impl Lots {
    pub fn new(seed: u64) -> Lots {
        Lots(seed)
    }
    /// From 0 to 1.
    pub fn part(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
    /// About normal, mean 0, deviation 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.part()).sum::<f64>() - 6.0
    }
}

pub fn machine() -> Machine {
    Machine {
        cpu: "Imaginary Xeon & Sons 2.4 GHz".into(),
        cores: 2,
        memory_mib: 7936,
        kernel: "6.1.0-44-amd64".into(),
        system: "Debian GNU/Linux 12 (bookworm)".into(),
        file_system: "ext4".into(),
        disk: "vda, virtio".into(),
        sync_us: 431.0,
        load: 0.08,
    }
}

pub fn cell(factors: &[(&str, Factor)]) -> Cell {
    factors.iter().map(|(name, value)| ((*name).into(), value.clone())).collect()
}

pub fn number(value: f64) -> Factor {
    Factor::Number(value)
}

pub fn word(value: &str) -> Factor {
    Factor::Word(value.into())
}

/// A run with nothing but its value.
pub fn run(scenario: &str, subject: &str, cell: Cell, ordinal: u32, value: f64) -> Run {
    let class = match subject {
        "opensmtpd" => Class::Unsynced,
        "exim" => Class::Sometimes,
        HOSTILE => Class::Unknown,
        _ => Class::Synced,
    };
    let durability = Durability {
        class,
        syncs_before_250: if class == Class::Synced { 1.0 } else { 0.4 },
        messages: 50,
        how: "strace".into(),
    };
    Run {
        time: 1_795_240_000 + u64::from(ordinal) * 61,
        scenario: scenario.into(),
        subject: subject.into(),
        version: if subject == "limit" { "none".into() } else { "1.2.3-4+deb12u1".into() },
        cell,
        ordinal,
        seed: 7 + u64::from(ordinal % 10),
        figure: Figure {
            name: "accepted".into(),
            unit: "messages/s".into(),
            better: Better::Higher,
        },
        value: Some(value),
        values: BTreeMap::from([
            ("cpu_ms_per_message".into(), 1200.0 / value),
            ("peak_memory_mib".into(), 12.0 + value / 300.0),
            ("syncs_per_message".into(), 1.02),
            ("disk_flushes_per_message".into(), 0.61),
            ("messages".into(), 2000.0),
            ("seconds".into(), 2000.0 / value),
        ]),
        histograms: BTreeMap::new(),
        samples: BTreeMap::new(),
        series: BTreeMap::new(),
        calls: Vec::new(),
        minutes: Vec::new(),
        durability: (subject != "limit").then_some(durability),
        how: BTreeMap::new(),
        warnings: Vec::new(),
        failed: None,
        settings: format!("{:016x}", (subject.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        machine: Machine {
            sync_us: 400.0 + f64::from(ordinal) * 9.0,
            load: 0.05 + f64::from(ordinal) * 0.02,
            ..machine()
        },
        lab: "0.1.0".into(),
    }
}

/// Delays around a middle, as the laboratory stores them.
pub fn histogram(lots: &mut Lots, middle_us: f64) -> String {
    let mut all = Histogram::<u64>::new(3).unwrap();
    for _ in 0..400 {
        let tail = if lots.part() < 0.01 { 12.0 } else { 1.0 };
        all.record((middle_us * (0.35 * lots.normal()).exp() * tail).max(1.0) as u64).unwrap();
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&all, &mut bytes).unwrap();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

const MAILERS: [(&str, f64); 6] = [
    ("posthaste", 6000.0),
    ("postfix", 1100.0),
    ("sendmail", 620.0),
    ("exim", 480.0),
    ("opensmtpd", 900.0),
    (HOSTILE, 300.0),
];

/// All scenarios together.
pub fn campaign() -> Vec<Line> {
    let mut lots = Lots::new(42);
    let mut lines: Vec<Line> = MAILERS.iter().map(|(name, _)| settings(name)).collect();
    senders(&mut lots, &mut lines);
    local(&mut lots, &mut lines);
    depth(&mut lots, &mut lines);
    order(&mut lots, &mut lines);
    syscalls(&mut lots, &mut lines);
    minute(&mut lots, &mut lines);
    spread(&mut lots, &mut lines);
    limit(&mut lots, &mut lines);
    lines
}

fn settings(subject: &str) -> Line {
    let text = format!(
        "# made for {subject}\nqueue_directory = /srv/queue\nhidden = <nothing> & \"no one\"\n{}\n",
        "a-very-long-line=".repeat(20)
    );
    Line::Settings(Settings {
        id: format!("{:016x}", (subject.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        subject: subject.into(),
        files: BTreeMap::from([("main.cf".into(), text)]),
    })
}

/// Curves from 1 to 1,000 sessions, delays, throughput over time; one cell with 3 runs, outliers, a failure.
fn senders(lots: &mut Lots, lines: &mut Vec<Line>) {
    for sessions in [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0_f64] {
        for ordinal in 0..10 {
            for (subject, rate) in MAILERS.into_iter().chain([("limit", 9000.0)]) {
                if sessions == 2.0 && ordinal > 2 {
                    continue;
                }
                let grown = rate * sessions / (sessions + 2.5);
                let mut value = grown * (1.0 + 0.04 * lots.normal());
                if subject == "postfix" && sessions == 10.0 && ordinal == 6 {
                    value *= 0.45;
                }
                let mut run = run(
                    "senders",
                    subject,
                    cell(&[("sessions", number(sessions))]),
                    ordinal,
                    value,
                );
                if subject != HOSTILE {
                    run.histograms.insert("accept".into(), histogram(lots, 1e6 * sessions / grown));
                }
                let points = (0..10)
                    .map(|second| (f64::from(second) / 10.0, value * (1.0 + 0.1 * lots.normal())));
                run.series.insert("accepted_per_second over seconds".into(), points.collect());
                if subject == HOSTILE && ordinal == 4 {
                    run.value = None;
                    run.failed = Some(FAILURE.into());
                }
                if subject == "limit" {
                    run.warnings.push("The source used 96 % of a processor: it may be the source that was measured.".into());
                }
                lines.push(Line::Run(Box::new(run)));
            }
        }
    }
}

/// Two factors, one of words; a subject that cannot; equal spreads for "the same".
fn local(lots: &mut Lots, lines: &mut Vec<Line>) {
    for duty in ["mbox", "maildir"] {
        for sessions in [5.0, 10.0, 20.0] {
            let cell = cell(&[("duty", word(duty)), ("sessions", number(sessions))]);
            if duty == "maildir" {
                lines.push(Line::Absent(Absent {
                    scenario: "local".into(),
                    subject: "sendmail".into(),
                    cell: cell.clone(),
                    why: ABSENCE.into(),
                }));
            }
            for ordinal in 0..10 {
                for (subject, rate) in &MAILERS[..5] {
                    if duty == "maildir" && *subject == "sendmail" {
                        continue;
                    }
                    let value = if *subject == "exim" { 5800.0 } else { *rate }
                        * (1.0 + 0.01 * lots.normal());
                    let mut run = run("local", subject, cell.clone(), ordinal, value);
                    run.figure.name = "delivered".into();
                    run.histograms.insert("arrive".into(), histogram(lots, 4e6 / value));
                    lines.push(Line::Run(Box::new(run)));
                }
            }
        }
    }
}

/// A scatter with a trend, and a histogram that is broken.
fn depth(lots: &mut Lots, lines: &mut Vec<Line>) {
    for queued in [0.0, 1000.0, 10_000.0, 100_000.0] {
        for ordinal in 0..10 {
            for (subject, rate) in &MAILERS[..3] {
                let mut run = run(
                    "depth",
                    subject,
                    cell(&[("queued", number(queued))]),
                    ordinal,
                    rate * (1.0 + 0.03 * lots.normal()),
                );
                let slope = if *subject == "sendmail" { 0.004 } else { 0.0 };
                let points = (0..60).map(|index| {
                    let at = queued + f64::from(index) * 50.0;
                    (
                        at,
                        160.0
                            + slope * at
                            + 12.0 * lots.normal()
                            + if lots.part() < 0.003 { 2000.0 } else { 0.0 },
                    )
                });
                run.series.insert("create_us over queued".into(), points.collect());
                if ordinal == 3 && *subject == "postfix" {
                    run.histograms.insert("accept".into(), "not base64 at all".into());
                }
                lines.push(Line::Run(Box::new(run)));
            }
        }
    }
}

/// Words only; less is better; few subjects have each cell.
fn order(lots: &mut Lots, lines: &mut Vec<Line>) {
    let orders = [
        ("sendmail", "priority", 310.0),
        ("sendmail", "host", 420.0),
        ("sendmail", "random", 290.0),
        ("sendmail", "none", 240.0),
        ("posthaste", "fair", 38.0),
        ("posthaste", "arrival", 31.0),
        ("posthaste", "random", 33.0),
    ];
    for (subject, order, middle) in orders {
        for ordinal in 0..10 {
            let mut run = run(
                "order",
                subject,
                cell(&[("order", word(order)), ("messages", number(30_000.0))]),
                ordinal,
                middle * (1.0 + 0.02 * lots.normal()),
            );
            run.figure =
                Figure { name: "read and sort".into(), unit: "ms".into(), better: Better::Lower };
            run.values = BTreeMap::from([
                ("read_ms".into(), middle * 0.8),
                ("sort_ms".into(), middle * 0.2),
            ]);
            lines.push(Line::Run(Box::new(run)));
        }
    }
}

fn syscalls(lots: &mut Lots, lines: &mut Vec<Line>) {
    for sessions in [1.0, 10.0] {
        for ordinal in 0..3 {
            for (subject, many) in [("posthaste", 38.0), ("postfix", 241.0)] {
                let mut run = run(
                    "syscalls",
                    subject,
                    cell(&[("sessions", number(sessions))]),
                    ordinal,
                    many + lots.part(),
                );
                run.figure = Figure {
                    name: "system calls a message".into(),
                    unit: "calls".into(),
                    better: Better::Lower,
                };
                run.how.insert("calls".into(), "strace -f -c".into());
                let names = [
                    "fdatasync",
                    "epoll_wait",
                    "read",
                    "write",
                    "sendto",
                    "recvfrom",
                    "openat",
                    "close",
                    "fstat",
                    "accept4",
                    "unlink",
                    "fcntl",
                ];
                run.calls = names
                    .iter()
                    .enumerate()
                    .map(|(index, name)| Call {
                        name: (*name).into(),
                        count: (2000.0 * many / (index as f64 + 3.0)) as u64,
                        total_us: 2000.0 * 900.0 / (1.0 + index as f64).powi(2)
                            * (1.0 + 0.1 * lots.normal()),
                    })
                    .collect();
                lines.push(Line::Run(Box::new(run)));
            }
        }
    }
}

/// Postal's rows; a single cell without factors, and one run only.
fn minute(lots: &mut Lots, lines: &mut Vec<Line>) {
    for (subject, rate) in &MAILERS[..5] {
        let mut run = run("minute", subject, Cell::new(), 0, *rate);
        run.minutes = (1..=3)
            .map(|minute| Minute {
                seconds: f64::from(minute) * 60.0,
                messages: (rate * 60.0 * (1.0 + 0.02 * lots.normal())) as u64,
                bytes: (rate * 60.0 * 4100.0) as u64,
                errors: u64::from(minute == 2),
                connections: (rate * 20.0) as u64,
            })
            .collect();
        let points =
            (0..36).map(|step| (f64::from(step) * 5.0, rate * (1.0 + 0.05 * lots.normal())));
        run.series.insert("accepted_per_second over seconds".into(), points.collect());
        lines.push(Line::Run(Box::new(run)));
    }
}

/// A thousandfold between two subjects.
fn spread(lots: &mut Lots, lines: &mut Vec<Line>) {
    for (order, factor) in [("with a log", 1.0), ("without", 1.6)] {
        for ordinal in 0..10 {
            for (subject, rate) in [("posthaste", 9000.0), ("postfix", 800.0), (HOSTILE, 9.0)] {
                let value = rate * factor * (1.0 + 0.05 * lots.normal());
                lines.push(Line::Run(Box::new(run(
                    "spread",
                    subject,
                    cell(&[("logging", word(order))]),
                    ordinal,
                    value,
                ))));
            }
        }
    }
}

/// One subject only, four factors.
fn limit(lots: &mut Lots, lines: &mut Vec<Line>) {
    for sessions in [1.0, 10.0, 100.0] {
        for each in [1.0, 0.0] {
            for source in ["lab", "postfix"] {
                for ordinal in 0..5 {
                    let cell = cell(&[
                        ("sessions", number(sessions)),
                        ("per-connection", number(each)),
                        ("source", word(source)),
                    ]);
                    let value = 11_000.0
                        * if each == 0.0 { 3.0 } else { 1.0 }
                        * if source == "lab" { 1.3 } else { 1.0 }
                        * (1.0 + 0.05 * lots.normal());
                    lines.push(Line::Run(Box::new(run("limit", "limit", cell, ordinal, value))));
                }
            }
        }
    }
}

/// Titles and questions of some scenarios; the others go by their names.
#[allow(dead_code, reason = "not each test asks for titles")]
pub fn abouts() -> report::Abouts {
    let about = |title: &str, question: &str| report::About {
        title: title.into(),
        question: question.into(),
        ..report::About::default()
    };
    BTreeMap::from([
        (
            "senders".into(),
            about(
                "Senders: from one to a thousand at once",
                "How does the rate of promises change with the number of clients that send at once?",
            ),
        ),
        (
            "local".into(),
            about(
                "Local: into a mailbox",
                "How many messages a second does the mailer put into one mailbox file, or into one Maildir?",
            ),
        ),
        (
            "depth".into(),
            about(
                "Depth: one more message in a long queue",
                "What does it cost to promise one more message when others are queued already?",
            ),
        ),
        (
            "order".into(),
            about(
                "Sort orders: reading and sorting a queue",
                "How long does one queue run take to read and to sort thirty thousand messages, in each order that the mailer knows?",
            ),
        ),
        (
            "syscalls".into(),
            about(
                "System calls: what one queued message asks of the kernel",
                "Which system calls does the mailer make to queue a message, how often, and how long do they take?",
            ),
        ),
        (
            "minute".into(),
            about(
                "Minute: fifty connections for minutes on end",
                "What does the mailer take a minute from fifty connections, and does it keep that up?",
            ),
        ),
        (
            "limit".into(),
            about(
                "The limit: no mailer at all",
                "How many messages a second can source and sink exchange with nothing between them?",
            ),
        ),
    ])
}
