//! The settings of the queue machine: of the spool, the scheduler and what wires them.
//!
//! Must never decide anything: what a file can say is decided in `schema`, what follows from it in the machine.

use crate::{DestinationSettings, HostEnvironment, Settings};
use mail::Address;

impl Settings {
    /// Returns the settings of the spool.
    pub fn spool(&self) -> spool::Settings {
        let segment_bytes = self.spool.segment_bytes;
        spool::Settings {
            segment_bytes,
            batch_bytes_max: self.spool.batch_bytes_max,
            commits_in_flight: self.spool.commits_in_flight as usize,
            reserve_bytes: self.spool.reserve_bytes,
            keep_free_bytes: self.spool.keep_free_bytes,
            snapshot_log_bytes: self.spool.snapshot_log_bytes,
            bulk_body_bytes_min: 1 << 20,
            // One chunk is what a sending process fetches at once; a segment must have room for eight.
            chunk_bytes_max: link::send::CHUNK_BYTES_MAX.min(segment_bytes / 8),
            // A snapshot writes the whole index: with 3, snapshots add at most a third to the bytes of the log.
            snapshot_log_factor: 3,
            snapshot_slice_messages: 4096,
            staged_bytes_max: 256 << 20,
            own_bytes_max: 32 << 20,
            spares: 3,
            change_delay_ms_max: 20,
            recent_transactions_max: 65_536,
            zero_slice_bytes: 1 << 20,
            copy_forward_divisor: 8,
            create: true,
        }
    }

    /// Returns the settings of the scheduler.
    pub fn scheduler(&self) -> scheduler::Settings {
        let retry = &self.retry;
        let named = self.destinations.named.iter();
        scheduler::Settings {
            retry: scheduler::Retry {
                first: retry.first,
                factor: retry.factor,
                longest: retry.longest,
                expire: retry.expire,
                jitter: retry.jitter,
            },
            delay_notice: retry.delay_notice,
            default: self.destinations.default.limits(),
            limits: named.map(|(name, one)| (name.clone(), one.limits())).collect(),
            attempts_in_flight_max: self.queue.attempts_in_flight_max,
            bulk_bytes_min: self.queue.bulk_bytes_min,
            losses_max: self.queue.losses_max,
            order: self.queue.order,
        }
    }

    /// Returns the settings of the queue machine.
    pub fn queue(&self, environment: &HostEnvironment) -> queue::Settings {
        let postmaster = format!("MAILER-DAEMON@{}", self.hostname);
        queue::Settings {
            hostname: self.hostname.to_string(),
            postmaster: Address::parse(&postmaster, true).expect("a host name makes a domain"),
            routes: self.routes(environment),
            scheduler: self.scheduler(),
            original_bytes_max: self.bounce.original_bytes_max,
            message_cache_bytes_max: queue::MESSAGE_CACHE_BYTES_MAX,
            credit_bytes: self.limits.session_memory_bytes_max,
            receivers: u16::try_from(self.processes.receive).unwrap_or(u16::MAX),
        }
    }
}

impl DestinationSettings {
    fn limits(&self) -> scheduler::DestinationLimits {
        scheduler::DestinationLimits {
            connections: self.connections,
            start_connections: self.start_connections,
            messages_per_connection: self.messages_per_connection,
            recipients_per_message: self.recipients_per_message,
            rate_per_second: self.rate.map(|rate| f64::from(rate.count) / rate.per.as_secs_f64()),
        }
    }
}
