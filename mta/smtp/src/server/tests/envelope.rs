//! Paths and parameters.
//!
//! Must never check an address except through a command.

use super::*;

fn rcpt(path: &str) -> u16 {
    code_of(&["EHLO c.test", "MAIL FROM:<>", &format!("RCPT TO:{path}")])
}

fn mail(path: &str) -> u16 {
    code_of(&["EHLO c.test", &format!("MAIL FROM:{path}")])
}

#[test]
fn p032_helo_has_no_parameters() {
    assert_eq!(code_of(&["HELO c", "MAIL FROM:<> SIZE=1"]), 555);
    assert_eq!(code_of(&["HELO c", "MAIL FROM:<>", "RCPT TO:<x@y.test> NOTIFY=NEVER"]), 555);
    assert_eq!(code_of(&["HELO c", "MAIL FROM:<>", "RCPT TO:<x@y.test> "]), 250);
}

#[test]
fn p034_sizes_beyond_the_limit_are_refused_at_once() {
    let cases = [
        ("-1", 501),
        ("abc", 501),
        ("", 501),
        ("0", 250),
        ("52428800", 250),
        ("52428801", 552),
        ("100000000000000000000", 552),
    ];
    for (size, expected) in cases {
        assert_eq!(mail(&format!("<> SIZE={size}")), expected, "{size}");
    }
}

#[test]
fn p047_eight_bit_paths_need_smtputf8() {
    assert_eq!(mail("<jürgen@b.test>"), 553);
    assert_eq!(mail("<jürgen@b.test> SMTPUTF8"), 250);
    assert_eq!(rcpt("<jürgen@b.test>"), 553);
    assert_eq!(code_of(&["EHLO c", "MAIL FROM:<> SMTPUTF8", "RCPT TO:<x@bücher.test>"]), 250);
    let outcome = check(&[EHLO, "MAIL FROM:<é@b.test>\r\n".as_bytes()]);
    assert_eq!(outcome.last(), "553 5.6.7 Must declare SMTPUTF8 to permit unicode address");
}

#[test]
fn p048_what_is_no_utf8_is_no_command() {
    for bad in [&b"\xc0\xaf"[..], b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3"] {
        let line = [b"MAIL FROM:<a", bad, b"@b.test> SMTPUTF8\r\n"].concat();
        assert_eq!(check(&[EHLO, &line]).last(), "500 5.5.2 Error: bad UTF-8 syntax");
    }
}

#[test]
fn p051_source_routes_are_checked_and_ignored() {
    let outcome = check(&[
        EHLO,
        b"MAIL FROM:<@p.test,@[IPv6:::1]:a@b.test>\r\nRCPT TO:<@a.test,@b.test:x@c.test>\r\n",
    ]);
    assert_eq!(outcome.codes(), [250, 250]);
    assert!(outcome.events.contains(&"rcpt x@c.test None ".to_string()), "{:?}", outcome.events);
    for bad in
        ["<@a.test>", "<@a.test,b.test:x@c.test>", "<@:x@c.test>", "<@a b:x@c.test>", "<@a.test:>"]
    {
        assert_eq!(rcpt(bad), 501, "{bad}");
    }
}

#[test]
fn p053_quoted_local_parts_are_read_with_their_quotes() {
    for good in ["<\"a b\"@c.test>", "<\"a\\\"b\"@c.test>", "<\"a>b\"@c.test>", "<\"a@b\"@c.test>"]
    {
        assert_eq!(rcpt(good), 250, "{good}");
    }
    for bad in ["<\"a\"b@c.test>", "<\"a@c.test>", "<a b@c.test>"] {
        assert_eq!(rcpt(bad), 501, "{bad}");
    }
    assert_eq!(rcpt("<\"\\\r\"@c.test>"), 500);
}

