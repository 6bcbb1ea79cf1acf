//! What a settings file may say, and what is said about one that is wrong.

use super::setting::{Preset, Range};
use super::*;
use std::time::Duration;

fn system() -> System {
    System { hostname: "here.example.org".into(), state: "/var/lib/posthaste".into() }
}

fn load(text: &str) -> Result<Settings, Vec<Problem>> {
    super::load(text.as_bytes(), "posthaste.toml", &system())
}

fn good(text: &str) -> Settings {
    load(text).unwrap_or_else(|problems| panic!("{text}\n{}", render(&problems)))
}

/// `file:line:column: key: what` of each.
fn wrong(text: &str) -> Vec<String> {
    let problems = load(text).expect_err(text);
    let line = |problem: &Problem| problem.to_string().lines().next().unwrap().to_string();
    problems.iter().map(line).collect()
}

#[test]
fn n117_an_empty_file_runs() {
    let settings = good("");
    assert_eq!(settings.hostname.as_str(), "here.example.org");
    assert_eq!(settings.state, PathBuf::from("/var/lib/posthaste"));
    let [listen] = settings.listen.as_slice() else { panic!("{:?}", settings.listen) };
    assert_eq!(listen.address, ListenAddress::Tcp("127.0.0.1:2525".parse().unwrap()));
    assert_eq!((listen.connections, listen.recipients_max), (20_000, 50_000));
    assert_eq!(settings.local.domains, std::slice::from_ref(&settings.hostname));
    assert_eq!(settings.retry.delay_notice, Some(Duration::from_secs(4 * 3600)));
    assert!(settings.routes.is_empty() && settings.destinations.named.is_empty());
}

#[test]
fn the_contract_of_the_design_is_read_as_it_is_meant() {
    let settings = good(
        r#"
        hostname = "MX.example.ORG"
        state = "/srv/mail"
        [[listen]]
        address = "127.0.0.1:2525"
        [[listen]]
        address = "unix:/run/posthaste/lmtp"
        protocol = "lmtp"
        recipients_max = 500
        [[listen]]
        address = "[::1]:25"
        [relay]
        from = ["127.0.0.0/8", "::1"]
        [local]
        domains = ["local.test"]
        deliver = "maildir:{state}/mail/{user}/"
        [[route]]
        domain = "*.sink.test"
        to = "smtp:127.0.0.1:2600"
        [[route]]
        domain = "lists.test"
        to = "lmtp:unix:/run/lists"
        [[route]]
        domain = "*"
        to = "error:not from here"
        [destination.default]
        connections = 50
        [destination."gmail.com"]
        messages_per_connection = 7
        rate = "600/m"
        [destination."*.gmail.com"]
        [destination."smtp:127.0.0.1:2600"]
        [retry]
        first = "5m"
        factor = 2
        longest = "4h"
        expire = "5d"
        [limits]
        message_bytes_max = "50MB"
        "#,
    );
    assert_eq!(settings.hostname.as_str(), "mx.example.org");
    assert_eq!(settings.listen[1].address, ListenAddress::Unix("/run/posthaste/lmtp".into()));
    assert_eq!(settings.listen[1].protocol, ListenProtocol::Lmtp);
    assert_eq!(
        (settings.listen[1].recipients_max, settings.listen[2].recipients_max),
        (500, 50_000)
    );
    assert_eq!(settings.listen[0].message_bytes_max, 50_000_000);
    let hops: Vec<String> = settings.routes.iter().map(|route| route.to.to_string()).collect();
    assert_eq!(hops, ["smtp:127.0.0.1:2600", "lmtp:unix:/run/lists", "error:not from here"]);
    let names: Vec<&str> =
        settings.destinations.named.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["smtp:127.0.0.1:2600", "gmail.com", "*.gmail.com"]);
    let gmail = settings.destinations.named[1].1;
    assert_eq!((gmail.connections, gmail.messages_per_connection), (50, 7), "inherited, own");
    assert_eq!(gmail.rate, Some(Rate { count: 600, per: Duration::from_secs(60) }));
    let Deliver::Maildir(template) = &settings.local.deliver else { panic!() };
    let fill = Fill { state: "/s", user: "joe", ..Fill::default() };
    assert_eq!(template.expand(&fill).as_deref(), Some("/s/mail/joe/"));
}

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
        let shown = render(&super::load(text.as_bytes(), "f", &system()).unwrap_err());
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
        let shown = render(&super::load(text, "f", &system()).unwrap_err());
        assert!(shown.contains(place), "{place}\n{shown}");
    }
    let large = vec![b'\n'; 5 << 20];
    assert!(super::load(&large, "f", &system()).is_err());
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
fn a_system_without_a_good_name_is_told_to_set_one_and_may() {
    let nameless = System { hostname: "no name".into(), ..system() };
    let shown = render(&super::load(b"", "f", &nameless).unwrap_err());
    assert!(shown.contains("f: hostname: the system's name `no name` is not a domain"), "{shown}");
    assert!(super::load(b"hostname = \"mx.test\"", "f", &nameless).is_ok());
}

