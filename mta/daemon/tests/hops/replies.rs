//! Replies that are late, in pieces, malformed, endless or misleading (D152 to D155, D177).
//!
//! Must never let a hop's text pass for ours.

use crate::hop::{ALL, Hop, PIPELINING, PLAIN};
use crate::{Case, Place, case, until};

#[test]
fn d152_a_reply_in_pieces_and_late_counts() {
    let pieces: &[(&str, &str)] = &[
        ("", "~220-hop\r\n220 hop\r\n"),
        ("MAIL", "~250 ok\r\n"),
        ("RCPT", "~250 ok\r\n"),
        ("RCPT", "~250-o\r\n250 k\r\n"),
        (
            ".",
            "~250-2.0.0 kept by a server that is very slow to say so, in many more words than it needs\r\n250 2.0.0 kept\r\n",
        ),
    ];
    let cases = [ALL, PIPELINING, PLAIN].map(|hello| case(hello, pieces, &["D250", "D250"]));
    let place = Place::run(&cases);
    assert!(place.hops.iter().all(|hop| hop.seen(|seen| seen.connections.len() == 1)));
}

#[test]
fn d153_replies_that_are_none_defer_and_take_little_memory() {
    let endless = "250-more\r\n".repeat(100_000);
    let megabyte = format!("250 {}", "y".repeat(1 << 20));
    let bad = [
        "000 no\r\n",
        "999 no\r\n",
        "25\r\n",
        "250no\r\n",
        "354 go\r\n",
        "250-a\r\n550 b\r\n",
        "250 \0\x01\r\n!",
        "\u{e9}50 a\r\n",
        "250 no line end!",
        &endless,
        &megabyte,
    ];
    let mut cases = Vec::new();
    for reply in bad {
        cases.push(case(PLAIN, &[("RCPT", reply)], &["T451 D250"]));
        let mut pipelined = case(ALL, &[("MAIL", reply)], &["T451 D250"]);
        // This hop accepts the message with such a reply. It had the whole message before its reply was read.
        pipelined.ambiguous = reply.starts_with("250");
        cases.push(pipelined);
    }
    cases.push(case(PIPELINING, &[("DATA", "250 ok\r\n!")], &["T451 D250"]));
    // A second code on the line has no effect.
    cases.push(case(PLAIN, &[("RCPT", "550 no\r\n250 yes\r\n")], &["F550"]));
    // A reply without text is valid.
    cases.push(case(ALL, &[("RCPT", "250\r\n"), (".", "250\r\n")], &["D250"]));
    let place = Place::run(&cases);
    let grown: u64 = place.daemon.pids_of("send").into_iter().map(anonymous_bytes).sum();
    assert!(grown < 64 << 20, "send takes {grown} bytes");
}

#[test]
fn r229_an_unknown_code_counts_by_its_first_digit() {
    let mut cases: Vec<Case> = ["300 go\r\n", "334 more\r\n", "345\r\n", "352 go\r\n"]
        .into_iter()
        .flat_map(|go_on| {
            [PIPELINING, PLAIN].map(|hello| case(hello, &[("DATA", go_on)], &["D250"]))
        })
        .collect();
    cases.push(case(PLAIN, &[("", "299 hi\r\n"), ("MAIL", "250 ok\r\n")], &["D250"]));
    cases.push(case(PLAIN, &[("RCPT", "299 ok\r\n"), (".", "234 kept\r\n")], &["D234"]));
    cases.push(case(PLAIN, &[("DATA", "577 no\r\n")], &["F577"]));
    cases.push(case(ALL, &[("RCPT", "432 no\r\n")], &["T432 D250"]));
    Place::run(&cases);
}

#[test]
fn r230_a_long_line_decides_by_its_code_and_its_text_is_cut() {
    let cases: Vec<Case> = [2_049, 5_789, 65_535]
        .into_iter()
        .flat_map(|bytes| {
            let no = format!("550 5.7.1 {:x<1$}\r\n", "", bytes - 10);
            let ok = format!("250 {:x<1$}\r\n", "", bytes - 4);
            [
                case(PLAIN, &[("RCPT", &no)], &["F550"]),
                case(ALL, &[(".", &no)], &["F550"]),
                case(PIPELINING, &[("", &ok.replace("250", "220")), (".", &ok)], &["D250"]),
            ]
        })
        .chain([case(PLAIN, &[("RCPT", &format!("550 {:x<65533}\r\n", ""))], &["T451 D250"])])
        .collect();
    let place = Place::run(&cases);
    let notice = place.daemon.wait_in_mailbox("s0", "Action: failed");
    assert!(notice.contains("Status: 5.7.1\n"), "{notice}");
}

