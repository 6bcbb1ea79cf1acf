//! The local process against a queue process's end of the conversation, in one test process.
//! Must never depend on the users of this machine: a test that needs root says so without it.

use super::*;
use crate::io::BUILD;
use crate::io::control::{Received, stream_pair};
use crate::log::Style;
use bytes::BytesMut;
use link::control::{FromMaster, ToMaster};
use link::send::{Attempt, CHUNK_BYTES_MAX, QueueEnd, QueueEvent, Result as AttemptResult};
use mail::Outcome;
use settings::{
    HostEnvironment, LocalSettings, LogFormat, LogLevel, Piece, Template, UserAccount, Users,
};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The part of a queue process that local can see.
struct Queue {
    end: QueueEnd,
    stream: UnixStream,
    input: BytesMut,
    master: Control,
    bodies: HashMap<u64, Vec<u8>>,
    process: Option<std::thread::JoinHandle<io::Result<()>>>,
}

fn template(pieces: &[&str]) -> Template {
    let piece = |text: &&str| match *text {
        "{user}" => Piece::User,
        "{home}" => Piece::Home,
        text => Piece::Text(text.into()),
    };
    Template(pieces.iter().map(piece).collect())
}

fn wanted(state: &Path, deliver: Deliver, users: Users, accounts: Vec<UserAccount>) -> Wanted {
    Wanted {
        hostname: "mx.test".into(),
        state: state.to_owned(),
        local: LocalSettings { domains: vec![], deliver, users },
        environment: HostEnvironment { accounts, ..HostEnvironment::default() },
    }
}

/// As `Start::read` does: the first reading makes calls that no jail allows, that of a worker included.
fn read_the_clock() {
    let _ = world::Clock::now(&world::real::Clock);
}

impl Queue {
    fn with(wanted: Wanted, privilege: Privilege) -> Queue {
        Queue::logging(wanted, privilege, Log::off())
    }

    fn logging(wanted: Wanted, privilege: Privilege, log: Log) -> Queue {
        read_the_clock();
        let (master, control) = Control::pair().unwrap();
        let forks = start_forks(&wanted, &privilege).unwrap();
        let directories = Directories::open(&wanted, owner(&privilege)).unwrap();
        let opened = StartedLocal { wanted, directories, forks };
        let (ours, theirs) = stream_pair().unwrap();
        let peers = vec![PeerStream { role: Role::Queue, instance: 0, stream: 1, fd: theirs }];
        let process = std::thread::spawn(|| begin(control, peers, opened, log));
        let mut queue = Queue::around(ours, master);
        queue.process = Some(process);
        assert!(queue.told().is_empty());
        queue
    }

    fn around(stream: OwnedFd, master: Control) -> Queue {
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (end, input) = (QueueEnd::new(BUILD), BytesMut::new());
        Queue { end, stream, input, master, bodies: HashMap::new(), process: None }
    }

    fn write(&mut self) {
        for frame in self.end.output().drain(..) {
            self.stream.write_all(&frame).unwrap();
        }
    }

    fn attempt(&mut self, number: u64, to: &[&str], body: &[u8]) {
        let mut attempt = Attempt::sample(number, to);
        attempt.body.bytes = body.len() as u64;
        let inline = body.len() as u64 <= link::send::INLINE_BYTES_MAX;
        if !inline {
            self.bodies.insert(number, body.to_vec());
        }
        self.end.attempt(attempt, inline.then_some(body)).unwrap();
        self.write();
    }

    /// The attempts that local says to be under way at the beginning of a stream, the latest first.
    fn told(&mut self) -> Vec<u64> {
        assert!(matches!(self.event(), QueueEvent::Hello { .. }));
        let mut told = Vec::new();
        loop {
            match self.event() {
                QueueEvent::UnderWay(one) => told.push(one.attempt),
                QueueEvent::AllTold => return told,
                other => panic!("{other:?}"),
            }
        }
    }

