//! The search for the addresses of a next hop.
//!
//! Must never expect an order of hosts that the preferences do not give.

use super::*;

fn search(zone: &str, hop: &NextHop, chance: u64) -> (Search, usize) {
    search_by(rules(), zone, hop, chance)
}

fn search_by(rules: Rules, zone: &str, hop: &NextHop, chance: u64) -> (Search, usize) {
    let mut search = Search::new(hop, Arc::new(rules));
    let mut questions = 0;
    while let Some(question) = search.poll() {
        questions += 1;
        search.handle(&question, answer(zone, &question), chance);
    }
    (search, questions)
}

/// The addresses in order, or code and enhanced code.
fn found(zone: &str, domain: &str) -> String {
    found_by(rules(), zone, domain)
}

fn found_by(rules: Rules, zone: &str, domain: &str) -> String {
    let hop = NextHop::Mx(Domain::parse(domain).unwrap());
    let (search, _) = search_by(rules, zone, &hop, 1);
    match search.found().expect("every question was answered") {
        Ok(targets) => {
            let ip = |target: &Target| match &target.place {
                Where::Tcp(at) => at.ip().to_string(),
                Where::Unix(path) => path.to_string(),
            };
            targets.iter().map(ip).collect::<Vec<_>>().join(" ")
        }
        Err(unreachable) => {
            let reply = &unreachable.0;
            format!("{} {}", reply.code, reply.enhanced.unwrap())
        }
    }
}

fn check(table: &[(&str, &str)]) {
    check_by(&rules(), table);
}

fn check_by(rules: &Rules, table: &[(&str, &str)]) {
    for (zone, expected) in table {
        assert_eq!(found_by(rules.clone(), zone, "d.test"), *expected, "{zone}");
    }
}

#[test]
fn d161_mail_that_leads_back_to_us_is_refused_and_worse_servers_than_us_are_not_used() {
    check(&[
        ("d.test MX 10 mx.us.test", "554 5.4.6"),
        ("d.test MX 10 a.test; a.test A 192.0.2.99", "554 5.4.6"),
        ("d.test MX 10 a.test; a.test A 127.0.0.1", "554 5.4.6"),
        ("d.test MX 10 a.test; a.test A ::1", "554 5.4.6"),
        ("d.test MX 10 a.test; a.test A ::ffff:127.0.0.2", "554 5.4.6"),
        ("d.test MX 10 a.test; a.test A 0.0.0.0", "554 5.4.6"),
        ("d.test A 127.0.0.1", "554 5.4.6"),
        // Better ones than us are used, equal and worse ones are not.
        ("d.test MX 10 a.test; d.test MX 20 mx.us.test; a.test A 192.0.2.1", "192.0.2.1"),
        ("d.test MX 10 a.test; d.test MX 10 mx.us.test; a.test A 192.0.2.1", "554 5.4.6"),
        ("d.test MX 30 a.test; d.test MX 20 mx.us.test; a.test A 192.0.2.1", "554 5.4.6"),
        (
            "d.test MX 5 b.test; d.test MX 10 a.test; d.test MX 20 c.test; b.test A 192.0.2.1;
             a.test A 192.0.2.99; c.test A 192.0.2.3",
            "192.0.2.1",
        ),
        // The better one cannot be looked up: it is not a loop, it has to wait.
        ("d.test MX 10 a.test; d.test MX 20 mx.us.test; a.test FAILS", "451 4.4.3"),
    ]);
}

#[test]
fn p054_address_literals_go_to_others_and_never_to_ourselves() {
    for (literal, expected) in [
        ("[192.0.2.1]", "192.0.2.1"),
        ("[IPv6:2001:db8::1]", "2001:db8::1"),
        ("[127.0.0.1]", "554 5.4.6"),
        ("[127.9.9.9]", "554 5.4.6"),
        ("[IPv6:::1]", "554 5.4.6"),
        ("[IPv6:::ffff:127.0.0.1]", "554 5.4.6"),
        ("[0.0.0.0]", "554 5.4.6"),
        ("[192.0.2.99]", "554 5.4.6"),
    ] {
        assert_eq!(found("", literal), expected, "{literal}");
    }
}

#[test]
fn d162_a_null_mx_fails_at_once() {
    check(&[
        ("d.test MX 0", "556 5.1.10"),
        ("d.test MX 0; d.test A 192.0.2.1", "556 5.1.10"),
        // Beside others it means nothing (RFC 7505 3).
        ("d.test MX 0; d.test MX 10 a.test; a.test A 192.0.2.1", "192.0.2.1"),
    ]);
}

