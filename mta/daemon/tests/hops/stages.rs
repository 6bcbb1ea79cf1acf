//! A temporary and a permanent refusal at each stage, of one recipient and of all (D147 to D149).
//!
//! Must never expect an outcome without comparing it with the messages that the hop received.

use crate::hop::{ALL, PIPELINING, PLAIN};
use crate::{Case, Place, case};
use std::time::Duration;

#[test]
fn d147_a_4xx_at_any_stage_is_tried_again_by_schedule_and_harms_no_other_recipient() {
    let both = |codes: &'static str| [codes, codes];
    let cases: Vec<Case> = [ALL, PIPELINING, PLAIN]
        .into_iter()
        .flat_map(|hello| {
            [
                case(hello, &[("", "421 busy\r\n!")], &both("T421 D250")),
                case(hello, &[("", "450 busy\r\n")], &both("T450 D250")),
                case(hello, &[("EHLO", "451 later\r\n")], &both("T451 D250")),
                case(hello, &[("MAIL", "451 4.3.0 no\r\n")], &both("T451 D250")),
                case(hello, &[("MAIL", "421 bye\r\n!")], &both("T421 D250")),
                case(hello, &[("RCPT", "450 4.2.0 grey\r\n")], &["T450 D250", "D250"]),
                case(hello, &[(".", "452 4.3.1 full\r\n")], &both("T452 D250")),
                case(hello, &[(".", "421 bye\r\n!")], &both("T421 D250")),
                case(hello, &[("QUIT", "450 stay\r\n")], &both("D250")),
                case(hello, &[("QUIT", "!")], &both("D250")),
            ]
        })
        .chain(
            [PIPELINING, PLAIN]
                .map(|hello| case(hello, &[("DATA", "451 4.3.0 no\r\n")], &both("T451 D250"))),
        )
        // The first recipient is tried more often than the other one.
        .chain([case(
            PLAIN,
            &[("RCPT", "450 a\r\n"), ("RCPT", "250 b\r\n"), ("RCPT", "451 c\r\n")],
            &["T450 T451 D250", "D250"],
        )])
        .collect();
    let place = Place::run(&cases);
    for hop in place.hops.iter().take(3) {
        hop.seen(|seen| {
            let wait = seen.connections[1] - seen.connections[0];
            assert!(wait > Duration::from_millis(700), "{wait:?}: not by schedule");
        });
    }
    for number in 0..cases.len() {
        assert_eq!(place.daemon.mailbox(&format!("s{number}")), Vec::<String>::new(), "no notice");
    }
}

/// The number of times that the notices to a sender name each recipient as failed.
fn told(place: &Place, number: usize, recipients: usize) -> Vec<usize> {
    let notices = place.daemon.mailbox(&format!("s{number}"));
    let field = |recipient| format!("Final-Recipient: rfc822; r{recipient}@c{number}.test");
    let times =
        |recipient| notices.iter().map(|text| text.matches(&field(recipient)).count()).sum();
    (0..recipients).map(times).collect()
}

#[test]
fn d148_a_5xx_at_any_stage_is_told_once_for_each_recipient_and_the_rest_is_delivered() {
    let both = |codes: &'static str| [codes, codes];
    let cases: Vec<Case> = [ALL, PIPELINING, PLAIN]
        .into_iter()
        .flat_map(|hello| {
            [
                case(hello, &[("", "554 no\r\n")], &both("F554")),
                case(hello, &[("EHLO", "502 what\r\n"), ("HELO", "550 no\r\n")], &both("F550")),
                case(hello, &[("EHLO", "502 what\r\n")], &both("D250")),
                case(hello, &[("MAIL", "550 5.7.1 no\r\n")], &both("F550")),
                case(hello, &[("RCPT", "550 5.1.1 no\r\n")], &["F550", "D250"]),
                case(hello, &[("RCPT", "550 a\r\n"), ("RCPT", "551 b\r\n")], &["F550", "F551"]),
                case(hello, &[(".", "554 5.7.0 spam\r\n")], &both("F554")),
                // RFC 5321 4.5.3.1.10: "too many recipients" is temporary.
                case(hello, &[("RCPT", "552 5.5.3 too many\r\n")], &["T552 D250", "D250"]),
                case(hello, &[("QUIT", "550 stay\r\n")], &both("D250")),
            ]
        })
        .chain(
            [PIPELINING, PLAIN].map(|hello| case(hello, &[("DATA", "554 no\r\n")], &both("F554"))),
        )
        .collect();
    let place = Place::run(&cases);
    for (number, case) in cases.iter().enumerate() {
        let wanted: Vec<usize> =
            case.story.iter().map(|story| usize::from(story.starts_with('F'))).collect();
        assert_eq!(told(&place, number, 2), wanted, "{:?}", case.rules);
    }
}

