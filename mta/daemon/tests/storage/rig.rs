//! A mailer whose next hop is closed, the messages that it has promised, and the comparison at the end.
//!
//! Must never forget a message that got its 250.

use crate::strace::Strace;
use crate::support::load::Load;
use crate::support::sink::Closed;
use crate::support::{
    Client, Daemon, Mail, PATIENCE, Reply, Script, Setup, Sink, free_port, token, until,
};
use crate::volume::Volume;
use needs::Need;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Settings with segments so small that a few messages fill one, and with one commit at a time, so that the
/// n-th call is the same each time.
pub const SMALL: &str = "segment_bytes = \"1MiB\"\nbatch_bytes_max = \"256KiB\"\n\
    reserve_bytes = \"1MiB\"\nsnapshot_log_bytes = \"4MiB\"\nkeep_free_bytes = 0\n\
    commits_in_flight = 1";

/// The program under test.
pub const POSTHASTE: &str = env!("CARGO_BIN_EXE_posthaste");

/// Upper bound on the copies of one message that the faults of a test can cause: one for each end of the
/// mailer.
const COPIES_MAX: usize = 3;

const RETRY_SOON: &str = "[retry]\nfirst = \"1s\"\nlongest = \"1s\"\njitter = 0\n";

/// Upper bound on the CPU time of a waiting process in one second, in percent. A process that spins takes about
/// 100.
const IDLE_PERCENT_MAX: f64 = 40.0;

/// True if a file system of this kind can be created in an image and mounted here.
pub fn can_mount(kind: &'static str) -> bool {
    needs::met(&[Need::Root("mount"), Need::Image(kind)])
}

/// True if `strace` can make system calls of the mailer fail here.
pub fn can_trace() -> bool {
    needs::met(&[Need::Root("strace"), Need::Tracing])
}

/// A message of these tests. Its recipient and its text depend only on its token.
pub fn body(token: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 80);
    for line in 0.. {
        if text.len() >= bytes {
            break;
        }
        text += &format!("{token} line {line} of this message and of no other\r\n");
    }
    text
}

/// The mailer, its next hop, and the promised messages.
pub struct Rig {
    pub daemon: Daemon,
    closed: Option<Closed>,
    sink: Option<Sink>,
    /// The length of each promised body, by token.
    promised: BTreeMap<String, usize>,
    refused: BTreeSet<String>,
}

impl Rig {
    /// A mailer with its state directory on a file system of the test.
    pub fn on(volume: &Volume) -> Rig {
        Rig::start(Setup { state: Some(volume.path.join("state")), ..Setup::default() })
    }