#[test]
fn state_lives_where_the_user_may_write() {
    let path = |text: &'static str| Some(Path::new(text));
    for (root, xdg, home, expected) in [
        (true, path("/x"), path("/root"), "/var/lib/posthaste"),
        (false, path("/x"), path("/home/joe"), "/x/posthaste"),
        (false, path("relative"), path("/home/joe"), "/home/joe/.local/state/posthaste"),
        (false, None, path("/home/joe"), "/home/joe/.local/state/posthaste"),
        (false, None, None, "/var/lib/posthaste"),
    ] {
        assert_eq!(state_default(root, xdg, home), Path::new(expected));
    }
}

/// A listener that has every setting.
const SOCKET: &str = "[[listen]]\naddress = \"unix:/run/x\"\n";

/// A file that sets `name` to `value`, with what else its table needs.
fn file_with(name: &str, value: &str) -> String {
    match name.split_once('.') {
        None => format!("{name} = {value}\n"),
        Some(("listen", "address")) => format!("[[listen]]\naddress = {value}\n"),
        Some(("listen", name @ ("mode" | "group" | "trusted"))) => {
            format!("{SOCKET}{name} = {value}\n")
        }
        Some(("listen", name)) => {
            format!("[[listen]]\naddress = \"127.0.0.1:2525\"\n{name} = {value}\n")
        }
        Some(("route", "domain")) => format!("[[route]]\nto = \"hold\"\ndomain = {value}\n"),
        Some(("route", name)) => format!("[[route]]\ndomain = \"a.test\"\n{name} = {value}\n"),
        Some(("destination", name)) => format!("[destination.default]\n{name} = {value}\n"),
        Some((table, name)) => format!("[{table}]\n{name} = {value}\n"),
    }
}

#[test]
fn each_setting_is_read_its_default_is_the_table_s_and_another_value_counts() {
    let (plain, socket) = (good(""), good(SOCKET));
    for setting in settings() {
        let of_socket = file_with(setting.name, "").starts_with(SOCKET);
        let plain = if of_socket { &socket } else { &plain };
        if let Preset::Is(default) = setting.default {
            let default = setting.range.quoted(default);
            assert_eq!(&good(&file_with(setting.name, &default)), plain, "{}", setting.name);
        }
        let example = setting.range.quoted(setting.example);
        assert_ne!(&good(&file_with(setting.name, &example)), plain, "{}", setting.name);
    }
}

#[test]
fn a_listener_takes_what_it_leaves_out_from_the_limits_of_the_file() {
    let limits = "[limits]\nconnections = 50\nrecipients_max = 200\n";
    let listeners = "[[listen]]\naddress = \"*:25\"\nrecipients_max = 300\n";
    let [plain, own] = [limits.to_string(), format!("{limits}{listeners}")]
        .map(|text| good(&text).listen.remove(0))
        .map(|listen| (listen.connections, listen.recipients_max));
    assert_eq!((plain, own), ((50, 200), (50, 300)));
    let told = wrong("[limits]\nconnections = 0\n[[listen]]\naddress = \"*:25\"\n");
    assert_eq!(told, ["posthaste.toml:2:15: limits.connections: is out of range: 1 to 1000000"]);
}

