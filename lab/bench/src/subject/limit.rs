//! No mailer: the source sends straight to the sink, which is the fastest that can be measured here.
//!
//! Must never start anything.

use super::versions::Versions;
use super::{Phase, Setup, Site, Subject, usual_recipient};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// See the module.
pub struct Limit;

impl Subject for Limit {
    fn name(&self) -> &str {
        "limit"
    }

    fn version(&self, _: &Site, _: &Versions) -> Result<String> {
        Ok(env!("CARGO_PKG_VERSION").into())
    }

    fn refuses(&self, setup: &Setup) -> Option<String> {
        let why = || "it is the sink, which has no mailboxes".into();
        setup.duty.is_local().then(why).or_else(|| setup.beyond(&[]))
    }

    fn configure(&self, _: &Site) -> Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn command(&self, _: &Site, _: Phase) -> Option<Command> {
        None
    }

    fn address(&self, site: &Site) -> String {
        format!("127.0.0.1:{}", site.next_hop)
    }

    fn recipient(&self, site: &Site) -> String {
        usual_recipient(site)
    }

    fn flush(&self, _: &Site) -> Option<Command> {
        None
    }

    fn queued(&self, _: &Site) -> Result<u64> {
        Ok(0)
    }
}
