//! How the mailer is set in a plan.
//!
//! Must never draw from the randomness of another part: a plan would change with what is taken away.

use super::{ROUTED, chance, one_in, pick};
use std::time::Duration;
use world::Rng as _;
use world::sim::Rng;

/// The purpose of chance for lists, long replies and little room for notices, which came later,
/// too.
const LISTS: u64 = 10;

/// One plan in this number has lists.
const LISTS_EVERY: u64 = 6;

/// The purpose for the settings of the local process and the trouble of its workers.
const LOCAL: u64 = 12;

/// One plan in this many has more mail for mailboxes here than for next hops.
const LOCAL_EVERY: u64 = 6;

/// In a plan in which nothing goes wrong a drain has time for all deliveries that have begun, so that
/// nothing comes twice.
const QUIET_DRAIN_TIME: Duration = Duration::from_secs(3_600);

/// The purpose for the limits of receiving processes.
const RECEIVE: u64 = 16;

/// One plan in this many has small limits.
const SMALL_LIMITS_EVERY: u64 = 3;

/// The purpose for the settings of the sending processes, and for the next hop that takes no mail.
const SEND: u64 = 14;

/// One plan in this many has a next hop that greets everybody with 554.
const CLOSED_EVERY: u64 = 4;

/// The purpose for half of the quiet plans: there, attempts have several recipients here and batches have one.
const QUIET: u64 = 17;

/// How the mailer is set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For the spool; small, so that every mechanism is met often.
    pub spool: spool::Settings,
    /// For the scheduler.
    pub scheduler: scheduler::Settings,
    /// Receiving processes.
    pub receivers: u16,
    /// Sending processes.
    pub senders: u16,
    /// Memory for messages at hand: small ones are read back from the disk.
    pub message_cache_bytes_max: usize,
    /// What receivers may have staged.
    pub credit_bytes: u64,
    /// Bytes on the disk at most.
    pub room: u64,
    /// For a receiving process.
    pub receive: receive::Settings,
    /// Connections that a receiving process takes at once.
    pub connections_max: u32,
    /// Octets of a body that a session hands over at once.
    pub body_chunk_bytes: usize,
    /// Bytes that next hops add to what they say of a recipient.
    pub reply_bytes: usize,
    /// The number of connections to next hops that meet trouble, of a thousand.
    pub sink_trouble: u64,
    /// For the local process.
    pub local: LocalSettings,
    /// For the processes that send to next hops.
    pub send: SendSettings,
}

/// The settings of the processes that send to next hops, and the next hop that refuses all mail.
#[derive(Clone, Copy, Debug)]
pub struct SendSettings {
    /// Upper bound on the connections of one process.
    pub connections_max: usize,
    /// How long a connection without work is kept.
    pub idle: Duration,
    /// The domain whose next hop greets with 554: all its recipients are refused.
    pub closed: Option<u8>,
}

/// How the local process is set.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// Who delivers.
    pub deliverers: Deliverers,
    /// The bounds of its machine.
    pub limits: local::LocalLimits,
    /// Of a thousand batches, this many meet a worker in trouble.
    pub trouble: u64,
    /// Half of the recipients that would be elsewhere are here.
    pub has_much: bool,
}

/// Who delivers to mailboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliverers {
    /// The local process itself.
    ThisProcess,
    /// A worker for each recipient, who are users of the system.
    WorkerEach,
    /// One worker for all recipients: their mail goes to a program.
    OneWorker,
}

impl LocalSettings {
    /// The settings of its machine.
    pub fn settings(&self) -> local::Settings {
        let text = |text: &str| local::Piece::Text(text.into());
        let path = local::Template(vec![text("/mail/"), local::Piece::User]);
        let program = local::Template(vec![text("/bin/deliver")]);
        let (deliver, users) = match self.deliverers {
            Deliverers::ThisProcess => (local::Deliver::Maildir(path), local::Users::Any),
            Deliverers::WorkerEach => (local::Deliver::Maildir(path), local::Users::System),
            Deliverers::OneWorker => (local::Deliver::Pipe(vec![program]), local::Users::Any),
        };
        let mailboxes =
            policy::Mailboxes { names: policy::Names::default(), accounts: policy::Accounts::Any };
        let limits = self.limits;
        local::Settings { state: "/state".into(), deliver, users, mailboxes, limits }
    }
}

