//! Settings files with errors, and the report of each error.
//!
//! Must never expect an error without its place.

use super::*;

#[test]
fn n117_all_problems_are_told_at_once_each_with_its_place_and_the_nearest_name() {
    let text = "hostnam = \"a.test\"\n\
        [limits]\n\
        recipient_max = 5\n\
        connections = \"many\"\n\
        message_bytes_max = \"1B\"\n\
        [retry]\n\
        first = \"5 minutes\"\n\
        [[route]]\n\
        domain = \"a.test\"\n\
        to = \"smpt:1.2.3.4\"\n\
        [queue]\n\
        order = \"fare\"\n\
        [lokal]\n";
    let problems = load(text).unwrap_err();
    let shown = render(&problems);
    let expected = [
        ("posthaste.toml:1:1: hostnam: there is no such setting", "did you mean `hostname`?"),
        ("posthaste.toml:3:1: limits.recipient_max: there is no", "did you mean `recipients_max`?"),
        ("posthaste.toml:4:15: limits.connections: must be a whole number", ""),
        ("posthaste.toml:5:21: limits.message_bytes_max: is out of range: 64KiB to 4095MiB", ""),
        ("posthaste.toml:7:9: retry.first: must be a time such as", ""),
        ("posthaste.toml:10:6: route.to: must be one of", "did you mean `smtp`?"),
        ("posthaste.toml:12:9: queue.order: must be one of", "did you mean `fair`?"),
        ("posthaste.toml:13:2: lokal: there is no such setting", "did you mean `local`?"),
    ];
    for (line, help) in expected {
        assert!(shown.contains(line) && shown.contains(help), "{line}\n--\n{shown}");
    }
    assert!(shown.ends_with("8 problems\n"), "{shown}");
    assert!(shown.contains(" 1 | hostnam = \"a.test\"\n   | ^^^^^^^\n"), "{shown}");
}

#[test]
fn a_setting_in_the_wrong_table_is_told_where_it_belongs() {
    let shown = render(&load("[limits]\norder = \"fair\"\n").unwrap_err());
    assert!(shown.contains("`order` is a setting of [queue]"), "{shown}");
    let shown = render(&load("[limits]\nhostname = \"a.test\"\n").unwrap_err());
    assert!(shown.contains("top of the file") || shown.contains("[listen]"), "{shown}");
}

#[test]
fn what_a_person_writes_who_comes_from_postfix_is_answered_with_what_to_write() {
    for (text, place, help) in [
        ("mydestination = \"a.test\"", "f:1:1: mydestination", "it is `domains` of [local]"),
        ("relayhost = \"[smtp.a.test]\"", "f:1:1: relayhost", "write [[route]]"),
        ("[local]\nalias_maps = \"x\"", "f:2:1: local.alias_maps", "there are no aliases yet"),
        ("[destination]\nconnections = 5", "f:2:15: destination", "write [destination.default]"),
        ("[relay]\nfrom = [\"::ffff:10.0.0.0/104\"]", "f:2:9: relay.from", "write `10.0.0.0/8`"),
        ("[relay]\nfrom = [\"::ffff:10.0.0.9\"]", "f:2:9: relay.from", "write `10.0.0.9/32`"),
        ("[local]\ndeliver = \"lmtp:/run/x\"", "f:2:11: local.deliver", "lmtp:unix:/run/x"),
        ("[local]\ndeliver = \"mbox:/var/mail/%u\"", "f:2:11: local.deliver", "{user}"),
        ("[local]\ndeliver = \"maildir:/home/$USER/Maildir/\"", "f:2:11: local.deliver", "{user}"),
    ] {
        let shown = render(&crate::load(text.as_bytes(), "f", &system()).unwrap_err());
        assert!(shown.contains(place) && shown.contains(help), "{text}\n{shown}");
    }
    assert_eq!(good("[relay]\nfrom = [\"::/0\", \"::/96\"]").relay.from.len(), 2);
}

#[test]
fn n117_what_is_no_toml_is_told_with_its_place() {
    for (text, place) in [
        (&b"hostname = \"half-writ"[..], "f:1:"),
        (b"[limits\nconnections = 5\n", "f:1:"),
        (b"hostname = \"a.test\"\nhostname = \"b.test\"\n", "f:2:"),
        (b"# caf\xe9\nhostname = \"a.test\"\n", "f:1:6: is not UTF-8"),
        (b"\x00", "f:1:1"),
        (b"hostname = 5", "f:1:12: hostname: must be a text, not a number"),
        (b"limits = 5", "f:1:10: limits: must be a table, not a number"),
        (b"listen = \"127.0.0.1:25\"", "f:1:10: listen: must be a list of tables"),
        (b"[destination]\nconnections = 5", "f:2:15: destination: must be a table, not a number"),
    ] {
        let shown = render(&crate::load(text, "f", &system()).unwrap_err());
        assert!(shown.contains(place), "{place}\n{shown}");
    }
    let large = vec![b'\n'; 5 << 20];
    assert!(crate::load(&large, "f", &system()).is_err());
    let many: String = (0..10_000).map(|number| format!("unknown{number} = 1\n")).collect();
    assert_eq!(load(&many).unwrap_err().len(), 100, "bounded");
}

