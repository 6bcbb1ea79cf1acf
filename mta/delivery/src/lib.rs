//! one attempt to one outcome, without I/O.
