//! Verdicts for strangers, trusted clients and the postmaster.
//!
//! Must never expect a route to let a stranger relay.

use super::*;
use crate::{Accounts, Pattern, Route, Standing};
use mail::{Host, Notify};

fn domain(text: &str) -> Domain {
    Domain::parse(text).unwrap()
}

pub(crate) fn policy(accounts: Accounts) -> Policy {
    let route = |name: &str, to| Route { pattern: Pattern::Exact(domain(name)), to };
    let sink = NextHop::Smtp(Host::Address("127.0.0.1".parse().unwrap()), 2600);
    Policy {
        relay_from: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        mailboxes: Mailboxes { names: Names::default(), accounts },
        postmaster: Postmaster::for_tests(),
        routes: Routes::new(
            [domain("local.test")].into(),
            NextHop::Local,
            domain("mx.example.org"),
            vec![
                route("sink.test", sink),
                route("gone.test", NextHop::Error("gone for good".into())),
            ],
            false,
        )
        .with_addresses(["192.0.2.25".parse().unwrap()]),
    }
}

const STRANGER: &str = "203.0.113.9";
const FRIEND: &str = "10.1.2.3";

/// Asserts the code of the verdict, which is 0 if the recipient is accepted.
fn check(policy: &Policy, client: &str, address: &str, expected: u16) {
    let Ok(parsed) = Address::parse(address, true) else {
        assert_ne!(expected, 0, "{address} does not parse");
        return;
    };
    let client: IpAddr = client.parse().unwrap();
    let code = match policy.recipient(client, &parsed) {
        Verdict::Accept => 0,
        Verdict::Defer(reply) | Verdict::Reject(reply) => reply.code,
    };
    assert_eq!(code, expected, "{client} to {address}");
}

#[test]
fn strangers_reach_our_mailboxes_and_nobody_else() {
    let policy = policy(Accounts::Any);
    for (address, expected) in [
        ("joe@local.test", 0),
        ("joe@LOCAL.TEST", 0),
        ("joe@[192.0.2.25]", 0),
        ("postmaster@mx.example.org", 0),
        ("joe@mx.example.org", 554),
        ("joe@sink.test", 554),
        ("joe@gone.test", 554),
        ("joe@elsewhere.example", 554),
        ("joe@[192.0.2.26]", 554),
        ("joe@[127.0.0.1]", 554),
        ("joe@sub.local.test", 554),
        ("joe@local.test.evil.example", 554),
    ] {
        check(&policy, STRANGER, address, expected);
    }
}

#[test]
fn trusted_clients_send_anywhere_that_can_be_reached() {
    let policy = policy(Accounts::Any);
    for (address, expected) in [
        ("joe@sink.test", 0),
        ("joe@elsewhere.example", 0),
        ("joe@mx.example.org", 0),
        ("joe@gone.test", 550),
        ("joe@[127.0.0.1]", 550),
        ("a/b@local.test", 550),
    ] {
        check(&policy, FRIEND, address, expected);
    }
    check(&policy, "2001:db8::5", "joe@sink.test", 0);
    check(&policy, "::ffff:10.1.2.3", "joe@sink.test", 0);
    check(&policy, "::ffff:203.0.113.9", "joe@sink.test", 554);
}

#[test]
fn r221_a_client_of_a_unix_socket_is_a_stranger_unless_its_listener_trusts_it() {
    let policy = policy(Accounts::Any);
    let address = Address::parse("joe@elsewhere.example", false).unwrap();
    for (trusted, accepted) in [(false, false), (true, true)] {
        let client = Client { address: None, trusted };
        assert_eq!(policy.is_trusted(client), accepted);
        assert_eq!(policy.recipient(client, &address) == Verdict::Accept, accepted);
        let ours = Address::parse("joe@local.test", false).unwrap();
        assert_eq!(policy.recipient(client, &ours), Verdict::Accept);
    }
}

fn listed(accounts: &[(&str, Standing)]) -> Accounts {
    let account = |&(name, standing): &(&str, Standing)| (name.into(), standing);
    Accounts::Listed(accounts.iter().map(account).collect())
}

#[test]
fn r213_mail_for_the_postmaster_goes_where_the_settings_say_if_that_takes_mail() {
    let accounts = listed(&[("joe", Standing::Gets), ("root", Standing::Never)]);
    let all = ["postmaster@local.test", "PostMaster@[192.0.2.25]", "\"postmaster\"@mx.example.org"];
    let address = |text: &str| Address::parse(text, false).unwrap();
    let named = |name: &str| Postmaster::Mailbox(name.into());
    let to = |text: &str| Postmaster::Address(address(text));
    for (postmaster, code) in [
        (Postmaster::for_tests(), 550),
        (named("nobody"), 550),
        (named("root"), 550),
        (named("joe"), 0),
        (named("\"JOE\""), 0),
        (to("joe@local.test"), 0),
        (to("ann@local.test"), 550),
        (to("joe@mx.example.org"), 0),
        (to("ann@elsewhere.example"), 0),
        (to("ann@gone.test"), 550),
    ] {
        let policy = Policy { postmaster, ..policy(accounts.clone()) };
        for text in all {
            check(&policy, STRANGER, text, code);
        }
    }
    let goes = |postmaster, text: &str| {
        let policy = Policy { postmaster, ..policy(accounts.clone()) };
        policy.stands_for(&address(text)).map(|address| address.to_string())
    };
    for text in all {
        assert_eq!(goes(Postmaster::for_tests(), text), None);
        let (_, domain) = text.rsplit_once('@').unwrap();
        assert_eq!(goes(named("joe"), text), Some(format!("joe@{domain}")));
        assert_eq!(goes(to("ann@a.example"), text), Some("ann@a.example".into()));
    }
    for text in ["postmaster@elsewhere.example", "joe@local.test"] {
        assert_eq!(goes(to("ann@a.example"), text), None);
    }
    let policy = Policy { postmaster: named("joe"), ..policy(accounts) };
    for (orcpt, expected) in
        [(None, "rfc822;postmaster@local.test"), (Some("rfc822;a@b.test"), "rfc822;a@b.test")]
    {
        let address = address("PostMaster@local.test");
        let orcpt = orcpt.map(Box::from);
        let found = policy.as_delivered(Recipient { address, notify: Notify::NEVER, orcpt });
        assert_eq!(found.address.as_str(), "joe@local.test");
        assert_eq!((found.orcpt.as_deref(), found.notify), (Some(expected), Notify::NEVER));
    }
}

