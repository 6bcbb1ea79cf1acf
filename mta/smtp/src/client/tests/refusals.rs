//! Refusals at each stage, and which recipients they concern.
//!
//! Must never expect an outcome for fewer recipients than the message has.

use super::*;

#[test]
fn d147_a_4xx_at_each_stage_defers_and_leaves_the_others_unharmed() {
    check(&[
        (ALL, &[("", "421 busy\r\n")], "T Greeting 421, T Greeting 421, closed"),
        (ALL, &[("", "450 busy\r\n")], "T Greeting 450, T Greeting 450, closed"),
        ("451 later\r\n", &[], "T Hello 451, T Hello 451, closed"),
        (ALL, &[("MAIL", "451 no\r\n")], "T Mail 451, T Mail 451"),
        (PLAIN, &[("MAIL", "451 no\r\n")], "T Mail 451, T Mail 451"),
        (ALL, &[("RCPT", "450 grey\r\n")], "T Rcpt 450, D End 250"),
        (PIPELINING, &[("RCPT", "450 grey\r\n")], "T Rcpt 450, D End 250"),
        (PLAIN, &[("RCPT", "450 grey\r\n")], "T Rcpt 450, D End 250"),
        (PIPELINING, &[("DATA", "451 no\r\n")], "T Data 451, T Data 451"),
        (PLAIN, &[("DATA", "451 no\r\n")], "T Data 451, T Data 451"),
        (ALL, &[(".", "452 full\r\n")], "T End 452, T End 452"),
        (PLAIN, &[(".", "452 full\r\n")], "T End 452, T End 452"),
        (ALL, &[("MAIL", "421 bye\r\n!")], "T Mail 421, T Mail 421, closed"),
        (PLAIN, &[("RCPT", "421 bye\r\n!")], "T Rcpt 421, T Rcpt 421, closed"),
        (PIPELINING, &[("DATA", "421 bye\r\n!")], "T Data 421, T Data 421, closed"),
        (ALL, &[(".", "421 bye\r\n!")], "T End 421, T End 421, closed"),
    ]);
}

#[test]
fn d148_a_5xx_at_each_stage_fails_once_for_each_recipient_and_the_rest_is_delivered() {
    check(&[
        (ALL, &[("", "554 no\r\n")], "F Greeting 554, F Greeting 554, closed"),
        ("502 what\r\n", &[], "D End 250, D End 250"),
        ("502 what\r\n", &[("HELO", "550 no\r\n")], "F Hello 550, F Hello 550, closed"),
        (ALL, &[("MAIL", "550 no\r\n")], "F Mail 550, F Mail 550"),
        (ALL, &[("RCPT", "550 no\r\n")], "F Rcpt 550, D End 250"),
        (ALL, &[("RCPT", "550 a\r\n"), ("RCPT", "551 b\r\n")], "F Rcpt 550, F Rcpt 551"),
        (PLAIN, &[("RCPT", "550 a\r\n"), ("RCPT", "551 b\r\n")], "F Rcpt 550, F Rcpt 551"),
        (PIPELINING, &[("DATA", "554 no\r\n")], "F Data 554, F Data 554"),
        (ALL, &[(".", "554 spam\r\n")], "F End 554, F End 554"),
    ]);
}

/// A server that accepts `max` recipients in the first transaction and refuses the others with
/// this reply.
fn tell_limited(hello: &str, max: usize, refusal: &str, recipients: usize) -> Story {
    let mut rules = vec![("EHLO", hello)];
    rules.extend(vec![("RCPT", "250 2.1.5 ok\r\n"); max]);
    rules.extend(vec![("RCPT", refusal); recipients - max]);
    tell(&rules, &[message(recipients)])
}

#[test]
fn r233_recipients_beyond_the_peers_limit_go_in_the_next_transaction() {
    let refusals =
        ["452 4.5.3 too many\r\n", "452 too many\r\n", "552 5.5.3 too many\r\n", "552 many\r\n"];
    for refusal in refusals {
        for hello in [ALL, PIPELINING, PLAIN] {
            let story = tell_limited(hello, 3, refusal, 8);
            assert_eq!(story.summary(), ["D End 250"; 8].join(", "), "{refusal} {:?}", story.lines);
            let of = |verb: &str| story.lines.iter().filter(|l| l.starts_with(verb)).count();
            // Five recipients were sent twice; then the limit is known.
            assert_eq!((of("MAIL"), of("RCPT"), story.bodies.len()), (3, 13, 3));
        }
    }
}

