//! The groups of system calls from which the roles' tables are made.
//!
//! Must never contain a call that no role was observed to need.

use super::{CallGroup, Only};

pub(super) const MEMORY: CallGroup = CallGroup {
    what: "memory",
    calls: &["munmap", "mremap", "brk", "madvise", "membarrier"],
    only: Only::Any,
};
pub(super) const NO_CODE: CallGroup = CallGroup {
    what: "memory that is not executable",
    calls: &["mmap", "mprotect"],
    only: Only::Bits(2, libc::PROT_EXEC as u64, 0),
};
pub(super) const THREADS: CallGroup = CallGroup {
    what: "threads and signals of our own",
    calls: &[
        "futex",
        "set_robust_list",
        "rseq",
        "sched_yield",
        "sched_getaffinity",
        "gettid",
        "exit",
        "exit_group",
        "sigaltstack",
        "rt_sigaction",
        "rt_sigprocmask",
        "rt_sigreturn",
        "restart_syscall",
    ],
    only: Only::Any,
};
pub(super) const NEW_THREAD: CallGroup = CallGroup {
    what: "new threads, no new processes",
    calls: &["clone"],
    only: Only::Bits(0, libc::CLONE_THREAD as u64, libc::CLONE_THREAD as u64),
};
pub(super) const TIME: CallGroup = CallGroup {
    what: "clock and chance",
    calls: &[
        "clock_gettime",
        "clock_getres",
        "clock_nanosleep",
        "nanosleep",
        "gettimeofday",
        "time",
        "getrandom",
    ],
    only: Only::Any,
};
pub(super) const SELF: CallGroup = CallGroup {
    what: "who we are",
    calls: &["getpid", "getppid", "getuid", "geteuid", "getgid", "getegid", "uname"],
    only: Only::Any,
};
pub(super) const ABORT: CallGroup = CallGroup {
    what: "signals to ourselves alone, for abort(3)",
    calls: &["tgkill"],
    only: Only::Ourselves(0),
};
pub(super) const NAME: CallGroup = CallGroup {
    what: "names for our threads and memory",
    calls: &["prctl"],
    only: Only::OneOf(0, &[libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA]),
};
/// Of `linux/prctl.h`.
const PR_SET_VMA: u64 = 0x5356_4d41;
pub(super) const LIMIT: CallGroup =
    CallGroup { what: "limits, to look at", calls: &["prlimit64"], only: Only::OneOf(2, &[0]) };
pub(super) const CONTROL: CallGroup = CallGroup {
    what: "harmless questions about a descriptor",
    calls: &["ioctl"],
    only: Only::OneOf(1, &[libc::FIONBIO, libc::FIONREAD, libc::TCGETS]),
};
pub(super) const DESCRIPTORS: CallGroup = CallGroup {
    what: "descriptors that we have",
    calls: &[
        "read",
        "readv",
        "pread64",
        "write",
        "writev",
        "lseek",
        "close",
        "close_range",
        "fcntl",
        "fstat",
        "newfstatat",
        "statx",
        "poll",
        "ppoll",
    ],
    only: Only::Any,
};
pub(super) const EVENTS: CallGroup = CallGroup {
    what: "waiting for many",
    calls: &[
        "epoll_create1",
        "epoll_ctl",
        "epoll_wait",
        "epoll_pwait",
        "epoll_pwait2",
        "eventfd2",
        "pipe2",
    ],
    only: Only::Any,
};
pub(super) const PAIR: CallGroup = CallGroup {
    what: "pairs of Unix sockets",
    calls: &["socketpair"],
    only: Only::OneOf(0, &[libc::AF_UNIX as u64]),
};
pub(super) const CONVERSE: CallGroup = CallGroup {
    what: "sockets that we have",
    calls: &[
        "sendto",
        "sendmsg",
        "recvfrom",
        "recvmsg",
        "shutdown",
        "getsockopt",
        "setsockopt",
        "getsockname",
        "getpeername",
    ],
    only: Only::Any,
};
pub(super) const ACCEPT: CallGroup =
    CallGroup { what: "taking connections", calls: &["accept4"], only: Only::Any };
