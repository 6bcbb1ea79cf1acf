//! Kills the mailer as a crash does and waits until its queue is open again.
//!
//! Must never let the mailer end properly: it must not write anything for the next start.

use super::{Bench, median};
use crate::running::{Running, SAID};
use crate::subject::Subject;
use anyhow::{Context, Result, ensure};
use report::record::Run;
use std::time::Instant;

/// See the module.
pub fn reopen(bench: &Bench, running: &mut Running, run: &mut Run) -> Result<()> {
    let said = bench.site.log.join(SAID);
    let (mut greets, mut opens, mut replayed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.options.repeats.max(1) {
        running.kill()?;
        std::fs::write(&said, "")?;
        let start = Instant::now();
        *running = bench.start()?;
        greets.push(start.elapsed().as_secs_f64() * 1e3);
        let messages = bench.subject.queued(bench.site)?;
        ensure!(messages == bench.cell.queued, "{messages} of {} came back", bench.cell.queued);
        let text = std::fs::read_to_string(&said)?;
        let line = text.lines().find(|line| line.contains("\"spool open\""));
        let line = line.context("the mailer does not say that its spool is open")?;
        opens.push(field(line, "delay").context("no delay")? * 1e3);
        replayed.push(field(line, "replayed").context("no count")?);
    }
    run.samples.insert("open_ms".into(), opens.clone());
    run.samples.insert("start_ms".into(), greets.clone());
    run.values.insert("open_ms".into(), median(opens));
    run.values.insert("start_ms".into(), median(greets));
    run.values.insert("replayed".into(), median(replayed));
    Ok(())
}

/// Returns NUMBER of `name=NUMBER` in a line of the log.
fn field(line: &str, name: &str) -> Option<f64> {
    let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_the_log_is_found_by_its_whole_name() {
        let line = "2026 queue[1] info msg=\"spool open\" messages=7 replayed=3 delay=1.342";
        assert_eq!(field(line, "delay"), Some(1.342));
        assert_eq!(field(line, "replayed"), Some(3.0));
        assert_eq!(field(line, "play"), None);
    }
}
