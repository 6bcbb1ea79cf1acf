//! A room of its own for a scenario: namespaces for mounts, network and processes, with Debian's mailers laid over
//! this machine's files.
//!
//! Must never leave anything outside: what is mounted, bound or started in the room ends with it, even by SIGKILL.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::signal::unix::{SignalKind, signal};

/// Set for the program inside; it says whose the network is.
const INSIDE: &str = "POSTHASTE_LAB_ROOM";
const OWN_NETWORK: &str = "own network";
const MACHINES_NETWORK: &str = "the machine's network";
/// Settings of the room's own network: a client who finds a full accept queue knocks again or is refused. With cookies
/// in place of a queue it would think that it is connected, and wait for a greeting that never comes (OpenSMTPD's queue
/// holds five).
const NO_SILENCE: [(&str, &str); 2] = [("tcp_syncookies", "0"), ("tcp_abort_on_overflow", "1")];
/// The user ids that the mailers have in the room.
pub const POSTFIX: u32 = 61_301;
/// Exim's.
pub const EXIM: u32 = 61_302;
const OPENSMTPD: u32 = 61_303;
const OPENSMTPD_QUEUE: u32 = 61_304;
/// The group that hands mail to Postfix.
pub const POSTDROP: u32 = 61_305;
/// Sendmail's.
pub const SENDMAIL: u32 = 61_306;
const SENDMAIL_SUBMIT: u32 = 61_307;
/// The one who gets mail in the room, and her id.
pub const USER: &str = "bench";
/// See `USER`.
pub const USER_ID: u32 = 61_310;
/// Her home, from `Site::mail`, which each mailer sees at [`MAIL`].
pub const USER_HOME: &str = "home/bench";
/// Where a mailer finds `Site::mail`: the path is compiled into more than one.
pub const MAIL: &str = "/var/mail";
/// Where what is said to `/dev/log` arrives.
pub const LOG_SOCKET: &str = "/run/posthaste-lab-log";
/// The name of Exim's configuration below the site's `work`.
pub const EXIM_SETTINGS: &str = "exim.conf";
/// The name of OpenSMTPD's spool below the site's `queue`.
pub const OPENSMTPD_SPOOL: &str = "smtpd";
/// Directories over which the packages' own are laid.
const LAID_OVER: [&str; 4] = ["usr", "etc", "var/lib", "var/spool"];

/// Whether this process was started by [`enter`]. The name space of processes proves it: in a new one the shell that
/// started us is number 1.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some() && std::os::unix::process::parent_id() == 1
}

/// Runs this program again with the same arguments inside a new room and waits for its end, which it returns.
/// ^C and SIGTERM end the room at once; the end is `None` then. A mailer that runs on this machine already is only
/// reached where the room keeps the machine's network.
pub fn enter(keeps_network: bool) -> Result<Option<i32>> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "this needs root: it mounts file systems and starts mailers; run it with sudo"
    );
    let program = std::env::current_exe()?;
    // If we are killed ourselves, so is `unshare`, and with it the room. The shell is process 1 of the room: it
    // buries orphans, and when it ends the kernel ends all others.
    let mut room = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"])
        .args((!keeps_network).then_some("--net"))
        .args([
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            "\"$@\"; exit $?",
            "sh",
        ])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, if keeps_network { MACHINES_NETWORK } else { OWN_NETWORK })
        .spawn()
        .context("setpriv (Debian: util-linux) cannot be started")?;
    let ended = Arc::new(AtomicBool::new(false));
    kill_on_signal(Pid::from_child(&room), ended.clone())?;
    let status = room.wait()?;
    Ok(if ended.load(Relaxed) { None } else { Some(status.code().unwrap_or(1)) })
}

fn kill_on_signal(room: Pid, ended: Arc<AtomicBool>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut term, mut int) = runtime.block_on(async {
        let term = signal(SignalKind::terminate())?;
        Ok::<_, std::io::Error>((term, signal(SignalKind::interrupt())?))
    })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        });
        ended.store(true, Relaxed);
        let _ = kill_process(room, Signal::KILL); // it may have ended by itself
    });
    Ok(())
}

/// Furnishes the room: the loopback device, an empty /run, accounts, and the packages in `peers` if there are any.
pub fn furnish(work: &Path, queue: &Path, peers: Option<&Path>) -> Result<()> {
    if std::env::var(INSIDE).is_ok_and(|network| network == OWN_NETWORK) {
        run("ip", ["link", "set", "lo", "up"])?;
        for (name, value) in NO_SILENCE {
            let path = format!("/proc/sys/net/ipv4/{name}");
            std::fs::write(&path, value).context(path)?;
        }
    }
    run("mount", ["-t", "tmpfs", "none", "/run"])?;
    for path in [Some(work), peers].into_iter().flatten() {
        let covered = |over: &&&str| path.starts_with(Path::new("/").join(over));
        if let Some(over) = LAID_OVER.iter().find(covered) {
            bail!("{} lies below /{over}, which is covered in the room", path.display());
        }
    }
    let control = peers.map(|peers| peers.join("opensmtpd/usr/sbin/smtpctl"));
    write_own(&work.join("room"), work, queue, control.as_deref())?;
    let packages = peers.map_or_else(|| Ok(Vec::new()), packages)?;
    for over in LAID_OVER {
        let mut layers: Vec<PathBuf> = vec![work.join("room").join(over)];
        layers.extend(packages.iter().map(|package| package.join(over)));
        layers.push(Path::new("/").join(over));
        layers.retain(|layer| layer.is_dir());
        let layers: Vec<String> = layers.iter().map(|path| path.display().to_string()).collect();
        let option = format!("lowerdir={}", layers.join(":"));
        run("mount", ["-t", "overlay", "overlay", "-o", &option, &format!("/{over}")])?;
    }
    Ok(())
}

