//! Replies that are malformed, unusual or cut into pieces.
//!
//! Must never depend on how the bytes of a reply arrive.

use super::*;

#[test]
fn d152_a_late_answer_counts_and_a_later_one_does_not() {
    for (seconds, expected) in [(599, "D End 250"), (600, "T End own 451, closed")] {
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[(".", "")]);
        talk.send(message(1));
        talk.run(&[usize::MAX]);
        let due = talk.session.next_wakeup().unwrap();
        assert_eq!(due, Instant::ZERO + Duration::from_secs(600));
        talk.session.handle(Input::Tick, at(seconds));
        talk.session.handle(Input::Received(b"25"), at(seconds));
        talk.session.handle(Input::Received(b"0 ok\r\n"), at(seconds));
        talk.run(&[usize::MAX]);
        assert_eq!(talk.story().summary(), expected);
    }
}

#[test]
fn d153_garbage_ends_the_connection_in_bounded_memory() {
    let long = "x".repeat(70_000);
    let endless = "250-more\r\n".repeat(200);
    let megabyte = format!("250 {}", "y".repeat(1 << 20));
    for reply in [
        "000 no\r\n",
        "999 no\r\n",
        "25\r\n",
        "2500 no\r\n",
        "250no\r\n",
        "hello\r\n",
        "\r\n",
        " \r\n",
        "354 go\r\n",
        "250-a\r\n550 b\r\n",
        "250 \0\x01",
        "\u{e9}50 a\r\n",
        &long,
        &endless,
        &megabyte,
        " 250 ok\r\n",
        "250\tok\r\n",
        "-50 a\r\n",
        "199 a\r\n",
        "600 a\r\n",
    ] {
        let dropping = format!("{reply}{DROP}");
        for hello in [ALL, PLAIN] {
            let story = tell(&[("EHLO", hello), ("RCPT", &dropping)], &[message(1)]);
            assert_eq!(story.summary(), "T Rcpt own 451, closed", "{:.40}", reply);
        }
    }
    check(&[
        (PIPELINING, &[("DATA", "250 ok\r\n")], "T Data own 451, T Data own 451, closed"),
        (ALL, &[("MAIL", "354 go\r\n")], "T Mail own 451, T Mail own 451, closed"),
        (ALL, &[(".", "354 go\r\n")], "T End own 451, T End own 451, closed"),
        (ALL, &[("", "354 go\r\n")], "T Greeting own 451, T Greeting own 451, closed"),
        (ALL, &[("RCPT", "250\r\n"), (".", "250\r\n")], "D End 250, D End 250"),
        (ALL, &[("RCPT", "550 no\r\n250 yes\r\n")], "F Rcpt 550, D End 250, closed"),
    ]);
}

#[test]
fn r229_an_unknown_code_counts_by_its_first_digit() {
    for go_on in
        ["300 go\r\n", "334 more\r\n", "345\r\n", "350-a\r\n350 b\r\n", "352 c\r\n", "399 d\r\n"]
    {
        for hello in [PIPELINING, PLAIN] {
            let story = tell(&[("EHLO", hello), ("DATA", go_on)], &[message(2)]);
            assert_eq!(story.summary(), "D End 250, D End 250", "{go_on:?}");
            assert_eq!(story.bodies.len(), 1);
        }
    }
    check(&[
        (PIPELINING, &[("", "299 hi\r\n")], "D End 250, D End 250"),
        ("267-sink\r\n267 PIPELINING\r\n", &[], "D End 250, D End 250"),
        ("599 what\r\n", &[("HELO", "222 hi\r\n")], "D End 250, D End 250"),
        ("555 what\r\n", &[("HELO", "444 no\r\n")], "T Hello 444, T Hello 444, closed"),
        (PLAIN, &[("MAIL", "200 ok\r\n"), ("RCPT", "278 ok\r\n")], "D End 250, D End 250"),
        (PLAIN, &[("MAIL", "499 no\r\n")], "T Mail 499, T Mail 499"),
        (ALL, &[("MAIL", "577 no\r\n")], "F Mail 577, F Mail 577"),
        (ALL, &[("RCPT", "432 no\r\n"), ("RCPT", "532 no\r\n")], "T Rcpt 432, F Rcpt 532"),
        (PLAIN, &[("DATA", "477 no\r\n")], "T Data 477, T Data 477"),
        (PIPELINING, &[("DATA", "577 no\r\n")], "F Data 577, F Data 577"),
        (PLAIN, &[(".", "201 kept\r\n")], "D End 201, D End 201"),
        (ALL, &[(".", "277 kept\r\n")], "D End 277, D End 277"),
        (ALL, &[(".", "433 no\r\n")], "T End 433, T End 433"),
        (PLAIN, &[(".", "533 no\r\n")], "F End 533, F End 533"),
        (ALL, &[("", "521 no\r\n")], "F Greeting 521, F Greeting 521, closed"),
    ]);
    let nobody = [("RCPT", "550 no\r\n"), ("DATA", "333 go\r\n"), (".", "555 empty\r\n")];
    let story = tell(&[&nobody[..], &[("EHLO", PIPELINING)]].concat(), &[message(1), message(1)]);
    assert_eq!(story.summary(), "F Rcpt 550, D End 250");
}