    fn event(&mut self) -> QueueEvent {
        loop {
            if let Some(event) = self.end.poll() {
                return event;
            }
            let mut buffer = [0; 65536];
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "local is gone");
            self.input.extend_from_slice(&buffer[..read]);
            self.end.handle(&mut self.input).unwrap();
            self.write();
        }
    }

    /// The next result, which is recorded; fetches before it are answered.
    fn result(&mut self) -> AttemptResult {
        loop {
            match self.event() {
                QueueEvent::Result(result) => {
                    self.end.recorded(vec![result.attempt]);
                    self.write();
                    return result;
                }
                QueueEvent::Fetch { attempt, offset, bytes, .. } => {
                    assert!(bytes <= CHUNK_BYTES_MAX);
                    let chunk = self.bodies[&attempt][offset as usize..][..bytes as usize].to_vec();
                    self.end.chunk(attempt, offset, &chunk);
                    self.write();
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn one(&mut self, number: u64, to: &str, body: &[u8]) -> Outcome {
        self.attempt(number, &[to], body);
        let mut result = self.result();
        assert_eq!((result.attempt, result.outcomes.len()), (number, 1));
        result.outcomes.remove(0).1
    }

    fn end(mut self) {
        self.master.send(&FromMaster::Drain, None).unwrap();
        self.process.take().unwrap().join().unwrap().unwrap();
    }
}

fn enhanced(outcome: &Outcome) -> String {
    outcome.report().reply.enhanced.unwrap().to_string()
}

fn delivered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Delivered { .. })
}

fn texts(maildir: &Path) -> Vec<String> {
    let new = fs::read_dir(maildir.join("new")).unwrap();
    new.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

fn maildir_queue(dir: &Path) -> Queue {
    let mail = dir.join("mail").to_string_lossy().into_owned();
    let deliver = Deliver::Maildir(template(&[&format!("{mail}/"), "{user}", "/"]));
    Queue::with(wanted(dir, deliver, Users::Any, vec![]), local_user())
}

#[test]
fn each_recipient_of_each_attempt_gets_its_outcome_and_its_mail() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = maildir_queue(dir.path());
    for number in 1..=500 {
        let body = format!("Subject: {number}\r\n\r\nbody {number}\r\n");
        queue.attempt(number, &["a@l.test", "\"../bad\"@l.test", "B@l.test"], body.as_bytes());
    }
    let mut seen: Vec<u64> = (0..500)
        .map(|_| {
            let mut result = queue.result();
            result.outcomes.sort_by_key(|(index, _)| *index);
            let codes: Vec<_> = result.outcomes.iter().map(|(i, o)| (*i, enhanced(o))).collect();
            assert_eq!(codes, [(0, "2.0.0".into()), (1, "5.1.1".into()), (2, "2.0.0".into())]);
            result.attempt
        })
        .collect();
    seen.sort();
    assert!(seen.into_iter().eq(1..=500));
    for (user, address) in [("a", "a@l.test"), ("b", "B@l.test")] {
        let mut found = texts(&dir.path().join("mail").join(user));
        let mut expected: Vec<_> = (1..=500)
            .map(|n| {
                format!("Return-Path: <>\nDelivered-To: {address}\nSubject: {n}\n\nbody {n}\n")
            })
            .collect();
        found.sort();
        expected.sort();
        assert!(found == expected);
    }
    queue.end();
}

#[test]
fn a_large_message_is_fetched_in_chunks_and_a_damaged_one_is_deferred() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = maildir_queue(dir.path());
    let body = b"From a line of text\r\n".repeat(100_000);
    assert!(delivered(&queue.one(1, "big@l.test", &body)));
    let text = texts(&dir.path().join("mail/big")).remove(0);
    let expected = String::from_utf8(body.clone()).unwrap().replace("\r\n", "\n");
    assert!(text == format!("Return-Path: <>\nDelivered-To: big@l.test\n{expected}"));
    queue.attempt(2, &["big@l.test"], &body);
    assert!(matches!(queue.event(), QueueEvent::Fetch { .. }));
    queue.end.chunk_bad(2);
    queue.write();
    let result = queue.result();
    assert!(matches!(&result.outcomes[0].1, Outcome::Deferred(_)));
    assert_eq!(fs::read_dir(dir.path().join("mail")).unwrap().count(), 1, "nothing staged is left");
    queue.end();
}

