//! Tests in which a child process enters each profile and then tries what the profile forbids.

use super::*;
use needs::Need;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

/// A user that owns no files.
const STRANGER: u32 = 60899;

/// How a child ended, and what it wrote to standard error.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    said: String,
}

/// Runs `act` in a forked child and ends the child with the returned code.
fn in_a_child(act: impl FnOnce() -> i32) -> Ended {
    let (read, write) = std::io::pipe().unwrap();
    // SAFETY: the child runs `act` and ends; it never returns into the test harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(write.as_raw_fd(), 2) };
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).unwrap_or(101);
        // SAFETY: ends the child without what belongs to its parent.
        unsafe { libc::_exit(code) };
    }
    drop(write);
    let mut said = String::new();
    // SAFETY: into a new owner.
    let mut read = unsafe { File::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(read)) };
    read.read_to_string(&mut said).unwrap();
    let mut status = 0;
    // SAFETY: a child of ours and a valid pointer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    Ended { code, said }
}

/// Writes to the real standard error. The test harness captures what `eprint` writes.
fn say(text: &str) {
    // SAFETY: a valid text and its length.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

fn is_root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}

fn spool() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_path_buf();
    std::os::unix::fs::chown(&path, is_root().then_some(STRANGER), None).unwrap();
    (directory, path)
}

/// Enters the jail of a role. As root, the role becomes `STRANGER`. With `ordinary`, or without root, the child is an
/// ordinary user before it enters.
fn enter_as(role: Role, ordinary: bool, spool: &Path) -> (JailReport, PathBuf) {
    let stranger = User { uid: STRANGER, gid: STRANGER, groups: Vec::new() };
    let privilege = if is_root() && !ordinary {
        Privilege::Root(stranger)
    } else {
        if is_root() {
            // SAFETY: plain calls.
            unsafe {
                assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
                assert_eq!(libc::setresgid(STRANGER, STRANGER, STRANGER), 0);
                assert_eq!(libc::setresuid(STRANGER, STRANGER, STRANGER), 0);
            }
        }
        Privilege::Ordinary
    };
    let (profile, inside) = match role {
        Role::Queue => Profile::queue(privilege, File::open(spool).unwrap().into(), spool),
        Role::Mailbox => (Profile::mailbox(privilege, vec![spool.into()]), spool.into()),
        _ => (Profile::new(role, privilege), spool.into()),
    };
    // SAFETY: no preconditions.
    let report = enter(&profile.ends_with(unsafe { libc::getppid() })).unwrap();
    (report, inside)
}

const JAILED: [Role; 5] = [Role::Config, Role::Receive, Role::Queue, Role::Send, Role::Mailbox];

/// Runs `act` in each of these roles, both as root and as an ordinary user.
fn in_each_role(roles: &[Role], act: impl Fn(Role, &Path) -> i32, check: impl Fn(Role, Ended)) {
    for role in roles {
        for ordinary in [false, true] {
            let (_keep, path) = spool();
            check(*role, in_a_child(|| act(*role, &enter_as(*role, ordinary, &path).1)));
        }
    }
}

fn denied(role: Role, call: &str) -> String {
    format!("role {role}: system call {} ({call}) denied\n", names::number(call).unwrap())
}

#[test]
fn x203_a_denied_call_ends_the_process_and_is_named() {
    type Try = (&'static str, fn() -> libc::c_long);
    let tries: [Try; 5] = [
        // SAFETY: none of these gets past the filter.
        ("execve", || unsafe { libc::syscall(libc::SYS_execve, 0, 0, 0) }),
        ("ptrace", || unsafe { libc::syscall(libc::SYS_ptrace, 0, 0, 0, 0) }),
        ("mount", || unsafe { libc::syscall(libc::SYS_mount, 0, 0, 0, 0, 0) }),
        ("kill", || unsafe { libc::syscall(libc::SYS_kill, 1, 0) }),
        ("setresuid", || unsafe { libc::syscall(libc::SYS_setresuid, 0, 0, 0) }),
    ];
    for (call, act) in tries {
        let ended = |role, ended: Ended| {
            assert_eq!(ended.said, denied(role, call));
            assert_eq!(ended.code, Some(DENIED_EXIT_CODE), "{role}");
        };
        in_each_role(
            &JAILED,
            |_, _| {
                act();
                0
            },
            ended,
        );
    }
}

#[test]
fn x203_a_denied_call_of_another_thread_ends_the_whole_process() {
    let (_keep, path) = spool();
    let ended = in_a_child(|| {
        let (go, wait) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            wait.recv().unwrap();
            // SAFETY: does not get past the filter.
            unsafe { libc::syscall(libc::SYS_kill, 1, 0) }
        });
        enter_as(Role::Receive, false, &path);
        go.send(()).unwrap();
        other.join().unwrap();
        0
    });
    assert_eq!(ended.code, Some(DENIED_EXIT_CODE), "{}", ended.said);
    assert_eq!(ended.said, denied(Role::Receive, "kill"));
}