#[test]
fn a_wrong_value_of_the_default_destination_is_reported_once() {
    let text = "[destination.default]\nconnections = 0\n[destination.\"a.test\"]\nrate = \"1/s\"\n";
    assert_eq!(wrong(text).len(), 1, "{:?}", wrong(text));
}

#[test]
fn both_ends_of_each_range_count_and_what_lies_beyond_is_refused() {
    // The ends of these ranges do not fit the defaults of other settings.
    let bound_to_others = [
        "retry.first",
        "retry.longest",
        "retry.expire",
        "retry.delay_notice",
        "destination.start_connections",
        "limits.connections",
        "limits.session_memory_bytes_max",
        "listen.connections",
        "spool.segment_bytes",
        "spool.batch_bytes_max",
    ];
    for setting in settings() {
        let (Range::Count(low, high) | Range::Bytes(low, high) | Range::Time(low, high)) =
            setting.range
        else {
            continue;
        };
        let write = |number: u64| match setting.range {
            Range::Time(..) => format!("\"{number}s\""),
            _ => number.to_string(),
        };
        if !bound_to_others.contains(&setting.name) {
            good(&file_with(setting.name, &write(low)));
            good(&file_with(setting.name, &write(high)));
        }
        let told = wrong(&file_with(setting.name, &write(high + 1)));
        assert!(told[0].contains(setting.name) && told[0].contains("out of range"), "{told:?}");
        if low > 0 {
            let told = wrong(&file_with(setting.name, &write(low - 1)));
            assert!(told[0].contains(setting.name) && told[0].contains("out of range"), "{told:?}");
        }
    }
}

#[test]
fn r242_what_no_counter_can_keep_is_refused_with_the_arithmetic_and_its_place() {
    for (text, told) in [
        (
            "[limits]\nconnections = 1000000",
            "posthaste.toml:2:15: limits.connections: 1000000 connections x 12KiB, the minimum for each, = 12000000KiB: \
             more than session_memory_bytes_max, 262144KiB",
        ),
        (
            "[limits]\nsession_memory_bytes_max = \"1MiB\"",
            "posthaste.toml:2:28: limits.session_memory_bytes_max: 20000 connections x 12KiB, the minimum for each, = \
             240000KiB: more than session_memory_bytes_max, 1024KiB",
        ),
        (
            "[limits]\nconnections = 80\nsession_memory_bytes_max = \"1MiB\"\n[[listen]]\naddress = \"*:25\"\nconnections = 86",
            "posthaste.toml:6:15: listen.connections: 86 connections here: more than limits.connections, 80, which all \
             listeners share",
        ),
        (
            "[limits]\nconnections = 80\nsession_memory_bytes_max = \"1MiB\"\n[processes]\nreceive = 13",
            "posthaste.toml:5:11: processes.receive: 13 processes x 80KiB, the minimum for one message, = 1040KiB: \
             more than session_memory_bytes_max, 1024KiB",
        ),
        (
            "[limits]\nrecipients_max = 1000000\n[spool]\nsegment_bytes = \"4MiB\"\nbatch_bytes_max = \"1MiB\"",
            "posthaste.toml:2:18: limits.recipients_max: 1000000 recipients x 8 bytes, the minimum for each, = 8000000 bytes: \
             more than the 4182016 bytes that a record can have in a segment of 4MiB",
        ),
        (
            "[[listen]]\naddress = \"*:25\"\nrecipients_max = 130000\n[spool]\nsegment_bytes = \"1MiB\"\nbatch_bytes_max = \"256KiB\"",
            "posthaste.toml:3:18: listen.recipients_max: 130000 recipients x 8 bytes, the minimum for each, = 1040000 bytes: \
             more than the 1036288 bytes that a record can have in a segment of 1MiB",
        ),
        (
            "[spool]\nsegment_bytes = \"1MiB\"",
            "posthaste.toml:2:17: spool.segment_bytes: a batch can have at most a quarter of a segment: \
             batch_bytes_max 2MiB is more than segment_bytes 1MiB / 4 = 256KiB",
        ),
        (
            "[limits]\nmessage_bytes_max = \"4GiB\"",
            "posthaste.toml:2:21: limits.message_bytes_max: is out of range: 64KiB to 4095MiB",
        ),
        (
            "[retry]\nfirst = \"1d\"\nlongest = \"1h\"",
            "posthaste.toml:2:9: retry.first: the first wait, 1d, is longer than the longest, 1h",
        ),
        (
            "[retry]\nfirst = \"1h\"\nexpire = \"30m\"",
            "posthaste.toml:3:10: retry.expire: a message would expire after 30m, before it is tried again after 1h",
        ),
        (
            "[retry]\nexpire = \"1h\"\ndelay_notice = \"2h\"",
            "posthaste.toml:3:16: retry.delay_notice: a message would expire after 1h, before its sender is told of a delay after 2h",
        ),
    ] {
        assert_eq!(wrong(text), [told], "{text}");
    }
}

