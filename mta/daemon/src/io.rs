//! Sockets between our processes: framed, batched, with descriptors passed along.