#[test]
fn d163_unusable_mail_servers_are_passed_over_and_the_rest_is_bounded() {
    check(&[
        ("d.test MX 10 not_a_name!", "550 5.4.4"),
        ("d.test MX 10 a.test", "550 5.4.4"),
        ("d.test MX 10 a.test; a.test TXT x", "550 5.4.4"),
        ("d.test MX 10 a.test; d.test MX 20 b.test; b.test A 192.0.2.1", "192.0.2.1"),
    ]);
    let mut zone = String::new();
    for host in 0..500 {
        zone += &format!("d.test MX {host} h{host}.test;");
        for address in 0..20 {
            zone += &format!("h{host}.test A 10.{}.{}.{address};", host / 250, host % 250);
        }
    }
    let hop = NextHop::Mx(Domain::parse("d.test").unwrap());
    let (search, questions) = search(&zone, &hop, 7);
    assert_eq!(questions, 1 + MX_HOSTS_MAX);
    let targets = search.found().unwrap().as_ref().unwrap();
    assert_eq!(targets.len(), MX_HOSTS_MAX * 8);
    assert_eq!(&*targets[0].name, "h0.test");
}

#[test]
fn d164_a_domain_without_mx_is_its_own_mail_server() {
    check(&[
        ("d.test A 192.0.2.1", "192.0.2.1"),
        ("d.test A 2001:db8::1", "2001:db8::1"),
        ("d.test TXT x", "550 5.1.2"),
    ]);
}

#[test]
fn d165_what_the_dns_cannot_say_waits() {
    check(&[
        ("d.test FAILS", "451 4.4.3"),
        ("d.test FAILS-A", "451 4.4.3"),
        ("d.test MX 10 a.test; a.test FAILS", "451 4.4.3"),
        ("d.test MX 10 a.test; d.test MX 20 b.test; a.test FAILS", "451 4.4.3"),
        // One server that is known is enough.
        ("d.test MX 10 a.test; d.test MX 20 b.test; a.test FAILS; b.test A 192.0.2.1", "192.0.2.1"),
    ]);
}

#[test]
fn d166_a_domain_that_does_not_exist_fails() {
    check(&[("", "550 5.1.2"), ("other.test A 192.0.2.1", "550 5.1.2")]);
}

#[test]
fn r238_an_address_as_mx_and_a_denied_name_with_an_address_are_used_by_setting() {
    check(&[
        ("d.test MX 10 192.0.2.7", "192.0.2.7"),
        ("d.test MX 10 2001:db8::7", "2001:db8::7"),
        ("d.test MX 10 192.0.2.7; d.test MX 5 a.test; a.test A 192.0.2.1", "192.0.2.1 192.0.2.7"),
        // It is an address like any other: no way to ourselves.
        ("d.test MX 10 192.0.2.99", "554 5.4.6"),
        ("d.test MX 10 127.0.0.1", "554 5.4.6"),
        ("d.test MX 10 192.0.2.99; d.test MX 20 192.0.2.7", "554 5.4.6"),
    ]);
    let refusing = Rules { mx_addresses: Choice::Refuse, ..rules() };
    check_by(
        &refusing,
        &[
            ("d.test MX 10 192.0.2.7", "550 5.4.4"),
            ("d.test MX 10 192.0.2.7; d.test MX 20 a.test; a.test A 192.0.2.1", "192.0.2.1"),
        ],
    );
    // The zone denies `d.test` when it is asked for its MX, and has an address for it.
    let ask = |rules: Rules| {
        let hop = NextHop::Mx(Domain::parse("d.test").unwrap());
        let mut search = Search::new(&hop, Arc::new(rules));
        while let Some(question) = search.poll() {
            let answer = match &question {
                Question::Mx(_) => Answer::Mx(Answers::NoName),
                Question::Addresses(_) => answer("d.test A 192.0.2.1", &question),
            };
            search.handle(&question, answer, 1);
        }
        search.found().unwrap().as_ref().map(Vec::len).map_err(|no| no.0.to_string())
    };
    assert_eq!(ask(rules()), Ok(1));
    let bouncing = Rules { mx_nxdomain: Choice::Refuse, ..rules() };
    assert_eq!(ask(bouncing), Err("550 5.1.2 there is no domain d.test".into()));
}

#[test]
fn r226_private_addresses_of_strangers_are_used_by_setting_and_our_own_never() {
    let private = [
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.255",
        "fd00::1",
        "fe80::1",
        "::ffff:10.0.0.1",
    ];
    let public = ["172.32.0.1", "100.63.255.255", "100.128.0.1", "192.0.2.1", "2001:db8::1"];
    let refusing = || Rules { private_addresses: Choice::Refuse, ..rules() };
    for address in private.iter().chain(&public) {
        let zones = [
            format!("d.test MX 10 a.test; a.test A {address}"),
            format!("d.test MX 10 {address}"),
            format!("d.test A {address}"),
        ];
        let off_limits = private.contains(address);
        for zone in zones {
            assert_eq!(found(&zone, "d.test"), *address, "{zone}");
            let expected = if off_limits { "550 5.4.4" } else { address };
            assert_eq!(found_by(refusing(), &zone, "d.test"), expected, "{zone}");
        }
    }
    assert_eq!(found_by(refusing(), "", "[10.0.0.1]"), "550 5.4.4");
    assert_eq!(found_by(refusing(), "", "[IPv6:fe80::1]"), "550 5.4.4");
    check_by(
        &refusing(),
        &[
            ("d.test MX 10 a.test; a.test A 10.0.0.1; a.test A 192.0.2.1", "192.0.2.1"),
            (
                "d.test MX 5 b.test; d.test MX 10 a.test; b.test A 10.0.0.1; a.test A 192.0.2.1",
                "192.0.2.1",
            ),
            // What cannot be looked up now may be a public one.
            (
                "d.test MX 5 b.test; d.test MX 10 a.test; b.test A 10.0.0.1; a.test FAILS",
                "451 4.4.3",
            ),
            ("d.test MX 10 a.test; a.test A 127.0.0.1", "554 5.4.6"),
            ("d.test MX 10 a.test; a.test A 192.0.2.99", "554 5.4.6"),
        ],
    );
    // Ours by setting: never a loop, whatever the setting says.
    let ourselves = Ourselves { names: vec![], addresses: vec!["10.0.0.1".parse().unwrap()] };
    for private_addresses in [Choice::Use, Choice::Refuse] {
        let rules = Rules { ourselves: ourselves.clone(), private_addresses, ..rules() };
        assert_eq!(found_by(rules, "d.test MX 1 a.test; a.test A 10.0.0.1", "d.test"), "554 5.4.6");
    }
    // An administrator's route may lead anywhere.
    let hop = NextHop::Smtp(Host::Address("10.0.0.1".parse().unwrap()), 25);
    let (search, _) = search_by(refusing(), "", &hop, 0);
    assert!(search.found().unwrap().is_ok());
}

