//! The settings file.
//!
//! Must never read the file of this machine.

use crate::memory;
use settings::{HostEnvironment, ProcessConfig, Settings, System, load, render};
use std::path::PathBuf;

/// Any bytes as a settings file: either all that is wrong with it is said, or it can be used.
pub fn settings(data: &[u8]) {
    let system = System { hostname: "host.test".into(), state: PathBuf::from("/state") };
    let bound = 1_024 * data.len() + (4 << 20);
    match memory::within(bound, || load(data, "posthaste.toml", &system)) {
        Ok(settings) => usable(settings),
        Err(problems) => {
            assert!(!problems.is_empty() && problems.len() <= 200);
            let text = render(&problems);
            assert!(text.contains("posthaste.toml"), "{text}");
        }
    }
}

/// What passed the check works in every process.
fn usable(settings: Settings) {
    let environment = HostEnvironment::default();
    assert_eq!(settings.spool().problem(), None);
    settings.scheduler();
    settings.gateway();
    settings.pool(&environment, 0, 0);
    let policy = settings.policy(&environment);
    for listen in &settings.listen {
        for trusted in [false, true] {
            let smtp = settings.smtp(listen, trusted);
            assert!(smtp.command_bytes_max >= 512 && smtp.recipients_max() >= 1);
            smtp::server::Server::new(smtp);
        }
        settings.listener(listen, u32::MAX);
    }
    for domain in &settings.local.domains {
        assert!(policy.routes.is_own(domain));
    }
    let config = ProcessConfig { settings, environment };
    let bytes = postcard::to_stdvec(&config).expect("memory takes any number of bytes");
    assert_eq!(postcard::from_bytes::<ProcessConfig>(&bytes), Ok(config), "it crosses unchanged");
}
