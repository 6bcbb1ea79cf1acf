//! The sockets, timers and files around the machine [`LocalDelivery`].
//! Must never decide what becomes of a message.

use super::crew::{Crew, WorkerEvent};
use super::events;
use super::own::OwnThread;
use super::staging::MessageStaging;
use super::wanted::Wanted;
use crate::io::BUILD;
use crate::io::control::Control;
use crate::io::stream::{Stream, loss};
use crate::log::Log;
use crate::mailbox::LocalMessage;
use crate::process::child::{Orders, PeerStream};
use bytes::Bytes;
use link::control::{FromMaster, Role, ToMaster};
use local::{DeliveryBatch, DeliveryUser, Input, LocalDelivery, Output, WorkerId};
use mail::{Instant, Now, ReversePath};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use world::Clock as _;
use world::real::Clock;

/// The local process in its jail.
pub struct Driver {
    machine: LocalDelivery<Arc<LocalMessage>>,
    wanted: Wanted,
    orders: Orders,
    /// The stream to the queue process, with its number.
    queue: Option<(u64, Stream)>,
    staging: MessageStaging,
    own: OwnThread,
    /// The number of the worker that the machine takes for this process itself.
    own_worker: Option<WorkerId>,
    crew: Crew,
    log: Log,
}

enum Step {
    Order(Option<(FromMaster, Option<OwnedFd>)>),
    Queue(io::Result<()>),
    Worker(WorkerEvent),
    Timeout,
}

impl Driver {
    /// Messages are staged in the directory `stage`.
    pub fn new(
        control: Control,
        wanted: Wanted,
        stage: OwnedFd,
        own: OwnThread,
        crew: Crew,
        log: Log,
    ) -> io::Result<Driver> {
        Ok(Driver {
            machine: LocalDelivery::new(wanted.machine(), BUILD, rand::random()),
            wanted,
            orders: Orders::new(control, Role::Local)?,
            queue: None,
            staging: MessageStaging::new(stage),
            own,
            own_worker: None,
            crew,
            log,
        })
    }

    /// Serves the queue process until master is gone, or this process is drained.
    pub async fn serve(
        &mut self,
        peers: Vec<PeerStream>,
        mut heard: UnboundedReceiver<WorkerEvent>,
    ) -> io::Result<()> {
        for PeerStream { stream, fd, .. } in peers {
            self.peer(stream, fd)?;
        }
        self.orders.say(&ToMaster::Ready)?;
        let ended = self.work(&mut heard).await;
        self.log.flush(Log::LAST_LINES_WAIT_MAX);
        ended
    }

    async fn work(&mut self, heard: &mut UnboundedReceiver<WorkerEvent>) -> io::Result<()> {
        loop {
            self.act();
            let written = self.write();
            if self.machine.is_drained() {
                return Ok(());
            }
            match self.next(!written, heard).await? {
                Step::Order(None) => return Ok(()),
                Step::Order(Some((order, fd))) => self.order(order, fd)?,
                Step::Queue(ready) => self.read(ready),
                Step::Worker(event) => {
                    self.worker(event);
                    while let Ok(event) = heard.try_recv() {
                        self.worker(event);
                    }
                }
                Step::Timeout => self.handle(Input::Timeout),
            }
        }
    }

    async fn next(
        &self,
        writing: bool,
        heard: &mut UnboundedReceiver<WorkerEvent>,
    ) -> io::Result<Step> {
        let ready = async {
            match &self.queue {
                Some((_, queue)) => queue.ready(writing).await,
                None => std::future::pending().await,
            }
        };
        Ok(tokio::select! {
            order = self.orders.next() => Step::Order(order?),
            ready = ready => Step::Queue(ready),
            Some(event) = heard.recv() => Step::Worker(event),
            () = sleep_until(self.machine.next_wakeup()) => Step::Timeout,
        })
    }

    fn handle(&mut self, input: Input<'_, Arc<LocalMessage>>) {
        self.machine.handle(input, now());
    }

    fn order(&mut self, order: FromMaster, fd: Option<OwnedFd>) -> io::Result<()> {
        match (order, fd) {
            (FromMaster::Peer { stream, .. }, Some(fd)) => self.peer(stream, fd)?,
            (FromMaster::Drain, None) => self.handle(Input::Drain),
            (FromMaster::Settings, Some(fd)) => self.reload(fd)?,
            _ => return Err(io::Error::other("an order of master that local does not take")),
        }
        Ok(())
    }

