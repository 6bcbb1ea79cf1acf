//! What happens in one simulation: settings, messages and faults, all drawn from one seed.
//!
//! Must never depend on what the mailer does: each part has chance of its own, so that a plan
//! from which parts are taken away leaves the others as they were.

use mail::{Instant, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;
use world::Rng as _;
use world::sim::Rng;

/// Domains that mail goes to, `d0.test` and so on; the first ones by a route, the last by MX.
pub const DOMAINS: u8 = 4;
/// Of these, the ones with a route.
pub const ROUTED: u8 = 2;
/// The wall clock at the beginning of every simulation: 2026-01-01.
pub const WALL_START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// The purpose of chance for bad reads: one that leaves the seeds alone that failed before them,
const BAD_READS: u64 = 9;
/// and the number of their first.
const BAD_READS_FIRST: u32 = 1_000;
/// The purpose of chance for lists, long replies and little room for notices, which came later,
/// too.
const LISTS: u64 = 10;
/// The purpose for the recipients of a list; the message's number is added.
const LIST_RECIPIENTS: u64 = 2_000_000;
/// One plan in so many has lists.
const LISTS_EVERY: u64 = 6;

/// The same for streams that are cut and poisoned. A purpose of its own: plans with lists are drawn apart.
const STREAMS: u64 = 11;
/// The number of their first.
const STREAMS_FIRST: u32 = 2_000;

/// The purpose for the settings of the local process and the trouble of its workers.
const LOCAL: u64 = 12;
/// The purpose for its ends,
const DRAINS: u64 = 13;
/// and the number of the first.
const DRAINS_FIRST: u32 = 3_000;
/// The purpose for recipients that are moved to mailboxes here; the message's number is added.
const LOCAL_RECIPIENTS: u64 = 3_000_000;
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
/// The purpose for the ends of sending processes,
const SEND_DRAINS: u64 = 15;
/// and the number of the first.
const SEND_DRAINS_FIRST: u32 = 4_000;
/// The purpose for half of the quiet plans: there, attempts have several recipients here and batches have one.
const QUIET: u64 = 17;

/// A simulation before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where all of it comes from.
    pub seed: u64,
    /// How the mailer is set.
    pub settings: Settings,
    /// What clients bring.
    pub mails: Vec<Mail>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// When the last mail has been brought and the last fault has begun.
    pub span: Duration,
    /// What was taken away: names such as `m3` and `f7`.
    pub without: BTreeSet<String>,
}

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
    /// Of a thousand connections to next hops, so many meet trouble.
    pub sink_trouble: u64,
    /// For the local process.
    pub local: LocalSettings,
    /// For the processes that send to next hops.
    pub send: SendSettings,
}

/// How the processes that send to next hops are set, and whom they meet.
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

/// One message.
#[derive(Clone, Debug)]
pub struct Mail {
    /// Its token.
    pub number: u32,
    /// When its client connects.
    pub at: Duration,
    /// Comes from the null sender.
    pub null_sender: bool,
    /// To whom.
    pub recipients: Vec<Recipient>,
    /// Octets of the body.
    pub bytes: u32,
    /// How the client behaves.
    pub client: Manner,
}

/// One recipient.
#[derive(Clone, Copy, Debug)]
pub struct Recipient {
    /// `Some`: a remote domain. `None`: a mailbox here.
    pub domain: Option<u8>,
    /// What its next hop says to it.
    pub fate: Fate,
    /// NOTIFY=NEVER.
    pub never_notify: bool,
}

/// What a next hop says to a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Takes it.
    Taken,
    /// Defers it so many times before.
    Deferred(u8),
    /// Defers it for ever.
    Never,
    /// Refuses it.
    Refused,
}

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Sends its commands in one go.
    pub pipelining: bool,
    /// With BDAT, in pieces of this size.
    pub bdat: Option<u32>,
    /// Octets in one segment, and between segments this long.
    pub segment: usize,
    /// Between its segments.
    pub pause: Duration,
    /// What goes wrong with its connection, and after how many octets.
    pub trouble: Option<(u32, Trouble)>,
}

/// What goes wrong with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is reset.
    Reset,
    /// One side closes its half and goes on reading.
    HalfClose,
    /// One side says nothing any more.
    Silence,
}

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its name in the plan.
    pub number: u32,
    /// When.
    pub when: When,
    /// What.
    pub what: What,
}