fn packages(peers: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(peers).with_context(|| peers.display().to_string())?;
    let mut packages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    packages.sort();
    Ok(packages)
}

/// The topmost layer: the accounts, links to what has a fixed place, and OpenSMTPD's `smtpctl`.
fn write_own(own: &Path, work: &Path, queue: &Path, control: Option<&Path>) -> Result<()> {
    let _ = std::fs::remove_dir_all(own); // of an earlier room
    for over in LAID_OVER {
        std::fs::create_dir_all(own.join(over))?;
    }
    std::fs::create_dir_all(own.join("etc/exim4"))?;
    let home = format!("{MAIL}/{USER_HOME}");
    let users = [
        (USER, USER_ID, home.as_str()),
        ("postfix", POSTFIX, "/nonexistent"),
        ("Debian-exim", EXIM, "/nonexistent"),
        ("opensmtpd", OPENSMTPD, "/var/lib/opensmtpd/empty"),
        ("opensmtpq", OPENSMTPD_QUEUE, "/var/lib/opensmtpd/empty"),
        ("smmta", SENDMAIL, "/nonexistent"),
        ("smmsp", SENDMAIL_SUBMIT, "/nonexistent"),
    ];
    let mut passwd = without(&std::fs::read_to_string("/etc/passwd")?, &users.map(|user| user.0));
    let names = users.iter().map(|user| user.0).chain(["postdrop"]).collect::<Vec<_>>();
    let mut group = without(&std::fs::read_to_string("/etc/group")?, &names);
    for (name, id, home) in users {
        passwd += &format!("{name}:x:{id}:{id}::{home}:/usr/sbin/nologin\n");
        group += &format!("{name}:x:{id}:\n");
    }
    group += &format!("postdrop:x:{POSTDROP}:\n");
    std::fs::write(own.join("etc/passwd"), passwd)?;
    std::fs::write(own.join("etc/group"), group)?;
    // Sendmail asks for its machine's full name and waits a minute for one.
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    std::fs::write(own.join("etc/hosts"), format!("127.0.1.1 lab.test {machine}\n{hosts}"))?;
    // Sendmail has procmail put mail into Maildirs; without this file it would not.
    std::fs::write(own.join("etc/procmailrc"), "DEFAULT=$HOME/Maildir/\n")?;
    std::fs::create_dir_all(own.join("dev"))?;
    symlink(LOG_SOCKET, own.join("dev/log"))?;
    if let Some(control) = control {
        // Its package's script would do this. Without it the program refuses to speak to the daemon.
        let copy = own.join("usr/sbin/smtpctl");
        std::fs::create_dir_all(own.join("usr/sbin"))?;
        std::fs::copy(control, &copy).with_context(|| control.display().to_string())?;
        chown(&copy, None, Some(OPENSMTPD_QUEUE))?;
        std::fs::set_permissions(&copy, Permissions::from_mode(0o2755))?;
    }
    symlink(work.join(EXIM_SETTINGS), own.join("etc/exim4/exim4.conf"))?;
    symlink(queue.join(OPENSMTPD_SPOOL), own.join("var/spool/smtpd"))?;
    Ok(())
}

/// The lines of an account file but those of `names`.
fn without(text: &str, names: &[&str]) -> String {
    let other = |line: &&str| !names.contains(&line.split(':').next().unwrap_or(""));
    text.lines().filter(other).map(|line| format!("{line}\n")).collect()
}

/// Runs a program to its end; what it complains about becomes the error.
pub fn run<const N: usize>(program: &str, arguments: [&str; N]) -> Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_of_the_machine_gives_way_to_the_rooms() {
        let text = "root:x:0:0\npostfix:x:102:105\npostfixer:x:9:9\n";
        assert_eq!(without(text, &["postfix"]), "root:x:0:0\npostfixer:x:9:9\n");
    }

    #[test]
    fn a_failed_program_is_an_error_that_says_what_it_said() {
        let error = run("ls", ["/nowhere/at/all"]).unwrap_err().to_string();
        assert!(error.contains("ls /nowhere/at/all") && error.contains("No such file"), "{error}");
        assert!(run("no-such-program", []).is_err());
    }
}