#[test]
fn p055_null_and_postmaster_paths() {
    assert_eq!(rcpt("<>"), 501);
    let outcome = check(&[
        EHLO,
        b"MAIL FROM:<>\r\nRCPT TO:<x@y.test>\r\nRCPT TO:<z@y.test>\r\nRCPT TO:<Postmaster>\r\n",
    ]);
    assert_eq!(outcome.codes(), [250; 4]);
    assert!(outcome.events.contains(&"rcpt Postmaster@mx.test None ".to_string()));
    assert_eq!(mail("<postmaster>"), 501);
    for bad in ["<x@y.test", "x@y.test>", "<x@y.test>x", "<<x@y.test>>", "", "<x>"] {
        assert_eq!(rcpt(bad), 501, "{bad}");
        assert_eq!(mail(bad), 501, "{bad}");
    }
    assert_eq!(mail(" <a@b.test>  SIZE=1  "), 250);
}

#[test]
fn p056_long_local_parts_and_domains_are_refused() {
    let local = |n: usize| rcpt(&format!("<{}@c.test>", "a".repeat(n)));
    assert_eq!([local(64), local(65), local(256), local(2_000)], [250, 501, 501, 501]);
    let label = |n: usize| rcpt(&format!("<a@{}.test>", "a".repeat(n)));
    assert_eq!([label(63), label(64)], [250, 501]);
    assert_eq!(local(10_000), 500);
}

#[test]
fn p057_recipients_are_taken_up_to_the_limit() {
    let limited = Settings { recipients_max: 100, ..settings() };
    let mut group = b"MAIL FROM:<>\r\n".to_vec();
    for number in 0..102 {
        group.extend(format!("RCPT TO:<x{number}@y.test>\r\n").bytes());
    }
    let outcome = check_with(&limited, &[EHLO, &group, b"DATA\r\n", b".\r\n"]);
    let codes = outcome.codes();
    assert!(codes[1..101].iter().all(|code| *code == 250));
    assert_eq!(codes[101..], [452, 452, 354, 250]);
    assert!(outcome.replies.contains("452 4.5.3 Error: too many recipients"));
}

#[test]
fn p058_a_repeated_recipient_is_one_and_a_distinct_one_is_never_lost() {
    let mut group =
        b"MAIL FROM:<>\r\nRCPT TO:<refused@y.test>\r\nRCPT TO:<refused@y.test>\r\n".to_vec();
    for _ in 0..100 {
        group.extend(b"RCPT TO:<x@y.test>\r\nRCPT TO:<x@Y.TEST>\r\nRCPT TO:<X@y.test>\r\n");
    }
    let outcome = check(&[EHLO, &group]);
    assert_eq!(outcome.codes()[..4], [250, 550, 550, 250]);
    assert!(outcome.codes()[3..].iter().all(|code| *code == 250) && outcome.codes().len() == 303);
    let told: Vec<_> = outcome.events.iter().filter(|event| event.starts_with("rcpt ")).collect();
    assert_eq!(
        told,
        [
            "rcpt refused@y.test None ",
            "rcpt refused@y.test None ",
            "rcpt x@y.test None ",
            "rcpt X@y.test None "
        ]
    );
}

#[test]
fn p059_addresses_that_a_shell_would_read_are_refused_or_data() {
    for bad in [
        "<a;b@c.test>",
        "<a@c.test;x>",
        "<a@$(id)>",
        "<a$(id)@c.test>",
        "<a@c.test|x>",
        "<${run{x}}@c.test>x",
    ] {
        assert_eq!(rcpt(bad), 501, "{bad}");
    }
    for bad in ["<a\rb@c.test>", "<a\tb@c.test>"] {
        assert_eq!(rcpt(bad), 500, "{bad}");
    }
    // A line feed ends the line, so neither part is a valid command.
    let outcome = check(&[EHLO, b"MAIL FROM:<>\r\nRCPT TO:<a\nb@c.test>\r\n"]);
    assert_eq!(outcome.codes(), [250, 501, 500]);
}

