//! System calls of a running process that `strace` makes fail.
//!
//! Must never be believed unless the trace contains the failed call.

use crate::support::{token, until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An attached strace.
pub struct Strace {
    child: Child,
    directory: PathBuf,
}

/// The threads of the queue process by name. With one commit in flight there is one thread for commits.
pub fn thread(pid: u32, name: &str) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let mut found = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let task = found.next().unwrap_or_else(|| panic!("process {pid} has no thread {name}"));
    task.file_name().to_str().unwrap().parse().unwrap()
}

impl Strace {
    /// Injects into all threads of a process. The counts (`when`) are separate for each thread.
    pub fn process(pid: u32, injections: &[&str]) -> Strace {
        Strace::attach(&["-f", "-p", &pid.to_string()], injections)
    }

    /// Injects into one thread.
    pub fn thread(pid: u32, name: &str, injections: &[&str]) -> Strace {
        Strace::attach(&["-p", &thread(pid, name).to_string()], injections)
    }

    /// Attaches strace. Each injection is `CALL:error=…:when=…`. A call that must fail is replaced by a call
    /// without an effect that the jail allows. An invalid number would kill the process.
    fn attach(target: &[&str], injections: &[&str]) -> Strace {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(token("strace"));
        std::fs::create_dir_all(&directory).unwrap();
        let calls: Vec<&str> = injections.iter().filter_map(|one| one.split(':').next()).collect();
        let mut command = Command::new("strace");
        command.args(target).arg("-y").arg("-e").arg(format!("trace={}", calls.join(",")));
        for one in injections {
            let harmless = if one.contains("delay") { "" } else { ":syscall=gettid" };
            command.arg("-e").arg(format!("inject={one}{harmless}"));
        }
        let said = std::fs::File::create(directory.join("said")).unwrap();
        command.arg("-o").arg(directory.join("trace")).stdin(Stdio::null()).stderr(said);
        let child = command.spawn().unwrap_or_else(|error| panic!("strace: {error}"));
        let mut strace = Strace { child, directory };
        until("strace to be attached", || {
            let said = strace.said();
            let ended = strace.child.try_wait().unwrap();
            assert!(ended.is_none(), "strace ended: {said}");
            said.contains(" attached").then_some(())
        });
        strace
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.directory.join("said")).unwrap_or_default()
    }

    /// The calls so far, one in each line.
    pub fn trace(&self) -> String {
        let bytes = std::fs::read(self.directory.join("trace")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The calls so far whose result was changed.
    pub fn injected(&self) -> usize {
        let trace = self.trace();
        trace.matches("(INJECTED)").count() + trace.matches("(DELAYED)").count()
    }

    /// Detaches from the process. Returns the traced calls.
    pub fn detach(mut self) -> String {
        self.end();
        self.trace()
    }

    fn end(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            crate::support::daemon::signal_to(self.child.id(), libc::SIGINT);
            let deadline = Instant::now() + DETACH_TIME_MAX;
            while self.child.try_wait().is_ok_and(|status| status.is_none()) {
                if Instant::now() > deadline {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// If the process dies while strace detaches, strace can wait forever for the first thread, which is reaped
/// after all others.
const DETACH_TIME_MAX: Duration = Duration::from_secs(5);

impl Drop for Strace {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
