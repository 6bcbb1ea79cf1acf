//! Mailboxes that others may write to, and links that lead elsewhere.
//!
//! Must never follow a link out of its own directory.

use super::*;

#[test]
fn boxes_are_closed_to_other_users() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let base = base(dir.path());
    let batch = [
        delivery(&base, "a/Maildir", Format::Maildir, b"x\r\n"),
        delivery(&base, "b/box", Format::Mbox, b"x\r\n"),
    ];
    assert!(deliver_batch(&batch, &scene()).iter().all(delivered));
    let mode =
        |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o7777;
    for path in ["a", "a/Maildir", "a/Maildir/new", "a/Maildir/tmp", "a/Maildir/cur", "b"] {
        assert_eq!(mode(path), 0o700, "{path}");
    }
    assert_eq!(mode("b/box"), 0o600);
    let new = dir.path().join("a/Maildir/new");
    let file = fs::read_dir(new).unwrap().next().unwrap().unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::read_dir(dir.path().join("a/Maildir/tmp")).unwrap().count(), 0);
}

/// Makes a Maildir, or an empty mbox, at `path`.
fn make_box(path: &Path, format: Format) {
    match format {
        Format::Maildir => {
            ["tmp", "new", "cur"].iter().for_each(|d| fs::create_dir_all(path.join(d)).unwrap());
        }
        Format::Mbox => drop(File::create(path).unwrap()),
    }
    parts(format).iter().for_each(|part| set_mode(&part_of(path, part), 0o700));
}

/// A part of a mailbox. The empty one is the mailbox itself.
fn part_of(mailbox: &Path, part: &str) -> std::path::PathBuf {
    if part.is_empty() { mailbox.to_owned() } else { mailbox.join(part) }
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Delivers to `bob` and returns the report. Asserts that nothing was written unless the delivery succeeded.
fn alarms_of(base: &Arc<Base>, format: Format) -> Vec<policy::NotTheirs> {
    let batch = [1, 2].map(|number| delivery(base, "bob", format, &numbered(number)));
    let mut alarms = Vec::new();
    let outcomes = daemon::mailbox::deliver_batch(&batch, &scene(), &mut alarms);
    let bob = base.path().join("bob");
    for outcome in &outcomes {
        assert_eq!(delivered(outcome), alarms.is_empty(), "{outcome:?}");
        if !alarms.is_empty() {
            assert!(matches!(outcome, Outcome::Deferred(_)), "{outcome:?}");
            assert_eq!(enhanced(outcome), Some(Enhanced(4, 2, 0)));
            let files = |name| fs::read_dir(bob.join(name)).unwrap().count();
            match format {
                Format::Maildir => assert_eq!((files("tmp"), files("new")), (0, 0)),
                Format::Mbox => assert_eq!(fs::metadata(&bob).unwrap().len(), 0),
            }
            assert!(!base.path().join("bob.lock").exists());
        }
    }
    assert!(alarms.iter().all(|alarm| alarm.delivery == 0));
    alarms.into_iter().map(|alarm| alarm.why).collect()
}

/// The parts of a mailbox whose owner and mode are checked.
fn parts(format: Format) -> &'static [&'static str] {
    match format {
        Format::Maildir => &["", "tmp", "new", "cur"],
        Format::Mbox => &[""],
    }
}

#[test]
fn r210_a_mailbox_that_others_may_write_to_gets_nothing_but_an_alarm() {
    use policy::NotTheirs::{Everybody, Group};
    let own = rustix::process::getegid().as_raw();
    for format in [Format::Maildir, Format::Mbox] {
        for part in parts(format) {
            for (mode, why) in [(0o702, Everybody), (0o720, Group(own)), (0o722, Everybody)] {
                let dir = tempfile::tempdir().unwrap();
                let base = base(dir.path());
                let bob = dir.path().join("bob");
                make_box(&bob, format);
                set_mode(&part_of(&bob, part), mode);
                assert_eq!(alarms_of(&base, format), [why], "{format:?} {part} {mode:o}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        make_box(&dir.path().join("bob"), format);
        assert_eq!(alarms_of(&base(dir.path()), format), []);
    }
}

#[test]
fn r210_a_mailbox_of_somebody_else_gets_nothing_but_an_alarm() {
    use std::os::unix::fs::chown;
    if !needs::met(&[Need::Root("other users")]) {
        return;
    }
    for format in [Format::Maildir, Format::Mbox] {
        for part in parts(format) {
            let dir = tempfile::tempdir().unwrap();
            let base = base(dir.path());
            let bob = dir.path().join("bob");
            make_box(&bob, format);
            chown(part_of(&bob, part), Some(61_033), None).unwrap();
            let why = policy::NotTheirs::Owner(61_033, 0);
            assert_eq!(alarms_of(&base, format), [why], "{format:?} {part}");
        }
    }
    // As on Debian: mode 0660 and group `mail`, in a directory of that group.
    let dir = tempfile::tempdir().unwrap();
    let bob = dir.path().join("bob");
    make_box(&bob, Format::Mbox);
    chown(&bob, None, Some(MAIL)).unwrap();
    set_mode(&bob, 0o660);
    chown(dir.path(), None, Some(MAIL)).unwrap();
    set_mode(dir.path(), 0o2775);
    assert_eq!(alarms_of(&base(dir.path()), Format::Mbox), []);
}

#[test]
fn m064_a_message_that_was_delivered_to_the_same_address_bounces() {
    let dir = tempfile::tempdir().unwrap();
    let base = base(dir.path());
    let text = b"Received: x\r\nDelivered-To: BOB@local.test\r\n\r\nbody\r\n";
    for format in [Format::Maildir, Format::Mbox] {
        let outcomes = deliver_batch(&[delivery(&base, "bob", format, text)], &scene());
        assert!(matches!(&outcomes[0], Outcome::Failed(_)));
        assert_eq!(enhanced(&outcomes[0]), Some(Enhanced(5, 4, 6)));
        let outcomes =
            deliver_batch(&[delivery(&base, &format!("{format:?}"), format, text)], &scene());
        assert!(delivered(&outcomes[0]));
    }
    assert!(!dir.path().join("bob").exists());
}

#[test]
fn a_symbolic_link_is_never_followed_out_of_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let base = base(&dir.path().join("mail"));
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(dir.path().join("secret"), "kept").unwrap();
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, dir.path().join("mail").join(name)).unwrap()
    };
    link(&outside, "linkdir");
    link(&dir.path().join("secret"), "linkfile");
    fs::create_dir(dir.path().join("mail/half")).unwrap();
    link(&outside, "half/new");
    fs::hard_link(dir.path().join("secret"), dir.path().join("mail/hard")).unwrap();
    let batch = [
        delivery(&base, "linkdir", Format::Maildir, b"x\r\n"),
        delivery(&base, "half", Format::Maildir, b"x\r\n"),
        delivery(&base, "linkfile", Format::Mbox, b"x\r\n"),
        delivery(&base, "hard", Format::Mbox, b"x\r\n"),
        delivery(&base, "../outside/box", Format::Mbox, b"x\r\n"),
        delivery(&base, "../outside", Format::Maildir, b"x\r\n"),
        delivery(&base, "good", Format::Maildir, b"x\r\n"),
    ];
    let outcomes = deliver_batch(&batch, &scene());
    for outcome in &outcomes[..6] {
        assert!(matches!(outcome, Outcome::Deferred(_)), "{outcome:?}");
    }
    assert!(delivered(&outcomes[6]), "{:?}", outcomes[6]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(dir.path().join("secret")).unwrap(), "kept");
}