#[test]
fn only_those_who_need_the_network_get_a_socket() {
    let act = |_: Role, _: &Path| match std::net::UdpSocket::bind("127.0.0.1:0") {
        Ok(_) => 7,
        Err(_) => 8,
    };
    in_each_role(&JAILED, act, |role, ended| match role {
        Role::Send => assert_eq!(ended.code, Some(7), "{}", ended.said),
        _ => assert_eq!((ended.code, ended.said), (Some(DENIED_EXIT_CODE), denied(role, "socket"))),
    });
    let raw = |_: Role, _: &Path| {
        // SAFETY: plain call.
        unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) }
    };
    in_each_role(&[Role::Send], raw, |role, ended| assert_eq!(ended.said, denied(role, "socket")));
}

#[test]
fn no_file_outside_can_be_opened_and_those_inside_can() {
    let act = |role: Role, inside: &Path| {
        for outside in ["/etc/passwd", "/proc/self/status", "../../../../etc/passwd", "/"] {
            let within = role == Role::Queue && outside == "/" && inside == Path::new("/");
            if !within && File::open(outside).is_ok() {
                say(&format!("{role} opened {outside}"));
                return 9;
            }
        }
        if std::fs::write("/tmp/posthaste-jail-test", b"").is_ok() {
            return 10;
        }
        match std::fs::write(inside.join("mail"), b"kept") {
            Ok(()) => 11,
            Err(_) => 12,
        }
    };
    in_each_role(&JAILED, act, |role, ended| {
        let owns_files = matches!(role, Role::Queue | Role::Mailbox);
        assert_eq!(ended.code, Some(if owns_files { 11 } else { 12 }), "{role}: {}", ended.said);
    });
}

#[test]
fn the_user_changes_for_good() {
    if !needs::met(&[Need::Root("a user to change from")]) {
        return;
    }
    for role in JAILED {
        let (_keep, path) = spool();
        let ended = in_a_child(|| {
            let (report, _) = enter_as(role, false, &path);
            // SAFETY: no preconditions.
            let ids = unsafe { (libc::getuid(), libc::geteuid(), libc::getgid()) };
            assert_eq!((ids, report.uid), ((STRANGER, STRANGER, STRANGER), STRANGER));
            0
        });
        assert_eq!(ended.code, Some(0), "{role}: {}", ended.said);
    }
}

#[test]
fn x202_root_without_a_user_to_become_is_refused() {
    if !needs::met(&[Need::Root("a user to change from")]) {
        return;
    }
    let root = User { uid: 0, gid: 0, groups: Vec::new() };
    for role in JAILED {
        for privilege in [Privilege::Ordinary, Privilege::Root(root.clone())] {
            let ended = in_a_child(|| {
                let mut profile = Profile::new(role, privilege.clone());
                profile.root = Root::Keep;
                match enter(&profile) {
                    Err(JailError::StillRoot(refused)) if refused == role => 0,
                    other => {
                        say(&format!("{other:?}"));
                        1
                    }
                }
            });
            assert_eq!(ended.code, Some(0), "{role}: {}", ended.said);
        }
    }
}

#[test]
fn x202_a_switch_that_the_system_refuses_is_an_error() {
    if !needs::met(&[Need::Root("a user to change from")]) {
        return;
    }
    let ended = in_a_child(|| {
        let user = User { uid: STRANGER, gid: STRANGER, groups: Vec::new() };
        // SAFETY: plain call; without root the switch to another user is refused.
        unsafe { libc::setresuid(STRANGER + 1, STRANGER + 1, STRANGER + 1) };
        let mut profile = Profile::new(Role::Send, Privilege::Root(user));
        profile.root = Root::Keep;
        say(&enter(&profile).unwrap_err().to_string());
        0
    });
    assert!(ended.said.starts_with("cannot give up groups: Operation not permitted"), "{ended:?}");
}

#[test]
fn a_process_whose_parent_has_ended_does_not_start() {
    let ended = in_a_child(|| {
        let mut profile = Profile::new(Role::Master, Privilege::Ordinary);
        profile.parent = Some(1 << 30);
        match enter(&profile) {
            Err(JailError::Orphan) => 0,
            _ => 1,
        }
    });
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}

