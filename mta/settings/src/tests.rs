//! What a settings file may say, and what is said about one that is wrong.

mod problems;
mod ranges;

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
