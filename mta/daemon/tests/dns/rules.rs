//! The rules of MX records if the DNS answers clearly (D161 to D164, D166).
//!
//! Must never leave a forbidden address without a hop that counts its mail.

use crate::World;

#[test]
fn d161_mail_that_leads_back_to_us_bounces_and_better_servers_than_us_get_it() {
    let zone = "
        name.test MX 10 mx.local.test
        loop4.test MX 10 lo.test
        lo.test A 127.0.0.1
        loop6.test MX 10 lo6.test
        lo6.test AAAA ::1
        plain.test A 127.0.0.1
        public.test MX 10 other-name.test
        other-name.test A 198.51.100.99
        public6.test MX 10 other-name6.test
        other-name6.test AAAA 2001:db8::99
        best.test MX 10 good.test
        best.test MX 20 mx.local.test
        best.test MX 30 worse.test
        good.test A 198.51.100.1
        worse.test A 198.51.100.2
        equal.test MX 10 good.test
        equal.test MX 10 mx.local.test
        last.test MX 10 other-name.test
        last.test MX 20 worse.test
    ";
    let tables = "[[listen]]\naddress = \"198.51.100.99:2526\"\n[[listen]]\naddress = \"[2001:db8::99]:2526\"\n";
    let Some(world) =
        World::start(zone, &["198.51.100.1", "198.51.100.2", "127.0.0.1", "[::1]"], tables)
    else {
        return;
    };
    world.bounces(&[
        ("name.test", "5.4.6"),
        ("loop4.test", "5.4.6"),
        ("loop6.test", "5.4.6"),
        ("plain.test", "5.4.6"),
        ("public.test", "5.4.6"),
        ("public6.test", "5.4.6"),
        // RFC 5321 5.1: hosts with a preference that is not better than ours are not used.
        ("equal.test", "5.4.6"),
        ("last.test", "5.4.6"),
    ]);
    world.arrives(&[("best.test", 0)]);
    assert!(world.hops[1..].iter().all(|hop| hop.seen(|seen| seen.connections.is_empty())));
}

#[test]
fn d161_who_listens_at_any_address_knows_those_of_the_machine() {
    let zone = "
        interface.test MX 10 mx.interface.test
        mx.interface.test A 203.0.113.5
        interface6.test MX 10 mx.interface6.test
        mx.interface6.test AAAA 2001:db8::2
        elsewhere.test A 198.51.100.1
    ";
    let tables = "[[listen]]\naddress = \"*:2526\"\n";
    let Some(world) = World::start(zone, &["198.51.100.1", "203.0.113.5", "[2001:db8::2]"], tables)
    else {
        return;
    };
    world.bounces(&[("interface.test", "5.4.6"), ("interface6.test", "5.4.6")]);
    world.arrives(&[("elsewhere.test", 0)]);
    assert!(world.hops[1..].iter().all(|hop| hop.seen(|seen| seen.connections.is_empty())));
}

#[test]
fn d162_a_domain_that_takes_no_mail_bounces_at_once() {
    let zone = "
        null.test MX 0
        null.test A 198.51.100.1
        both.test MX 0
        both.test MX 10 good.test
        good.test A 198.51.100.1
    ";
    let Some(world) = World::start(zone, &["198.51.100.1"], "") else { return };
    world.bounces(&[("null.test", "5.1.10")]);
    // A null MX has no meaning beside other records (RFC 7505 3).
    world.arrives(&[("both.test", 0)]);
    assert_eq!(world.hops[0].seen(|seen| seen.connections.len()), 1);
}

#[test]
fn d163_odd_mail_servers_are_used_by_rule_and_many_are_not_all_asked() {
    let mut zone = String::from(
        "
        alias.test MX 10 www.test
        www.test CNAME good.test
        good.test A 198.51.100.1
        gone.test MX 10 nobody.test
        some.test MX 10 nobody.test
        some.test MX 20 good.test
        wide.test MX 10 wide-host.test
        ",
    );
    for number in 0..500 {
        zone += &format!("many.test MX {number} h{number}.many.test\n");
        zone += &format!("h{number}.many.test A 198.51.100.{}\n", 100 + number % 100);
        zone += &format!("wide-host.test A 198.51.100.{}\n", 3 + number % 250);
    }
    let tables = crate::HURRY;
    let Some(world) = World::start(&zone, &["198.51.100.1"], tables) else { return };
    world.arrives(&[("alias.test", 0), ("some.test", 0)]);
    world.bounces(&[("gone.test", "5.4.4")]);
    // None of the hosts listens. The number of hosts that are looked up and tried has a bound.
    let before = world.dns.questions();
    world.waits(&["many.test", "wide.test"]);
    let questions = world.dns.questions() - before;
    assert!(questions < 150, "{questions} questions for two messages");
    world.daemon.works();
}

