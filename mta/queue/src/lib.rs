//! the queue process without its I/O: spool, scheduler and link wired together.