#[test]
fn r234_lines_of_one_class_and_empty_lines_before_a_reply_decide() {
    let moved = "550-5.1.1 no\r\n551 5.1.6 moved\r\n";
    let place = Place::run(&[
        case(PLAIN, &[("RCPT", moved)], &["F551"]),
        case(ALL, &[(".", "\r\n\r\n250 ok\r\n")], &["D250"]),
        case(PLAIN, &[("", "\r\n220 hi\r\n"), ("RCPT", "\r\n550 no\r\n")], &["F550"]),
        case(PLAIN, &[("RCPT", "450-a\r\n550 b\r\n")], &["T451 D250"]),
    ]);
    let notice = place.daemon.wait_in_mailbox("s0", "Action: failed");
    assert!(notice.contains("Diagnostic-Code: smtp; 551 5.1.6 5.1.1 no moved\n"), "{notice}");
    // The log marks the text that comes from the mailer itself.
    for line in place.attempts() {
        let ours = line["reply"].as_str().unwrap().contains("broke the protocol");
        assert_eq!(line["reply_by"] == "us", ours, "{line}");
    }
}

fn anonymous_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn d154_d155_the_text_of_a_reply_stays_a_text_in_log_queue_and_notice() {
    let replies = [
        "550 5.7.2\r\n",
        "550-5.7.2 a\r\n550-From: root@local.test\r\n550-\r\n550-.\r\n550 MAIL FROM:<evil@x.test>\r\n",
        "550-a\rStatus: 2.0.0\r\n550-\t\x1b[2J\x07\r\n550 b\x7f \u{202e}\r\n",
        "550 5.1.1 \"}, {\\\"event\\\": \\\"forged\\\"\r\n",
    ];
    let cases: Vec<Case> =
        replies.iter().map(|reply| case(ALL, &[("RCPT", reply)], &["F550"])).collect();
    let place = Place::run(&cases);
    let log = place.daemon.log();
    for line in log.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("a whole line of JSON");
        assert_ne!(value["event"], "forged", "{line}");
        assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
    }
    for number in 0..replies.len() {
        let notice = place.daemon.wait_in_mailbox(&format!("s{number}"), "Final-Recipient");
        let fields: Vec<&str> = notice
            .lines()
            .filter(|line| line.starts_with("Status:") || line.starts_with("From:"))
            .collect();
        assert_eq!(fields.len(), 2, "{notice}");
        assert!(fields.iter().any(|field| field.starts_with("Status: 5.")), "{notice}");
        let clean = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
        assert!(notice.is_ascii() && notice.chars().all(clean), "{notice:?}");
    }
    let second = place.daemon.wait_in_mailbox("s1", "Diagnostic-Code");
    assert!(second.contains("evil@x.test"), "the whole reply is told: {second}");
    assert!(!place.daemon.log().contains("<evil@x.test>\","), "nobody got an address from it");
}

#[test]
fn d154_d155_a_deferring_text_stays_a_text_in_what_the_operator_sees() {
    let evil = "451-4.7.2 a\r\n451-\x1b[2J<evil@x.test>\r\n451 {\"id\": \"forged\"}\r\n";
    let rules: Vec<_> = (0..50).map(|_| ("RCPT", evil)).collect();
    let place = Place::start(vec![("smtp", Hop::start(PLAIN, &rules))]);
    place.send(0, 1, "");
    until("a deferral", || place.story("r0@c0.test").starts_with("T451").then_some(()));
    let rows = until("the reply in the queue", || {
        let rows = place.daemon.queue(&[]);
        rows[0].to_string().contains("forged").then_some(rows)
    });
    assert_eq!((rows.len(), rows[0]["sender"].as_str()), (1, Some("s0@local.test")));
    let id = rows[0]["id"].as_str().unwrap().to_string();
    for command in [&["queue", "list"][..], &["queue", "explain", &id], &["queue", "show", &id]] {
        let output = place.daemon.command(command);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{command:?}: {text:?}");
    }
}

#[test]
fn d177_pipelined_replies_are_matched_in_order_in_one_piece_and_byte_by_byte() {
    let rules = |mark: &str| {
        ["250 a\r\n", "450 b\r\n", "250-c\r\n250 c\r\n", "550 d\r\n", "250 e\r\n"]
            .map(|reply| ("RCPT", format!("{mark}{reply}")))
    };
    let story = ["D250", "T450 D250", "D250", "F550", "D250"];
    let mut cases = Vec::new();
    for hello in [ALL, PIPELINING, PLAIN] {
        for mark in ["", "~"] {
            let rules = rules(mark);
            let rules: Vec<_> = rules.iter().map(|(verb, reply)| (*verb, reply.as_str())).collect();
            cases.push(case(hello, &rules, &story));
        }
    }
    let place = Place::run(&cases);
    // The first transaction had exactly the three recipients, in their order.
    for hop in &place.hops {
        let first = hop.seen(|seen| seen.taken[0].to.clone());
        let names: Vec<&str> = first.iter().map(|to| &to["TO:<".len()..][..2]).collect();
        assert_eq!(names, ["r0", "r2", "r4"]);
    }
}
