//! posthaste.
fn main() {}
