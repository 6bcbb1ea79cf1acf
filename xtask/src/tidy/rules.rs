//! The rules for source files (STYLE.md), one function each.
//!
//! Must never judge style by taste: a program can decide each rule.

use super::arrows::is_without_io;
use super::source::Source;

/// Upper bound on the lines of a function. Longer functions must be tables and say so.
const FUNCTION_LINES_MAX: usize = 70;
/// Files with more lines get a warning.
const FILE_LINES_WARN: usize = 600;
/// The comment above a function that is a table: `// tidy: table, because …`.
const TABLE_MARK: &str = "// tidy: table, because ";
/// Names of files that say nothing about their contents.
const BANNED_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc", "manager"];

/// What code below `daemon` may reach only through an argument.
const SANS_IO: &[(&str, &str)] = &[
    ("SystemTime::now", "a clock"),
    ("Instant::now", "a clock"),
    ("std::fs", "files"),
    ("std::env", "the environment"),
    ("std::process", "processes"),
    ("std::thread", "threads"),
    ("std::os", "the system"),
    ("TcpStream", "sockets"),
    ("TcpListener", "sockets"),
    ("UdpSocket", "sockets"),
    ("UnixStream", "sockets"),
    ("ToSocketAddrs", "DNS"),
    ("thread_rng", "chance"),
    ("rand::rng", "chance"),
    ("rand::random", "chance"),
    ("RandomState::new", "chance"),
    ("println!", "the standard output"),
    ("eprintln!", "the standard error"),
];

/// Unfinished or unproven code.
const BANNED_CODE: &[&str] = &[".unwrap()", "todo!", "unimplemented!", "dbg!"];

/// Returns complaints about one file.
pub fn check(source: &Source) -> Vec<String> {
    [
        head(source),
        names(source),
        lengths(source),
        banned(source),
        sans_io(source),
        defaults(source),
    ]
    .concat()
}

/// Returns warnings about one file.
pub fn warn(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let long = lines > FILE_LINES_WARN;
    long.then(|| format!("{}: {lines} lines; is it one noun?", source.path)).into_iter().collect()
}

/// Checks that a file opens with its job and, unless it is a test, with what it must never do.
fn head(source: &Source) -> Vec<String> {
    let head: String = source
        .text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect::<Vec<_>>()
        .join("\n");
    if head.is_empty() {
        return vec![format!("{}:1: opens without `//!`: its job in one sentence", source.path)];
    }
    if !source.is_test(0) && !head.to_lowercase().contains("never") {
        return vec![format!("{}:1: its head does not say what it must never do", source.path)];
    }
    Vec::new()
}

fn names(source: &Source) -> Vec<String> {
    let banned =
        |part: &&str| BANNED_NAMES.contains(&part.trim_end_matches(".rs")) && !source.is_test(0);
    let found = source.path.split('/').find(banned);
    found
        .map(|name| format!("{}: {name} is no name for one thing", source.path))
        .into_iter()
        .collect()
}

fn lengths(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let long =
        source.functions().into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
    let story = long.filter(|function| !is_table(&lines, function.line));
    story
        .map(|function| {
            format!(
                "{}:{}: fn {} has {} lines; a table says `{TABLE_MARK}…`",
                source.path, function.line, function.name, function.lines
            )
        })
        .collect()
}

/// Returns whether the comments and attributes above the function contain the mark.
fn is_table(lines: &[&str], line: usize) -> bool {
    let above = lines[..line - 1].iter().rev().map(|line| line.trim());
    above
        .take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .any(|line| line.starts_with(TABLE_MARK))
}

fn banned(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for word in BANNED_CODE {
        for at in source.places(word) {
            found.push(format!("{}:{}: {word} outside of tests", source.path, source.line(at)));
        }
    }
    found
}

fn sans_io(source: &Source) -> Vec<String> {
    let place = source.path.strip_prefix("mta/").and_then(|path| path.split_once("/src/"));
    let below = place.is_some_and(|(name, _)| name == "world" || is_without_io(name));
    if !below || source.path.starts_with("mta/world/src/real") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (word, what) in SANS_IO {
        for at in source.places(word) {
            let line = source.line(at);
            found.push(format!("{}:{line}: {word} reaches {what}", source.path));
        }
    }
    found
}

