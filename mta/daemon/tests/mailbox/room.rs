//! Disks without room and files that may not grow.
//!
//! Must never mount a file system that other tests see.

use super::*;

/// A file system of a few pages, which is unmounted when the value is dropped.
struct Small(tempfile::TempDir);

impl Small {
    /// Mounts it, or returns `None` if that is not allowed. The test is skipped then.
    fn mount(options: &str) -> Option<Small> {
        Small::mount_at(tempfile::tempdir().unwrap(), options)
    }

    fn mount_at(dir: tempfile::TempDir, options: &str) -> Option<Small> {
        if !needs::met(&[Need::Root("mount"), Need::Mounts]) {
            return None;
        }
        let arguments = ["-t", "tmpfs", "-o", options, "tmpfs"];
        let out = Command::new("mount").args(arguments).arg(dir.path()).output().unwrap();
        assert!(out.status.success(), "mount: {}", String::from_utf8_lossy(&out.stderr));
        Some(Small(dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn s118_d182_a_full_disk_defers_with_nothing_half_there_and_resumes_with_space() {
    let Some(small) = Small::mount("size=512k,mode=755") else { return };
    let base = base(small.0.path());
    fs::write(small.0.path().join("ballast"), vec![0; 300_000]).unwrap();
    let text = b"0123456789\r\n".repeat(2500);
    for (format, kind) in [(Format::Mbox, "mbox"), (Format::Maildir, "Maildir")] {
        let user = format!("full{kind}");
        let batch: Vec<_> = (0..20).map(|_| delivery(&base, &user, format, &text)).collect();
        let outcomes = deliver_batch(&batch, &scene());
        let whole = outcomes.iter().filter(|o| delivered(o)).count();
        assert!((1..20).contains(&whole), "{whole}");
        for outcome in outcomes.iter().filter(|o| !delivered(o)) {
            assert!(matches!(outcome, Outcome::Deferred(_)));
            assert_eq!(enhanced(outcome), Some(Enhanced(4, 3, 1)));
            assert_eq!(outcome.report().reply.code, 452);
        }
        let found = read_with_python(kind, &small.0.path().join(&user));
        assert_eq!(found.len(), whole);
        assert!(found.iter().all(|m| *m == stored(&user, &text, false)));
        if format == Format::Maildir {
            assert_eq!(fs::read_dir(small.0.path().join(&user).join("tmp")).unwrap().count(), 0);
            fs::remove_file(small.0.path().join("ballast")).unwrap();
            assert!(delivered(&deliver_batch(&batch[..1], &scene())[0]));
            assert_eq!(read_with_python(kind, &small.0.path().join(&user)).len(), whole + 1);
        } else {
            fs::remove_file(small.0.path().join(&user)).unwrap();
        }
    }
}

#[test]
fn s120_d182_a_file_system_without_inodes_defers() {
    let Some(small) = Small::mount("size=4m,nr_inodes=8,mode=755") else { return };
    let base = base(small.0.path());
    let batch: Vec<_> = (0..6).map(|_| delivery(&base, "bob", Format::Maildir, b"x\r\n")).collect();
    let outcomes = deliver_batch(&batch, &scene());
    let whole = outcomes.iter().filter(|o| delivered(o)).count();
    assert!((1..6).contains(&whole), "{whole}");
    assert!(outcomes.iter().all(|o| delivered(o) || enhanced(o) == Some(Enhanced(4, 3, 1))));
    assert_eq!(read_with_python("Maildir", &small.0.path().join("bob")).len(), whole);
}

#[test]
fn d182_a_maildir_whose_tmp_is_another_file_system_defers_and_nothing_is_half_there() {
    let dir = tempfile::tempdir().unwrap();
    let base = base(dir.path());
    assert!(delivered(
        &deliver_batch(&[delivery(&base, "bob", Format::Maildir, b"x\r\n")], &scene())[0]
    ));
    let tmp = dir.path().join("bob/tmp");
    fs::remove_dir(&tmp).unwrap();
    let own =
        tempfile::Builder::new().prefix("tmp").rand_bytes(0).tempdir_in(dir.path().join("bob"));
    let Some(small) = Small::mount_at(own.unwrap(), "size=512k,mode=755") else { return };
    assert_eq!(small.0.path(), tmp);
    let batch = [
        delivery(&base, "bob", Format::Maildir, b"y\r\n"),
        delivery(&base, "eve", Format::Maildir, b"y\r\n"),
    ];
    let outcomes = deliver_batch(&batch, &scene());
    assert!(matches!(&outcomes[0], Outcome::Deferred(_)), "{:?}", outcomes[0]);
    assert!(delivered(&outcomes[1]));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "nothing is left in tmp");
    assert_eq!(read_with_python("Maildir", &dir.path().join("bob")).len(), 1);
    drop(small);
    fs::create_dir(&tmp).unwrap();
    assert!(deliver_batch(&batch, &scene()).iter().all(delivered));
    assert_eq!(read_with_python("Maildir", &dir.path().join("bob")).len(), 2);
}

#[test]
fn s119_a_file_that_may_not_grow_defers_and_is_cut_back_to_whole_messages() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let status = again(&format!("{} mbox one 3 20000", path.display())).wait().unwrap();
    assert!(status.success());
    let log = fs::read_to_string(path.join("log")).unwrap();
    assert!(
        log.lines().all(|line| line.starts_with("452 4.2.2 mailbox file is too large")),
        "{log}"
    );
    let messages = read_with_python("mbox", &path.join("bob"));
    assert!(!messages.is_empty());
    assert_whole(&messages);
    assert!(File::open(path.join("bob")).unwrap().metadata().unwrap().len() <= 20_000);
}