/// When a fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after the beginning.
    At(Duration),
    /// At this step of the disk after the last power cut or the beginning.
    DiskStep(u64),
    /// At this delivery between two of our processes.
    LinkStep(u64),
}

/// One of our processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Station {
    /// Queue.
    Queue,
    /// A receiving process.
    Receive(u16),
    /// A sending process; the last one is local.
    Send(u16),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// The power goes, and comes back so much later.
    PowerCut(Duration),
    /// A process is killed, and started again so much later.
    Kill(Station, Duration),
    /// All processes are killed; the disk's cache stays.
    KillAll(Duration),
    /// The stream between queue and a process breaks although both live.
    Unlink(Station),
    /// On the stream between queue and this process something comes that is no frame; true: from
    /// queue.
    Poison(Station, bool, Poison),
    /// A sending process is told to end, as at a change of the settings, and is started again.
    Drain(Station),
    /// The local process is told to end while a batch is under way: the next batch, if there is none now.
    DrainInBatch,
    /// This sending process says what it was not given.
    Lie(Station, Lie),
    /// So many syncs fail, with a disk that loses what they were for.
    SyncFails(u32),
    /// So many writes fail.
    WriteFails(u32),
    /// So many messages are read with a flipped bit, and right the next time.
    BadReads(u32),
    /// The disk has no more room for a while.
    NoRoom(Duration),
    /// Each operation of the disk takes this long for a while.
    SlowDisk(Duration, Duration),
    /// The wall clock is set so many seconds forward or back.
    ClockJump(i64),
    /// A domain's next hop cannot be reached for a while.
    Down(u8, Duration),
    /// The DNS cannot say for a while.
    NoDns(Duration),
    /// An operator acts on a message.
    Operator(Act),
}

/// What is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// It claims to be longer than any.
    TooLong,
    /// It does not decode.
    Garbage,
    /// It is a frame, but not one for now: a second greeting.
    Greeting,
}

impl Poison {
    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        let header: &[u8] = match self {
            Poison::TooLong => return vec![0xff; 12],
            Poison::Garbage => &[0xfe; 6],
            // The first variant, with numbers of a build that is none.
            Poison::Greeting => &[0, 99, 9, 9, 0, 0],
        };
        [&(header.len() as u32).to_le_bytes(), header].concat()
    }
}

/// What a sending process says that was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// What became of another process's attempt.
    Outcome,
    /// What became of another message, by an attempt of its own.
    Message,
    /// It asks for the body of another message, by an attempt of its own.
    Fetch,
}

/// What an operator does with a message that chance picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the verbs of the command line
pub enum Act {
    Hold,
    Release,
    Retry,
    Delete,
    Priority,
}

/// Chance for one purpose of one seed.
pub fn chance(seed: u64, purpose: u64) -> Rng {
    let mut first = Rng::seeded(seed ^ purpose.wrapping_mul(0x9e6c_63d0_876a_3f6b));
    Rng::seeded(first.u64())
}

/// One of these.
pub fn pick<T: Copy>(chance: &mut Rng, of: &[T]) -> T {
    of[chance.below(of.len() as u64) as usize]
}

fn one_in(chance: &mut Rng, n: u64) -> bool {
    chance.below(n) == 0
}

fn within(chance: &mut Rng, most: Duration) -> Duration {
    Duration::from_nanos(chance.below(most.as_nanos() as u64 + 1))
}

impl Fault {
    /// What it is called in a plan.
    fn name(&self) -> String {
        format!("f{}", self.number)
    }
}

impl Plan {
    /// The plan of a seed, with only the parts that are named.
    pub fn only(seed: u64, parts: &BTreeSet<String>) -> Plan {
        let all = Plan::drawn(seed, &BTreeSet::new()).parts();
        let without = all.into_iter().filter(|part| !parts.contains(part)).collect();
        Plan::drawn(seed, &without)
    }

