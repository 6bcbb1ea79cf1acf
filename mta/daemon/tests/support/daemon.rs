//! A daemon in a directory of its own, which a test can start, query, stop and kill.
//!
//! Must never affect a process or a directory that it did not create.

use super::{Client, PATIENCE, Sink, free_port, token, until};
use serde_json::Value;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

const POSTHASTE: &str = env!("CARGO_BIN_EXE_posthaste");

/// The settings and the environment of a test's daemon.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Lines above the first table.
    pub top: String,
    /// Further tables: `[limits]`, `[[listen]]`, `[retry]` and so on.
    pub tables: String,
    /// Routes before the ones to the sink.
    pub routes: String,
    /// The next hop of `sink.test` and all domains below it.
    pub sink_port: u16,
    /// The environment of the daemon.
    pub environment: Vec<(String, String)>,
    /// `deliver` of `[local]`. If empty, the Maildir of the template.
    pub deliver: String,
    /// Further lines of `[[listen]]`.
    pub listen_lines: String,
    /// Lines of `[spool]` that replace the usual ones.
    pub spool: String,
    /// The state directory, if it is not beside the settings.
    pub state: Option<PathBuf>,
    /// True if the test opens the port and passes it on, as systemd does.
    pub listener: Option<Arc<TcpListener>>,
    /// Standard error. If empty, the file `log`.
    pub stderr: Option<Arc<std::fs::File>>,
    /// The owner of the settings and the state, and their directory, for a wrapper that changes the user.
    pub owner: Option<(u32, PathBuf)>,
    /// The address to listen at. If `None`, a free port of 127.0.0.1.
    pub listen: Option<SocketAddr>,
    /// A command that is run with the program as its arguments.
    pub wrapper: Vec<String>,
}

/// A running daemon. `local.test` is delivered to Maildirs, `sink.test` to the sink, and `hold.test` is held.
/// Clients from 127.0.0.1 may relay, and 127.0.0.9 is a stranger.
pub struct Daemon {
    pub port: u16,
    pub directory: PathBuf,
    setup: Setup,
    child: Mutex<Child>,
}

/// The directories and processes to remove when the test program ends. Statics are never dropped.
static LEFT: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

extern "C" fn clean_up() {
    let Ok(left) = LEFT.lock() else { return };
    for (pid, directory) in left.iter() {
        end(*pid, directory);
    }
}

/// True if master has ended and was waited for. Its process id may then belong to another process.
fn forget_pid(directory: &Path) {
    let mut left = LEFT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (pid, known) in left.iter_mut() {
        if known == directory {
            *pid = 0;
        }
    }
}