    /// Drains if the settings differ in what a jailed process cannot change: master then starts
    /// another local process.
    fn reload(&mut self, fd: OwnedFd) -> io::Result<()> {
        let config = crate::process::sealed_config::open(fd).map_err(io::Error::other)?;
        if Wanted::of(&config) != self.wanted {
            self.handle(Input::Drain);
        }
        self.orders.say(&ToMaster::Reloaded)
    }

    fn peer(&mut self, stream: u64, fd: OwnedFd) -> io::Result<()> {
        self.queue = Some((stream, Stream::new(fd)?));
        self.handle(Input::Connected);
        Ok(())
    }

    /// Writes what there is; returns whether all is gone.
    fn write(&mut self) -> bool {
        let Some((_, queue)) = &mut self.queue else { return true };
        match queue.write(self.machine.transmit()) {
            Ok(gone) => gone,
            Err(error) => {
                self.lost(&error);
                true
            }
        }
    }

    /// Gives the stream up: master makes another, or starts a queue process that has died.
    fn lost(&mut self, error: &io::Error) {
        let Some((stream, _)) = self.queue.take() else { return };
        if error.kind() != io::ErrorKind::UnexpectedEof {
            self.log.warn(&format!("conversation with queue ended: {error}"));
        }
        self.handle(Input::Disconnected);
        self.orders.say_lost(Role::Queue, 0, stream, loss(error));
    }

    fn read(&mut self, ready: io::Result<()>) {
        let Some((_, queue)) = &mut self.queue else { return };
        match ready.and_then(|()| queue.read()) {
            Ok(Some(input)) => self.machine.handle(Input::Received(input), now()),
            Ok(None) => {}
            Err(error) => self.lost(&error),
        }
    }

    fn worker(&mut self, WorkerEvent { worker, end }: WorkerEvent) {
        match end {
            Ok((outcomes, alarms)) => self.handle(Input::BatchDone { worker, outcomes, alarms }),
            Err(error) => self.worker_ended(worker, &error),
        }
    }

    fn worker_ended(&mut self, worker: WorkerId, error: &io::Error) {
        self.crew.end(worker);
        self.handle(Input::WorkerEnded { worker, why: error.to_string().into() });
    }

    /// Does what the machine asks for.
    fn act(&mut self) {
        let now = now();
        while let Some(output) = self.machine.poll(now) {
            match output {
                Output::HangUp(error) => self.lost(&io::Error::other(error)),
                Output::Stage { attempt, sender, bytes, last } => {
                    self.stage(attempt, sender, &bytes, last);
                }
                Output::Unstage { attempt } => self.staging.unstage(attempt),
                Output::FindHome { lookup, account } => {
                    let account = self.wanted.environment.account(&account);
                    let home = account.map(|account| account.home.clone());
                    self.handle(Input::Home { lookup, home });
                }
                Output::StartWorker { worker, user } => self.start_worker(worker, &user),
                Output::Deliver { worker, batch } => self.deliver(worker, batch),
                Output::EndWorker { worker } => self.crew.end(worker),
                Output::Log(event) => events::write(&self.log, &event),
            }
        }
    }

    fn stage(&mut self, attempt: u64, sender: ReversePath, bytes: &Bytes, last: bool) {
        let staged = self.staging.stage(attempt, sender, bytes, last);
        self.handle(match staged {
            Ok(None) => Input::Staged { attempt },
            Ok(Some(message)) => Input::StagedLast { attempt, message },
            Err(reply) => Input::StageFailed { attempt, reply },
        });
    }

    fn start_worker(&mut self, worker: WorkerId, user: &DeliveryUser) {
        let started = match user {
            DeliveryUser::ThisProcess => {
                self.own_worker = Some(worker);
                Ok(())
            }
            DeliveryUser::Account(name) => self.crew.start(worker, name),
        };
        if let Err(error) = started {
            self.worker_ended(worker, &error);
        }
    }

    fn deliver(&mut self, worker: WorkerId, batch: DeliveryBatch<Arc<LocalMessage>>) {
        match self.own_worker == Some(worker) {
            true => self.own.give(worker, batch),
            false => self.crew.give(worker, batch),
        }
    }
}

fn now() -> Now {
    Clock.now()
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep(at.since(now().monotonic)).await,
        None => std::future::pending().await,
    }
}
