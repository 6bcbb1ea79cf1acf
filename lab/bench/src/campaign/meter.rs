//! What a mailer used during a run, written into the run's line.
//!
//! Must never run on while the mailer is stopped: of the dead nothing can be read.

use crate::machine;
use crate::watch::{Family, Usage};
use anyhow::Result;
use report::record::Run;
use std::path::Path;

/// A measurement under way; nothing where no mailer runs.
pub struct Meter(Option<Usage>);

impl Meter {
    /// Of all processes of `family`, and of the disk under `queue`.
    pub fn begin(family: Option<&Family>, queue: &Path) -> Result<Meter> {
        let device = machine::device_under(queue)?;
        Ok(Meter(family.map(|family| Usage::begin(family, device))))
    }

    /// Up to now; `messages` were accepted meanwhile.
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