#[test]
fn r233_a_refused_recipient_is_quoted_and_judged_as_the_peer_said() {
    let full = "552 5.2.2 Mailbox full\r\n";
    check(&[
        (ALL, &[("RCPT", full)], "F Rcpt 552, D End 250"),
        (PLAIN, &[("RCPT", "250 ok\r\n"), ("RCPT", full)], "D End 250, F Rcpt 552"),
        // No recipient was accepted before it, so the reply cannot mean "too many".
        (ALL, &[("RCPT", "552 full\r\n")], "F Rcpt 552, D End 250"),
        (ALL, &[("RCPT", "552 5.5.3 too many\r\n")], "T Rcpt 552, D End 250"),
        (ALL, &[("RCPT", "452 4.5.3 too many\r\n")], "T Rcpt 452, D End 250"),
        (ALL, &[("RCPT", "250 ok\r\n"), ("RCPT", "452 4.2.2 full\r\n")], "D End 250, T Rcpt 452"),
        (ALL, &[("RCPT", "250 ok\r\n"), ("RCPT", "452 4.3.1 disk\r\n")], "D End 250, T Rcpt 452"),
    ]);
    let bare = ("RCPT", "552 full\r\n");
    let ok = ("RCPT", "250 ok\r\n");
    for hello in [ALL, PIPELINING, PLAIN] {
        let rules = |more: &[(&'static str, &'static str)]| [&[("EHLO", hello)], more].concat();
        // The second recipient is refused again in a transaction of its own: the reply is final.
        let story = tell(&rules(&[ok, bare, bare]), &[message(2)]);
        assert_eq!(story.summary(), "D End 250, F Rcpt 552");
        // If no recipient got the message, none is tried again at once.
        let refused = (".", "554 spam\r\n");
        let story = tell(&rules(&[ok, ("RCPT", "452 many\r\n"), refused]), &[message(2)]);
        assert_eq!(story.summary(), "F End 554, T Rcpt 452");
        let story = tell(&rules(&[ok, ("RCPT", "452 many\r\n"), (".", "!")]), &[message(2)]);
        assert_eq!(story.summary(), "T End own 451, T Rcpt 452, closed");
        // Whether the peer meant "too many" is unknown, so nothing bounces.
        for (end, expected) in [
            ((".", "451 later\r\n"), "T End 451, T Rcpt 552"),
            ((".", "554 spam\r\n"), "F End 554, T Rcpt 552"),
            ((".", "!"), "T End own 451, T Rcpt 552, closed"),
        ] {
            let story = tell(&rules(&[ok, bare, end]), &[message(2)]);
            assert_eq!(story.summary(), expected);
        }
    }
    let story = tell(&[("RCPT", full)], &[message(1)]);
    let said = story.ended[0].as_ref().unwrap()[0].report().reply.to_string();
    assert_eq!(said, "552 5.2.2 Mailbox full");
}

#[test]
fn d149_each_recipient_has_its_own_outcome() {
    let rules = [("RCPT", "250 ok\r\n"), ("RCPT", "451 4.2.1 full\r\n"), ("RCPT", "550 no\r\n")];
    for hello in [ALL, PIPELINING, PLAIN] {
        let story = tell(&[&rules[..], &[("EHLO", hello)]].concat(), &[message(4)]);
        assert_eq!(story.summary(), "D End 250, T Rcpt 451, F Rcpt 550, D End 250");
        assert_eq!(story.bodies.len(), 1);
    }
    for garbage in ["banana\r\n", " \r\n"] {
        let rules = [("RCPT", "550 no\r\n"), ("RCPT", garbage)];
        let story = tell(&rules, &[message(3)]);
        assert_eq!(story.summary(), "F Rcpt 550, T Rcpt own 451, T Rcpt own 451, closed");
    }
}

#[test]
fn d156_and_d157_lmtp_answers_for_each_recipient_and_only_missing_ones_are_tried_again() {
    let three = "250-l\r\n250-PIPELINING\r\n250 8BITMIME\r\n";
    let chunking = "250-l\r\n250-PIPELINING\r\n250 CHUNKING\r\n";
    let table: &[(Rules<'_>, &str)] = &[
        (&[], "D End 250, D End 250, D End 250"),
        (
            &[(".", "250 a\r\n"), (".", "452 full\r\n"), (".", "550 no\r\n")],
            "D End 250, T End 452, F End 550",
        ),
        (
            &[("RCPT", "550 no\r\n"), (".", "250 a\r\n!")],
            "F Rcpt 550, D End 250, T End own 451, closed",
        ),
        (&[(".", "250 a\r\n"), (".", "!")], "D End 250, T End own 451, T End own 451, closed"),
        (
            &[(".", "250 a\r\n250 b\r\n250 c\r\n250 d\r\n")],
            "D End 250, D End 250, D End 250, closed",
        ),
        (
            &[
                ("RCPT", "550 a\r\n"),
                ("RCPT", "550 b\r\n"),
                ("RCPT", "550 c\r\n"),
                ("DATA", "503 none\r\n"),
            ],
            "F Rcpt 550, F Rcpt 550, F Rcpt 550",
        ),
    ];
    for hello in [three, chunking, "250 l\r\n"] {
        for (rules, expected) in table {
            let rules = [&rules[..], &[("LHLO", hello)]].concat();
            for cut in [1, usize::MAX] {
                let story = tell_cut(Dialect::Lmtp, &rules, &[message(3)], &[cut]);
                assert_eq!(story.summary(), *expected, "{rules:?} {:?}", story.lines);
            }
        }
    }
    let story = tell_cut(Dialect::Lmtp, &[("LHLO", "500 what\r\n")], &[message(1)], &[9]);
    assert_eq!(story.summary(), "F Hello 500, closed");
}
