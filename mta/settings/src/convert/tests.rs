//! What the settings file says reaches the machines.

use crate::{HostEnvironment, System, load};
use mail::{Domain, NextHop};
use smtp::framing::BareLf;

#[test]
fn what_the_file_says_reaches_the_machines() {
    let system = System { hostname: "mx.test".into(), state: "/s".into() };
    let text = br#"
        [[listen]]
        address = "*:24"
        protocol = "lmtp"
        message_bytes_max = "1MB"
        [local]
        domains = ["here.test"]
        [[route]]
        domain = "*.sink.test"
        to = "smtp:127.0.0.1:2600"
        [limits]
        bad_commands_max = 3
        [destination."slow.test"]
        connections = 2
        rate = "30/m"
        [queue]
        order = "arrival"
    "#;
    let settings = load(text, "f", &system).unwrap();
    let smtp = settings.smtp(&settings.listen[0], true);
    assert_eq!((smtp.lmtp, smtp.message_bytes_max, smtp.bad_commands_max), (true, 1_000_000, 3));
    let scheduler = settings.scheduler();
    assert_eq!(scheduler.order, scheduler::Order::Arrival);
    let (name, slow) = &scheduler.limits[0];
    assert_eq!((name.as_str(), slow.connections), ("slow.test", 2));
    assert_eq!((slow.start_connections, slow.rate_per_second), (2, Some(0.5)));
    let routes = settings.routes(&HostEnvironment::default());
    let hop = |name: &str| routes.next_hop(&Domain::parse(name).unwrap()).to_string();
    assert_eq!(hop("here.test"), NextHop::Local.to_string());
    assert_eq!(hop("a.sink.test"), "smtp:127.0.0.1:2600");
    assert_eq!(hop("elsewhere.test"), "elsewhere.test");
}

#[test]
fn r211_strangers_may_address_fewer_recipients_than_those_who_may_relay() {
    let system = System { hostname: "mx.test".into(), state: "/s".into() };
    let most = |text: &str| {
        let settings = load(text.as_bytes(), "f", &system).unwrap();
        let of = |trusted| settings.smtp(&settings.listen[0], trusted).recipients_max;
        (of(true), of(false))
    };
    for (text, expected) in [
        ("", (50_000, 1_000)),
        ("[limits]\nstranger_recipients_max = 1000000", (50_000, 50_000)),
        ("[limits]\nrecipients_max = 200", (200, 200)),
        ("[limits]\nrecipients_max = 1000000", (1_000_000, 1_000)),
        ("[[listen]]\naddress = \"*:25\"\nstranger_recipients_max = 100", (50_000, 100)),
        ("[[listen]]\naddress = \"*:25\"\nrecipients_max = 100", (100, 100)),
    ] {
        assert_eq!(most(text), expected, "{text}");
    }
}

#[test]
fn r232_bare_newlines_are_normalized_for_those_who_may_relay_unless_the_file_says_no() {
    let system = System { hostname: "mx.test".into(), state: "/s".into() };
    for (text, trusted) in [
        ("", BareLf::Normalize),
        ("[relay]\nbare_newline = \"refuse\"", BareLf::Refuse),
        ("[relay]\nfrom = []\nbare_newline = \"normalize\"", BareLf::Normalize),
    ] {
        let settings = load(text.as_bytes(), "f", &system).unwrap();
        let of = |trusted| settings.smtp(&settings.listen[0], trusted).bare_lf;
        assert_eq!((of(true), of(false)), (trusted, BareLf::Refuse), "{text}");
    }
}

#[test]
fn r213_who_gets_mail_is_the_lmtp_servers_matter_where_one_delivers() {
    let system = System { hostname: "mx.test".into(), state: "/s".into() };
    let account = |name: &str, uid| crate::UserAccount {
        name: name.into(),
        uid,
        gid: uid,
        home: "/nonexistent".into(),
        has_private_group: false,
        home_is: policy::Home::NotTheirs,
    };
    let accounts = vec![account("ann", 1000), account("root", 0)];
    // The mailer was started by an ordinary user, who is neither of them.
    let around = HostEnvironment { accounts, only_user: Some(77), ..HostEnvironment::default() };
    for (deliver, gets) in [("lmtp:127.0.0.1:24", true), ("maildir:/var/mail/{user}/", false)] {
        let text = format!("[local]\nusers = \"system\"\ndeliver = {deliver:?}");
        let mailboxes = load(text.as_bytes(), "f", &system).unwrap().local.mailboxes(&around);
        for user in ["ann", "root"] {
            assert_eq!(mailboxes.find(user).is_ok(), gets, "{user} by {deliver}");
        }
        assert!(mailboxes.find("nobody-of-this-name").is_err());
    }
}

