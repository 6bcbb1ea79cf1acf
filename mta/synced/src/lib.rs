//! `Synced`: evidence that a sync came back without an error.
//!
//! Must never be a dependency of any crate but `mail`, whose `Durable` needs the evidence, and
//! `world`, whose disks give it. A crate of its own lets the compiler enforce that: a crate that is
//! not named in a manifest cannot be called. `cargo xtask tidy` checks the manifests.

/// Evidence that one sync of one file came back without an error.
///
/// Neither `Clone` nor `Default`, and its field is private: [`sync_succeeded`] is the only way to
/// get one. The type does not say which file was synced, nor what had been written to that file
/// before; the holder of the evidence must know both.
#[derive(Debug)]
pub struct Synced(());

/// Returns the evidence. A disk calls this right after the system call that syncs has succeeded,
/// and nobody else calls it.
pub fn sync_succeeded() -> Synced {
    Synced(())
}