#[test]
fn a_jailed_process_can_run_a_runtime_with_threads_timers_and_sockets() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let roles = [Role::Receive, Role::Queue, Role::Send];
    let act = |role: Role, _: &Path| {
        let (ours, server) = (ours.try_clone().unwrap(), server.try_clone().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            let thread = std::thread::spawn(|| vec![1u8; 3 << 20].len());
            assert_eq!(thread.join().unwrap(), 3 << 20);
            ours.set_nonblocking(true).unwrap();
            let ours = tokio::net::UnixStream::from_std(ours).unwrap();
            ours.writable().await.unwrap();
            let mut hangup =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).unwrap();
            // SAFETY: a signal to ourselves.
            unsafe { libc::raise(libc::SIGHUP) };
            hangup.recv().await;
            if role == Role::Send {
                let stream = tokio::net::TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
            } else {
                server.set_nonblocking(true).unwrap();
                let server = tokio::net::TcpListener::from_std(server).unwrap();
                server.accept().await.unwrap();
            }
        });
        0
    };
    // Connections that wait to be accepted.
    let _waiting: Vec<_> = (0..4).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    in_each_role(&roles, act, |role, ended| {
        assert_eq!(ended.code, Some(0), "{role}: {}", ended.said);
    });
    drop(theirs);
}

#[test]
fn a_panic_and_an_abort_are_what_they_are_outside() {
    let (_keep, path) = spool();
    let panicked = in_a_child(|| {
        enter_as(Role::Receive, false, &path);
        panic!("said inside");
    });
    assert_eq!(panicked.code, Some(101), "{}", panicked.said);
    let aborted = in_a_child(|| {
        enter_as(Role::Receive, false, &path);
        std::process::abort()
    });
    assert_eq!((aborted.code, aborted.said.as_str()), (None, ""));
}

#[test]
fn local_may_start_programs_and_not_touch_the_kernel() {
    let ended = in_a_child(|| {
        enter(&Profile::new(Role::Local, Privilege::Ordinary)).unwrap();
        let echo = std::process::Command::new("/bin/sh").args(["-c", "exit 5"]).status().unwrap();
        assert_eq!(echo.code(), Some(5));
        // SAFETY: does not get past the filter.
        unsafe { libc::syscall(libc::SYS_unshare, 0) };
        0
    });
    assert_eq!(ended.said, denied(Role::Local, "unshare"));
    assert_eq!(ended.code, Some(DENIED_EXIT_CODE));
}

#[test]
fn every_call_of_the_tables_is_known_by_name() {
    use super::profiles::{Calls, calls, refused};
    for role in Role::ALL {
        let (Calls::Only(groups) | Calls::AllBut(groups)) = calls(role);
        let listed = groups.iter().flat_map(|group| group.calls).chain(refused(role));
        for call in listed.filter(|_| cfg!(target_arch = "x86_64")) {
            assert!(names::number(call).is_some(), "{call}");
        }
    }
}

#[test]
fn numeric_ids_are_one_a_role_and_accounts_go_first() {
    let numeric = |role| user_of(role, IDS_FIRST, |_| None).uid;
    assert_eq!(numeric(Role::Queue), 60803);
    assert_eq!(numeric(Role::Mailbox), numeric(Role::Local));
    let account = |name: &str| (name == "posthaste-queue").then_some((107, 112));
    let user = user_of(Role::Queue, IDS_FIRST, account);
    assert_eq!((user.uid, user.gid), (107, 112));
    assert_eq!(super::user::account("root"), Some((0, 0)));
    assert_eq!(super::user::account("posthaste-no-such-account"), None);
}

#[test]
fn x190_signals_that_mean_nothing_to_a_role_do_not_end_it() {
    let (_keep, path) = spool();
    let ended = in_a_child(|| {
        enter_as(Role::Queue, false, &path);
        for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGUSR1, libc::SIGHUP, libc::SIGINT] {
            // SAFETY: a signal to ourselves.
            unsafe { libc::raise(signal) };
        }
        0
    });
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}

#[test]
fn the_documentation_shows_the_tables_as_they_are() {
    const MARK: &str = "<!-- From here on written from mta/daemon/src/jail/profiles.rs. -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/processes.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (by_hand, written) = page.split_once(MARK).unwrap();
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{by_hand}{MARK}{}", markdown())).unwrap();
    } else {
        assert!(written == markdown(), "docs/processes.md is old: run this with WRITE_DOCS=1");
    }
}
