//! Addresses and their parameters (P047 to P060).
//!
//! Must never treat acceptance as delivery: the mail of each accepted recipient is searched for.

use super::{RECIPIENTS_MAX, place, port};
use crate::support::{Client, token};

/// Runs one transaction from `sender` to `recipient`. Returns the reply to RCPT, and the delivered mail if it
/// was accepted.
fn mail_to(client: &mut Client, sender: &str, recipient: &str) -> u16 {
    client.ask(&format!("MAIL FROM:<{sender}>"), 250);
    let reply = client.command(&format!("RCPT TO:<{recipient}>"));
    if reply.code == 250 {
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
        client.expect(250);
    } else {
        assert!(reply.is_refusal(), "{recipient}: {reply:?}");
        client.ask("RSET", 250);
    }
    reply.code
}

#[test]
fn p047_eight_bits_in_an_address_need_smtputf8() {
    let mut client = Client::ready(port());
    let reply = client.command("MAIL FROM:<jürgen@client.test>");
    assert!(matches!(reply.code, 501 | 553), "{reply:?}");
    assert_eq!(reply.enhanced(), "5.6.7", "{reply:?}");
    client.ask("MAIL FROM:<a@client.test>", 250);
    let reply = client.command("RCPT TO:<jürgen@local.test>");
    assert!(matches!(reply.code, 501 | 553), "{reply:?}");
    client.ask("RSET", 250);
    client.ask("MAIL FROM:<jürgen@client.test> SMTPUTF8", 250);
    client.ask("RCPT TO:<jürgen@sink.test>", 250);
}

