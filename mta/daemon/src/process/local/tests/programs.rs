//! Delivery to programs, and the jail around them.
//!
//! Must never let a program survive the test.

use super::*;

fn pipe_queue(dir: &Path, script: &str) -> Queue {
    let words = ["/bin/sh", "-c", script, "script"].map(|word| template(&[word]));
    let mut words = words.to_vec();
    words.push(template(&["to-", "{user}"]));
    Queue::with(wanted(dir, Deliver::Pipe(words), Users::Any, vec![]), local_user())
}

#[test]
fn d181_a_program_decides_by_its_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path(), 0o777);
    let out = dir.path().join("out").display().to_string();
    let script = format!(
        "case $1 in to-ok) cat >>{out}; echo \"$1\" \"$SENDER\" \"$RECIPIENT\" >>{out};; \
         to-flood) yes | head -c 3000000; exit 67;; to-killed) kill -9 $$;; \
         *) echo because; exit ${{1#to-}};; esac"
    );
    let mut queue = pipe_queue(dir.path(), &script);
    for (number, (user, code)) in (1..).zip([
        ("ok", "2.0.0"),
        ("75", "4.3.0"),
        ("70", "5.3.0"),
        ("67", "5.1.1"),
        ("255", "4.3.0"),
        ("flood", "5.1.1"),
        ("killed", "4.3.0"),
        ("x;touch$IFS/tmp/no", "4.3.0"),
    ]) {
        let to = if user.contains(';') {
            "\"x;exit 0\"@l.test".to_owned()
        } else {
            format!("{user}@l.test")
        };
        let outcome = queue.one(number, &to, b"S: x\r\n\r\nbody\r\n");
        assert_eq!(enhanced(&outcome), code, "{user}: {outcome:?}");
        assert!(outcome.report().reply.text.len() < 1200);
        assert!(user != "75" || outcome.report().reply.text.ends_with("because"));
    }
    let text = fs::read_to_string(dir.path().join("out")).unwrap();
    let expected = "Return-Path: <>\nDelivered-To: ok@l.test\nS: x\n\nbody\nto-ok  ok@l.test\n";
    assert_eq!(text, expected);
    queue.end();
}

#[test]
fn r217_a_name_that_begins_like_an_option_never_reaches_a_program() {
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path(), 0o777);
    let out = dir.path().join("out").display().to_string();
    let script = format!("echo \"$1\" >>{out}");
    let words = ["/bin/sh", "-c", &script, "script", "{user}"].map(|word| template(&[word]));
    let deliver = Deliver::Pipe(words.to_vec());
    let mut queue = Queue::with(wanted(dir.path(), deliver, Users::Any, vec![]), local_user());
    for (number, user) in (1..).zip(["--config=x", "-oQ`id`", "\"-x\"", "\"\\-x\""]) {
        let outcome = queue.one(number, &format!("{user}@l.test"), b"x\r\n");
        assert_eq!(enhanced(&outcome), "5.1.1", "{user}");
    }
    assert!(delivered(&queue.one(9, "a-b@l.test", b"x\r\n")));
    queue.end();
    assert_eq!(fs::read_to_string(out).unwrap(), "a-b\n");
}

#[test]
fn d181_a_program_that_cannot_be_started_defers() {
    let dir = tempfile::tempdir().unwrap();
    let deliver = Deliver::Pipe(vec![template(&["/no/such/program"])]);
    let mut queue = Queue::with(wanted(dir.path(), deliver, Users::Any, vec![]), local_user());
    let outcome = queue.one(1, "a@l.test", b"x\r\n");
    assert!(matches!(&outcome, Outcome::Deferred(_)), "{outcome:?}");
    assert!(outcome.report().reply.text.contains("No such file"), "{outcome:?}");
    queue.end();
}

