//! who is tried when, and how many at once.
