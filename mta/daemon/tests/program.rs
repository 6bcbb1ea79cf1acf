//! Delivery to a program with the whole mailer: the fault D181.
//!
//! Must never let a program of a test survive the test.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use support::{Client, Daemon, Setup, until};

/// A program that writes its input to a file with its recipient's name and exits as that name says.
const PROGRAM: &str = r#"#!/bin/sh
name=$1; here=${0%/*}
case $name in
ok*) cat >"$here/kept-$name" ;;
flood) yes | head -c 30000000 ;;
killed) kill -9 $$ ;;
unread) exec true ;;
left) sleep 300 & exit 0 ;;
exit-*) echo "because of $name"; [ -e "$here/well" ] && exit 0; exit "${name#exit-}" ;;
esac
"#;

fn start(program: &str) -> Daemon {
    let tables = "[retry]\nfirst = \"1s\"\nfactor = 1\nlongest = \"1s\"\njitter = 0\n".into();
    Daemon::start(Setup { tables, deliver: format!("pipe:{program} {{user}}"), ..Setup::default() })
}

/// A directory with the program in it that all users may read.
fn program() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    let path = directory.path().join("program");
    std::fs::write(&path, PROGRAM).unwrap();
    open(&path);
    open(directory.path());
    directory
}

fn send(daemon: &Daemon, user: &str) {
    let mut client = Client::in_data(daemon.port, "s@client.test", &format!("{user}@local.test"));
    client.send("Subject: for a program\r\n\r\n..dot\r\nbody\r\n.\r\n");
    client.expect(250);
}

/// The status and the reply of the first attempt.
fn first(daemon: &Daemon, user: &str) -> (String, String) {
    let line = daemon.wait_for_log(&["\"event\":\"attempt\"", &format!("<{user}@local.test>")]);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    let text = |name: &str| value[name].as_str().unwrap().to_string();
    (text("status"), text("reply"))
}

#[test]
fn d181_a_program_s_end_decides_whether_mail_is_delivered_waits_or_bounces() {
    let directory = program();
    let daemon = start(&directory.path().join("program").display().to_string());
    let kept = |name: &str| std::fs::read_to_string(directory.path().join(name));
    let table = [
        ("ok", "delivered"),
        ("flood", "delivered"),
        ("unread", "delivered"),
        ("left", "delivered"),
        ("killed", "deferred"),
        ("exit-75", "deferred"),
        ("exit-71", "deferred"),
        ("exit-255", "deferred"),
        ("exit-1", "deferred"),
        ("exit-67", "failed"),
        ("exit-70", "failed"),
        ("exit-65", "failed"),
        ("exit-77", "failed"),
    ];
    table.iter().for_each(|(user, _)| send(&daemon, user));
    for (user, wanted) in table {
        let (status, reply) = first(&daemon, user);
        assert_eq!(status, wanted, "{user}: {reply}");
        assert!(reply.len() < 1_200, "{user}: {}", reply.len());
        let told = reply.contains(&format!("because of {user}"));
        assert_eq!(told, user.starts_with("exit"), "{user}: {reply}");
    }
    let text = kept("kept-ok").unwrap();
    assert!(
        text.contains("Delivered-To: ok@local.test\n") && text.ends_with("\n.dot\nbody\n"),
        "{text}"
    );
    // Deferred messages are tried again. In the end only the program that kills itself still has a message.
    std::fs::write(directory.path().join("well"), "").unwrap();
    until("the others to be through", || (daemon.queued() == 1).then_some(()));
}

#[test]
fn d181_a_program_that_is_not_there_or_may_not_run_defers() {
    use std::os::unix::fs::PermissionsExt;
    let directory = program();
    let path = directory.path().join("later");
    let daemon = start(&path.display().to_string());
    send(&daemon, "ok-1");
    assert_eq!(first(&daemon, "ok-1").0, "deferred");
    std::fs::write(&path, PROGRAM).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    send(&daemon, "ok-2");
    assert_eq!(first(&daemon, "ok-2").0, "deferred");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    until("an empty queue", || (daemon.queued() == 0).then_some(()));
    assert!(
        directory.path().join("kept-ok-1").exists() && directory.path().join("kept-ok-2").exists()
    );
}