pub(super) const SOCKET: CallGroup = CallGroup {
    what: "new sockets of IP and Unix",
    calls: &["socket"],
    only: Only::OneOf(0, &[libc::AF_INET as u64, libc::AF_INET6 as u64, libc::AF_UNIX as u64]),
};
pub(super) const CONNECT: CallGroup = CallGroup {
    what: "connecting, and DNS",
    calls: &["connect", "bind", "sendmmsg", "recvmmsg", "fchdir"],
    only: Only::Any,
};
pub(super) const FILES: CallGroup = CallGroup {
    what: "files below our directory",
    calls: &[
        "open",
        "openat",
        "mkdir",
        "mkdirat",
        "rename",
        "renameat",
        "renameat2",
        "unlink",
        "unlinkat",
        "rmdir",
        "access",
        "faccessat",
        "faccessat2",
        "stat",
        "lstat",
        "readlink",
        "readlinkat",
        "getdents64",
        "statfs",
        "fstatfs",
        "flock",
        "umask",
        "getcwd",
    ],
    only: Only::Any,
};
pub(super) const SYNC: CallGroup = CallGroup {
    what: "writing files and syncing them",
    calls: &[
        "pwrite64",
        "pwritev",
        "pwritev2",
        "preadv",
        "fallocate",
        "ftruncate",
        "fsync",
        "fdatasync",
        "sync_file_range",
        "fadvise64",
        "readahead",
    ],
    only: Only::Any,
};
pub(super) const MAILBOXES: CallGroup = CallGroup {
    what: "mailboxes",
    calls: &[
        "openat2",
        "link",
        "linkat",
        "fchmod",
        "fchmodat",
        "chmod",
        "utimensat",
        "sendfile",
        "splice",
        "copy_file_range",
    ],
    only: Only::Any,
};
/// Unlike io_uring, io_submit(2) can only read, write, poll and sync descriptors that the process has. The filter allows
/// each of these to the role, so nothing that it would deny can be hidden from it.
pub(super) const SYNC_TOGETHER: CallGroup = CallGroup {
    what: "syncing many files at once",
    calls: &["io_setup", "io_submit", "io_getevents", "io_destroy"],
    only: Only::Any,
};
pub(super) const PROBES: CallGroup = CallGroup {
    what: "tried by the C library and by backtraces, and refused",
    calls: &[
        "clone3",
        "open",
        "openat",
        "access",
        "faccessat",
        "faccessat2",
        "readlink",
        "readlinkat",
        "getcwd",
        "sysinfo",
    ],
    only: Only::Any,
};
pub(super) const KERNEL: CallGroup = CallGroup {
    what: "the kernel and its settings",
    calls: &[
        "init_module",
        "finit_module",
        "delete_module",
        "kexec_load",
        "kexec_file_load",
        "bpf",
        "perf_event_open",
        "reboot",
        "swapon",
        "swapoff",
        "acct",
        "quotactl",
        "quotactl_fd",
        "clock_settime",
        "clock_adjtime",
        "adjtimex",
        "settimeofday",
        "sethostname",
        "setdomainname",
        "syslog",
        "iopl",
        "ioperm",
        "vhangup",
        "mount",
        "umount2",
        "pivot_root",
        "move_mount",
        "open_tree",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "mount_setattr",
        "setns",
        "unshare",
        "open_by_handle_at",
        "fanotify_init",
        "userfaultfd",
        "modify_ldt",
    ],
    only: Only::Any,
};
pub(super) const OTHERS: CallGroup = CallGroup {
    what: "other processes and their secrets",
    calls: &[
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_getfd",
        "kcmp",
        "add_key",
        "request_key",
        "keyctl",
        "lookup_dcookie",
    ],
    only: Only::Any,
};
pub(super) const IO_URING: CallGroup = CallGroup {
    what: "calls that a filter cannot see",
    calls: &["io_uring_setup", "io_uring_enter", "io_uring_register"],
    only: Only::Any,
};
