//! What a panic ends. In receive, it ends the session of the client that caused it (X186). Everywhere else it ends the
//! whole process, which master then restarts (X185).
//!
//! Must never leave a process running that has lost a thread or a task: it would accept mail and never deliver it.

use crate::log::complain;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static IN_SESSION: Cell<bool> = const { Cell::new(false) };
}

/// Installs the panic hook. It logs a panic in one line, and ends the process unless a session has panicked.
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

/// The future of a session. A panic ends only this future, so data that it shares with others must be consistent whenever
/// it may panic.
pub struct SessionFuture<F>(pub Pin<Box<F>>);

impl<F: Future> Future for SessionFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        IN_SESSION.set(true);
        let polled = self.0.as_mut().poll(cx);
        IN_SESSION.set(false);
        polled
    }
}
