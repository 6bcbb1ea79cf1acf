//! The streams to the queue process, and the timer of the gateway.
//!
//! Must never hold a `RefCell` borrow across an await.

use super::Shared;
use crate::io::stream::Stream;
use receive::Input;
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc;
use world::Clock;

/// Between two looks at the timer of the gateway: a client may have made it earlier meanwhile.
const TIMER_WAIT_MAX: Duration = Duration::from_secs(1);

/// Wakes the gateway at its times, for ever.
pub async fn keep_time(shared: Rc<Shared>) {
    loop {
        let now = shared.clock.now().monotonic;
        let wait = {
            let mut gateway = shared.gateway.borrow_mut();
            shared.advance(&mut gateway, now);
            gateway.next_wakeup().map_or(TIMER_WAIT_MAX, |at| at.since(now))
        };
        tokio::time::sleep(wait.min(TIMER_WAIT_MAX)).await;
    }
}

/// Serves one stream to a queue process after another, for ever.
/// `lost` hears of each stream that has ended and was not replaced: another stream is wanted.
pub async fn serve(
    shared: Rc<Shared>,
    mut streams: mpsc::Receiver<(u64, OwnedFd)>,
    lost: impl Fn(u64, Error),
) {
    let mut stream = None;
    loop {
        let next = match stream.take() {
            Some(next) => Some(next),
            None => streams.recv().await,
        };
        let Some((number, fd)) = next else { return };
        let _ = handle(&shared, Input::Connected);
        let ended = async {
            match Stream::new(fd) {
                Ok(open) => converse(&shared, open).await,
                Err(error) => Err(error),
            }
        };
        let ended = tokio::select! {
            biased;
            newer = streams.recv() => {
                stream = newer;
                Ok(())
            }
            ended = ended => ended,
        };
        let _ = handle(&shared, Input::Disconnected);
        if let Err(error) = ended {
            lost(number, error);
        }
    }
}

async fn converse(shared: &Shared, mut stream: Stream) -> Result<()> {
    let mut written = false;
    loop {
        if !written {
            written = stream.write(shared.gateway.borrow_mut().transmit())?;
        }
        tokio::select! {
            ready = stream.ready(!written) => ready?,
            () = shared.frames.notified() => {
                written = false;
                continue;
            }
        }
        if let Some(input) = stream.read()? {
            handle(shared, Input::Received(input))?;
            written = false;
        }
    }
}

fn handle(shared: &Shared, input: Input<'_>) -> Result<()> {
    let now = shared.clock.now().monotonic;
    let mut gateway = shared.gateway.borrow_mut();
    let heard = gateway.handle(input, now).map_err(Error::other);
    shared.advance(&mut gateway, now);
    heard
}
