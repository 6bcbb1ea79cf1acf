//! The settings and the host's environment as master gives them to each process: in a sealed memfd that nobody can change.
//!
//! Must never be larger than `PROCESS_CONFIG_BYTES_MAX`.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::io::Errno;
use settings::ProcessConfig;
use std::os::fd::{AsFd, OwnedFd};

/// Upper bound on an encoded [`ProcessConfig`]. A million accounts take about half of it.
pub const PROCESS_CONFIG_BYTES_MAX: u64 = 128 << 20;

/// Why a [`ProcessConfig`] could not be sealed or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessConfigError {
    /// A system call failed.
    #[error("cannot pass the settings to a process: {0}")]
    Kernel(#[from] Errno),
    /// Reading or writing the memfd failed.
    #[error("cannot pass the settings to a process: {0}")]
    Io(#[from] std::io::Error),
    /// The host has too many accounts, or the memfd is not ours.
    #[error("the settings for a process take {0} bytes, more than {PROCESS_CONFIG_BYTES_MAX}")]
    TooLarge(u64),
    /// The memfd is not sealed: somebody could still write to it.
    #[error("the settings for a process are not sealed")]
    NotSealed,
    /// The bytes are not what `seal` writes.
    #[error("the settings for a process cannot be decoded: {0}")]
    Decode(#[from] postcard::Error),
}

const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Writes `config` to a memfd and seals it. The descriptor is closed on exec. Inverse of `open`.
pub fn seal(config: &ProcessConfig) -> Result<OwnedFd, ProcessConfigError> {
    let bytes = postcard::to_stdvec(config)?;
    if bytes.len() as u64 > PROCESS_CONFIG_BYTES_MAX {
        return Err(ProcessConfigError::TooLarge(bytes.len() as u64));
    }
    let memory =
        memfd_create("posthaste-settings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let written = rustix::io::write(&memory, rest)?;
        rest = &rest[written..];
    }
    fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// Reads what `seal` wrote. Reads from the start whatever the offset is, because processes share the descriptor.
pub fn open(memory: impl AsFd) -> Result<ProcessConfig, ProcessConfigError> {
    if !fcntl_get_seals(&memory)?.contains(SEALS) {
        return Err(ProcessConfigError::NotSealed);
    }
    let size = fstat(&memory)?.st_size as u64;
    if size > PROCESS_CONFIG_BYTES_MAX {
        return Err(ProcessConfigError::TooLarge(size));
    }
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(&memory, &mut bytes[filled..], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(postcard::from_bytes(&bytes[..filled])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{HostEnvironment, System, UserAccount, load};

    #[test]
    fn what_is_handed_over_comes_out_the_same_and_cannot_be_changed() {
        let account = |name: &str, uid| UserAccount {
            name: name.into(),
            uid,
            gid: uid,
            home: format!("/home/{name}").into(),
            has_private_group: false,
            home_is: policy::Home::Unknown,
        };
        let environment = HostEnvironment {
            resolv_conf: "nameserver 127.0.0.1\n".into(),
            accounts: vec![account("ann", 1000), account("bob", 1001)],
            ..HostEnvironment::default()
        };
        let system =
            System { hostname: "here.example.org".into(), state: "/var/lib/posthaste".into() };
        let config = ProcessConfig { settings: load(b"", "f", &system).unwrap(), environment };
        let memory = seal(&config).unwrap();
        assert!(rustix::io::write(&memory, b"x").is_err());
        assert!(rustix::fs::ftruncate(&memory, 0).is_err());
        for _ in 0..2 {
            assert_eq!(open(&memory).unwrap(), config, "however often it is read");
        }
        assert_eq!(config.environment.account("bob").unwrap().uid, 1001);
        assert_eq!(config.environment.account("carl"), None);
        let unsealed =
            rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(matches!(open(&unsealed), Err(ProcessConfigError::NotSealed)));
    }
}