#[test]
fn d182_a_new_queue_process_hears_what_the_former_one_did_not_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = maildir_queue(dir.path());
    queue.attempt(1, &["a@l.test"], b"x\r\n");
    while !matches!(queue.event(), QueueEvent::Result(_)) {}
    let body = b"0123456789abcdef\r\n".repeat(30_000);
    queue.attempt(2, &["a@l.test"], &body);
    assert!(matches!(queue.event(), QueueEvent::Fetch { offset: 0, .. }));
    let (ours, theirs) = stream_pair().unwrap();
    let peer = FromMaster::Peer { role: Role::Queue, instance: 0, stream: 2 };
    queue.master.send(&peer, Some(theirs.as_fd())).unwrap();
    drop(theirs);
    let Queue { master, process, bodies, .. } = queue;
    let mut queue = Queue { process, bodies, ..Queue::around(ours, master) };
    assert_eq!(queue.told(), [2, 1]);
    assert_eq!(queue.result().attempt, 1);
    assert_eq!(queue.result().attempt, 2);
    assert_eq!(texts(&dir.path().join("mail/a")).len(), 2);
    queue.end();
}

/// Local's own user.
fn local_user() -> Privilege {
    jail::privilege(Role::Local, 61_000)
}

fn account(name: &str, uid: u32, home: PathBuf) -> UserAccount {
    UserAccount {
        name: name.into(),
        uid,
        gid: uid,
        home,
        has_private_group: false,
        home_is: policy::Home::Theirs,
    }
}

/// A home that only its user may use.
fn home(dir: &Path, name: &str, uid: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let home = dir.join(name);
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&home, Some(uid), Some(uid)).unwrap();
    home
}

fn open_to_all(dir: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn d182_a_system_user_owns_what_a_worker_delivers_and_who_is_none_gets_nothing() {
    use std::os::unix::fs::MetadataExt;
    if !needs::met(&[needs::Need::Root("other users")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path(), 0o755);
    let ann = home(dir.path(), "ann", 61_001);
    let bob = home(dir.path(), "bob", 61_002);
    let accounts = vec![
        account("ann", 61_001, ann.clone()),
        account("bob", 61_002, ann.clone()), // somebody else's home: must not work
        account("root", 0, dir.path().to_owned()),
    ];
    let deliver = Deliver::Maildir(template(&["{home}", "/Maildir/"]));
    let wanted = wanted(dir.path(), deliver, Users::System, accounts);
    let mut queue = Queue::with(wanted, local_user());
    assert!(delivered(&queue.one(1, "Ann@l.test", b"S: x\r\n\r\nfor ann\r\n")));
    let large = b"0123456789abcdef\r\n".repeat(100_000);
    assert!(delivered(&queue.one(2, "ann@l.test", &large)));
    let mut found = texts(&ann.join("Maildir"));
    found.sort_by_key(String::len);
    assert_eq!(found[0], "Return-Path: <>\nDelivered-To: Ann@l.test\nS: x\n\nfor ann\n");
    assert!(found[1].ends_with(&"0123456789abcdef\n".repeat(100_000)));
    for path in [ann.join("Maildir"), ann.join("Maildir/new")] {
        let stat = fs::metadata(path).unwrap();
        assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o777), (61_001, 61_001, 0o700));
    }
    let outcome = queue.one(3, "bob@l.test", b"x\r\n");
    assert!(matches!(&outcome, Outcome::Deferred(_)), "{outcome:?}");
    assert_eq!(enhanced(&queue.one(4, "root@l.test", b"x\r\n")), "5.1.1");
    assert_eq!(enhanced(&queue.one(5, "nobody-there@l.test", b"x\r\n")), "5.1.1");
    assert!(!bob.join("Maildir").exists());
    queue.end();
}

