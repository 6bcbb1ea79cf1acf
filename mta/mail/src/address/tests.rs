//! Addresses as clients write them, valid and invalid.
//!
//! Must never repair an address to make it valid.

use super::*;
use proptest::prelude::*;

fn check(text: &str, expected: Result<&str, AddressError>) {
    let parsed = Address::parse(text, true);
    let local = parsed.as_ref().map(|address| {
        assert_eq!(address.as_str(), text);
        address.local()
    });
    assert_eq!(local.map_err(|error| *error), expected, "{text:?}");
}

#[test]
fn p015_controls_are_refused_in_quoted_strings_too() {
    for bad in ["\"a\0b\"@x.y", "\"a\rb\"@x.y", "\"a\nb\"@x.y", "\"a\tb\"@x.y", "\"\\\r\"@x.y"] {
        check(bad, Err(AddressError::Syntax));
    }
    check("\"a\u{85}b\"@x.y", Err(AddressError::Syntax));
    check("a\u{85}b@x.y", Err(AddressError::Syntax));
    check("\"a\u{7f}b\"@x.y", Err(AddressError::Syntax));
}

#[test]
fn p047_eight_bit_needs_smtputf8() {
    assert_eq!(Address::parse("jürgen@x.y", false), Err(AddressError::NeedsUtf8));
    assert_eq!(Address::parse("a@bücher.y", false), Err(AddressError::NeedsUtf8));
    check("jürgen@bücher.y", Ok("jürgen"));
}

#[test]
fn p049_only_the_domain_has_an_ascii_form() {
    let ascii = |text| Address::parse(text, true).unwrap().ascii_form();
    assert_eq!(ascii("a@bücher.y").as_deref(), Some("a@xn--bcher-kva.y"));
    assert_eq!(ascii("jürgen@bücher.y"), None);
    assert_eq!(ascii("A@X.y").as_deref(), Some("A@X.y"));
}

#[test]
fn p052_only_one_at_sign_separates() {
    check("x%other@local.test", Ok("x%other"));
    check("other!x@local.test", Ok("other!x"));
    check("x@other@local.test", Err(AddressError::Syntax));
    check("\"x@other\"@local.test", Ok("\"x@other\""));
}

#[test]
fn p053_quoted_local_parts_stay_byte_exact() {
    check("\"a b\"@x.y", Ok("\"a b\""));
    check("\"a\\\"b\"@x.y", Ok("\"a\\\"b\""));
    check("\"\"@x.y", Ok("\"\""));
    for bad in
        ["\"\"", "\"\"a@x.y", "\"a@x.y", "\"a\"b@x.y", "\"a\\\"@x.y", "\"a\\é\"@x.y", "\"a\""]
    {
        check(bad, Err(AddressError::Syntax));
    }
    let plain = |text| Address::parse(text, true).unwrap().local_unquoted().into_owned();
    assert_eq!(plain("\"a\\\"\\ b\"@x.y"), "a\" b");
    assert_eq!(plain("\"a b\"@x.y"), "a b");
    assert_eq!(plain("a.b@x.y"), "a.b");
}

#[test]
fn p056_local_parts_of_64_octets_are_the_limit() {
    let local = |n: usize| "a".repeat(n);
    check(&format!("{}@x.y", local(64)), Ok(&local(64)));
    for long in [65, 256, 10_000] {
        check(&format!("{}@x.y", local(long)), Err(AddressError::LocalTooLong));
    }
    for bad in ["", "@", "@x.y", "a@", "a", "a@x.y."] {
        check(bad, Err(AddressError::Syntax));
    }
}

#[test]
fn r231_dots_stand_anywhere_in_a_local_part_and_stay_there() {
    for local in ["a..b", ".a", "a.", "..a..", "a...b.c"] {
        let text = format!("{local}@x.y");
        check(&text, Ok(local));
        let parts = UncheckedAddress {
            text: text.into(),
            at: local.len() as u32,
            domain: Domain::parse("x.y").unwrap(),
        };
        assert!(Address::try_from(parts).is_ok(), "{local}: it crosses between processes");
    }
    for bad in [".@x.y", "..@x.y", "a@.x.y", "a@x..y", "a@x.y.", "a. @x.y"] {
        check(bad, Err(AddressError::Syntax));
    }
    check(&format!("{}@x.y", ".a".repeat(33)), Err(AddressError::LocalTooLong));
}

