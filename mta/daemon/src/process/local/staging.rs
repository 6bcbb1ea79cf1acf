//! The messages on their way into this process: their bytes are kept in memory, or in a nameless file
//! if they are many. Must never hold more than `MEMORY_BYTES_MAX` of one message in memory.

use crate::mailbox::{Fault, Intake, LocalMessage};
use bytes::Bytes;
use mail::{Reply, ReversePath};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The messages of which pieces have come.
#[derive(Debug)]
pub struct MessageStaging {
    directory: OwnedFd,
    intakes: HashMap<u64, Intake>,
}

impl MessageStaging {
    /// Large messages are written into this directory.
    pub fn new(directory: OwnedFd) -> MessageStaging {
        MessageStaging { directory, intakes: HashMap::new() }
    }

    /// Adds bytes to the message of an attempt. Returns the message once it is whole. After an error
    /// nothing of the message is left.
    pub fn stage(
        &mut self,
        attempt: u64,
        sender: ReversePath,
        bytes: &Bytes,
        last: bool,
    ) -> Result<Option<Arc<LocalMessage>>, Reply> {
        let mut intake = self.intakes.remove(&attempt).unwrap_or_else(|| Intake::new(sender));
        let pushed = intake.push(bytes, self.directory.as_fd());
        let whole = match (pushed, last) {
            (Err(error), _) => Err(error),
            (Ok(()), true) => intake.finish().map(|message| Some(Arc::new(message))),
            (Ok(()), false) => {
                self.intakes.insert(attempt, intake);
                Ok(None)
            }
        };
        whole.map_err(|error| Fault::io("cannot stage the message", &error).into_reply())
    }

    /// Forgets the message of an attempt; inverse of [`MessageStaging::stage`].
    pub fn unstage(&mut self, attempt: u64) {
        self.intakes.remove(&attempt);
    }
}