#[test]
fn texts_and_paths_of_the_longest_kind_are_taken_and_longer_ones_refused() {
    let route = |bytes: usize| {
        format!("[[route]]\ndomain = \"a.test\"\nto = \"error:{}\"", "x".repeat(bytes))
    };
    let socket =
        |bytes: usize| format!("[[listen]]\naddress = \"unix:/{}\"", "x".repeat(bytes - 1));
    let listeners = |count: usize| -> String {
        (0..count).map(|n| format!("[[listen]]\naddress = \"127.0.0.1:{}\"\n", 2000 + n)).collect()
    };
    good(&route(400));
    good(&socket(107));
    assert_eq!(good(&listeners(schema::LISTENERS_MAX)).listen.len(), 256);
    for (text, told) in [
        (
            route(401),
            "route.to: the text after `error:` must be 1 to 400 printable ASCII characters",
        ),
        (socket(108), "listen.address: the path of a socket can have at most 107 bytes"),
        (listeners(257), "listen: 257 listeners are more than 256"),
    ] {
        assert!(wrong(&text)[0].ends_with(told), "{:?}", wrong(&text));
    }
}

#[test]
fn r242_a_product_that_a_counter_keeps_is_let_through() {
    for text in [
        "[limits]\nconnections = 21845\nconnections_per_client = 1000000",
        "[limits]\nsession_memory_bytes_max = \"1MiB\"\nconnections = 85",
        "[limits]\nsession_memory_bytes_max = \"1MiB\"\nconnections = 85\n[processes]\nreceive = 12",
        "[limits]\nconnections = 21845\n[[listen]]\naddress = \"*:25\"\nconnections = 21845\nrecipients_max = 1000000",
        // 452 4.5.3 when the envelope is too long, 452 4.3.1 when memory is.
        "[limits]\nrecipients_max = 1000000",
        // 552 5.3.4 for a long envelope in a short segment.
        "[spool]\nsegment_bytes = \"1MiB\"\nbatch_bytes_max = \"256KiB\"",
        "[limits]\nmessage_bytes_max = \"4095MiB\"\nheader_bytes_max = \"1GiB\"",
        "[limits]\ntransaction_time_max = \"1m\"\ndata_timeout = \"1d\"\ncommand_timeout = \"1d\"",
        "[spool]\nkeep_free_bytes = \"1024TiB\"\nreserve_bytes = \"1024GiB\"",
    ] {
        good(text);
    }
}