#[test]
fn r213_mail_for_a_home_that_is_not_mounted_yet_waits_for_it() {
    if !needs::met(&[needs::Need::Root("other users")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path(), 0o755);
    let missing = UserAccount {
        home_is: policy::Home::Unknown,
        ..account("ann", 61_001, dir.path().join("ann"))
    };
    let deliver = Deliver::Maildir(template(&["{home}", "/Maildir/"]));
    let wanted = wanted(dir.path(), deliver, Users::System, vec![missing]);
    let mut queue = Queue::with(wanted, local_user());
    let outcome = queue.one(1, "ann@l.test", b"x\r\n");
    assert!(matches!(&outcome, Outcome::Deferred(_)), "{outcome:?}");
    assert!(!dir.path().join("ann").exists());
    home(dir.path(), "ann", 61_001);
    let outcome = queue.one(2, "ann@l.test", b"x\r\n");
    assert!(delivered(&outcome), "{outcome:?}");
    queue.end();
}

#[test]
fn a_shared_mail_directory_lends_its_group_for_the_dotlock() {
    use std::os::unix::fs::MetadataExt;
    if !needs::met(&[needs::Need::Root("other users")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path(), 0o755);
    let spool = dir.path().join("mail");
    fs::create_dir(&spool).unwrap();
    std::os::unix::fs::chown(&spool, Some(0), Some(61_008)).unwrap();
    open_to_all(&spool, 0o2775);
    let deliver = Deliver::Mbox(template(&[&format!("{}/", spool.display()), "{user}"]));
    let accounts = vec![account("ann", 61_001, "/".into())];
    let wanted = wanted(dir.path(), deliver, Users::System, accounts);
    let mut queue = Queue::with(wanted, local_user());
    for number in 1..=3 {
        let outcome = queue.one(number, "ann@l.test", b"S: x\r\n\r\nFrom me\r\n");
        assert!(delivered(&outcome), "{outcome:?}");
    }
    let stat = fs::metadata(spool.join("ann")).unwrap();
    assert_eq!((stat.uid(), stat.mode() & 0o777), (61_001, 0o600));
    let text = fs::read_to_string(spool.join("ann")).unwrap();
    assert_eq!(text.matches("\n\n>From me\n\n").count(), 3);
    assert!(!spool.join("ann.lock").exists());
    queue.end();
}

#[test]
fn r210_a_worker_writes_to_no_mailbox_that_somebody_else_made_for_its_user() {
    if !needs::met(&[needs::Need::Root("other users")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path(), 0o755);
    let spool = dir.path().join("mail");
    fs::create_dir(&spool).unwrap();
    open_to_all(&spool, 0o1777);
    fs::write(spool.join("ann"), "").unwrap();
    std::os::unix::fs::chown(spool.join("ann"), Some(61_002), Some(0)).unwrap();
    open_to_all(&spool.join("ann"), 0o666);
    let deliver = Deliver::Mbox(template(&[&format!("{}/", spool.display()), "{user}"]));
    let accounts = ["ann", "bob"].map(|name| account(name, 61_001, "/".into())).to_vec();
    let wanted = wanted(dir.path(), deliver, Users::System, accounts);
    let log = tempfile::NamedTempFile::new().unwrap();
    let style = Style::of_stderr(LogFormat::Text, LogLevel::Error);
    let sink = log.reopen().unwrap();
    let mut queue =
        Queue::logging(wanted, local_user(), Log::start_on("local", style, sink).unwrap());
    let outcome = queue.one(1, "ann@l.test", b"x\r\n");
    assert!(matches!(&outcome, Outcome::Deferred(_)), "{outcome:?}");
    assert_eq!(enhanced(&outcome), "4.2.0");
    assert!(delivered(&queue.one(2, "bob@l.test", b"x\r\n")));
    queue.end();
    assert_eq!(fs::read(spool.join("ann")).unwrap(), b"");
    let told = fs::read_to_string(log.path()).unwrap();
    let whose = "ann belongs to user id 61002, not to its recipient, user id 61001";
    assert!(told.contains(whose) && told.lines().count() == 1, "{told}");
    assert!(told.contains("(owner 61002, group 0, mode 0666)"), "{told}");
}

#[test]
fn r210_a_maildir_made_with_umask_002_gets_mail_if_its_group_is_private() {
    if !needs::met(&[needs::Need::Root("other users")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path(), 0o755);
    let accounts = [("ann", 61_001, true), ("bob", 61_002, false)].map(|(name, uid, private)| {
        let home = home(dir.path(), name, uid);
        for part in ["Maildir", "Maildir/tmp", "Maildir/new", "Maildir/cur"] {
            fs::create_dir(home.join(part)).unwrap();
            std::os::unix::fs::chown(home.join(part), Some(uid), Some(uid)).unwrap();
            open_to_all(&home.join(part), 0o775);
        }
        UserAccount { has_private_group: private, ..account(name, uid, home) }
    });
    let deliver = Deliver::Maildir(template(&["{home}", "/Maildir/"]));
    let wanted = wanted(dir.path(), deliver, Users::System, accounts.to_vec());
    let mut queue = Queue::with(wanted, local_user());
    let outcome = queue.one(1, "ann@l.test", b"x\r\n");
    assert!(delivered(&outcome), "{outcome:?}");
    assert_eq!(enhanced(&queue.one(2, "bob@l.test", b"x\r\n")), "4.2.0");
    queue.end();
}

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
        "process::local::tests::process_whose_workers_may_not_fork",
        "--nocapture",
    ]);
    let out = command.env("LOCAL_MAY_NOT_FORK", "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{:?}: {said}", out.status);
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
        command.args(["--exact", "process::local::tests::jailed_process", "--nocapture"]);
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

#[test]
fn r206_a_result_is_told_over_the_next_stream_though_the_process_drains() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = maildir_queue(dir.path());
    queue.attempt(1, &["a@l.test"], b"Subject: x\r\n\r\nbody\r\n");
    let QueueEvent::Result(result) = queue.event() else { panic!() };
    // The stream is lost before the result is recorded.
    let Queue { stream, master, process, .. } = queue;
    drop(stream);
    let is_lost = |said| matches!(said, Received::Message(ToMaster::StreamLost { .. }, _));
    while !is_lost(master.receive().unwrap()) {}
    master.send(&FromMaster::Drain, None).unwrap();
    let (ours, theirs) = stream_pair().unwrap();
    let peer = FromMaster::Peer { role: Role::Queue, instance: 0, stream: 2 };
    master.send(&peer, Some(theirs.as_fd())).unwrap();
    drop(theirs);
    // Local ends as soon as it has told its results, and waits for no answer.
    let (mut stream, mut said) = (UnixStream::from(ours), Vec::new());
    stream.set_nonblocking(false).unwrap();
    stream.read_to_end(&mut said).unwrap();
    let mut end = QueueEnd::new(BUILD);
    end.handle(&mut BytesMut::from(&said[..])).unwrap();
    let told: Vec<_> = std::iter::from_fn(|| end.poll()).skip(1).collect();
    let [QueueEvent::UnderWay(one), QueueEvent::AllTold, QueueEvent::Drains, again] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((one.attempt, again), (1, &QueueEvent::Result(result)));
    process.unwrap().join().unwrap().unwrap();
}