/// Started by the test below as a process of its own: local, whose workers may start no process.
#[test]
fn process_whose_workers_may_not_fork() {
    if std::env::var_os("LOCAL_MAY_NOT_FORK").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path(), 0o777);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    for (number, may_fork) in (1..).zip([false, true, false, true]) {
        // SAFETY: the pointers are to a valid limit. It holds for workers, but not for root.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit), 0);
            limit.rlim_cur = if may_fork { limit.rlim_max } else { 0 };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit), 0);
        }
        let mut queue = pipe_queue(dir.path(), "exit 0");
        let outcome = queue.one(number, "a@l.test", b"x\r\n");
        assert_eq!(delivered(&outcome), may_fork, "{outcome:?}");
        assert!(may_fork || matches!(&outcome, Outcome::Deferred(_)), "{outcome:?}");
        queue.end();
    }
}

#[test]
fn d181_where_no_process_can_be_made_mail_waits_and_goes_when_one_can() {
    if !needs::met(&[needs::Need::Root("another user's limit")]) {
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "process::local::tests::programs::process_whose_workers_may_not_fork",
        "--nocapture",
    ]);
    let out = command.env("LOCAL_MAY_NOT_FORK", "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{:?}: {said}", out.status);
    assert!(said.contains("1 passed"), "{said}");
}

/// Started by the test below as a process of its own: local and its queue, both in local's jail.
#[test]
fn jailed_process() {
    let Ok(state) = std::env::var("LOCAL_JAILED_STATE") else { return };
    read_the_clock();
    let mbox = std::env::var_os("LOCAL_JAILED_MBOX").is_some();
    let state = PathBuf::from(state);
    let template = template(&[&format!("{}/mail/", state.display()), "{user}"]);
    let deliver = if mbox { Deliver::Mbox(template) } else { Deliver::Maildir(template) };
    let wanted = wanted(&state, deliver, Users::Any, vec![]);
    let (master, control) = Control::pair().unwrap();
    let directories = Directories::open(&wanted, owner(&local_user())).unwrap();
    let (ours, theirs) = stream_pair().unwrap();
    let jail = jail::confine(&profile(local_user(), &directories).unwrap()).unwrap();
    let log = Log::start_on("local", Style::of_stderr(LogFormat::Text, LogLevel::Info), {
        std::io::stderr().as_fd().try_clone_to_owned().unwrap().into()
    });
    jail.seal().unwrap();
    let peers = vec![PeerStream { role: Role::Queue, instance: 0, stream: 1, fd: theirs }];
    let opened = StartedLocal { wanted, directories, forks: None };
    let local = std::thread::spawn(move || begin(control, peers, opened, log.unwrap()));
    let mut queue = Queue::around(ours, master);
    queue.process = Some(local);
    assert!(queue.told().is_empty());
    for number in 1..=50 {
        queue.attempt(number, &["a@l.test", "b@l.test"], b"Subject: x\r\n\r\nFrom y\r\n");
    }
    for _ in 1..=50 {
        assert!(queue.result().outcomes.iter().all(|(_, outcome)| delivered(outcome)));
    }
    assert!(delivered(&queue.one(51, "a@l.test", &b"0123456789abcdef\r\n".repeat(100_000))));
    assert!(fs::read_dir("/etc").is_err(), "the jail is open");
    queue.end();
}

#[test]
fn all_that_local_does_goes_through_its_jail() {
    use std::os::unix::fs::MetadataExt;
    for mbox in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::local::tests::programs::jailed_process", "--nocapture"]);
        command.env("LOCAL_JAILED_STATE", dir.path());
        if mbox {
            command.env("LOCAL_JAILED_MBOX", "1");
        }
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{:?}: {said}", out.status);
        assert_eq!(said.matches("status=delivered").count(), 101, "{said}");
        let a = dir.path().join("mail/a");
        if mbox {
            assert_eq!(fs::read_to_string(&a).unwrap().matches("\n\n>From y\n\n").count(), 50);
        } else {
            assert_eq!(texts(&a).len(), 51);
        }
        if let Some((user, _)) = owner(&local_user()) {
            assert_eq!(fs::metadata(&a).unwrap().uid(), user);
        }
    }
}
