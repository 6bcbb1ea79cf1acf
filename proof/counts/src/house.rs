//! The queue process on a disk in memory, and the streams to its neighbours.
//!
//! Stands where `daemon/src/process/queue` stands. Must never count the streams: copying from
//! process to process is the kernel's work.

use crate::letter::DOMAIN;
use crate::memory_disk::MemoryDisk;
use crate::meter::{Meter, Part};
use bytes::{Bytes, BytesMut};
use link::control::Role;
use mail::{Address, Domain, Host, NextHop, Now, Timestamp};
use policy::{Pattern, Route, Routes};
use queue::{Output, Queue, SenderKey, Settings};
use scheduler::Scheduler;
use spool::IoDone;
use std::collections::VecDeque;
use std::time::Duration;

/// Both ends of a conversation must name the same build.
pub const BUILD: u64 = 1;
/// The receiving process.
pub const RECEIVER: u16 = 0;
/// The sending process.
pub const SENDER: SenderKey = SenderKey(Role::Send, 0);
/// All messages of a run fit in one, so that no run has a change of segments in it.
const SEGMENT_BYTES: u32 = 16 << 20;
const NOVEMBER: Timestamp = Timestamp::from_micros(1_795_253_400_000_000);

/// The queue process.
pub struct House {
    /// The time everywhere.
    pub now: Now,
    pub queue: Queue,
    disk: MemoryDisk,
}

impl House {
    /// One whose spool is made and has its segments ready.
    pub fn new() -> House {
        House::with(settings())
    }

    /// The same with other settings.
    pub fn with(settings: Settings) -> House {
        let now = Now { wall: NOVEMBER, ..Now::default() };
        let disk = MemoryDisk::default();
        let scheduler = Scheduler::new(settings.scheduler.clone(), 1, now);
        let spool =
            spool::Settings { segment_bytes: SEGMENT_BYTES, ..spool::Settings::for_tests() };
        let opened = spool::open(&disk, spool, 1, &mut |_| ());
        let (spool, _) = opened.expect("the disk is empty and has room");
        let queue = Queue::new(BUILD, 1, settings, spool, scheduler, 1, now);
        let mut house = House { now, queue, disk };
        house.pump(&Meter::new(Part::Reference), Part::Commit);
        assert!(house.queue.is_ready(), "there is a segment to write");
        house
    }

    /// Time passes.
    pub fn wait(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.now.wall = self.now.wall + time;
    }

    /// Runs the machines and the disk until nothing moves.
    pub fn pump(&mut self, meter: &Meter, part: Part) {
        while meter.run(part, || self.turn()) {}
    }

    /// One round of the driver's loop: what the disk is asked for is done at its end.
    fn turn(&mut self) -> bool {
        self.queue.advance(self.now);
        let mut done: Vec<IoDone> = Vec::new();
        let mut moved = false;
        while let Some(output) = self.queue.poll() {
            moved = true;
            match output {
                Output::Io(io) => done.push(spool::execute(&self.disk, io)),
                Output::Read(read) => panic!("what was just taken is at hand: {read:?}"),
                Output::Log(_) | Output::Answer(..) => {}
            }
        }
        for done in done {
            assert_eq!(done.result(), Ok(()), "the disk is in order");
            self.queue.io_done(done, self.now);
        }
        moved
    }
}

/// As the daemon makes them of an empty file and one route.
pub fn settings() -> Settings {
    Settings {
        hostname: "mx.example.org".into(),
        postmaster: Address::parse("MAILER-DAEMON@mx.example.org", true).expect("an address"),
        routes: routes(),
        scheduler: scheduler::Settings::for_tests(),
        original_bytes_max: 50_000,
        message_cache_bytes_max: queue::MESSAGE_CACHE_BYTES_MAX,
        credit_bytes: 1 << 30,
        receivers: 1,
    }
}

/// Our domain, and one that is sent on.
pub fn routes() -> Routes {
    let sink = NextHop::Smtp(Host::Address([192, 0, 2, 26].into()), 25);
    let route = Route { pattern: Pattern::Exact(domain(DOMAIN)), to: sink };
    let own = [domain("local.test")].into();
    Routes::new(own, NextHop::Local, domain("mx.example.org"), vec![route], false)
}

/// A name that is one.
pub fn domain(text: &str) -> Domain {
    Domain::parse(text).expect("a domain")
}

/// From one process to the other; true if there was anything.
pub fn carry(from: Option<&mut VecDeque<Bytes>>, to: &mut BytesMut) -> bool {
    let frames = from.map(std::mem::take).unwrap_or_default();
    frames.iter().for_each(|frame| to.extend_from_slice(frame));
    !frames.is_empty()
}
