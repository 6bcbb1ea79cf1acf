//! Log events of the receive process.
//!
//! Must never hold what the machine says for longer than a line.

use crate::log::{EventKind, Log};
use receive::{InboundSession, SessionOutput};
use std::net::IpAddr;

/// Writes an output of a client's session into the log.
pub fn write(log: &Log, client: &str, session: &InboundSession, output: &SessionOutput) {
    let line = |kind| log.event(kind).client(client);
    let line_with_helo = |kind| line(kind).text("helo", session.helo());
    match output {
        SessionOutput::RecipientRefused { recipient, reply } => {
            let line = line_with_helo(EventKind::Judge).from(session.sender());
            line.to(recipient).reply(reply).status("refused").emit();
        }
        SessionOutput::RecipientsRefused(recipients) => {
            let line = line_with_helo(EventKind::Judge).number("recipients", *recipients);
            line.status("refused").emit();
        }
        SessionOutput::LoopRefused { sender, reply } => {
            line(EventKind::Judge).from(sender).reply(reply).status("refused").emit();
        }
        SessionOutput::Promised(promised) => {
            let line = log.event(EventKind::Promise).id(promised.message);
            let line = line.client(client).text("helo", session.helo());
            let line = line.from(&promised.sender).bytes(promised.bytes);
            let line = line.number("recipients", promised.recipients as u64);
            line.delays(&[(EventKind::Commit, promised.commit_time)]).status("queued").emit();
        }
        SessionOutput::Refused { sender, reply } => {
            line(EventKind::Promise).from(sender).reply(reply).status("refused").emit();
        }
        SessionOutput::Abandoned { sender } => {
            line(EventKind::Promise).from(sender).status("abandoned").emit();
        }
        SessionOutput::HandedOver | SessionOutput::CloseWrite | SessionOutput::Close => {}
    }
}

/// Returns the name of a client in the log.
pub fn client_name(address: Option<IpAddr>) -> Box<str> {
    address.map_or_else(|| "local".into(), |address| address.to_string().into())
}
