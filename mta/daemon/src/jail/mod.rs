//! What a process gives up before it meets a stranger: user, root directory, files, system calls.