#[test]
fn impossible_values_are_refused() {
    for (text, key) in [
        ("state = \"relative\"", "state"),
        ("hostname = \"[127.0.0.1]\"", "hostname"),
        ("hostname = \"a b\"", "hostname"),
        ("listen = []", "listen"),
        ("[[listen]]\naddress = \"127.0.0.1\"", "listen.address"),
        ("[[listen]]\naddress = \"mx.example.org:25\"", "listen.address"),
        ("[[listen]]\naddress = \"127.0.0.1:0\"", "listen.address"),
        ("[[listen]]\naddress = \"127.0.0.1:65536\"", "listen.address"),
        ("[[listen]]\naddress = \"::1:25\"", "listen.address"),
        ("[[listen]]\naddress = \"unix:run/x\"", "listen.address"),
        ("[[listen]]\nprotocol = \"smtp\"", "listen.address"),
        ("[[listen]]\naddress = \"*:25\"\n[[listen]]\naddress = \"*:25\"", "listen.address"),
        ("[relay]\nfrom = [\"10.0.0.1/8\"]", "relay.from"),
        ("[relay]\nfrom = [\"10.0.0.0/33\"]", "relay.from"),
        ("[relay]\nfrom = [5]", "relay.from"),
        ("[relay]\nfrom = \"10.0.0.0/8\"", "relay.from"),
        ("[local]\ndomains = [\"\"]", "local.domains"),
        ("[local]\ndeliver = \"maildir:mail/{user}\"", "local.deliver"),
        ("[local]\ndeliver = \"maildir:/mail/{usr}\"", "local.deliver"),
        ("[local]\ndeliver = \"maildir:/mail/{user\"", "local.deliver"),
        ("[local]\ndeliver = \"maildir:/mail/../{user}\"", "local.deliver"),
        ("[local]\ndeliver = \"maildir:{home}/Maildir\"", "local.deliver"),
        ("[local]\ndeliver = \"maildir:{user}/x\"", "local.deliver"),
        ("[local]\ndeliver = \"mbox:/mail/{user}/\"", "local.deliver"),
        ("[local]\ndeliver = \"pipe:procmail\"", "local.deliver"),
        ("[local]\ndeliver = \"lmtp:127.0.0.1\"", "local.deliver"),
        ("[[route]]\ndomain = \"a.test\"", "route.to"),
        ("[[route]]\nto = \"hold\"", "route.domain"),
        ("[[route]]\ndomain = \"a.*.test\"\nto = \"hold\"", "route.domain"),
        ("[[route]]\ndomain = \"a.test\"\nto = \"lmtp:host\"", "route.to"),
        ("[[route]]\ndomain = \"a.test\"\nto = \"smtp:\"", "route.to"),
        ("[[route]]\ndomain = \"a.test\"\nto = \"smtp:::1\"", "route.to"),
        ("[[route]]\ndomain = \"a.test\"\nto = \"error:\"", "route.to"),
        ("[[route]]\ndomain = \"a.test\"\nto = \"error:a\\r\\n250 b\"", "route.to"),
        ("[destination.\"a b\"]", "destination.\"a b\""),
        ("[destination.default]\nrate = \"fast\"", "destination.rate"),
        (
            "[destination.default]\nconnections = 5\nstart_connections = 6",
            "destination.start_connections",
        ),
        ("[retry]\nfirst = \"5h\"", "retry.first"),
        ("[retry]\nexpire = \"1m\"\ndelay_notice = 0", "retry.expire"),
        ("[retry]\nfactor = 0.5", "retry.factor"),
        ("[retry]\nfactor = nan", "retry.factor"),
        ("[retry]\nfirst = 5", "retry.first"),
        ("[limits]\nconnections = -1", "limits.connections"),
        ("[limits]\nconnections = 99999999999999999999", "limits.connections"),
        ("[spool]\nsegment_bytes = \"1000kB\"", "spool.segment_bytes"),
        ("[spool]\nsegment_bytes = \"1001kB\"", "spool.segment_bytes"),
        ("[spool]\nbatch_bytes_max = \"32MiB\"", "spool.batch_bytes_max"),
        ("[dns]\nservers = [\"ns.example.org\"]", "dns.servers"),
    ] {
        let told = wrong(text);
        assert!(told.iter().any(|line| line.contains(&format!(": {key}: "))), "{text}\n{told:?}");
    }
}

#[test]
fn a_wrong_value_of_the_default_destination_is_reported_once() {
    let text = "[destination.default]\nconnections = 0\n[destination.\"a.test\"]\nrate = \"1/s\"\n";
    assert_eq!(wrong(text).len(), 1, "{:?}", wrong(text));
}