#[test]
fn p060_parameters_of_dsn_reach_the_driver_as_they_came_or_not_at_all() {
    let group = b"MAIL FROM:<a@b.test> RET=HDRS ENVID=QQ+2B1 AUTH=<> BODY=8BITMIME\r\nRCPT TO:<x@y.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;x+2Bz@y.test\r\n";
    let outcome = check(&[EHLO, group]);
    assert_eq!(outcome.events[1], "mail a@b.test None Some(Headers) Some(\"QQ+2B1\")");
    assert_eq!(outcome.events[2], "rcpt x@y.test Some(\"SUCCESS,FAILURE\") rfc822;x+2Bz@y.test");
    for bad in ["+0A", "+0D+0A", "+00", "+G1"] {
        assert_eq!(mail(&format!("<> ENVID={bad}")), 501);
        assert_eq!(mail(&format!("<> AUTH={bad}")), 501);
        assert_eq!(rcpt(&format!("<x@y.test> ORCPT=rfc822;{bad}")), 501);
    }
}

#[test]
fn r231_a_path_without_brackets_is_the_one_with_them() {
    for (line, event) in [
        ("MAIL FROM:a@b.test", "mail a@b.test None None None"),
        ("MAIL FROM: a@b.test SIZE=3  BODY=8BITMIME ", "mail a@b.test Some(3) None None"),
        ("mail from:\"a b>\"@c.test size=3", "mail \"a b>\"@c.test Some(3) None None"),
        ("MAIL FROM:a..b@c.test", "mail a..b@c.test None None None"),
        ("MAIL FROM:<.a@b.test>", "mail .a@b.test None None None"),
        ("MAIL FROM:<a.@b.test>", "mail a.@b.test None None None"),
    ] {
        let outcome = check(&[EHLO, format!("{line}\r\n").as_bytes()]);
        assert_eq!(outcome.codes(), [250], "{line}");
        assert_eq!(outcome.events[1], event, "{line}");
    }
    for (recipient, event) in [
        ("x@y.test NOTIFY=NEVER", "rcpt x@y.test Some(\"NEVER\") "),
        ("  x@y.test", "rcpt x@y.test None "),
        ("postmaster", "rcpt postmaster@mx.test None "),
        ("<a..b@y.test>", "rcpt a..b@y.test None "),
    ] {
        let line = format!("MAIL FROM:a@b.test\r\nRCPT TO:{recipient}\r\n");
        let outcome = check(&[EHLO, line.as_bytes()]);
        assert_eq!(outcome.codes(), [250, 250], "{recipient}");
        assert_eq!(outcome.events[2], event, "{recipient}");
    }
}

#[test]
fn r231_half_a_pair_of_brackets_and_what_is_no_address_stay_mistakes() {
    for path in [
        "<a@b.test",
        "a@b.test>",
        "a<@b.test",
        "a@b.test<",
        "a@b.test> SIZE=3",
        "<a@b.test> <c@d.test>",
        "a@b.test,c@d.test",
        "a@b.test c@d.test",
        "a b@c.test",
        "\"a b@c.test",
        "\"a\"b\"@c.test",
        "@c.test:a@b.test",
        "a@b.test.",
        "<a@b.test.>",
        "root",
        "<root>",
        "..@b.test",
        "",
        "SIZE=3",
    ] {
        assert!(
            matches!(code_of(&["EHLO c.test", &format!("MAIL FROM:{path}")]), 501 | 555),
            "{path}"
        );
        let line = format!("RCPT TO:{path}");
        let code = code_of(&["EHLO c.test", "MAIL FROM:<a@b.test>", &line]);
        assert!(matches!(code, 501 | 555), "{path}: {code}");
    }
    assert_eq!(code_of(&["EHLO c.test", "MAIL FROM :<a@b.test>"]), 501);
    assert_eq!(code_of(&["EHLO c.test", "MAIL FROM :a@b.test"]), 501);
    assert_eq!(code_of(&["EHLO c.test", "MAIL FROM:a\0@b.test"]), 500);
}

#[test]
fn r236_empty_quoted_strings_and_numeric_top_level_domains_are_accepted() {
    for address in ["\"\"@b.test", "a@b.123", "a@255.255.255.255"] {
        let mail = format!("MAIL FROM:<{address}>");
        let rcpt = format!("RCPT TO:<{address}>");
        assert_eq!(code_of(&["EHLO c.test", &mail, &rcpt]), 250, "{address}");
    }
}
