//! Splits bytes into command lines and runs each command.
//!
//! Must never keep more of a command than `command_bytes_max`, and never run a line that arrived
//! while the client had to wait for a reply.

use super::session::{CloseEvent, Session, State};
use super::{Settings, replies};
use crate::command::{self, Command, CommandError};
use mail::{Enhanced, Instant, Protocol, Reply};
use memchr::memchr;

impl Session {
    pub(super) fn settings(&self) -> &Settings {
        &self.server.settings
    }

    pub(super) fn is_reading(&self) -> bool {
        let told = self.ready.is_none() && !self.reset_due;
        let heard = self.output.len() < self.server.settings.output_bytes_max;
        told && heard && !self.is_closed() && !self.awaits_answer()
    }

    /// True if bytes arrived before the client can have seen a reply that it must wait for.
    pub(super) fn is_too_early(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() || !self.client_must_wait || self.is_closed() || self.awaits_answer() {
            return false;
        }
        self.client_must_wait = false;
        !self.output.is_empty()
    }

    pub(super) fn out_of_step(&mut self) {
        if *self.output == *self.server.greeting {
            self.output.clear();
        }
        self.say(replies::OUT_OF_STEP);
        self.close();
    }

    /// Takes at least one byte, and returns the number of bytes taken.
    pub(super) fn step(&mut self, bytes: &[u8], now: Instant) -> usize {
        match std::mem::replace(&mut self.state, State::ExpectCommand) {
            State::ExpectCommand => self.read_command(bytes, now),
            State::ExpectBody(body) => self.read_body(body, bytes, now),
            State::ExpectChunk(chunk) => self.read_chunk(chunk, bytes, now),
            other => unreachable!("{other:?} does not read"),
        }
    }

    /// Reads up to the end of a command line. A bare LF is accepted as the end of a command: no two
    /// servers can disagree about where the command ends.
    fn read_command(&mut self, bytes: &[u8], now: Instant) -> usize {
        if self.line.is_empty() && command::starts_foreign(bytes[0]) {
            self.say(replies::FOREIGN);
            self.close();
            return bytes.len();
        }
        let max = self.settings().command_bytes_max;
        let end = memchr(b'\n', bytes);
        let used = end.map_or(bytes.len(), |end| end + 1);
        if self.line.len() + used > max {
            self.say(replies::LINE_TOO_LONG);
            self.close();
            return bytes.len();
        }
        if end.is_none() {
            self.line.extend_from_slice(bytes);
            return used;
        }
        self.clock.command(now);
        let alone = used == bytes.len();
        if self.line.is_empty() {
            self.run_line(&bytes[..used], alone);
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(&bytes[..used]);
            self.run_line(&line, alone);
            line.clear();
            self.line = line;
        }
        used
    }

    fn run_line(&mut self, line: &[u8], alone: bool) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match command::parse(line) {
            Ok(command) => self.run(command, alone),
            Err(CommandError::Foreign) => {
                self.say(replies::FOREIGN);
                self.close();
            }
            Err(CommandError::BadChunk) => {
                self.say(replies::BAD_CHUNK);
                self.close();
            }
            Err(error) => self.wrong(&replies::bad_command(error)),
        }
    }

    /// Runs a command. `alone` is true if no byte followed the line, as required of a command whose
    /// reply the client must wait for.
    fn run(&mut self, command: Command<'_>, alone: bool) {
        use Command::*;
        match command {
            Helo(_) | Ehlo(_) | Lhlo(_) | Data if !alone => self.out_of_step(),
            Helo(name) => self.hello(name, Protocol::Smtp),
            Ehlo(name) => self.hello(name, Protocol::Esmtp),
            Lhlo(name) => self.hello(name, Protocol::Lmtp),
            Mail(path) => self.mail(path),
            Rcpt(path) => self.rcpt(path),
            Data => self.data(),
            Bdat { size, last } => self.bdat(size, last),
            Rset => {
                self.give_up_transaction();
                self.idle_command(replies::OK);
            }
            Noop => self.idle_command(replies::OK),
            Vrfy => self.idle_command(replies::VRFY),
            Help => self.idle_command(replies::HELP),
            Quit => {
                self.say(replies::BYE);
                self.close();
                self.close_event = CloseEvent::DueAfterQuit;
            }
            Expn => self.wrong(&Reply::new(502, Enhanced(5, 5, 1), "EXPN command is disabled")),
            Auth => self.wrong(&replies::out_of_order("Error: authentication not enabled")),
            Unimplemented => {
                self.wrong(&Reply::new(502, Enhanced(5, 5, 1), "Error: command not implemented"));
            }
        }
        self.end_if_due();
    }
}