#[test]
fn a_reply_that_fits_nowhere_is_quoted_and_a_refused_rset_is_not_held_against_the_message() {
    let story = tell(&[("EHLO", PLAIN), ("DATA", "250 2.0.0 done?\r\n")], &[message(1)]);
    let reply = story.ended[0].as_ref().unwrap()[0].report().reply.text.clone();
    assert!(reply.ends_with("does not fit the command: 250 2.0.0 done?"), "{reply}");
    for hello in [ALL, PLAIN] {
        let rules = [("EHLO", hello), ("RCPT", "550 no\r\n"), ("RSET", "500 what\r\n")];
        let story = tell(&rules, &[message(1), message(1)]);
        assert_eq!(story.summary(), "F Rcpt 550, unsent, closed", "{:?}", story.lines);
    }
}

#[test]
fn r230_a_long_reply_line_decides_as_a_short_one_would() {
    for bytes in [2_049, 5_789, 65_535] {
        let long = |code| format!("{code} {:x<1$}\r\n", "", bytes - 4);
        let (no, ok) = (long("550"), long("250"));
        check(&[
            (PLAIN, &[("", &ok), ("RCPT", &no)], "F Rcpt 550, D End 250"),
            (ALL, &[("RCPT", &no), (".", &no)], "F Rcpt 550, F End 550"),
            (PIPELINING, &[("MAIL", &ok), (".", &ok)], "D End 250, D End 250"),
        ]);
    }
    let endless = "550 ".to_string() + &"x".repeat(65_533);
    check(&[(PLAIN, &[("RCPT", &endless)], "T Rcpt own 451, T Rcpt own 451, closed")]);
}

#[test]
fn r234_a_reply_with_different_codes_of_one_class_decides_and_one_of_two_classes_does_not() {
    let moved = "550-5.1.1 no\r\n551 5.1.6 moved\r\n";
    check(&[
        (PLAIN, &[("RCPT", moved), ("RCPT", "\r\n250 ok\r\n")], "F Rcpt 551, D End 250"),
        (ALL, &[("", "\r\n\r\n220 hi\r\n"), (".", "\r\n250 ok\r\n")], "D End 250, D End 250"),
        (ALL, &[("RCPT", "450-a\r\n550 b\r\n")], "T Rcpt own 451, T Rcpt own 451, closed"),
    ]);
}

#[test]
fn d154_and_d155_a_reply_is_made_harmless() {
    for (reply, enhanced, text) in [
        ("550 5.7.2\r\n", Some("5.7.2"), ""),
        ("550 5.7.2 no\r\n", Some("5.7.2"), "no"),
        ("550-5.7.2 no\r\n550 5.7.2 way\r\n", Some("5.7.2"), "no\nway"),
        ("550 4.7.2 odd\r\n", None, "4.7.2 odd"),
        ("550-a\r\n550-250 MAIL FROM:<x>\r\n550 R\r\n", None, "a\n250 MAIL FROM:<x>\nR"),
        ("550 a\0b\x1b[31m\tc\x7f\r\r\n", None, "a?b?[31m c??"),
        ("550 caf\u{e9}\r\n", None, "caf??"),
    ] {
        let story = tell(&[("RCPT", reply)], &[message(1)]);
        let Ok(outcomes) = &story.ended[0] else { panic!() };
        let given = outcomes[0].report().reply.enhanced.map(|code| code.to_string());
        assert_eq!((given.as_deref(), story.text()), (enhanced, text));
    }
    let long = format!("{}550 end\r\n", format!("550-{}\r\n", "z".repeat(1000)).repeat(100));
    let story = tell(&[("RCPT", &long)], &[message(1)]);
    assert_eq!(story.summary(), "F Rcpt 550");
    assert!(story.text().len() <= 8 * 1024);
}

proptest! {
    #[test]
    fn d177_replies_mean_the_same_however_they_are_cut(
        cuts in proptest::collection::vec(1usize..40, 1..20),
        picks in proptest::collection::vec(0usize..6, 8),
        hello in 0usize..3,
    ) {
        let replies = ["250 ok\r\n", "250-a\r\n250 b\r\n", "450 4.1.1 no\r\n", "550 no\r\n", "x\r\n", "421 b\r\n!"];
        let verbs = ["MAIL", "RCPT", "RCPT", "RCPT", ".", "MAIL", "RCPT", "."];
        let mut rules: Vec<_> =
            verbs.iter().zip(&picks).map(|(verb, pick)| (*verb, replies[*pick])).collect();
        rules.push(("EHLO", [ALL, PIPELINING, PLAIN][hello]));
        let messages = [message(3), message(2)];
        let whole = tell_cut(Dialect::Smtp, &rules, &messages, &[usize::MAX]);
        let cut = tell_cut(Dialect::Smtp, &rules, &messages, &cuts);
        prop_assert_eq!(&whole.summary(), &cut.summary());
        prop_assert_eq!(whole.ended, cut.ended);
    }

    #[test]
    fn any_bytes_of_a_peer_end_with_an_outcome_for_each(
        junk in proptest::collection::vec(any::<u8>(), 0..400),
        good in 0usize..200,
    ) {
        let script = format!("220 a\r\n{ALL}250 a\r\n250 b\r\n250 c\r\n250 d\r\n");
        let mut session =
            Session::new(Arc::new(Settings::for_tests()), Dialect::Smtp, "p", at(0));
        session.handle(Input::Send(message(2)), at(0));
        session.handle(Input::Received(&script.as_bytes()[..good.min(script.len())]), at(0));
        session.handle(Input::Received(&junk), at(0));
        session.handle(Input::Lost, at(0));
        let mut outcomes = 0;
        while let Some(output) = session.poll() {
            match output {
                Output::Done { outcomes: told, .. } => outcomes += told.len(),
                Output::Close => prop_assert!(session.is_closed()),
                Output::NeedBody { .. } | Output::Unsent(_) => prop_assert!(false, "{output:?}"),
            }
        }
        prop_assert_eq!(outcomes, 2);
    }
}
