//! What a panic ends: in receive, the session of the client whose bytes led to it (X186); anywhere
//! else the whole process, which master then starts again (X185).
//!
//! Must never leave a process that lives and has lost a thread or a task: it would take mail and
//! never deliver it.

use crate::log::complain;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static IN_SESSION: Cell<bool> = const { Cell::new(false) };
}

/// From now on a panic is told in one line, and ends the process where it is not a session's.
pub fn end_the_process(role: &'static str) {
    std::panic::set_hook(Box::new(move |panic| {
        let what = panic.payload_as_str().unwrap_or("without words");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        if IN_SESSION.take() {
            complain(&format!("{role} process: a session has met a bug at {place}: {what}"));
        } else {
            complain(&format!("{role} process: ends because of a bug at {place}: {what}"));
            std::process::abort();
        }
    }));
}

/// A future that a panic ends alone: what it shares with others must be whole at each of its steps.
pub struct Session<F>(pub Pin<Box<F>>);

impl<F: Future> Future for Session<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        IN_SESSION.set(true);
        let polled = self.0.as_mut().poll(cx);
        IN_SESSION.set(false);
        polled
    }
}