pub(super) fn settings(seed: u64, draw: &mut Rng, span: Duration) -> Settings {
    let segment_bytes = pick(draw, &[64 << 10, 64 << 10, 128 << 10, 256 << 10]);
    let spool = spool::Settings {
        segment_bytes,
        batch_bytes_max: pick(draw, &[4 << 10, 8 << 10, segment_bytes / 4]),
        commits_in_flight: pick(draw, &[1, 1, 2, 4]),
        reserve_bytes: u64::from(segment_bytes),
        keep_free_bytes: 128 << 10,
        bulk_body_bytes_min: pick(draw, &[9_000, 30_000, 1 << 20]),
        chunk_bytes_max: pick(draw, &[1_000, 4 << 10, segment_bytes / 8]),
        snapshot_log_bytes: pick(draw, &[16 << 10, 64 << 10, 256 << 10]),
        snapshot_log_factor: 1,
        snapshot_slice_messages: pick(draw, &[1, 3, 100]),
        staged_bytes_max: pick(draw, &[64 << 10, 1 << 20, 16 << 20]),
        spares: pick(draw, &[1, 2, 3]),
        change_delay_ms_max: pick(draw, &[1, 20, 200]),
        recent_transactions_max: 1_000,
        zero_slice_bytes: pick(draw, &[4 << 10, 64 << 10]),
        // With 2, small chunks in padded batches would be copied for ever.
        copy_forward_divisor: pick(draw, &[4, 4, 8]),
        create: true,
        ..spool::Settings::for_tests()
    };
    let scheduler = scheduler::Settings {
        retry: scheduler::Retry {
            first: pick(draw, &[Duration::from_secs(1), Duration::from_secs(300)]),
            factor: 2.0,
            longest: Duration::from_secs(4 * 3600),
            expire: Duration::from_secs(5 * 86_400).max(span * 2),
            jitter: 0.1,
        },
        default: scheduler::DestinationLimits {
            connections: pick(draw, &[1, 3, 100]),
            start_connections: pick(draw, &[1, 20]),
            messages_per_connection: pick(draw, &[1, 2, 100]),
            recipients_per_message: pick(draw, &[1, 2, 100]),
            rate_per_second: None,
        },
        attempts_in_flight_max: pick(draw, &[2, 1_000]),
        bulk_bytes_min: 20_000,
        ..scheduler::Settings::for_tests()
    };
    let local = local_settings(seed, &scheduler);
    let send = send_settings(seed);
    Settings {
        spool,
        scheduler,
        receivers: pick(draw, &[1, 1, 2]),
        senders: pick(draw, &[1, 1, 2]),
        message_cache_bytes_max: pick(draw, &[0, 10_000, 1 << 20]),
        credit_bytes: pick(draw, &[20_000, 1 << 20]),
        room: u64::from(segment_bytes) * pick(draw, &[14, 20, 256]),
        receive: receive::Settings {
            session_memory_bytes_max: 64 << 20,
            recipients_bytes_max: segment_bytes as usize / 2,
            commit_timeout: Duration::from_secs(600),
        },
        connections_max: 1_000,
        body_chunk_bytes: pick(draw, &[1_000, 8 << 10, 64 << 10]),
        reply_bytes: 0,
        sink_trouble: pick(draw, &[0, 30, 300]),
        local,
        send,
    }
}

pub(super) fn without_trouble(seed: u64, mut settings: Settings) -> Settings {
    settings.sink_trouble = 0;
    settings.local.trouble = 0;
    settings.local.limits.drain_time_max = QUIET_DRAIN_TIME;
    // A drain can only deliver a message twice if an attempt has several recipients here.
    settings.local.has_much = true;
    if one_in(&mut chance(seed, QUIET), 2) {
        settings.scheduler.default.recipients_per_message = 100;
        settings.local.limits.batch_items_max = 1;
        settings.local.limits.workers_max = 1;
    }
    settings
}

/// Has chance of its own, so that the rest of a plan is what it was before there was a machine.
fn local_settings(seed: u64, scheduler: &scheduler::Settings) -> LocalSettings {
    let mut draw = chance(seed, LOCAL);
    let draw = &mut draw;
    let ms = Duration::from_millis;
    LocalSettings {
        deliverers: pick(
            draw,
            &[Deliverers::ThisProcess, Deliverers::WorkerEach, Deliverers::OneWorker],
        ),
        limits: local::LocalLimits {
            attempts_max: scheduler.attempts_in_flight_max * 2,
            fetches_max: pick(draw, &[1, 2, 8]),
            batch_items_max: pick(draw, &[1, 3, 200]),
            workers_max: pick(draw, &[1, 2, 64]),
            worker_idle_max: pick(draw, &[ms(100), ms(60_000)]),
            batch_time_max: pick(draw, &[ms(5_000), ms(3_600_000)]),
            drain_time_max: pick(draw, &[ms(10), ms(8_000)]),
        },
        trouble: pick(draw, &[0, 100, 400]),
        has_much: one_in(draw, LOCAL_EVERY),
    }
}

fn send_settings(seed: u64) -> SendSettings {
    let mut draw = chance(seed, SEND);
    let draw = &mut draw;
    SendSettings {
        connections_max: pick(draw, &[1, 2, 3, 1_000]),
        idle: pick(draw, &[Duration::from_millis(30), Duration::from_secs(5)]),
        closed: one_in(draw, CLOSED_EVERY).then(|| draw.below(u64::from(ROUTED)) as u8),
    }
}

/// Gives some plans receiving processes with little memory, little patience or few connections.
pub(super) fn draw_limits(seed: u64, settings: &mut Settings) {
    let mut draw = chance(seed, RECEIVE);
    if one_in(&mut draw, SMALL_LIMITS_EVERY) {
        let least = receive::MESSAGE_BYTES_MIN as u64;
        let memory = [least, least * 3 / 2, least * 2, least * 4, 64 << 20];
        settings.receive.session_memory_bytes_max = pick(&mut draw, &memory);
        settings.receive.commit_timeout = Duration::from_secs(pick(&mut draw, &[2, 10, 60, 600]));
        settings.connections_max = pick(&mut draw, &[1, 4, 1_000, 1_000]);
    }
}

/// Whether the plan has lists; where it has, replies may be long and notices have little room.
pub(super) fn make_lists(seed: u64, settings: &mut Settings) -> bool {
    let mut draw = chance(seed, LISTS);
    let lists = one_in(&mut draw, LISTS_EVERY);
    if lists {
        settings.reply_bytes = pick(&mut draw, &[0, 100, 440]);
        settings.spool.own_bytes_max = pick(&mut draw, &[6_000, 20_000, 60_000, 32 << 20]);
    }
    lists
}
