//! The program itself: what its commands print and with which code they exit, for people and for scripts.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_posthaste");

/// Runs the program with this text as its settings file.
fn posthaste(directory: &Path, settings: &str, args: &[&str]) -> (i32, String, String) {
    let file = directory.join("posthaste.toml");
    std::fs::write(&file, settings).unwrap();
    let output = Command::new(PROGRAM)
        .args(args)
        .env("POSTHASTE_CONFIG", &file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    read(output)
}

fn read(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_command_that_needs_the_queue_says_which_socket_and_which_setting() {
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("state");
    let settings = format!("state = {state:?}\n");
    for args in [
        &["queue", "list"][..],
        &["queue", "summary", "--json"],
        &["queue", "explain", "00000000011"],
        &["queue", "delete", "--all", "--yes"],
        &["status"],
    ] {
        let (code, out, error) = posthaste(root.path(), &settings, args);
        assert_eq!((code, out.as_str()), (69, ""), "{args:?}");
        assert!(error.contains(&format!("{}/control.sock", state.display())), "{error}");
        assert!(error.contains("`state` =") && error.contains("posthaste.toml"), "{error}");
    }
}

#[test]
fn check_says_everything_that_is_wrong_and_ends_with_78() {
    let root = tempfile::tempdir().unwrap();
    let (code, _, error) =
        posthaste(root.path(), "hostnam = \"x\"\n[retry]\nfactor = -1\n", &["check"]);
    assert_eq!(code, 78);
    assert!(error.contains("hostname") && error.contains("factor"), "{error}");
    let state = root.path().join("s");
    let (code, out, error) = posthaste(root.path(), &format!("state = {state:?}\n"), &["check"]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("good"), "{out}");
    let named = ["check", "--config", "/nonexistent/posthaste.toml"];
    let (code, _, error) = posthaste(root.path(), "", &named);
    assert_eq!(code, 78);
    assert!(error.contains("/nonexistent/posthaste.toml"), "{error}");
}

#[test]
fn r213_check_and_start_name_the_line_where_the_postmaster_s_mail_goes_nowhere() {
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("s");
    let settings = |postmaster: &str| {
        format!("state = {state:?}\npostmaster = {postmaster:?}\n[local]\nusers = \"system\"\n")
    };
    for command in ["check", "run"] {
        for postmaster in ["no-such-account", "root"] {
            let (code, _, error) = posthaste(root.path(), &settings(postmaster), &[command]);
            assert_eq!(code, 78, "{command} {postmaster}: {error}");
            assert!(error.contains("posthaste.toml:2:14: postmaster: "), "{error}");
            assert!(error.contains(&format!("`{postmaster}`")), "{error}");
        }
    }
    assert!(!state.exists(), "nothing was begun");
    let (code, _, error) = posthaste(root.path(), &settings("ann@elsewhere.example"), &["check"]);
    assert_eq!(code, 0, "{error}");
}

#[test]
fn r221_check_and_start_name_the_line_of_each_group_that_there_is_not() {
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("s");
    let listen = |name: &str, group: &str| {
        let path = root.path().join(name);
        format!("[[listen]]\naddress = \"unix:{}\"\ngroup = {group:?}\n", path.display())
    };
    let groups = [("a", "no such group"), ("b", "0"), ("c", "root"), ("d", "nor this one")];
    let listeners: String = groups.iter().map(|(name, group)| listen(name, group)).collect();
    let settings = format!(
        "state = {state:?}\npostmaster = \"nobody\"\n[local]\nusers = \"system\"\n{listeners}"
    );
    for command in ["check", "run"] {
        let (code, _, error) = posthaste(root.path(), &settings, &[command]);
        assert_eq!(code, 78, "{command}: {error}");
        for told in [
            "posthaste.toml:7:9: listen.group: this system has no group `no such group`",
            "posthaste.toml:16:9: listen.group: this system has no group `nor this one`",
        ] {
            assert!(error.contains(told), "{command}: {error}");
        }
        assert_eq!(error.matches("listen.group").count(), 2, "{command}: {error}");
    }
    assert!(!state.exists(), "nothing was begun");
}

#[test]
fn a_usage_error_ends_with_2_and_help_with_0() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(posthaste(root.path(), "", &["queue", "list", "--odler", "2h"]).0, 2);
    assert_eq!(posthaste(root.path(), "", &["queue", "explain", "nonsense"]).0, 2);
    let (code, out, _) = posthaste(root.path(), "", &["--help"]);
    assert!(code == 0 && out.contains("queue") && !out.contains("role"), "{out}");
}

#[test]
fn settings_are_printed_as_markdown_and_printing_survives_a_reader_that_has_enough() {
    let root = tempfile::tempdir().unwrap();
    let (code, out, _) = posthaste(root.path(), "", &["settings"]);
    assert!(code == 0 && out.contains("hostname") && out.contains("retry"), "{out}");
    let mut child = Command::new(PROGRAM)
        .arg("settings")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!((child.wait().unwrap().code(), error.as_str()), (Some(0), ""));
}

#[test]
fn sendmail_takes_no_mail_it_would_lose_and_newaliases_harms_no_package_script() {
    let called = |name: &str, args: &[&str]| {
        let output = Command::new(PROGRAM).arg0(name).args(args).stdin(Stdio::null()).output();
        read(output.unwrap())
    };
    let (code, out, error) = called("/usr/sbin/sendmail", &["-t"]);
    assert_eq!((code, out.as_str()), (69, ""));
    assert!(error.contains("Nothing was sent"), "{error}");
    assert_eq!(called("newaliases", &[]).0, 0);
}

#[test]
fn the_check_of_a_spool_that_is_not_there_says_so() {
    let root = tempfile::tempdir().unwrap();
    let settings = format!("state = {:?}\n", root.path());
    let (code, out, error) = posthaste(root.path(), &settings, &["spool", "check"]);
    assert_eq!((code, out.as_str()), (69, ""));
    assert!(error.contains(&format!("{}/spool", root.path().display())), "{error}");
}