#[test]
fn the_documentation_has_every_setting_and_is_current() {
    let text = markdown();
    for setting in settings() {
        let name = setting.name.split_once('.').map_or(setting.name, |(_, name)| name);
        assert!(text.contains(&format!("| `{name}` |")), "{name}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == text,
        "docs/settings.md is old: run `cargo xtask settings`, or this with WRITE_DOCS=1"
    );
}

#[test]
fn r221_who_may_use_a_unix_socket_is_a_setting_and_only_of_one() {
    let path = "[[listen]]\naddress = \"unix:/run/x\"\n";
    let socket = |more: &str| {
        let listen = good(&format!("{path}{more}")).listen.remove(0);
        (listen.mode.0, listen.group.map(|group| group.value), listen.trusted)
    };
    assert_eq!(socket(""), (0o660, None, false));
    let full = socket("mode = \"0666\"\ngroup = \"www-data\"\ntrusted = true");
    assert_eq!(full, (0o666, Some("www-data".into()), true));
    for (more, place) in [
        ("mode = \"0868\"", "posthaste.toml:3:8: listen.mode"),
        ("mode = \"01777\"", "posthaste.toml:3:8: listen.mode"),
        ("mode = 432", "posthaste.toml:3:8: listen.mode"),
        ("group = \"\"", "posthaste.toml:3:9: listen.group"),
        ("trusted = \"yes\"", "posthaste.toml:3:11: listen.trusted: must be true or false"),
    ] {
        let told = wrong(&format!("{path}{more}"));
        assert!(told.len() == 1 && told[0].starts_with(place), "{told:?}");
    }
    for more in ["mode = \"0660\"", "group = \"mail\"", "trusted = true"] {
        let told = wrong(&format!("[[listen]]\naddress = \"127.0.0.1:25\"\n{more}"));
        assert!(
            told.len() == 1 && told[0].contains("only for a listener at unix:/path"),
            "{told:?}"
        );
    }
}

#[test]
fn r213_a_postmaster_whose_mail_nobody_gets_is_a_problem_with_its_line() {
    let account = |name: &str, uid, home_is| UserAccount {
        name: name.into(),
        uid,
        gid: uid,
        home: format!("/home/{name}").into(),
        has_private_group: false,
        home_is,
    };
    let environment = HostEnvironment {
        accounts: vec![
            account("ann", 1000, policy::Home::Theirs),
            account("away", 1001, policy::Home::Unknown),
            account("games", 5, policy::Home::NotTheirs),
            account("root", 0, policy::Home::Theirs),
        ],
        ..HostEnvironment::default()
    };
    let local = "[local]\nusers = \"system\"\ndeliver = \"maildir:{home}/Maildir/\"\n";
    let told = |top: &str| {
        let problem = good(&format!("{top}\n{local}")).postmaster_problem(&environment)?;
        Some(problem.to_string())
    };
    for (top, place) in [
        ("", "posthaste.toml:3:9: postmaster: "),
        ("postmaster = \"nobody\"", "posthaste.toml:1:14: postmaster: "),
        ("postmaster = \"root\"", "posthaste.toml:1:14: postmaster: "),
        ("postmaster = \"games\"", "posthaste.toml:1:14: postmaster: "),
        ("postmaster = \"bob@here.example.org\"", "posthaste.toml:1:14: postmaster: "),
    ] {
        let told = told(top).expect(top);
        assert!(told.starts_with(place) && told.contains("set `postmaster`"), "{told}");
    }
    // A home that is not there now may be mounted later.
    for name in ["ann", "\\\"Ann\\\"", "away", "ann@here.example.org", "ann@elsewhere.example"] {
        assert_eq!(told(&format!("postmaster = \"{name}\"")), None, "{name}");
    }
    assert_eq!(good("").postmaster_problem(&environment), None);
    let told = wrong("postmaster = \"two words\"");
    assert!(told[0].starts_with("posthaste.toml:1:14: postmaster: "), "{told:?}");
}

#[test]
fn r235_a_bounce_may_return_as_much_of_the_original_as_is_read_for_it() {
    let setting = settings().find(|setting| setting.name == "bounce.original_bytes_max").unwrap();
    assert_eq!(setting.range, Range::Bytes(0, queue::NOTICE_BYTES_MAX));
    let most = good("[bounce]\noriginal_bytes_max = \"1MiB\"");
    assert_eq!(most.bounce.original_bytes_max, queue::NOTICE_BYTES_MAX);
}
