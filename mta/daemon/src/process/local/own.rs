//! The thread of this process that writes to mailboxes and syncs them.
//! Must never deliver anything but to mailboxes below the directory that this process holds open.

use super::crew::WorkerEvent;
use crate::mailbox::{
    Base, LOCK_WAIT_MAX, LocalMessage, Mailbox, MailboxDelivery, Scene, deliver_batch,
};
use local::{DeliveryBatch, DeliveryItem, DeliveryPlace, WorkerId};
use policy::Groups;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::mpsc::UnboundedSender;
use world::Clock as _;
use world::real::faults::{self, Point};

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct OwnThread(Sender<OwnJob>);

type OwnJob = (WorkerId, DeliveryBatch<Arc<LocalMessage>>);

/// What the thread needs for its whole life.
pub struct OwnThreadSetup {
    /// The name of this host.
    pub hostname: String,
    /// The groups whose members may write to mailboxes.
    pub groups: Groups,
    /// The directory of all mailboxes.
    pub base: Option<Arc<Base>>,
}

impl OwnThread {
    /// Starts the thread; the end of each batch goes to `events`.
    pub fn start(
        setting: OwnThreadSetup,
        events: UnboundedSender<WorkerEvent>,
    ) -> io::Result<OwnThread> {
        let (jobs, waiting) = channel();
        let work = move || serve(&setting, &waiting, &events);
        std::thread::Builder::new().name("deliver".into()).spawn(work)?;
        Ok(OwnThread(jobs))
    }

    /// Gives a batch to the thread.
    pub fn give(&self, worker: WorkerId, batch: DeliveryBatch<Arc<LocalMessage>>) {
        self.0.send((worker, batch)).expect("the thread ends after its sender");
    }
}

fn serve(
    setting: &OwnThreadSetup,
    waiting: &Receiver<OwnJob>,
    events: &UnboundedSender<WorkerEvent>,
) {
    for (worker, batch) in waiting {
        faults::reach(Point::Mailbox);
        let scene = Scene {
            hostname: setting.hostname.clone(),
            now: world::real::Clock.now().wall,
            lock_wait_max: LOCK_WAIT_MAX,
            groups: setting.groups,
        };
        let deliveries = batch.iter().map(|item| delivery(item, setting.base.as_ref()));
        let end = match deliveries.collect::<Option<Vec<MailboxDelivery>>>() {
            Some(deliveries) => {
                let mut alarms = Vec::new();
                let outcomes = deliver_batch(&deliveries, &scene, &mut alarms);
                Ok((outcomes, alarms))
            }
            None => Err(io::Error::other("local holds no directory of mailboxes")),
        };
        drop(batch);
        if events.send(WorkerEvent { worker, end }).is_err() {
            return;
        }
    }
}

/// The delivery as `deliver_batch` takes it; `None` if it is none to a mailbox below `base`.
fn delivery(
    item: &DeliveryItem<Arc<LocalMessage>>,
    base: Option<&Arc<Base>>,
) -> Option<MailboxDelivery> {
    let DeliveryPlace::Mailbox { path, format, .. } = &item.place else { return None };
    let mailbox = Mailbox { base: base?.clone(), path: path.clone(), format: *format };
    let (message, recipient) = (item.message.clone(), item.recipient.clone());
    Some(MailboxDelivery { message, recipient, mailbox })
}
