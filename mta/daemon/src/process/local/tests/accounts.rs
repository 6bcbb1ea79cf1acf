//! Delivery to accounts of the system: owners, groups and homes.
//!
//! Must never write outside of the directories that the test made.

use super::*;

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
