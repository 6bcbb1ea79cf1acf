//! The tables: which system calls each role keeps. A role is here on one screen, and
//! `docs/processes.md` is written from this file. Must never hold a call that no role was seen to need.

use super::Role;

/// How a table is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Everything outside the groups ends the process.
    Only(&'static [&'static Group]),
    /// Everything inside the groups ends the process. For the roles that start programs: these
    /// inherit the filter, and nobody can say what they need.
    AllBut(&'static [&'static Group]),
}

/// System calls that belong together.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    /// For the documentation.
    pub what: &'static str,
    /// The calls; those that this architecture does not have are left out.
    pub calls: &'static [&'static str],
    /// Only with these arguments.
    pub only: Only,
}

/// A condition on one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// None.
    Any,
    /// Argument N is one of these.
    OneOf(u8, &'static [u64]),
    /// Of argument N, the bits of the mask are as in the value.
    Bits(u8, u64, u64),
    /// Argument N is our own process id.
    Ourselves(u8),
}

/// The role's table.
// tidy: table, because a role's groups are to be seen together
pub const fn calls(role: Role) -> Calls {
    match role {
        Role::Master | Role::Local => Calls::AllBut(&[&KERNEL, &OTHERS, &IO_URING]),
        Role::Config => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &PROBES,
        ]),
        Role::Receive => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &EVENTS,
            &PAIR,
            &CONVERSE,
            &ACCEPT,
            &PROBES,
        ]),
        Role::Queue => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &EVENTS,
            &PAIR,
            &CONVERSE,
            &ACCEPT,
            &FILES,
            &SYNC,
        ]),
        Role::Send => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &EVENTS,
            &PAIR,
            &CONVERSE,
            &SOCKET,
            &CONNECT,
            &PROBES,
        ]),
        Role::Mailbox => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &EVENTS,
            &PAIR,
            &CONVERSE,
            &FILES,
            &SYNC,
            &MAILBOXES,
            &SYNC_TOGETHER,
        ]),
    }
}

/// Calls that are answered with ENOSYS instead of death, where the role's table does not let them
/// through: the C library tries them and goes another way.
pub const fn refused(role: Role) -> &'static [&'static str] {
    match role {
        Role::Master | Role::Local => &[],
        Role::Queue | Role::Mailbox => &["clone3"],
        Role::Config | Role::Receive | Role::Send => PROBES.calls,
    }
}

const MEMORY: Group = Group {
    what: "memory",
    calls: &["munmap", "mremap", "brk", "madvise", "membarrier"],
    only: Only::Any,
};
const NO_CODE: Group = Group {
    what: "memory that is not executable",
    calls: &["mmap", "mprotect"],
    only: Only::Bits(2, libc::PROT_EXEC as u64, 0),
};
const THREADS: Group = Group {
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
const NEW_THREAD: Group = Group {
    what: "new threads, no new processes",
    calls: &["clone"],
    only: Only::Bits(0, libc::CLONE_THREAD as u64, libc::CLONE_THREAD as u64),
};
const TIME: Group = Group {
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
const SELF: Group = Group {
    what: "who we are",
    calls: &["getpid", "getppid", "getuid", "geteuid", "getgid", "getegid", "uname"],
    only: Only::Any,
};
const ABORT: Group = Group {
    what: "signals to ourselves alone, for abort(3)",
    calls: &["tgkill"],
    only: Only::Ourselves(0),
};
const NAME: Group = Group {
    what: "names for our threads and memory",
    calls: &["prctl"],
    only: Only::OneOf(0, &[libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA]),
};
/// Of `linux/prctl.h`.
const PR_SET_VMA: u64 = 0x5356_4d41;
const LIMIT: Group =
    Group { what: "limits, to look at", calls: &["prlimit64"], only: Only::OneOf(2, &[0]) };
const CONTROL: Group = Group {
    what: "harmless questions about a descriptor",
    calls: &["ioctl"],
    only: Only::OneOf(1, &[libc::FIONBIO, libc::FIONREAD, libc::TCGETS]),
};
const DESCRIPTORS: Group = Group {
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
const EVENTS: Group = Group {
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
const PAIR: Group = Group {
    what: "pairs of Unix sockets",
    calls: &["socketpair"],
    only: Only::OneOf(0, &[libc::AF_UNIX as u64]),
};
const CONVERSE: Group = Group {
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
const ACCEPT: Group = Group { what: "taking connections", calls: &["accept4"], only: Only::Any };
const SOCKET: Group = Group {
    what: "new sockets of IP and Unix",
    calls: &["socket"],
    only: Only::OneOf(0, &[libc::AF_INET as u64, libc::AF_INET6 as u64, libc::AF_UNIX as u64]),
};
const CONNECT: Group = Group {
    what: "connecting, and DNS",
    calls: &["connect", "bind", "sendmmsg", "recvmmsg", "fchdir"],
    only: Only::Any,
};
const FILES: Group = Group {
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
const SYNC: Group = Group {
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
const MAILBOXES: Group = Group {
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
/// Unlike io_uring this can do no more than read, write, poll and sync descriptors that we have (io_submit(2)), and
/// each of these is open to the role anyway: so nothing is hidden from the filter that it would not let through.
const SYNC_TOGETHER: Group = Group {
    what: "syncing many files at once",
    calls: &["io_setup", "io_submit", "io_getevents", "io_destroy"],
    only: Only::Any,
};
const PROBES: Group = Group {
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
const KERNEL: Group = Group {
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
const OTHERS: Group = Group {
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
const IO_URING: Group = Group {
    what: "calls that a filter cannot see",
    calls: &["io_uring_setup", "io_uring_enter", "io_uring_register"],
    only: Only::Any,
};