/// Settings of a machine are filled by the daemon, field by field: they have no `Default`, and what makes them for
/// tests is not called by what runs.
fn defaults(source: &Source) -> Vec<String> {
    const MAKER: &str = "for_tests";
    if !source.path.starts_with("mta/") {
        return Vec::new();
    }
    let makers: Vec<_> = source.functions().into_iter().filter(|f| f.name == MAKER).collect();
    let is_maker = |line| makers.iter().any(|f| (f.line..f.line + f.lines).contains(&line));
    let calls = source.places(MAKER).map(|at| source.line(at)).filter(|line| !is_maker(*line));
    let complain = |line| format!("{}:{line}: {MAKER} outside of tests", source.path);
    let mut found: Vec<String> = calls.map(complain).collect();
    let of_machine = !source.path.starts_with("mta/daemon/");
    if of_machine && source.path.ends_with("/settings.rs") {
        for line in source.places("Default").map(|at| source.line(at)) {
            found.push(format!("{}:{line}: a default beside the daemon's table", source.path));
        }
    }
    found
}

/// A `Durable` is made without a sync in one place only. That all others need the evidence of a
/// sync is proven by the compiler and the arrows between the crates.
pub fn promises(sources: &[Source]) -> Vec<String> {
    const MAKER: &str = "Durable::attested";
    let mut complaints = Vec::new();
    let mut in_link = 0;
    for source in sources.iter().filter(|source| !source.path.starts_with("xtask/")) {
        for at in source.places(MAKER) {
            let line = source.line(at);
            match source.path.as_str() {
                path if path.starts_with("mta/link/src/") => in_link += 1,
                // The fuzz targets play the spool to a session; nothing that ships knows them.
                path if path.starts_with("proof/fuzz/") => {}
                path => complaints.push(format!(
                    "{path}:{line}: makes a Durable without a sync; only link's decoder may"
                )),
            }
        }
    }
    if in_link != 1 {
        complaints
            .push(format!("mta/link/src: makes a Durable in {in_link} places; it should be one"));
    }
    complaints
}

