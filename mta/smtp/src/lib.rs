//! both ends of the conversation with the world, without I/O.
