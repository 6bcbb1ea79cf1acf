//! the conversations between our processes, as machines without I/O.