#[test]
fn r213_the_postmaster_of_the_machine_is_accepted_and_delivered_by_one_rule() {
    const HOP: &str = "smtp:127.0.0.1:26";
    let system = System { hostname: "mx.a.test".into(), state: "/s".into() };
    let around = HostEnvironment::default();
    let address = |text: &str| mail::Address::parse(text, false).unwrap();
    // Routes and postmaster; whether a stranger's recipient is accepted, and delivered here.
    let table: [(&[&str], &str, &str, bool, bool); 12] = [
        (&[], "postmaster", "postmaster@mx.a.test", true, true),
        (&["*"], "postmaster", "PostMaster@MX.a.test", true, true),
        (&["*"], "ann", "\"postmaster\"@mx.a.test", true, true),
        (&["*"], "ann@mx.a.test", "postmaster@mx.a.test", true, true),
        (&["*"], "ann@b.test", "postmaster@mx.a.test", true, false),
        (&["*"], "ann", "bob@mx.a.test", false, false),
        (&["*", "mx.a.test"], "ann", "postmaster@mx.a.test", true, true),
        (&["*.mx.a.test", "*"], "ann", "postmaster@mx.a.test", true, true),
        (&["mx.a.test", "*"], "ann", "postmaster@mx.a.test", false, false),
        (&["*.a.test"], "postmaster", "postmaster@mx.a.test", false, false),
        (&["*.a.test"], "ann@mx.a.test", "ann@mx.a.test", false, false),
        (&["*", "*.a.test"], "postmaster", "postmaster@a.test", true, true),
    ];
    for (routes, postmaster, text, accepted, here) in table {
        let routes: String = routes
            .iter()
            .map(|domain| format!("[[route]]\ndomain = {domain:?}\nto = {HOP:?}\n"))
            .collect();
        let top = format!("postmaster = {postmaster:?}\nlocal.domains = [\"a.test\"]\n");
        let settings = load((top + &routes).as_bytes(), "f", &system).unwrap();
        let policy = settings.policy(&around);
        let verdict =
            policy.recipient(policy::Client { address: None, trusted: false }, &address(text));
        assert_eq!(verdict == mail::Verdict::Accept, accepted, "{text} by {routes}");
        let recipient =
            mail::Recipient { address: address(text), notify: mail::Notify::DEFAULT, orcpt: None };
        let hop = settings.routes(&around).next_hop_of(&policy.as_delivered(recipient).address);
        assert_eq!(hop == NextHop::Local, here, "{text} by {routes}: {hop}");
    }
}

#[test]
fn the_addresses_we_listen_at_are_ours_as_literals_and_mboxes_have_locks() {
    let system = System { hostname: "mx.test".into(), state: "/s".into() };
    let text = br#"
        [[listen]]
        address = "127.0.0.1:25"
        [[listen]]
        address = "*:587"
        [local]
        deliver = "mbox:/var/mail/{user}"
    "#;
    let settings = load(text, "f", &system).unwrap();
    let policy = settings.policy(&HostEnvironment::default());
    let hop = |name: &str| policy.routes.next_hop(&Domain::parse(name).unwrap());
    assert_eq!(hop("[127.0.0.1]"), NextHop::Local);
    assert!(matches!(hop("[127.0.0.2]"), NextHop::Error(_)));
    assert!(matches!(hop("[0.0.0.0]"), NextHop::Error(_)));
    assert!(policy.mailboxes.names.dotlocks);
    let plain = load(b"", "f", &system).unwrap().policy(&HostEnvironment::default());
    assert!(!plain.mailboxes.names.dotlocks);
}

#[test]
fn the_spool_takes_whatever_the_settings_let_through() {
    let system = System { hostname: "mx.test".into(), state: "/s".into() };
    for (segment, batch) in [("1MiB", "64KiB"), ("1MiB", "256KiB"), ("1GiB", "256MiB")] {
        let text = format!("[spool]\nsegment_bytes = {segment:?}\nbatch_bytes_max = {batch:?}");
        let settings = load(text.as_bytes(), "f", &system).unwrap().spool();
        assert_eq!(settings.problem(), None, "{segment} {batch}");
    }
}

#[test]
fn tests_run_with_the_settings_that_the_daemon_makes_of_an_empty_file() {
    let system = System { hostname: "mx.test".into(), state: "/s".into() };
    let settings = load(b"", "f", &system).unwrap();
    let stranger = settings.smtp(&settings.listen[0], false);
    let recipients_max = stranger.recipients_max;
    let server = smtp::server::Settings::for_tests(settings.hostname.clone());
    let server = smtp::server::Settings { recipients_max, ..server };
    assert_eq!(format!("{stranger:?}"), format!("{server:?}"));
    let scheduler = scheduler::Settings::for_tests();
    assert_eq!(format!("{:?}", settings.scheduler()), format!("{scheduler:?}"));
    assert_eq!(settings.spool(), spool::Settings::for_tests());
    let client =
        smtp::client::Settings { helo: "mx.test".into(), ..smtp::client::Settings::for_tests() };
    assert_eq!(format!("{:?}", settings.client()), format!("{client:?}"));
    assert_eq!(super::send::ATTEMPT_LIMITS, delivery::Limits::for_tests());
    let rules = settings.rules(&HostEnvironment::default());
    let ourselves = rules.ourselves.clone();
    assert_eq!(ourselves.names, [Box::from("mx.test")]);
    assert_eq!(rules, delivery::Rules { ourselves, ..delivery::Rules::for_tests() });
}
