//! Prints a load's rows while it runs, with the columns that the tool postal has.
//!
//! Must never delay a session: it reads the counts once a row.

use super::load::Plan;
use report::record::Minute;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two checks whether a row is complete.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// The thread that prints.
pub struct Printer {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Printer {
    /// Prints each row on the standard error when it is complete.
    pub fn start(plan: Arc<Plan>) -> Printer {
        let ended = Arc::new(AtomicBool::new(false));
        let thread = {
            let ended = ended.clone();
            std::thread::spawn(move || print_all(&plan, &ended))
        };
        Printer { ended, thread }
    }

    /// Prints the remaining rows.
    pub fn finish(self) {
        self.ended.store(true, Relaxed);
        let _ = self.thread.join(); // a panic there has been printed
    }
}

fn print_all(plan: &Plan, ended: &AtomicBool) {
    eprintln!("time,messages,data(K),errors,connections");
    let every = plan.options.every();
    let mut printed = 0;
    while !ended.load(Relaxed) {
        std::thread::sleep(LOOK_PERIOD);
        let Some(clock) = plan.clock() else { continue };
        if clock.start.at() + every * (printed as u32 + 1) <= Instant::now() {
            print(plan.rows().at(every * printed as u32));
            printed += 1;
        }
    }
    let rows = plan.rows();
    while let Some(row) = rows.get(printed) {
        print(row);
        printed += 1;
    }
}

fn print(row: &Minute) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (hour, minute, second) = (now / 3600 % 24, now / 60 % 60, now % 60);
    let Minute { messages, bytes, errors, connections, .. } = row;
    let kib = bytes / 1024;
    eprintln!("{hour:02}:{minute:02}:{second:02},{messages},{kib},{errors},{connections}");
}