#[test]
fn r237_a_good_mail_server_behind_seven_dead_ones_is_reached_by_the_second_attempt() {
    let mut zone = String::new();
    for number in 1..9 {
        zone += &format!("deep.test MX {number}0 h{number}.test\n");
        zone += &format!("h{number}.test A 198.51.100.{}\n", 100 + number);
    }
    let Some(world) = World::start(&zone, &["198.51.100.108"], crate::HURRY) else { return };
    world.arrives(&[("deep.test", 0)]);
    let log = world.daemon.log();
    let attempts: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("<b@deep.test>") && line.contains("\"attempt\""))
        .collect();
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
}

#[test]
fn d164_a_domain_without_mx_is_its_own_mail_server() {
    let zone = "
        four.test A 198.51.100.1
        six.test AAAA 2001:db8::2
        www.test CNAME four.test
    ";
    let Some(world) = World::start(zone, &["198.51.100.1", "[2001:db8::2]"], "") else { return };
    world.arrives(&[("four.test", 0), ("six.test", 1), ("www.test", 0)]);
}

#[test]
fn d166_a_domain_that_does_not_exist_bounces_and_one_dead_name_of_two_does_not() {
    let zone = "
        empty.test CODE 0
        dangling.test CNAME nobody.test
        half.test MX 10 dead-alias.test
        half.test MX 20 good.test
        dead-alias.test CNAME nobody.test
        good.test A 198.51.100.1
    ";
    let Some(world) = World::start(zone, &["198.51.100.1"], "") else { return };
    world.bounces(&[
        ("nobody.test", "5.1.2"),
        ("deep.nobody.test", "5.1.2"),
        ("empty.test", "5.1.2"),
        ("dangling.test", "5.1.2"),
    ]);
    world.arrives(&[("half.test", 0)]);
}

/// A name server that denies a name when it is asked for MX records, although the name has an address.
const BALANCER: &str = "
    balancer.test MX-CODE 3
    balancer.test A 198.51.100.1
    text.test MX 10 198.51.100.1
    both.test MX 10 198.51.100.1
    both.test MX 20 good.test
    good.test A 198.51.100.2
    ourselves.test MX 10 127.0.0.1
    circle.test CNAME elcric.test
    elcric.test CNAME circle.test
";

#[test]
fn r238_an_address_as_mx_and_a_denied_name_with_an_address_get_their_mail() {
    let hops = &["198.51.100.1", "198.51.100.2"];
    let Some(world) = World::start(BALANCER, hops, "") else { return };
    world.arrives(&[("balancer.test", 0), ("text.test", 0), ("both.test", 0)]);
    world.bounces(&[
        ("ourselves.test", "5.4.6"),
        ("nobody.test", "5.1.2"),
        ("circle.test", "5.1.2"),
    ]);
}

#[test]
fn r238_by_setting_they_do_not() {
    let tables = "mx_addresses = \"refuse\"\nmx_nxdomain = \"refuse\"\n";
    let hops = &["198.51.100.1", "198.51.100.2"];
    let Some(world) = World::start(BALANCER, hops, tables) else { return };
    world.bounces(&[("balancer.test", "5.1.2"), ("text.test", "5.4.4")]);
    world.arrives(&[("both.test", 1)]);
    assert!(world.hops[0].seen(|seen| seen.connections.is_empty()));
}

/// A hop at private addresses of this machine's network, which the mailer does not know to be its own.
const PRIVATE: &str = "
    private.test MX 10 mx.private.test
    mx.private.test A 10.99.0.1
    both.test MX 10 mx.private.test
    both.test MX 20 good.test
    good.test A 198.51.100.1
    link.test A 169.254.9.9
    own.test MX 10 mx.own.test
    mx.own.test A 203.0.113.5
    loopback.test MX 10 127.0.0.2
";

#[test]
fn r226_private_mail_servers_are_used_and_our_own_addresses_are_not() {
    let hops = &["198.51.100.1", "10.99.0.1", "169.254.9.9", "203.0.113.5"];
    let Some(world) = World::start(PRIVATE, hops, "[[listen]]\naddress = \"*:2526\"\n") else {
        return;
    };
    world.arrives(&[("private.test", 1), ("both.test", 1), ("link.test", 2)]);
    world.bounces(&[("own.test", "5.4.6"), ("loopback.test", "5.4.6")]);
    assert!(world.hops[3].seen(|seen| seen.connections.is_empty()));
}

#[test]
fn r226_by_setting_private_mail_servers_are_not_used() {
    let tables = "private_addresses = \"refuse\"\n[[route]]\ndomain = \"routed.test\"\n\
                  to = \"smtp:10.99.0.1:25\"\n";
    let hops = &["198.51.100.1", "10.99.0.1", "169.254.9.9"];
    let Some(world) = World::start(PRIVATE, hops, tables) else { return };
    world.bounces(&[("private.test", "5.4.4"), ("link.test", "5.4.4")]);
    world.arrives(&[("both.test", 0), ("routed.test", 1)]);
    assert!(world.hops[2].seen(|seen| seen.connections.is_empty()));
}