/// Checks that only test builds contain faults on demand: the code that reads the environment for them is compiled with
/// debug assertions only and tells the compiler so, and release builds have no debug assertions.
pub fn faults(sources: &[Source], manifest: &str) -> Vec<String> {
    const HOME: &str = "mta/world/src/real/faults/";
    const GUARD: &str = "#[cfg(debug_assertions)]";
    const PROOF: &str = "#[cfg(not(debug_assertions))]\ncompile_error!(";
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("mta/")) {
        let lines: Vec<&str> = source.code.lines().map(str::trim).collect();
        for line in source.places("armed").map(|at| source.line(at)) {
            let guarded = line > 1 && lines[line - 2] == GUARD;
            if source.path != format!("{HOME}mod.rs") || !guarded {
                complaints.push(format!("{}:{line}: armed faults without {GUARD}", source.path));
            }
        }
        if source.path == format!("{HOME}armed.rs") && !source.code.contains(PROOF) {
            complaints.push(format!("{}: compiles without debug assertions", source.path));
        }
    }
    let (_, release) = manifest.split_once("[profile.release]").unwrap_or_default();
    let release = release.split("\n[").next().unwrap_or_default();
    if release.contains("debug-assertions") {
        complaints.push("Cargo.toml: debug-assertions would put faults into a release".into());
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, &format!("//! Job. Must never.\n{text}")))
    }

    #[test]
    fn what_breaks_a_rule_is_named_with_its_line_and_what_does_not_is_left_alone() {
        let long = format!("fn a() {{\n{}}}\n", "    b();\n".repeat(80));
        let table = format!("// tidy: table, because verbs\n#[inline]\n{long}");
        let table_of: &[(&str, &str, usize)] = &[
            ("mta/mail/src/a.rs", "fn a() { b.unwrap() }", 1),
            ("mta/mail/src/a.rs", "// b.unwrap()\nfn a() { b.unwrap_or(\".unwrap()\") }", 0),
            ("mta/mail/src/a.rs", "#[cfg(test)]\nmod tests { fn a() { b.unwrap() } }", 0),
            ("mta/smtp/tests/a.rs", "fn a() { b.unwrap() }", 0),
            ("mta/smtp/src/a.rs", "use std::fs;", 1),
            ("mta/smtp/src/a.rs", "use std::net::IpAddr; struct Instant; fn now() {}", 0),
            ("mta/smtp/src/a.rs", "let now = std::time::Instant::now();", 1),
            ("mta/world/src/real/disk.rs", "use std::fs;", 0),
            ("mta/daemon/src/io.rs", "use std::fs;", 0),
            ("mta/mail/src/util.rs", "", 1),
            ("mta/mail/src/a.rs", &long, 1),
            ("mta/mail/src/a.rs", &table, 0),
            ("mta/mail/src/a.rs", "fn a() { todo!() }", 1),
            (
                "mta/spool/src/settings.rs",
                "pub fn for_tests() -> A {\n A { b: B::for_tests() }\n}",
                0,
            ),
            ("mta/spool/src/settings.rs", "impl Default for Settings {}", 1),
            ("mta/daemon/src/a.rs", "fn a() { A { ..A::for_tests() } }", 1),
            ("mta/daemon/src/a.rs", "#[cfg(test)]\nmod tests { fn a() { A::for_tests() } }", 0),
            ("proof/sim/src/a.rs", "fn a() { A::for_tests() }", 0),
        ];
        for (path, text, count) in table_of {
            let found = check_text(path, text);
            assert_eq!(found.len(), *count, "{path} {text:.80}: {found:?}");
        }
        assert!(check_text("mta/smtp/src/a.rs", "\nuse std::fs;")[0].contains(":3:"));
    }

    #[test]
    fn armed_faults_without_a_guard_or_with_one_taken_away_are_found() {
        let home = |file: &str, text: &str| {
            Source::new(&format!("mta/world/src/real/faults/{file}.rs"), text)
        };
        let guarded = "#[cfg(debug_assertions)]\npub mod armed;";
        let proof = "#[cfg(not(debug_assertions))]\ncompile_error!(\"no\");";
        let right = || [home("mod", guarded), home("armed", proof)];
        assert_eq!(faults(&right(), "[profile.release]"), Vec::<String>::new());
        let bad = "[profile.release]\ndebug-assertions = true\n[profile.quick]\n";
        assert_eq!(faults(&right(), bad).len(), 1);
        let other = "[profile.release]\n[profile.quick]\ndebug-assertions = true\n";
        assert_eq!(faults(&right(), other), Vec::<String>::new());
        assert_eq!(faults(&[home("mod", "pub mod armed;")], "").len(), 1);
        assert_eq!(faults(&[home("armed", "")], "").len(), 1);
        let elsewhere = Source::new("mta/daemon/src/a.rs", "#[cfg(debug_assertions)]\nuse armed;");
        assert_eq!(faults(&[elsewhere], "").len(), 1);
    }

    #[test]
    fn a_head_that_does_not_say_never_is_a_fault() {
        for head in ["", "//! Its job.\n", "use a;\n//! Must never.\n"] {
            assert_eq!(check(&Source::new("mta/mail/src/a.rs", head)).len(), 1, "{head}");
        }
    }

    #[test]
    fn a_durable_made_without_a_sync_elsewhere_or_twice_in_link_is_found() {
        let source = |path: &str| Source::new(path, "fn a() { Durable::attested(b, c) }");
        let right = "mta/link/src/receiver.rs";
        assert_eq!(promises(&[source(right)]), Vec::<String>::new());
        for wrong in ["mta/daemon/src/process/receive.rs", "mta/spool/src/commit.rs", right] {
            assert_eq!(promises(&[right, wrong].map(source)).len(), 1, "{wrong}");
        }
    }
}
