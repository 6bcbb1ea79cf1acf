//! What a mailer used during a run, as values of the run.
//!
//! Must never end after the mailer: nothing can be read about processes that have ended.

use crate::machine;
use crate::watch::{Family, Usage};
use anyhow::Result;
use report::record::Run;
use std::path::Path;

/// A measurement in progress; empty if no mailer runs.
pub struct Meter(Option<Usage>);

impl Meter {
    /// Begins to measure all processes of `family` and the disk under `queue`.
    pub fn begin(family: Option<&Family>, queue: &Path) -> Result<Meter> {
        let device = machine::device_under(queue)?;
        Ok(Meter(family.map(|family| Usage::begin(family, device))))
    }

    /// Ends the measurement, during which `messages` were accepted.
    pub fn end(self, run: &mut Run, messages: f64) {
        let Some(usage) = self.0 else { return };
        let used = usage.end();
        let each = |sum: f64| sum / messages.max(1.0);
        let written = used.disk_written_bytes.map(|bytes| each(bytes as f64));
        let values = [
            ("cpu_ms_per_message", Some(each((used.cpu_user_s + used.cpu_system_s) * 1000.0))),
            ("cpu_user_s", Some(used.cpu_user_s)),
            ("cpu_system_s", Some(used.cpu_system_s)),
            ("peak_memory_mib", used.peak_pss_mib),
            ("processes_max", Some(used.processes_max as f64)),
            ("disk_flushes_per_message", used.disk_flushes.map(|flushes| each(flushes as f64))),
            ("disk_written_bytes_per_message", written),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                run.values.insert(name.into(), value);
            }
        }
        run.how.insert("usage".into(), used.how);
    }
}