    /// The plan of a seed, without the parts that are named.
    pub fn drawn(seed: u64, without: &BTreeSet<String>) -> Plan {
        let mut draw = chance(seed, 1);
        let spans = [1, 20, 120, 7_200, 172_800];
        let span = Duration::from_secs(pick(&mut draw, &spans));
        let mut settings = settings(seed, &mut draw, span);
        let lists = make_lists(seed, &mut settings);
        draw_limits(seed, &mut settings);
        let mails = 1 + draw.below(pick(&mut draw.clone(), &[4, 12, 40])) as u32;
        let quiet = one_in(&mut draw, 12);
        let settings = if quiet { without_trouble(seed, settings) } else { settings };
        // Some plans are storms of power cuts: recovery over recovery.
        let storm = one_in(&mut draw, 4);
        let faults = match (quiet, storm) {
            (true, _) => 0,
            (false, true) => 100 + draw.below(200) as u32,
            (false, false) => draw.below(40) as u32,
        };
        let kept = |name: String| !without.contains(&name);
        Plan {
            seed,
            mails: (0..mails)
                .filter(|number| kept(format!("m{number}")))
                .map(|number| mail(seed, number, span, quiet))
                .map(|mail| if lists { list(seed, mail) } else { mail })
                .map(|mail| if settings.local.has_much { deliver_here(seed, mail) } else { mail })
                .map(|mail| refuse_closed(mail, settings.send.closed))
                .collect(),
            faults: (0..faults)
                .filter(|number| kept(format!("f{number}")))
                .map(|number| fault(seed, number, span, &settings, storm))
                .chain(bad_reads(seed, span, quiet).into_iter().filter(|f| kept(f.name())))
                .chain(streams(seed, span, &settings, quiet).into_iter().filter(|f| kept(f.name())))
                .chain(drains(seed, span, &settings, quiet).into_iter().filter(|f| kept(f.name())))
                .chain(send_drains(seed, span, &settings).into_iter().filter(|f| kept(f.name())))
                .collect(),
            settings,
            span,
            without: without.clone(),
        }
    }

    /// Nothing goes wrong in it.
    pub fn is_quiet(&self) -> bool {
        self.faults.iter().all(|fault| matches!(fault.what, What::Drain(_) | What::DrainInBatch))
            && self.settings.sink_trouble == 0
            && self.settings.local.trouble == 0
            && self.mails.iter().all(|mail| mail.client.trouble.is_none())
    }

    /// The names of all parts that are left.
    pub fn parts(&self) -> Vec<String> {
        let mails = self.mails.iter().map(|mail| format!("m{}", mail.number));
        mails.chain(self.faults.iter().map(Fault::name)).collect()
    }

    /// What has to be said to see this plan again.
    pub fn line(&self) -> String {
        let line = format!("cargo xtask swarm --replay {}", self.seed);
        match self.without.is_empty() {
            true => line,
            false => format!("{line} --only {}", self.parts().join(",")),
        }
    }

    /// When the faults end.
    pub fn quiet_at(&self) -> Instant {
        Instant::ZERO + self.span + Duration::from_secs(60)
    }
}

