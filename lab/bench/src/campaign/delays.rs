//! Percentiles of a run's delays as values, so that runs can be compared by them.
//!
//! Must never replace the histograms, which have every message.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use report::record::Run;

/// The suffix of a value's name, and the quantile.
const SHARES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)];

/// Keeps `accept_p50_ms` to `arrive_p99_9_ms` and `arrive_max_ms`, as far as there are histograms.
pub fn keep(run: &mut Run) -> Result<()> {
    for kind in ["accept", "arrive"] {
        let Some(text) = run.histograms.get(kind) else { continue };
        let delays: Histogram<u64> = Deserializer::new()
            .deserialize(&mut STANDARD.decode(text)?.as_slice())
            .with_context(|| format!("the histogram {kind} of source or sink cannot be read"))?;
        for (name, share) in SHARES {
            let ms = delays.value_at_quantile(share) as f64 / 1000.0;
            run.values.insert(format!("{kind}_{name}_ms"), ms);
        }
        run.values.insert(format!("{kind}_max_ms"), delays.max() as f64 / 1000.0);
    }
    Ok(())
}
