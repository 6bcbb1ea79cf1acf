//! Syncing of many files at once. One call passes all files to the kernel (`IOCB_CMD_FSYNC` of Linux AIO, io_submit(2)),
//! which syncs them side by side. The file system then commits its journal once and flushes the disk once, not once for
//! each file.
//!
//! Must never report a file as durable before the kernel has reported that for this file.
//!
//! If the kernel cannot do this (it has no AIO, or no room for a context), files are synced one by one.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Upper bound on syncs in flight in one thread.
const AT_ONCE_MAX: usize = 256;
/// `IOCB_CMD_FSYNC` of `linux/aio_abi.h`: what fsync(2) does.
const FSYNC: u16 = 2;

/// Syncs the contents and the inode of each file. The results are in the order of `files`.
pub(super) fn sync_all(files: &[&File]) -> Vec<io::Result<()>> {
    files.chunks(AT_ONCE_MAX).flat_map(sync_some).collect()
}

fn sync_some(files: &[&File]) -> Vec<io::Result<()>> {
    let mut results: Vec<Option<io::Result<()>>> = files.iter().map(|_| None).collect();
    if files.len() > 1 {
        CONTEXT.with_borrow_mut(|context| context.sync(files, &mut results));
    }
    let each = results.into_iter().zip(files);
    each.map(|(result, file)| result.unwrap_or_else(|| file.sync_all())).collect()
}

thread_local! {
    /// The context, made when it is first needed and kept until the thread ends: destroying one takes milliseconds.
    static CONTEXT: RefCell<Context> = const { RefCell::new(Context::Untried) };
}

/// The AIO context of a thread.
enum Context {
    Untried,
    Open(Handle),
    /// The kernel has refused to make one.
    Refused,
}

impl Context {
    /// Syncs files and fills in the results of those that the kernel accepted.
    fn sync(&mut self, files: &[&File], results: &mut [Option<io::Result<()>>]) {
        if let Context::Untried = self {
            *self = Handle::open().map_or(Context::Refused, Context::Open);
        }
        let Context::Open(handle) = self else { return };
        let taken = handle.submit(files);
        if handle.collect(taken, results).is_err() {
            // The kernel does not answer, so no result of it counts. Closing the context ends what it still does.
            *self = Context::Refused;
            results.fill_with(|| None);
        }
    }
}

/// The context that io_setup(2) returned.
struct Handle(libc::c_ulong);

/// `struct io_event` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    /// The `aio_data` of the request.
    data: u64,
    /// The address of the request.
    object: u64,
    /// 0, or a negative error.
    result: i64,
    more: i64,
}

impl Handle {
    fn open() -> Option<Handle> {
        let mut handle: libc::c_ulong = 0;
        // SAFETY: the kernel writes the handle, which is valid during the call.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, AT_ONCE_MAX, &mut handle) };
        (made == 0).then_some(Handle(handle))
    }

    /// Submits the syncs. Returns how many the kernel accepted: these are the first ones.
    fn submit(&self, files: &[&File]) -> usize {
        let mut requests: Vec<libc::iocb> = files.iter().enumerate().map(request).collect();
        let mut list: Vec<*mut libc::iocb> = requests.iter_mut().map(|one| &raw mut *one).collect();
        let mut taken = 0;
        while taken < list.len() {
            let rest = &mut list[taken..];
            // SAFETY: the requests are valid during the call, which copies them. They refer to no memory of ours, and the
            // kernel keeps the files open.
            let more = unsafe {
                libc::syscall(libc::SYS_io_submit, self.0, rest.len(), rest.as_mut_ptr())
            };
            match usize::try_from(more) {
                Ok(more) if more > 0 => taken += more,
                _ => break,
            }
        }
        taken
    }

    /// Waits for `wanted` answers.
    fn collect(&self, wanted: usize, results: &mut [Option<io::Result<()>>]) -> io::Result<()> {
        let mut events = vec![IoEvent::default(); wanted];
        let mut have = 0;
        while have < wanted {
            let rest = &mut events[have..];
            let (count, room) = (rest.len(), rest.as_mut_ptr());
            let forever = std::ptr::null_mut::<libc::timespec>();
            // SAFETY: there is room for `count` events, and it is valid during the call.
            let came = unsafe {
                libc::syscall(libc::SYS_io_getevents, self.0, count, count, room, forever)
            };
            match usize::try_from(came) {
                Ok(came) => have += came,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        for event in events {
            results[event.data as usize] = Some(event.outcome());
        }
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is ours. The call waits for requests in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

impl IoEvent {
    fn outcome(&self) -> io::Result<()> {
        match i32::try_from(-self.result) {
            Ok(0) => Ok(()),
            Ok(error) if error > 0 => Err(io::Error::from_raw_os_error(error)),
            _ => Err(io::Error::other("the kernel gave no result of a sync")),
        }
    }
}

fn request((index, file): (usize, &&File)) -> libc::iocb {
    // SAFETY: all zeroes is a valid request.
    let mut request: libc::iocb = unsafe { std::mem::zeroed() };
    request.aio_data = index as u64;
    request.aio_lio_opcode = FSYNC;
    request.aio_fildes = file.as_raw_fd() as u32;
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_go_at_once_are_all_synced_directories_among_them() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        let files: Vec<File> = (0..AT_ONCE_MAX + 7)
            .map(|n| File::create(dir.path().join(n.to_string())).unwrap())
            .collect();
        let all: Vec<&File> = files.iter().chain([&directory]).collect();
        let results = sync_all(&all);
        assert_eq!(results.len(), all.len());
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    #[test]
    fn what_cannot_be_synced_is_an_error_of_its_own_and_of_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(dir.path().join(name)).unwrap();
        let (one, other) = (file("one"), file("other"));
        let (socket, _end) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = File::from(std::os::fd::OwnedFd::from(socket));
        let results = sync_all(&[&one, &socket, &other]);
        let error = results[1].as_ref().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(results[0].is_ok() && results[2].is_ok());
    }

    #[test]
    fn the_kernels_word_on_a_file_is_passed_on() {
        let event = |result| IoEvent { result, ..IoEvent::default() };
        assert!(event(0).outcome().is_ok());
        assert_eq!(event(-5).outcome().unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(event(1).outcome().is_err());
    }

    #[test]
    fn without_a_context_each_file_is_synced_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("x")).unwrap();
        CONTEXT.set(Context::Refused);
        assert!(sync_all(&[&file, &file]).iter().all(Result::is_ok));
        assert!(CONTEXT.with_borrow(|context| matches!(context, Context::Refused)));
    }
}