fn settings(seed: u64, draw: &mut Rng, span: Duration) -> Settings {
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

fn without_trouble(seed: u64, mut settings: Settings) -> Settings {
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

/// Moves half of a message's recipients to mailboxes here.
fn deliver_here(seed: u64, mut mail: Mail) -> Mail {
    let mut draw = chance(seed, LOCAL_RECIPIENTS + u64::from(mail.number));
    for recipient in &mut mail.recipients {
        recipient.domain = recipient.domain.filter(|_| one_in(&mut draw, 2));
    }
    mail
}

/// Gives some plans receiving processes with little memory, little patience or few connections.
fn draw_limits(seed: u64, settings: &mut Settings) {
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
fn make_lists(seed: u64, settings: &mut Settings) -> bool {
    let mut draw = chance(seed, LISTS);
    let lists = one_in(&mut draw, LISTS_EVERY);
    if lists {
        settings.reply_bytes = pick(&mut draw, &[0, 100, 440]);
        settings.spool.own_bytes_max = pick(&mut draw, &[6_000, 20_000, 60_000, 32 << 20]);
    }
    lists
}

/// Makes every other message a list, of which many recipients are refused or never taken.
fn list(seed: u64, mut mail: Mail) -> Mail {
    let mut draw = chance(seed, LIST_RECIPIENTS + u64::from(mail.number));
    if one_in(&mut draw, 2) {
        let domain = Some(draw.below(u64::from(DOMAINS)) as u8);
        let fates = [Fate::Taken, Fate::Refused, Fate::Refused, Fate::Never];
        let many = 20 + draw.below(100);
        let one = |_| Recipient { domain, fate: pick(&mut draw, &fates), never_notify: false };
        mail.recipients.extend((0..many).map(one));
    }
    mail
}

fn mail(seed: u64, number: u32, span: Duration, quiet: bool) -> Mail {
    let mut draw = chance(seed, 1_000 + u64::from(number));
    let most = pick(&mut draw, &[1, 1, 1, 3, 8]);
    let recipients = (0..1 + draw.below(most)).map(|_| recipient(&mut draw)).collect();
    let sizes = [0, 200, 200, 200, 3_000, 3_000, 12_000, 40_000, 90_000];
    let bytes = pick(&mut draw, &sizes);
    let bytes = bytes + draw.below(u64::from(bytes) / 4 + 1) as u32;
    let trouble = !quiet && one_in(&mut draw, 6);
    let at = draw.below(u64::from(bytes) + 400) as u32;
    let troubles = [Trouble::Reset, Trouble::Reset, Trouble::HalfClose, Trouble::Silence];
    let trouble = trouble.then(|| (at, pick(&mut draw, &troubles)));
    Mail {
        number,
        at: within(&mut draw, span),
        null_sender: one_in(&mut draw, 12),
        recipients,
        bytes,
        client: Manner {
            pipelining: one_in(&mut draw, 2),
            bdat: one_in(&mut draw, 3).then(|| pick(&mut draw, &[300, 5_000, 1 << 20])),
            segment: pick(&mut draw, &[7, 1_400, 1_400, 64 << 10]).max(bytes as usize / 60),
            pause: pick(&mut draw, &[Duration::ZERO, Duration::from_millis(20)]),
            trouble,
        },
    }
}

fn recipient(draw: &mut Rng) -> Recipient {
    let domain = (!one_in(draw, 5)).then(|| draw.below(u64::from(DOMAINS)) as u8);
    let fate = match draw.below(12) {
        0 => Fate::Refused,
        1 => Fate::Deferred(1 + draw.below(3) as u8),
        2 if one_in(draw, 3) => Fate::Never,
        _ => Fate::Taken,
    };
    Recipient { domain, fate, never_notify: one_in(draw, 15) }
}

fn fault(seed: u64, number: u32, span: Duration, settings: &Settings, storm: bool) -> Fault {
    let mut draw = chance(seed, 1_000_000 + u64::from(number));
    let draw = &mut draw;
    let ms = |draw: &mut Rng, most: u64| Duration::from_millis(1 + draw.below(most));
    let share = (span / 3).max(Duration::from_secs(2));
    let kind = if storm && !one_in(draw, 12) { 0 } else { draw.below(30) };
    let what = match kind {
        0..=13 => What::PowerCut(ms(draw, 5_000)),
        14..=17 => What::Kill(station(draw, settings), ms(draw, 2_000)),
        18 => What::Kill(station(draw, settings), ms(draw, 20_000)),
        19 => What::KillAll(ms(draw, 3_000)),
        20 => What::Unlink(match station(draw, settings) {
            Station::Queue => Station::Receive(0),
            other => other,
        }),
        21 => What::SyncFails(1 + draw.below(4) as u32),
        22 => What::WriteFails(1 + draw.below(4) as u32),
        23 => What::NoRoom(within(draw, share.min(Duration::from_secs(3_600)))),
        24 => What::SlowDisk(within(draw, share), ms(draw, pick(&mut draw.clone(), &[30, 40_000]))),
        25 => What::ClockJump(pick(
            draw,
            &[30, -30, 3_000, -3_000, 40_000, 864_000, -864_000, 31_536_000, -31_536_000],
        )),
        26 => What::Down(draw.below(u64::from(DOMAINS)) as u8, within(draw, share)),
        27 => What::NoDns(within(draw, share)),
        _ => What::Operator(pick(
            draw,
            &[Act::Hold, Act::Release, Act::Retry, Act::Delete, Act::Priority],
        )),
    };
    let when = match what {
        What::PowerCut(_) if storm || !one_in(draw, 4) => {
            let most = if storm { [3, 8, 25] } else { [6, 40, 200] };
            When::DiskStep(1 + draw.below(pick(&mut draw.clone(), &most)))
        }
        What::Kill(..) | What::KillAll(_) | What::Unlink(_) if !one_in(draw, 4) => {
            When::LinkStep(1 + draw.below(300))
        }
        _ => When::At(within(draw, span)),
    };
    Fault { number, when, what }
}

/// Came later than the others, and have chance of their own so that other plans are what they were.
fn bad_reads(seed: u64, span: Duration, quiet: bool) -> Vec<Fault> {
    let mut draw = chance(seed, BAD_READS);
    let few = if !quiet && one_in(&mut draw, 6) { 1 + draw.below(3) as u32 } else { 0 };
    let mut one = |nth| Fault {
        number: BAD_READS_FIRST + nth,
        when: When::At(within(&mut draw, span)),
        what: What::BadReads(1 + draw.below(4) as u32),
    };
    (0..few).map(&mut one).collect()
}

/// Came later than the others, too: streams that end or are poisoned at any step between two
/// processes.
fn streams(seed: u64, span: Duration, settings: &Settings, quiet: bool) -> Vec<Fault> {
    let mut draw = chance(seed, STREAMS);
    let few = if !quiet && one_in(&mut draw, 3) { 1 + draw.below(8) as u32 } else { 0 };
    let mut one = |nth| {
        let draw = &mut draw;
        let peer = match station(draw, settings) {
            Station::Queue => Station::Receive(0),
            other => other,
        };
        let poisons = [Poison::TooLong, Poison::Garbage, Poison::Greeting];
        let lies = [Lie::Outcome, Lie::Message, Lie::Fetch];
        let what = match (draw.below(4), peer) {
            (0, _) => What::Unlink(peer),
            (1, Station::Send(_)) => What::Lie(peer, pick(draw, &lies)),
            _ => What::Poison(peer, one_in(draw, 2), pick(draw, &poisons)),
        };
        let when = match one_in(draw, 5) {
            true => When::At(within(draw, span)),
            false => When::LinkStep(1 + draw.below(60)),
        };
        Fault { number: STREAMS_FIRST + nth, when, what }
    };
    (0..few).map(&mut one).collect()
}

/// Ends of the local process; chance of their own, too.
fn drains(seed: u64, span: Duration, settings: &Settings, quiet: bool) -> Vec<Fault> {
    let local = Station::Send(settings.senders);
    let mut draw = chance(seed, DRAINS);
    let few = if one_in(&mut draw, 3) || quiet { 1 + draw.below(6) as u32 } else { 0 };
    let mut one = |nth| {
        let when = match one_in(&mut draw, 3) {
            true => When::At(within(&mut draw, span)),
            false => When::LinkStep(1 + draw.below(60)),
        };
        let what = if one_in(&mut draw, 3) { What::Drain(local) } else { What::DrainInBatch };
        Fault { number: DRAINS_FIRST + nth, when, what }
    };
    (0..few).map(&mut one).collect()
}

/// Ends of the processes that send to next hops, while attempts are under way.
fn send_drains(seed: u64, span: Duration, settings: &Settings) -> Vec<Fault> {
    let mut draw = chance(seed, SEND_DRAINS);
    let few = if one_in(&mut draw, 3) { 1 + draw.below(6) as u32 } else { 0 };
    let mut one = |nth| {
        let station = Station::Send(draw.below(u64::from(settings.senders)) as u16);
        let when = match one_in(&mut draw, 3) {
            true => When::At(within(&mut draw, span)),
            false => When::LinkStep(1 + draw.below(60)),
        };
        Fault { number: SEND_DRAINS_FIRST + nth, when, what: What::Drain(station) }
    };
    (0..few).map(&mut one).collect()
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

/// Has the recipients of the domain that takes no mail refused.
fn refuse_closed(mut mail: Mail, closed: Option<u8>) -> Mail {
    let recipients = mail.recipients.iter_mut();
    recipients
        .filter(|recipient| closed.is_some() && recipient.domain == closed)
        .for_each(|recipient| recipient.fate = Fate::Refused);
    mail
}

fn station(draw: &mut Rng, settings: &Settings) -> Station {
    match draw.below(3) {
        0 => Station::Queue,
        1 => Station::Receive(draw.below(u64::from(settings.receivers)) as u16),
        _ => Station::Send(draw.below(u64::from(settings.senders) + 1) as u16),
    }
}