#[test]
fn r213_rcpt_says_of_each_account_what_delivery_will_do() {
    let accounts = listed(&[("joe", Standing::Gets), ("root", Standing::Never)]);
    let policy = policy(accounts);
    for (text, code) in [("joe", 0), ("root", 550), ("nobody", 550)] {
        check(&policy, STRANGER, &format!("{text}@local.test"), code);
        check(&policy, FRIEND, &format!("{text}@local.test"), code);
    }
}

#[test]
fn r216_a_message_that_says_it_was_delivered_to_a_recipient_here_is_a_loop() {
    let policy = policy(Accounts::Any);
    let recipients = |texts: &[&str]| -> Vec<Recipient> {
        let recipient = |text: &&str| Recipient {
            address: Address::parse(text, false).unwrap(),
            notify: Notify::DEFAULT,
            orcpt: None,
        };
        texts.iter().map(recipient).collect()
    };
    let names = |text: &str| ["joe@local.test", "joe@elsewhere.example"].contains(&text);
    for (texts, expected) in [
        (&["joe@local.test"][..], true),
        (&["ann@local.test", "joe@local.test"], true),
        (&["ann@local.test"], false),
        (&["joe@elsewhere.example", "ann@local.test"], false),
    ] {
        assert_eq!(policy.is_loop(recipients(texts).into_iter(), names), expected, "{texts:?}");
    }
}

#[test]
fn r217_an_option_is_no_recipient_where_programs_get_names() {
    let any = policy(Accounts::Any);
    check(&any, STRANGER, "-oQ@local.test", 0);
    let names = Names { arguments: true, ..Names::default() };
    let mailboxes = Mailboxes { names, ..any.mailboxes.clone() };
    let piped = Policy { mailboxes, ..any };
    for text in ["--config=x@local.test", "-oQ`id`@local.test", "\"-x\"@local.test"] {
        check(&piped, STRANGER, text, 550);
        check(&piped, FRIEND, text, 550);
    }
    check(&piped, STRANGER, "x-y@local.test", 0);
}

#[test]
fn p052_percent_hacks_bang_paths_and_quoted_ats_never_relay() {
    let listed = policy(listed(&[("joe", Standing::Gets)]));
    for address in [
        "joe%elsewhere.example@local.test",
        "elsewhere.example!joe@local.test",
        "\"joe@elsewhere.example\"@local.test",
        "joe@elsewhere.example@local.test",
        "\"joe%elsewhere.example\"@local.test",
    ] {
        check(&listed, STRANGER, address, 550);
        check(&listed, FRIEND, address, 550);
    }
    // If every mailbox exists, these are names like any other, and their mail stays here.
    let any = policy(Accounts::Any);
    for address in ["joe%elsewhere.example@local.test", "elsewhere.example!joe@local.test"] {
        check(&any, STRANGER, address, 0);
        let parsed = Address::parse(address, true).unwrap();
        assert_eq!(any.routes.next_hop(parsed.domain()), NextHop::Local);
    }
    check(&any, STRANGER, "joe%local.test@elsewhere.example", 554);
}

#[test]
fn what_the_mailboxes_will_not_take_is_refused_before_it_is_promised() {
    let plain = policy(Accounts::Any);
    check(&plain, STRANGER, "bob.lock@local.test", 0);
    let names = Names { dotlocks: true, ..Names::default() };
    let locked = Policy { mailboxes: Mailboxes { names, ..plain.mailboxes.clone() }, ..plain };
    check(&locked, STRANGER, "bob.lock@local.test", 550);
    check(&locked, FRIEND, "\"bob.lock\"@[192.0.2.25]", 550);
    check(&locked, STRANGER, "bob@local.test", 0);
}

#[test]
fn unsafe_and_unknown_mailboxes_are_refused_and_the_postmaster_exists() {
    let two = listed(&[("joe", Standing::Gets), ("postmaster", Standing::Gets)]);
    let listed = policy(two);
    for (address, expected) in [
        ("joe@local.test", 0),
        ("JOE@local.test", 0),
        ("\"joe\"@local.test", 0),
        ("ann@local.test", 550),
        ("PostMaster@local.test", 0),
        ("postmaster@[192.0.2.25]", 0),
    ] {
        check(&listed, STRANGER, address, expected);
    }
    let any = policy(Accounts::Any);
    for address in ["\"../x\"@local.test", "a/b@local.test", "\".x\"@local.test"] {
        check(&any, STRANGER, address, 550);
    }
    let client: IpAddr = STRANGER.parse().unwrap();
    let reply = match any.recipient(client, &Address::parse("a/b@local.test", false).unwrap()) {
        Verdict::Reject(reply) => reply.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reply, "550 5.1.1 no such mailbox here");
}
