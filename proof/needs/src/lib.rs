//! What a test needs of the machine that runs it. A test asks before it begins, and reports what is missing.
//!
//! A test that cannot run here returns at once, after [`met`] has written `SKIPPED program::test: it needs …` to
//! standard error, past the capture of the test harness. `cargo xtask ci` names a file in `POSTHASTE_TEST_SKIPPED`, to
//! which the same line is appended, and counts its lines: the harness calls such a test passed. With
//! `POSTHASTE_TEST_ALL=1` a missing need fails the test instead.
//!
//! Must never look at the code under test, and never change the machine: each probe works in namespaces of its own.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};

/// The environment variable with the file to which a line is appended for each skipped test.
pub const SKIPPED_FILE: &str = "POSTHASTE_TEST_SKIPPED";
/// The environment variable that makes a missing need a failure.
const ALL: &str = "POSTHASTE_TEST_ALL";

/// Something that not every machine or user has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// The user id 0, for what the text says.
    Root(&'static str),
    /// A mount namespace of the test's own, and a file system in memory in it.
    Mounts,
    /// A file system of this kind in an image, under a loop device.
    Image(&'static str),
    /// A file system whose upper layer hides parts of the lower one.
    Overlay,
    /// A network namespace of the test's own.
    Network,
    /// A room of the laboratory: namespaces for mounts, network and processes, and overlays in them.
    Room,
    /// Another process's system calls, by `strace`.
    Tracing,
    /// A root directory that the kernel lists as a mount. In a chroot to a plain directory, nothing says which file system
    /// `/` is on.
    RootMount,
    /// A program at this path.
    Program(&'static str),
}

/// Returns whether this machine has all of `needs`. If not, the line of the skipped test has been written.
#[must_use]
pub fn met(needs: &[Need]) -> bool {
    let missing = needs.iter().find_map(|need| missing(*need).map(|why| (need, why)));
    let Some((need, why)) = missing else { return true };
    let reason = format!("it needs {}: {why}", need.words());
    assert!(std::env::var_os(ALL).is_none(), "{ALL} is set: {reason}");
    skip(&reason);
    false
}

/// Writes the line of a skipped test. The test harness names its threads after the tests.
fn skip(reason: &str) {
    let thread = std::thread::current();
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_stem()?.to_str());
    let program = program.and_then(|name| name.split('-').next()).unwrap_or("a program");
    let line = format!("SKIPPED {program}::{}: {reason}\n", thread.name().unwrap_or("a test"));
    let _ = std::io::stderr().write_all(line.as_bytes());
    let Some(path) = std::env::var_os(SKIPPED_FILE) else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(written.is_ok(), "a skipped test cannot be counted: {written:?}");
}

/// Returns why this machine lacks a need. Each program probes it once.
fn missing(need: Need) -> Option<String> {
    static KNOWN: LazyLock<Mutex<BTreeMap<Need, Option<String>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(|broken| broken.into_inner());
    known.entry(need).or_insert_with(|| need.probe().err()).clone()
}

fn root_mount() -> Result<(), String> {
    let told =
        std::fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let is_root = |line: &str| line.split(' ').nth(4) == Some("/");
    told.lines()
        .any(is_root)
        .then_some(())
        .ok_or_else(|| "/ is in no line of /proc/self/mountinfo".into())
}

impl Need {
    fn words(self) -> String {
        match self {
            Need::Root(what) => format!("root, for {what}"),
            Need::Mounts => "a mount namespace".into(),
            Need::Image(kind) => format!("an image of {kind} under a loop device"),
            Need::Overlay => "an overlay file system".into(),
            Need::Network => "a network namespace".into(),
            Need::Room => "namespaces for mounts, network and processes".into(),
            Need::Tracing => "strace to attach to a process".into(),
            Need::RootMount => "a root directory that is a mount".into(),
            Need::Program(path) => format!("the program {path}"),
        }
    }

    fn probe(self) -> Result<(), String> {
        match self {
            Need::Root(_) if rustix::process::geteuid().is_root() => Ok(()),
            Need::Root(_) => Err("this is another user".into()),
            Need::Mounts => in_mounts(&["--mount"], "mount -t tmpfs none ."),
            Need::Image(kind) => image(kind),
            Need::Overlay => in_mounts(&["--mount"], OVERLAY),
            Need::RootMount => root_mount(),
            Need::Network => in_mounts(&["--net"], "ip link set lo up"),
            Need::Room => in_mounts(
                &["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"],
                &format!("ip link set lo up && {OVERLAY}"),
            ),
            Need::Tracing => tracing(),
            Need::Program(path) if std::path::Path::new(path).exists() => Ok(()),
            Need::Program(_) => Err("it is not installed".into()),
        }
    }
}

/// Enters the new file system: a directory that something is mounted on stays what the shell is in.
const OVERLAY: &str = "mount -t tmpfs none . && cd \"$PWD\" && mkdir -p lower upper work all && \
    mount -t overlay overlay -o lowerdir=$PWD/lower,upperdir=$PWD/upper,workdir=$PWD/work $PWD/all";

/// Runs a line of shell in namespaces of its own, in an empty directory.
fn in_mounts(namespaces: &[&str], line: &str) -> Result<(), String> {
    succeeds("unshare", &[namespaces, &["sh", "-c", line]].concat())
}

fn image(kind: &str) -> Result<(), String> {
    // The smallest that every mkfs takes.
    let megabytes = if kind == "xfs" { 300 } else { 16 };
    let make = format!("truncate -s {megabytes}M image && mkfs.{kind} -q image && mkdir there");
    in_mounts(&["--mount"], &format!("{make} && mount -t {kind} -o loop image there"))
}

fn tracing() -> Result<(), String> {
    // The traced process must not keep our pipe open: its end is waited for.
    let attach = "sleep 60 >/dev/null 2>&1 & traced=$!; strace -o /dev/null -p $traced & tracer=$!; \
        sleep 0.3; kill -0 $tracer && kill -INT $tracer; wait $tracer; kill $traced; true";
    let line =
        format!("{{ {attach}; }} 2>said; grep -q attached said || {{ cat said >&2; exit 1; }}");
    succeeds("sh", &["-c", &line])
}

/// Runs a program to its end in an empty directory. The error is the first line of its output.
fn succeeds(program: &str, arguments: &[&str]) -> Result<(), String> {
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.current_dir(place.path()).env("PWD", PathBuf::from(place.path())).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_machine_has_is_met_and_a_missing_program_is_a_skipped_test() {
        assert!(met(&[Need::Program("/bin/sh")]));
        assert_eq!(missing(Need::Program("/nowhere/tool")), Some("it is not installed".into()));
        assert_eq!(succeeds("sh", &["-c", "echo no >&2; exit 1"]), Err("no".into()));
    }

    #[test]
    fn an_overlay_and_a_room_are_met_wherever_mounts_a_network_and_the_kernels_overlay_are() {
        let kernel = std::fs::read_to_string("/proc/filesystems").unwrap();
        let mounts = missing(Need::Mounts).is_none() && kernel.contains("overlay");
        assert_eq!(missing(Need::Overlay).is_none(), mounts, "{:?}", missing(Need::Overlay));
        if mounts && missing(Need::Network).is_none() {
            assert_eq!(missing(Need::Room), None);
        }
    }

    /// The program that runs the tests starts itself again, and counts what that leaves behind.
    #[test]
    fn a_skipped_test_is_a_line_in_the_file_that_counts_them_and_a_failure_where_all_is_asked() {
        if std::env::var_os("POSTHASTE_NEEDS_AGAIN").is_some() {
            assert!(!met(&[Need::Program("/bin/sh"), Need::Program("/nowhere/tool")]));
            return;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let again = |all: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["a_skipped_test_is", "--nocapture"]).env("POSTHASTE_NEEDS_AGAIN", "1");
            command.env_remove(ALL).env(SKIPPED_FILE, file.path());
            if !all.is_empty() {
                command.env(ALL, all);
            }
            command.output().unwrap().status.success()
        };
        assert!(again(""));
        let line = std::fs::read_to_string(file.path()).unwrap();
        let name = "needs::tests::a_skipped_test_is_a_line_in_the_file";
        assert!(
            line.starts_with(&format!("SKIPPED {name}")) && line.lines().count() == 1,
            "{line}"
        );
        assert!(line.contains("it needs the program /nowhere/tool: it is not installed"), "{line}");
        assert!(!again("1"));
    }
}