#[test]
fn r236_empty_quoted_strings_and_domains_that_end_in_a_number_are_addresses() {
    check("\"\"@x.y", Ok("\"\""));
    for domain in ["x.123", "255.255.255.255", "1"] {
        let address = Address::parse(&format!("a@{domain}"), false).unwrap();
        assert_eq!(address.domain().as_str(), domain);
        // The DNS is asked for this name; it is never taken for the IP address that it resembles.
        assert!(!address.domain().is_literal() && address.domain().literal().is_none());
        let crossed = Domain::try_from(Box::from(domain));
        assert_eq!(crossed.as_ref(), Ok(address.domain()));
    }
    let empty = Address::parse("\"\"@x.y", false).unwrap();
    assert_eq!(empty.local_unquoted(), "");
}

#[test]
fn p059_what_a_shell_would_read_is_refused_or_data() {
    for bad in ["a;b@x.y", "a b@x.y", "a\nb@x.y", "a\rb@x.y", "a\tb@x.y", "a$(b)@x.y", "<a>@x.y"] {
        check(bad, Err(AddressError::Syntax));
    }
    check("a|b`c$d@x.y", Ok("a|b`c$d"));
    for bad in ["a@x;y", "a@x y", "a@x\ny", "a@$(x)", "a@x|y", "a@`x`"] {
        check(bad, Err(AddressError::Syntax));
    }
}

#[test]
fn a_wrong_at_from_a_peer_is_refused() {
    let domain = Domain::parse("x.y").unwrap();
    for at in [0, 2, 99] {
        let parts = UncheckedAddress {
            text: "é@x.y".into(),
            at: at + (at == 2) as u32,
            domain: domain.clone(),
        };
        assert!(Address::try_from(parts).is_err());
    }
    let parts = UncheckedAddress { text: "é@x.y".into(), at: 2, domain };
    assert!(Address::try_from(parts).is_ok());
}

#[test]
fn another_process_sends_what_parse_would_have_taken_or_no_address_at_all() {
    let parts = |text: &str, domain: &str| UncheckedAddress {
        text: text.into(),
        at: text.rfind('@').unwrap() as u32,
        domain: Domain::parse(domain).unwrap(),
    };
    for (text, domain) in [
        ("a@X.y", "x.y"),
        ("\"a b\"@x.y", "x.y"),
        ("é@bücher.y", "xn--bcher-kva.y"),
        ("a@[ipv6:::1]", "[IPv6:::1]"),
    ] {
        assert!(Address::try_from(parts(text, domain)).is_ok(), "{text}");
    }
    for (text, domain) in [
        ("a\r\nRSET@x.y", "x.y"),
        ("a> SIZE=1@x.y", "x.y"),
        ("@x.y", "x.y"),
        ("a@x.y\r\n", "x.y"),
        ("a@z.y", "x.y"),
        ("a@é\n.y", "x.y"),
        ("a@é>.y", "x.y"),
    ] {
        assert!(Address::try_from(parts(text, domain)).is_err(), "{text}");
    }
    let long = format!("{}@x.y", "a".repeat(65));
    assert!(Address::try_from(parts(&long, "x.y")).is_err());
}

proptest! {
    #[test]
    fn what_parses_reads_back_the_same(text in "[ -~é\u{1}-\u{7f}]{0,12}@[a-zA-Z0-9.ü\\[\\]:-]{0,12}") {
        if let Ok(address) = Address::parse(&text, true) {
            prop_assert_eq!(&Address::parse(&address.to_string(), true), &Ok(address.clone()));
            let canonical = address.domain().as_str();
            prop_assert_eq!(&Domain::parse(canonical), &Ok(address.domain().clone()));
            prop_assert!(!address.as_str().chars().any(char::is_control));
            if let Some(ascii) = address.ascii_form() {
                let again = Address::parse(&ascii, false).unwrap();
                prop_assert_eq!(again.domain(), address.domain());
            }
        }
    }

    #[test]
    fn good_addresses_parse(local in "[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}(\\.[a-zé]{1,5}){0,3}", domain in "[a-z]([a-z0-9-]{0,10}[a-z])?(\\.[a-z]{2,5}){0,3}") {
        let address = Address::parse(&format!("{local}@{domain}"), true).unwrap();
        prop_assert_eq!(address.local(), &local);
        prop_assert_eq!(address.domain().as_str(), &domain);
    }
}
