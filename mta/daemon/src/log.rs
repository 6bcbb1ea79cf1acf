//! The log: one event a line, written off the hot path, bounded, drops counted.