    /// The same with the settings of `setup`.
    pub fn start(setup: Setup) -> Rig {
        let closed = Closed::bind();
        let spool = if setup.spool.is_empty() { SMALL.into() } else { setup.spool };
        let retry = if setup.tables.contains("[retry]") { "" } else { RETRY_SOON };
        let tables = format!("{retry}{}", setup.tables);
        let daemon = Daemon::start(Setup { sink_port: closed.port, spool, tables, ..setup });
        Rig {
            daemon,
            closed: Some(closed),
            sink: None,
            promised: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }

    /// A mailer with its state directory in the usual place.
    pub fn usual() -> Rig {
        Rig::start(Setup::default())
    }

    /// The process id of the queue process.
    pub fn queue(&self) -> u32 {
        self.daemon.pids_of("queue")[0]
    }

    /// Makes calls of the threads with this name fail.
    pub fn inject(&self, thread: &str, injections: &[&str]) -> Strace {
        Strace::thread(self.queue(), thread, injections)
    }

    /// Makes calls of all threads of the queue process fail.
    pub fn inject_everywhere(&self, injections: &[&str]) -> Strace {
        Strace::process(self.queue(), injections)
    }

    /// Offers one message. Returns the last reply.
    pub fn offer(&mut self, bytes: usize) -> Reply {
        self.offer_one(bytes).1
    }

    fn offer_one(&mut self, bytes: usize) -> (String, Reply) {
        let token = format!("{};", token("m"));
        let reply = offer(self.daemon.port, &token, bytes);
        match reply.code {
            250 => drop(self.promised.insert(token.clone(), bytes)),
            _ => drop(self.refused.insert(token.clone())),
        }
        (token, reply)
    }

    /// Offers one message that must be accepted.
    pub fn promise(&mut self, bytes: usize) -> String {
        let (token, reply) = self.offer_one(bytes);
        assert_eq!(reply.code, 250, "{reply:?}");
        token
    }

    /// Offers `count` messages that must be accepted.
    pub fn promise_many(&mut self, count: usize, bytes: usize) {
        (0..count).for_each(|_| drop(self.promise(bytes)));
    }

    /// Offers `count` messages. Returns the replies other than 250, as code and enhanced code.
    pub fn offer_many(&mut self, count: usize, bytes: usize) -> Vec<String> {
        let replies = (0..count).map(|_| self.offer(bytes));
        let bad = replies.filter(|reply| reply.code != 250);
        bad.map(|reply| format!("{} {}", reply.code, reply.enhanced())).collect()
    }

    /// Offers messages until one is accepted.
    pub fn until_taken(&mut self) {
        until("a message to be taken again", || (self.offer(200).code == 250).then_some(()));
    }

    /// Adds the promised messages of a load to the comparison.
    pub fn add(&mut self, load: Load, bytes: usize) {
        self.promised.extend(load.stop().into_iter().map(|token| (token, bytes)));
    }

    /// Removes a message that was deleted on purpose.
    pub fn forget(&mut self, token: &str) {
        self.promised.remove(token);
    }

    /// Takes over the promised messages of another rig.
    pub fn promised_as(&mut self, other: &Rig) {
        self.promised = other.promised.clone();
    }

    pub fn promised(&self) -> usize {
        self.promised.len()
    }

    /// Opens the next hop.
    pub fn open_sink(&mut self) -> Sink {
        self.open_sink_with(Script::default())
    }

    /// Opens the next hop with these replies.
    pub fn open_sink_with(&mut self, script: Script) -> Sink {
        if let Some(closed) = self.closed.take() {
            self.sink = Some(closed.open(script));
            // The queue is run at once. A mailer that cannot store anything may refuse the command.
            let _ = self.daemon.command(&["queue", "flush"]);
        }
        self.sink.clone().unwrap()
    }

    /// Tries to start the stopped mailer, which must exit with an error. Returns its message.
    pub fn refuses_to_start(&self) -> String {
        refused_start(&self.daemon.directory.join("posthaste.toml"))
    }

    /// The same for another mailer with this state directory and a port of its own.
    pub fn refuses_elsewhere(&self, state: &Path) -> String {
        let settings = self.daemon.directory.join("posthaste.toml");
        let settings = std::fs::read_to_string(settings).unwrap();
        let ours = |port: u16| format!("127.0.0.1:{port}\"\n");
        let settings = settings
            .replace(&format!("{:?}", self.daemon.state()), &format!("{state:?}"))
            .replace(&ours(self.daemon.port), &ours(free_port()));
        let file = self.daemon.directory.join("another.toml");
        std::fs::write(&file, settings).unwrap();
        refused_start(&file)
    }

    /// Kills all processes and starts the mailer again.
    pub fn restart(&self) {
        self.daemon.kill();
        self.daemon.start_again();
    }

    /// Opens the next hop, waits until the queue is empty, and compares token by token. Returns the number of
    /// copies beyond the first of each message.
    pub fn drain(&mut self) -> usize {
        let sink = self.open_sink();
        self.wait_for_empty_queue();
        let (lost, twice) = self.compare(&sink.mails());
        let some: Vec<_> = lost.iter().take(3).collect();
        assert!(lost.is_empty(), "{} of {} lost: {some:?}", lost.len(), self.promised.len());
        twice
    }

    /// The recipients that may get duplicates according to the log when writes first failed: those with sending
    /// processes, and those whose outcome was not synced.
    pub fn may_come_twice(&self) -> usize {
        let log = self.daemon.log();
        let line = log.lines().find(|line| line.contains("writes fail: ")).expect("waited for");
        let (_, said) = line.split_once("writes fail: ").expect("just found");
        let said = said.split_once(';').map_or(said, |(numbers, _)| numbers);
        said.split_whitespace().filter_map(|word| word.parse::<usize>().ok()).sum()
    }

    /// Waits until the queue is empty and that is on the disk.
    pub fn wait_for_empty_queue(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.daemon.queued() > 0 {
            if Instant::now() > deadline {
                let left = self.daemon.queue(&[]);
                let id = left[0]["id"].as_str().unwrap_or("").to_owned();
                let why = self.daemon.command(&["queue", "explain", &id]).stdout;
                let why = String::from_utf8_lossy(&why);
                panic!("{} messages stay in the queue: {}\n{why}", left.len(), left[0]);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.settle();
    }

    /// The last outcomes may still be on their way to the disk. There is one commit at a time, so a message
    /// that is promised now follows them. After a fault there may be no room for a message yet.
    fn settle(&self) {
        let word = token("settle");
        until("a last message to be promised", || {
            let to = format!("{word}@hold.test");
            let mut client = Client::in_data(self.daemon.port, "a@client.test", &to);
            client.send("Subject: settle;\r\n\r\nxxx\r\n.\r\n");
            let reply = client.reply();
            assert!([250, 452].contains(&reply.code), "{reply:?}");
            (reply.code == 250).then_some(())
        });
        let recipient = format!("{word}@hold.test");
        let delete = self.daemon.command(&["queue", "delete", "--yes", "--recipient", &recipient]);
        assert!(delete.status.success(), "{}", String::from_utf8_lossy(&delete.stderr));
    }

    /// The promised messages that are not among these, and the number of messages that arrived more than once.
    /// Asserts that each message is as it was sent, and was sent to its own recipient.
    pub fn compare(&self, mails: &[Mail]) -> (Vec<String>, usize) {
        let mut copies: BTreeMap<String, usize> = BTreeMap::new();
        for mail in mails.iter().filter(|mail| !mail.from.contains("<>")) {
            let token = intact(mail);
            if let Some(bytes) = self.promised.get(&token) {
                assert!(content(mail).len() >= *bytes, "{token} is cut short");
            }
            *copies.entry(token).or_default() += 1;
        }
        let lost = self.promised.keys().filter(|token| !copies.contains_key(*token));
        let more = copies.iter().find(|(_, count)| **count > COPIES_MAX);
        assert!(more.is_none(), "again and again: {more:?}");
        (lost.cloned().collect(), copies.values().map(|count| count - 1).sum())
    }

    /// Asserts that no refused message has arrived.
    pub fn refused_stay_away(&self) {
        let mails = self.sink.as_ref().expect("drained before").mails();
        let ours = mails.iter().filter(|mail| !mail.from.contains("<>"));
        let came = ours.map(intact).filter(|token| self.refused.contains(token));
        assert_eq!(came.collect::<Vec<_>>(), Vec::<String>::new(), "refused, and delivered");
    }

    /// Asserts that the queue process waits between its attempts to write.
    pub fn does_not_spin(&self) {
        let pid = self.queue();
        let (start, before) = (Instant::now(), cpu_seconds(pid));
        std::thread::sleep(Duration::from_millis(700));
        let percent = (cpu_seconds(pid) - before) / start.elapsed().as_secs_f64() * 100.0;
        assert!(percent < IDLE_PERCENT_MAX, "the queue process takes {percent:.0} % of a core");
    }

    /// The spool in the state directory.
    pub fn spool(&self) -> PathBuf {
        self.daemon.state().join("spool")
    }
}

fn refused_start(settings: &Path) -> String {
    let mut command = Command::new("timeout");
    command.args(["30", POSTHASTE, "run", "--config"]).arg(settings).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code().is_some_and(|code| code != 0 && code != 124), "started: {said}");
    said
}

/// The part of a message below its header section.
fn content(mail: &Mail) -> String {
    String::from_utf8_lossy(mail.body()).into_owned()
}

/// The token of a message that is exactly as it was sent.
pub fn intact(mail: &Mail) -> String {
    let text = mail.text();
    let subject = text.lines().find_map(|line| line.strip_prefix("Subject: "));
    let token = subject.unwrap_or_else(|| panic!("no token in {text:.300}")).to_string();
    let sent = content(mail);
    if sent.starts_with('x') {
        assert!(sent.trim_end().bytes().all(|byte| byte == b'x'), "damaged: {token}");
    } else {
        assert!(sent == body(&token, sent.len()), "damaged: {token}");
        let to = format!("TO:<{}@sink.test>", token.trim_end_matches(';'));
        assert!(mail.to.len() == 1 && mail.to[0].starts_with(&to), "{token} for {:?}", mail.to);
    }
    token
}

/// Sends one message over a connection of its own. Returns the reply to it, or the first reply that is not
/// positive.
pub fn offer(port: u16, token: &str, bytes: usize) -> Reply {
    let mut client = Client::connect(port);
    let greeting = client.reply();
    if greeting.code != 220 {
        return greeting;
    }
    client.ask("EHLO client.test", 250);
    let word = token.trim_end_matches(';');
    for line in [format!("MAIL FROM:<{word}@client.test>"), format!("RCPT TO:<{word}@sink.test>")] {
        let reply = client.command(&line);
        if reply.code != 250 {
            return reply;
        }
    }
    let reply = client.command("DATA");
    if reply.code != 354 {
        return reply;
    }
    client.send(format!("Subject: {token}\r\n\r\n{}.\r\n", body(token, bytes)));
    client.reply()
}

/// The CPU time of a process so far.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks: f64 = [11, 12].iter().map(|at| fields[*at].parse::<f64>().unwrap()).sum();
    ticks / 100.0
}