#[test]
fn d148_no_notice_names_a_recipient_with_notify_never() {
    let hop = crate::Hop::start(ALL, &[("RCPT", "550 no\r\n"), ("RCPT", "550 no\r\n")]);
    let place = Place::start(vec![("smtp", hop)]);
    place.send(0, 2, " NOTIFY=NEVER");
    crate::until("both to fail", || {
        let stories = [place.story("r0@c0.test"), place.story("r1@c0.test")];
        (stories == ["F550", "F550"]).then_some(())
    });
    crate::until("an empty queue", || (place.daemon.queued() == 0).then_some(()));
    place.daemon.works();
    assert_eq!(place.daemon.mailbox("s0"), Vec::<String>::new());
}

#[test]
fn d149_each_recipient_of_a_transaction_has_its_own_outcome() {
    let rules = [("RCPT", "250 ok\r\n"), ("RCPT", "451 4.2.1 full\r\n"), ("RCPT", "550 no\r\n")];
    let mixed = |hello| case(hello, &rules, &["D250", "T451 D250", "F550", "D250"]);
    let rest = |garbage, hello| {
        let rules = [("RCPT", "250 ok\r\n"), ("RCPT", "550 no\r\n"), ("RCPT", garbage)];
        // The meaning of such replies is unknown, so recipients without a reply are tried again.
        let mut case = case(hello, &rules, &["T451 D250", "F550", "T451 D250"]);
        // With BDAT the whole message was sent before the garbage arrived.
        case.ambiguous = hello == ALL;
        case
    };
    let mut cases = vec![mixed(ALL), mixed(PIPELINING), mixed(PLAIN)];
    for hello in [ALL, PIPELINING, PLAIN] {
        cases.extend(["banana\r\n", " \r\n"].map(|garbage| rest(garbage, hello)));
    }
    let place = Place::run(&cases);
    for number in 0..3 {
        assert_eq!(told(&place, number, 4), [0, 0, 1, 0]);
    }
}

#[test]
fn r233_the_mailbox_of_552_5_2_2_is_full_and_recipients_beyond_a_limit_go_next() {
    let full = ("RCPT", "552 5.2.2 Mailbox full\r\n");
    let ok = ("RCPT", "250 ok\r\n");
    let cases: Vec<Case> = [ALL, PIPELINING, PLAIN]
        .into_iter()
        .flat_map(|hello| {
            let limited = |refusal| {
                let refused = ("RCPT", refusal);
                let rules = [ok, ok, refused, refused, refused];
                case(hello, &rules, &["D250", "D250", "D250", "D250", "D250"])
            };
            [
                case(hello, &[full], &["F552", "D250"]),
                case(hello, &[ok, full], &["D250", "F552"]),
                limited("452 4.5.3 too many\r\n"),
                limited("552 5.5.3 too many\r\n"),
                limited("552 too many\r\n"),
            ]
        })
        .collect();
    let place = Place::run(&cases);
    for (number, case) in cases.iter().enumerate() {
        if case.rules[0] == (full.0, full.1.to_string()) {
            let notice = place.daemon.wait_in_mailbox(&format!("s{number}"), "Action: failed");
            for field in ["Status: 5.2.2\n", "Diagnostic-Code: smtp; 552 5.2.2 Mailbox full\n"] {
                assert!(notice.contains(field), "{notice}");
            }
        } else if case.story.len() == 5 {
            let sizes = place.hops[number]
                .seen(|seen| seen.taken.iter().map(|taken| taken.to.len()).collect::<Vec<_>>());
            assert_eq!(sizes, [2, 2, 1], "{:?}", case.rules);
        }
    }
}