#[test]
fn p048_what_is_no_utf_8_is_refused() {
    let bad: &[&[u8]] =
        &[b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xff", b"\x80"];
    let mut client = Client::ready(port());
    for bytes in bad {
        client.send([&b"MAIL FROM:<a"[..], bytes, b"@client.test> SMTPUTF8\r\n"].concat());
        let reply = client.reply();
        assert!(matches!(reply.code, 500 | 501 | 553), "{bytes:?}: {reply:?}");
    }
    client.ask("MAIL FROM:<a@client.test> SMTPUTF8", 250);
    for bytes in bad {
        client.send([&b"RCPT TO:<a"[..], bytes, b"@local.test>\r\n"].concat());
        let reply = client.reply();
        assert!(matches!(reply.code, 500 | 501 | 553), "{bytes:?}: {reply:?}");
    }
}

#[test]
fn p049_mail_that_needs_smtputf8_bounces_where_the_next_hop_has_none() {
    // RFC 6531 3.5 and 3.7: an address or a header that cannot be passed on.
    for (recipient, subject, code) in
        [("jürgen@plain.test", "for you", "5.6.7"), ("b@plain.test", "für dich", "5.6.9")]
    {
        let user = token("p049");
        let mut client = Client::ready(port());
        client.ask(&format!("MAIL FROM:<{user}@local.test> SMTPUTF8"), 250);
        client.ask(&format!("RCPT TO:<{recipient}>"), 250);
        client.ask("DATA", 354);
        client.send(format!("Subject: {subject}\r\n\r\nbody\r\n.\r\n"));
        client.expect(250);
        let bounce = place().daemon.wait_in_mailbox(&user, code);
        assert!(bounce.contains("delivery-status"), "{bounce}");
    }
    assert_eq!(place().plain.with("rgen").len(), 0);
}

#[test]
fn p050_the_forms_of_one_domain_are_one_route_and_none_panics() {
    let token = token("p050");
    let mut client = Client::ready(port());
    // A U-label composed and decomposed, an A-label, upper case, and a full-width dot.
    for domain in [
        "bücher.sink.test",
        "bu\u{308}cher.sink.test",
        "xn--bcher-kva.sink.test",
        "BÜCHER.SINK.TEST",
        "bücher\u{ff0e}sink.test",
    ] {
        client.ask(&format!("MAIL FROM:<{token}@client.test> SMTPUTF8"), 250);
        client.ask(&format!("RCPT TO:<b@{domain}>"), 250);
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
        client.expect(250);
    }
    crate::support::until("five messages at one route", || {
        (place().sink.with(&token).len() == 5).then_some(())
    });
    client.ask(&format!("MAIL FROM:<{token}@client.test> SMTPUTF8"), 250);
    for domain in
        ["a\u{200d}b.test", "xn--.test", "xn--zzzzzzzzzz.test", "\u{202e}.test", "\u{df}.test"]
    {
        let reply = client.command(&format!("RCPT TO:<b@{domain}>"));
        assert!(reply.code == 250 || reply.is_refusal(), "{domain:?}: {reply:?}");
    }
    client.ask("NOOP", 250);
}

#[test]
fn p051_a_source_route_is_ignored_and_relays_nothing() {
    let user = token("p051");
    let mut client = Client::stranger(port());
    let route = format!("@elsewhere.sink.test,@b.sink.test:{user}@local.test");
    if mail_to(&mut client, "a@stranger.test", &route) == 250 {
        place().daemon.wait_in_mailbox(&user, "body");
    }
    let code = mail_to(&mut client, "a@stranger.test", &format!("@local.test:{user}@sink.test"));
    assert!(code >= 500, "relayed for a stranger");
    place().daemon.works();
    assert_eq!(place().sink.with(&user).len(), 0);
}

#[test]
fn p052_routes_hidden_in_a_local_part_relay_nothing() {
    let user = token("p052");
    let mut client = Client::stranger(port());
    for recipient in [
        format!("{user}%sink.test@local.test"),
        format!("sink.test!{user}@local.test"),
        format!("{user}@sink.test@local.test"),
        format!("\"{user}@sink.test\"@local.test"),
        format!("\"{user}\"@sink.test"),
    ] {
        mail_to(&mut client, "a@stranger.test", &recipient);
    }
    place().daemon.works();
    assert_eq!(place().sink.with(&user).len(), 0);
}

#[test]
fn p053_quoted_local_parts_arrive_as_they_came_and_bad_ones_are_refused() {
    let mut client = Client::ready(port());
    let mut sent = Vec::new();
    for local in [r#""a b""#, r#""a\"b""#, r#""a\\b""#, r#""a@b""#, r#""<>""#, r#"".a.""#] {
        let token = token("p053");
        let sender = format!("{token}@client.test");
        assert_eq!(mail_to(&mut client, &sender, &format!("{local}@sink.test")), 250, "{local}");
        sent.push((token, format!("TO:<{local}@sink.test>")));
    }
    for (token, argument) in sent {
        let mail = place().sink.wait(&token);
        assert!(mail.to[0].starts_with(&argument), "{argument}: {:?}", mail.to);
    }
    client.ask("MAIL FROM:<a@client.test>", 250);
    for local in ["\"a\rb\"", "\"\\\r\"", "\"a", "a\"b\"", "\"a\"b", "\"a\"\"b\"", "\"é\"", "a b"]
    {
        let reply = client.command(&format!("RCPT TO:<{local}@sink.test>"));
        assert!(matches!(reply.code, 500 | 501 | 553), "{local:?}: {reply:?}");
    }
}

#[test]
fn p054_address_literals_lead_nobody_to_our_own_ports() {
    let mut client = Client::ready(port());
    client.ask("MAIL FROM:<a@client.test>", 250);
    for literal in ["[IPv6:gggg]", "[1.2.3]", "[foo:bar]", "[]", "[127.0.0.1", "[256.1.1.1]"] {
        let reply = client.command(&format!("RCPT TO:<b@{literal}>"));
        assert!(reply.is_refusal(), "{literal}: {reply:?}");
    }
    client.ask("RSET", 250);
    let user = token("p054");
    for literal in ["[IPv6:::1]", "[0.0.0.0]", "[127.1.2.3]"] {
        // The mail is refused at once or bounced, and never delivered to a service of this machine.
        let sender = format!("{user}@local.test");
        if mail_to(&mut client, &sender, &format!("b@{literal}")) == 250 {
            place().daemon.wait_in_mailbox(&user, literal);
        }
    }
    place().daemon.works();
    assert_eq!(place().daemon.mailbox("b"), Vec::<String>::new());
}

#[test]
fn p054_the_literal_of_an_address_that_we_listen_at_is_a_domain_of_ours() {
    for (name, literal) in [("four", "[127.0.0.1]"), ("mapped", "[IPv6:::ffff:127.0.0.1]")] {
        let (sender, user) = (token(name), token("literal"));
        let mut client = Client::stranger(port());
        let recipient = format!("{user}@{literal}");
        assert_eq!(mail_to(&mut client, &format!("{sender}@client.test"), &recipient), 250);
        place().daemon.wait_in_mailbox(&user, &sender);
    }
}

#[test]
fn p055_the_null_path_is_a_sender_and_no_recipient_and_postmaster_is_here() {
    let mut client = Client::ready(port());
    client.ask("MAIL FROM:<>", 250);
    let reply = client.command("RCPT TO:<>");
    assert!(matches!(reply.code, 501 | 553), "{reply:?}");
    client.ask("RCPT TO:<b@local.test>", 250);
    client.ask("RCPT TO:<c@local.test>", 250);
    client.ask("RSET", 250);
    let mut client = Client::stranger(port());
    client.ask("MAIL FROM:<>", 250);
    client.ask("RCPT TO:<postmaster>", 250);
    client.ask("RCPT TO:<PostMaster@local.test>", 250);
}

#[test]
fn p056_parts_of_an_address_have_their_limits() {
    let mut client = Client::ready(port());
    client.ask("MAIL FROM:<a@client.test>", 250);
    let label = |length: usize| "a".repeat(length);
    let long_domain = |length: usize| {
        let mut domain = vec![label(60); 3].join(".");
        domain = format!("{}.{domain}", label(length - domain.len() - 1 - ".sink.test".len()));
        domain + ".sink.test"
    };
    let table = [
        (format!("{}@sink.test", label(64)), true),
        (format!("{}@sink.test", label(65)), false),
        (format!("{}@sink.test", label(256)), false),
        (format!("b@{}.sink.test", label(63)), true),
        (format!("b@{}.sink.test", label(64)), false),
        (format!("b@{}", long_domain(253)), true),
        (format!("b@{}", long_domain(256)), false),
    ];
    for (address, good) in table {
        let reply = client.command(&format!("RCPT TO:<{address}>"));
        if good {
            assert_eq!(reply.code, 250, "{} {reply:?}", address.len());
        } else {
            assert!(matches!(reply.code, 501 | 550 | 553), "{} {reply:?}", address.len());
        }
    }
    let mut client = Client::ready(port());
    client.ask("MAIL FROM:<a@client.test>", 250);
    let reply = client.command(&format!("RCPT TO:<{}@sink.test>", label(10_000)));
    assert!(reply.is_refusal(), "{reply:?}");
}

#[test]
fn p057_of_a_hundred_thousand_recipients_those_beyond_the_limit_are_deferred() {
    let token = token("p057");
    let mut client = Client::ready(port());
    client.ask(&format!("MAIL FROM:<{token}@client.test>"), 250);
    for batch in 0..1_000 {
        let lines: String =
            (0..100).map(|n| format!("RCPT TO:<u{batch}x{n}@hold.test>\r\n")).collect();
        client.send(lines);
        for n in 0..100 {
            let reply = client.reply();
            let wanted = if batch * 100 + n < RECIPIENTS_MAX { 250 } else { 452 };
            assert_eq!(reply.code, wanted, "{batch} {n} {reply:?}");
            assert!(wanted == 250 || reply.enhanced() == "4.5.3", "{reply:?}");
        }
    }
    client.ask("DATA", 354);
    client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
    client.expect(250);
    let sender = format!("{token}@client.test");
    let queued = place().daemon.queue(&["--sender", &sender]);
    assert_eq!(queued.len(), 1);
    let shown = place().daemon.command(&["queue", "show", queued[0]["id"].as_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("u9x99@hold.test") && !shown.contains("u10x0@hold.test"), "{shown}");
}

#[test]
fn p058_a_recipient_named_many_times_gets_one_copy_and_another_is_not_lost() {
    let token = token("p058");
    let mut client = Client::ready(port());
    client.ask(&format!("MAIL FROM:<{token}@client.test>"), 250);
    client.send("RCPT TO:<same@sink.test>\r\n".repeat(1_000));
    for _ in 0..1_000 {
        client.expect(250);
    }
    client.ask("RCPT TO:<Same@SINK.test>", 250);
    client.ask("RCPT TO:<other@sink.test>", 250);
    client.ask("DATA", 354);
    client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
    client.expect(250);
    let recipients = || {
        let mails = place().sink.with(&token);
        mails.into_iter().flat_map(|mail| mail.to).collect::<Vec<String>>()
    };
    let others = crate::support::until("the other recipient", || {
        recipients().iter().any(|to| to.contains("other@")).then(recipients)
    });
    assert_eq!(others.iter().filter(|to| to.contains("<same@")).count(), 1, "{others:?}");
    // Local parts may differ by case (RFC 5321 2.4).
    assert_eq!(others.iter().filter(|to| to.contains("<Same@")).count(), 1, "{others:?}");
}

#[test]
fn r218_a_stranger_that_tries_names_is_cut_off_and_the_log_has_a_sum() {
    let token = token("r218");
    // Also from a client in `relay.from`: 127.0.0.1.
    let mut client = Client::ready(port());
    client.ask(&format!("MAIL FROM:<{token}@client.test>"), 250);
    for _ in 0..6 {
        client.send(format!("RCPT TO:<a/{token}@local.test>\r\n").repeat(100));
        (0..100).for_each(|_| drop(client.expect(550)));
    }
    client.ask("RCPT TO:<b@local.test>", 250);
    client.ask("QUIT", 221);
    place().daemon.wait_for_log(&["\"event\":\"judge\"", "\"recipients\":500"]);
    let own_line = format!("<a/{token}@local.test>");
    // The log summarises frequent events, so it has fewer lines than there were replies.
    let own_lines = place().daemon.log().matches(&own_line).count();
    assert!((1..=100).contains(&own_lines), "{own_lines}");

    let mut stranger = Client::stranger(port());
    stranger.ask("MAIL FROM:<a@stranger.test>", 250);
    let mut refused = 0;
    let last = loop {
        let reply = stranger.command(&format!("RCPT TO:<{token}{refused}@elsewhere.test>"));
        if reply.code != 554 {
            break reply;
        }
        refused += 1;
        // The last refusal and the reply that ends the session arrive together.
        if refused == 150 {
            break stranger.reply();
        }
    };
    assert_eq!((refused, last.code, last.enhanced()), (150, 421, "4.7.0"), "{last:?}");
}

#[test]
fn p059_what_a_shell_would_run_is_refused_or_a_plain_name() {
    let mut client = Client::ready(port());
    let made = place().daemon.directory.join("made-by-a-shell");
    let path = made.display();
    client.ask("MAIL FROM:<a@client.test>", 250);
    for local in ["a;b", "a b", "a\tb", "$(id)", "a\rb", "a<b", "../a", "/etc/x", ".hidden"] {
        let reply = client.command(&format!("RCPT TO:<{local}@local.test>"));
        assert!(reply.is_refusal(), "{local:?}: {reply:?}");
    }
    // A command may end in a bare LF: these are two lines, and both are invalid.
    client.send("RCPT TO:<a\nb@local.test>\r\n");
    assert!(client.reply().is_refusal() && client.reply().is_refusal());
    let touch = format!("`touch$IFS{path}`");
    for local in
        [format!("\"|touch {path}\""), format!("\"; touch {path}\""), format!("\"{touch}\"")]
    {
        let reply = client.command(&format!("RCPT TO:<{local}@local.test>"));
        assert!(reply.code == 250 || reply.is_refusal(), "{local:?}: {reply:?}");
    }
    client.ask("RSET", 250);
    for local in ["|id", "`id`", "$HOME", "a|b", "x&y"] {
        mail_to(&mut client, "a@client.test", &format!("{local}@local.test"));
    }
    place().daemon.works();
    assert!(!made.exists());
}

#[test]
fn p060_xtext_is_refused_where_it_is_bad_and_stays_encoded_where_it_is_not() {
    let mut client = Client::ready(port());
    for envid in ["+G1", "+0", "a+", "+0a", "a=b", "+zz"] {
        let reply = client.command(&format!("MAIL FROM:<a@client.test> ENVID={envid}"));
        assert!(matches!(reply.code, 501 | 555), "{envid}: {reply:?}");
    }
    for orcpt in ["rfc822;a+G1", "rfc822", ";a", "rfc822;a+0"] {
        client.ask("MAIL FROM:<a@client.test>", 250);
        let reply = client.command(&format!("RCPT TO:<b@sink.test> ORCPT={orcpt}"));
        assert!(matches!(reply.code, 501 | 555), "{orcpt}: {reply:?}");
        client.ask("RSET", 250);
    }
    for hidden in ["+0A", "+0D+0A", "+00"] {
        let token = token("p060");
        let envid = format!("{token}{hidden}X-Evil:+20yes");
        let reply = client.command(&format!("MAIL FROM:<a@client.test> ENVID={envid}"));
        if reply.code == 250 {
            client.ask(
                &format!("RCPT TO:<b@sink.test> ORCPT=rfc822;{token}{hidden}b@sink.test"),
                250,
            );
            client.ask("DATA", 354);
            client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
            client.expect(250);
            let mail = place().sink.wait(&token);
            assert!(mail.from.contains(&format!("ENVID={envid}")), "{}", mail.from);
            assert!(!mail.text().contains("X-Evil"), "{}", mail.text());
        } else {
            assert_eq!(reply.code, 501, "{hidden}: {reply:?}");
        }
    }
}

#[test]
fn r231_paths_without_brackets_are_taken_and_odd_dots_go_on_as_they_came() {
    let mut sent = Vec::new();
    let mut client = Client::ready(port());
    for (sender, recipient) in [("x..y", "a..b"), (".x", ".a"), ("x.", "a."), ("x", "\"\"")] {
        let token = token("r231");
        client.ask(&format!("MAIL FROM:{sender}{token}@client.test"), 250);
        client.ask(&format!("RCPT TO:{recipient}@sink.test NOTIFY=NEVER"), 250);
        client.ask("DATA", 354);
        client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
        client.expect(250);
        sent.push((token, format!("FROM:<{sender}"), format!("TO:<{recipient}@sink.test>")));
    }
    for (token, from, to) in sent {
        let mail = place().sink.wait(&token);
        assert!(mail.from.starts_with(&from) && mail.to[0].starts_with(&to), "{mail:?}");
    }
    // From every client, to a mailbox of ours. Names that a path cannot contain are still refused.
    let user = token("r231");
    let mut stranger = Client::stranger(port());
    stranger.ask("MAIL FROM:a..b@stranger.test", 250);
    stranger.ask(&format!("RCPT TO:{user}..x@local.test"), 250);
    for local in ["..x", "\"\"", "."] {
        let reply = stranger.command(&format!("RCPT TO:<{local}@local.test>"));
        assert!(matches!(reply.code, 501 | 550), "{local}: {reply:?}");
    }
    stranger.ask("DATA", 354);
    stranger.send("Subject: x\r\n\r\nbody\r\n.\r\n");
    stranger.expect(250);
    place().daemon.wait_in_mailbox(&format!("{user}..x"), "body");
}

#[test]
fn r236_a_domain_that_ends_in_a_number_is_a_name_and_no_address() {
    let user = token("r236");
    let mut client = Client::ready(port());
    // The mail bounces or waits for the DNS. No connection is made.
    assert_eq!(mail_to(&mut client, &format!("{user}@local.test"), "b@127.0.0.1"), 250);
    let mut stranger = Client::stranger(port());
    assert_eq!(mail_to(&mut stranger, "a@stranger.123", "b@127.0.0.1"), 554, "no domain of ours");
    assert_eq!(mail_to(&mut stranger, "a@stranger.123", &format!("{user}@local.test")), 250);
    place().daemon.wait_in_mailbox(&user, "stranger.123");
    assert_eq!(place().daemon.mailbox("b"), Vec::<String>::new());
}