/// Kills a master. Its children end by themselves within a second, then the directory is removed.
fn end(pid: u32, directory: &Path) {
    let children = if pid == 0 { Vec::new() } else { descendants(pid) };
    if pid != 0 {
        signal_to(pid, libc::SIGKILL);
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline && children.iter().any(lives) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = std::fs::remove_dir_all(directory);
}

impl Daemon {
    /// Starts a daemon and waits until it greets.
    pub fn start(setup: Setup) -> Daemon {
        static AT_EXIT: Once = Once::new();
        // SAFETY: `clean_up` is an `extern "C"` function that does not unwind past its own locks.
        AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(clean_up) }, 0));
        let place = setup.owner.as_ref().map(|(_, place)| place.as_path());
        let place = place.unwrap_or(Path::new(env!("CARGO_TARGET_TMPDIR")));
        let directory = place.join(token("daemon"));
        std::fs::create_dir_all(&directory).unwrap();
        if let Some((owner, _)) = &setup.owner {
            std::os::unix::fs::chown(&directory, Some(*owner), Some(*owner)).unwrap();
        }
        let held = setup.listener.as_ref().map(|listener| listener.local_addr().unwrap());
        let port = held.or(setup.listen).map_or_else(free_port, |address| address.port());
        std::fs::write(directory.join("posthaste.toml"), settings(&setup, &directory, port))
            .unwrap();
        let child = Mutex::new(spawn(&setup, &directory));
        let daemon = Daemon { port, directory, setup, child };
        daemon.wait_until_it_greets();
        daemon
    }

    /// Starts the usual daemon with this sink.
    pub fn with_sink(sink: &Sink) -> Daemon {
        Daemon::start(Setup { sink_port: sink.port, ..Setup::default() })
    }

    /// Runs `posthaste check` on these settings. Returns its output, as `Err` if it refuses them.
    pub fn check(setup: &Setup) -> Result<(), String> {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(token("check"));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("posthaste.toml");
        std::fs::write(&file, settings(setup, &directory, 2525)).unwrap();
        let output = Command::new(POSTHASTE).args(["check", "--config"]).arg(&file).output();
        let _ = std::fs::remove_dir_all(&directory);
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    fn wait_until_it_greets(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.lock().unwrap().try_wait().unwrap() {
                panic!("the daemon ended with {status}:\n{}", self.log());
            }
            if let Ok(stream) = TcpStream::connect(self.address()) {
                let mut client = Client::over(stream);
                if client.next_reply().is_some_and(|reply| reply.code == 220) {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "the daemon does not greet:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        state(&self.setup, &self.directory)
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.setup.listen.unwrap_or_else(|| ([127, 0, 0, 1], self.port).into())
    }

    /// The log so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.directory.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for a line of the log that contains all these texts.
    pub fn wait_for_log(&self, texts: &[&str]) -> String {
        until(&format!("{texts:?} in the log"), || {
            let log = self.log();
            let has_all = |line: &&str| texts.iter().all(|text| line.contains(text));
            log.lines().find(has_all).map(String::from)
        })
    }

    /// Runs the command line with this daemon's settings.
    pub fn command(&self, arguments: &[&str]) -> Output {
        Command::new(POSTHASTE)
            .args(arguments)
            .env("POSTHASTE_CONFIG", self.directory.join("posthaste.toml"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs `queue list --json` with these conditions. Returns a value for each message.
    pub fn queue(&self, conditions: &[&str]) -> Vec<Value> {
        let output = self.command(&[&["queue", "list", "--json"], conditions].concat());
        assert!(output.status.success(), "queue list: {}", String::from_utf8_lossy(&output.stderr));
        let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let values = values.map(|value| value.unwrap());
        values
            .flat_map(|value| match value {
                Value::Array(values) => values,
                value => vec![value],
            })
            .collect()
    }

    /// `queue summary --json`.
    pub fn summary(&self) -> Value {
        let output = self.command(&["queue", "summary", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The number of messages in the queue.
    pub fn queued(&self) -> u64 {
        self.summary()["messages"].as_u64().unwrap()
    }

    /// The messages in a user's Maildir.
    pub fn mailbox(&self, user: &str) -> Vec<String> {
        let new = self.state().join("mail").join(user).join("new");
        let files = std::fs::read_dir(new).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read(file.path()).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect()
    }

    /// Waits for the message in a user's Maildir that contains this word.
    pub fn wait_in_mailbox(&self, user: &str, token: &str) -> String {
        until(&format!("{token} in the mailbox of {user}"), || {
            self.mailbox(user).into_iter().find(|text| text.contains(token))
        })
    }

    /// R0: the daemon still accepts and delivers mail, and has stored nothing of what it refused.
    pub fn works_and_has_nothing_for(&self, user: &str) {
        self.works();
        let address = format!("{user}@local.test");
        let queued = self.queue(&["--recipient", &address]);
        assert!(queued.is_empty(), "half-accepted: {queued:?}");
        assert_eq!(self.mailbox(user), Vec::<String>::new(), "half-accepted and delivered");
    }

    /// R0: the daemon accepts a message and delivers it.
    pub fn works(&self) {
        let token = token("works");
        let mut client = Client::in_data(self.port, "probe@client.test", "probe@local.test");
        client.send(format!("Subject: {token}\r\n\r\nprobe\r\n.\r\n"));
        client.expect(250);
        client.ask("QUIT", 221);
        self.wait_in_mailbox("probe", &token);
    }

    /// The master's process id.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// The process ids of master and its descendants.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = descendants(self.pid());
        pids.push(self.pid());
        pids
    }

    /// The process ids of a role, found by their command lines.
    pub fn pids_of(&self, role: &str) -> Vec<u32> {
        let is_role = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.windows(2).any(|pair| pair == [&b"role"[..], role.as_bytes()])
        };
        descendants(self.pid()).into_iter().filter(is_role).collect()
    }

    pub fn signal(&self, signal: i32) {
        signal_to(self.pid(), signal);
    }

    /// Sends SIGKILL to master and waits until all its children are gone.
    pub fn kill(&self) {
        let children = descendants(self.pid());
        self.signal(libc::SIGKILL);
        self.child.lock().unwrap().wait().unwrap();
        forget_pid(&self.directory);
        until("the children of a dead master to end", || {
            (!children.iter().any(lives)).then_some(())
        });
    }

    /// Sends SIGKILL to all processes in one call, as if the system stopped.
    pub fn kill_all(&self) {
        let pids = self.pids();
        signal_to_group(self.pid(), libc::SIGKILL);
        self.child.lock().unwrap().wait().unwrap();
        forget_pid(&self.directory);
        until("all processes to end", || (!pids.iter().any(lives)).then_some(()));
    }

    /// Sends a signal to all processes in one call.
    pub fn signal_all(&self, signal: i32) {
        signal_to_group(self.pid(), signal);
    }

    /// Sends SIGKILL to master and starts a new one at once, as an impatient service manager does. The children
    /// of the previous master must end by themselves.
    pub fn kill_and_start_again(&self) -> Vec<u32> {
        let children = descendants(self.pid());
        self.signal(libc::SIGKILL);
        self.child.lock().unwrap().wait().unwrap();
        *self.child.lock().unwrap() = spawn(&self.setup, &self.directory);
        children
    }

    /// Sends SIGTERM. Returns how long the stop took and whether it succeeded.
    pub fn stop(&self) -> (Duration, bool) {
        let start = Instant::now();
        self.signal(libc::SIGTERM);
        let status = self.child.lock().unwrap().wait().unwrap();
        forget_pid(&self.directory);
        (start.elapsed(), status.success())
    }

    /// Starts the daemon again after `kill` or `stop`, with the same port and directory.
    pub fn start_again(&self) {
        *self.child.lock().unwrap() = spawn(&self.setup, &self.directory);
        self.wait_until_it_greets();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if std::thread::panicking() {
            eprintln!("the log of {}:\n{}", self.directory.display(), tail(&self.log(), 40));
        }
        let has_ended = matches!(child.try_wait(), Ok(Some(_)));
        end(if has_ended { 0 } else { child.id() }, &self.directory);
        let _ = child.wait();
        if let Ok(mut left) = LEFT.lock() {
            left.retain(|(_, directory)| *directory != self.directory);
        }
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

pub fn signal_to(pid: u32, signal: i32) {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid as i32, signal) };
}

/// True if the process has not ended. A process that has ended may wait for a while until init reaps it.
pub fn lives(pid: &u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Sends a signal to the process group that `spawn` created for the process.
fn signal_to_group(pid: u32, signal: i32) {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(-(pid as i32), signal) };
}

/// All descendants of this process.
fn descendants(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task");
    let tasks = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|word| word.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

/// The program, behind its wrapper, with the listening socket if there is one.
fn program(setup: &Setup) -> Command {
    let mut words = setup.wrapper.clone();
    if setup.listener.is_some() {
        let handed = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"";
        words.extend(["sh", "-c", handed, "sh"].map(String::from));
    }
    words.push(POSTHASTE.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    if let Some(fd) = setup.listener.as_ref().map(|listener| listener.as_raw_fd()) {
        // SAFETY: dup2 is async-signal-safe and affects only descriptors of the new process. The listener's
        // descriptor is not 3, which is in use in a test program.
        unsafe {
            command.pre_exec(move || match libc::dup2(fd, 3) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
    }
    command
}

fn stderr(setup: &Setup, log: std::fs::File) -> Stdio {
    match &setup.stderr {
        Some(file) => file.try_clone().unwrap().into(),
        None => log.into(),
    }
}

fn spawn(setup: &Setup, directory: &Path) -> Child {
    let log =
        std::fs::OpenOptions::new().create(true).append(true).open(directory.join("log")).unwrap();
    let mut command = program(setup);
    command
        .args(["run", "--log", "json", "--config"])
        .arg(directory.join("posthaste.toml"))
        .envs(setup.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(stderr(setup, log))
        .process_group(0);
    let child = command.spawn().unwrap();
    let mut left = LEFT.lock().unwrap();
    left.retain(|(_, known)| known != directory);
    left.push((child.id(), directory.to_path_buf()));
    child
}

fn state(setup: &Setup, directory: &Path) -> PathBuf {
    setup.state.clone().unwrap_or_else(|| directory.join("state"))
}

const SPOOL: &str = "segment_bytes = \"8MiB\"\nbatch_bytes_max = \"1MiB\"\n\
                     reserve_bytes = \"8MiB\"\nsnapshot_log_bytes = \"16MiB\"";

fn settings(setup: &Setup, directory: &Path, port: u16) -> String {
    let state = state(setup, directory);
    let spool = if setup.spool.is_empty() { SPOOL } else { &setup.spool };
    let deliver = match setup.deliver.as_str() {
        "" => "maildir:{state}/mail/{user}/",
        deliver => deliver,
    };
    let listen = setup.listen.unwrap_or_else(|| ([127, 0, 0, 1], port).into());
    let (top, tables, routes) = (&setup.top, &setup.tables, &setup.routes);
    let listen_lines = &setup.listen_lines;
    let sink = match setup.sink_port {
        0 => String::new(),
        port => format!(
            "[[route]]\ndomain = \"sink.test\"\nto = \"smtp:127.0.0.1:{port}\"\n\
             [[route]]\ndomain = \"*.sink.test\"\nto = \"smtp:127.0.0.1:{port}\"\n"
        ),
    };
    format!(
        "hostname = \"mx.local.test\"\nstate = {state:?}\n{top}\n\
         [[listen]]\naddress = \"{listen}\"\n{listen_lines}\n\
         [relay]\nfrom = [\"127.0.0.1/32\"]\n\
         [spool]\n{spool}\n\
         [local]\ndomains = [\"local.test\"]\ndeliver = {deliver:?}\n\
         {routes}\n{sink}\
         [[route]]\ndomain = \"hold.test\"\nto = \"hold\"\n\
         [[route]]\ndomain = \"*.hold.test\"\nto = \"hold\"\n{tables}\n"
    )
}
