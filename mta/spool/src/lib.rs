//! the promise: append, group commit, recover, retire.