#[test]
fn mail_servers_come_in_the_order_of_preference_and_by_chance_among_equals() {
    let zone = "d.test MX 20 c.test; d.test MX 10 a.test; d.test MX 10 b.test;
                a.test A 192.0.2.1; b.test A 192.0.2.2; c.test A 192.0.2.3";
    let hop = NextHop::Mx(Domain::parse("d.test").unwrap());
    let mut firsts = HashSet::new();
    for chance in 0..32 {
        let (search, _) = search(zone, &hop, chance);
        let names: Vec<_> =
            search.found().unwrap().as_ref().unwrap().iter().map(|t| t.name.clone()).collect();
        assert_eq!(&*names[2], "c.test");
        firsts.insert(names[0].clone());
    }
    assert_eq!(firsts.len(), 2);
}

#[test]
fn equal_mail_servers_get_equal_shares() {
    for servers in 2..6 {
        let mut zone = String::new();
        for host in 0..servers {
            zone += &format!("d.test MX 10 h{host}.test; h{host}.test A 192.0.2.{host};");
        }
        let hop = NextHop::Mx(Domain::parse("d.test").unwrap());
        let mut firsts = HashMap::new();
        for chance in 0..1_000 * servers {
            let (search, _) = search(&zone, &hop, chance);
            let first = search.found().unwrap().as_ref().unwrap()[0].name.clone();
            *firsts.entry(first).or_insert(0) += 1;
        }
        assert!(firsts.values().all(|count| (850..1_150).contains(count)), "{firsts:?}");
    }
}

#[test]
fn a_route_goes_where_it_says_and_its_mistakes_do_not_bounce() {
    let name = |text: &str| Host::Name(Domain::parse(text).unwrap());
    for (host, zone, expected) in [
        (Host::Address("127.0.0.1".parse().unwrap()), "", "127.0.0.1[127.0.0.1]:2600"),
        (name("r.test"), "r.test A 127.0.0.1", "r.test[127.0.0.1]:2600"),
        (name("r.test"), "r.test MX 1 x.test; r.test A 192.0.2.1", "r.test[192.0.2.1]:2600"),
        (name("r.test"), "", "451 4.4.4"),
        (name("r.test"), "r.test FAILS", "451 4.4.3"),
    ] {
        let (search, _) = search(zone, &NextHop::Smtp(host, 2600), 0);
        let told = match search.found().unwrap() {
            Ok(targets) => targets[0].peer().to_string(),
            Err(unreachable) => {
                format!("{} {}", unreachable.0.code, unreachable.0.enhanced.unwrap())
            }
        };
        assert_eq!(told, expected);
    }
}

proptest! {
    #[test]
    fn d168_any_answer_ends_the_search_in_bounds(
        answers in proptest::collection::vec((0u16..4, "[a-c.\u{e9} ]{0,4}"), 0..30),
        addresses in proptest::collection::vec(any::<u32>(), 0..30),
        chance in any::<u64>(),
    ) {
        let hop = NextHop::Mx(Domain::parse("d.test").unwrap());
        let mut search = Search::new(&hop, Arc::new(rules()));
        let mut questions = 0;
        while let Some(question) = search.poll() {
            questions += 1;
            let answer = match &question {
                Question::Mx(_) => Answer::Mx(Answers::Found(
                    answers.iter().map(|(preference, host)| Mx { preference: *preference, host: host.as_str().into() }).collect(),
                )),
                Question::Addresses(_) => Answer::Addresses(Answers::Found(
                    addresses.iter().map(|bits| IpAddr::V4((*bits).into())).collect(),
                )),
            };
            search.handle(&question, answer, chance);
        }
        prop_assert!(questions <= 1 + MX_HOSTS_MAX);
        prop_assert!(search.found().is_some());
    }
}
