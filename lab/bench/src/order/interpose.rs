//! The library that is put before a mailer's own `opendir`, `readdir`, `closedir`, `qsort` and `open`.
//!
//! Must never be left in place of a newer text of itself: it is compiled for each run, which takes a tenth of a second.

use crate::room;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The environment variable with the file of notes.
const NOTES: &str = "LAB_ORDER_NOTES";
/// The environment variable with the prefix of message files.
const FILES: &str = "LAB_ORDER_FILES";
/// The environment variable that ends the run at the first message.
const STOP: &str = "LAB_ORDER_STOP";

/// See the module.
pub struct Library {
    path: PathBuf,
    notes: PathBuf,
}

impl Library {
    /// Compiles the library into this directory with Debian's gcc.
    pub fn build(directory: &Path) -> Result<Library> {
        let (text, path) = (directory.join("interpose.c"), directory.join("interpose.so"));
        std::fs::write(&text, include_str!("interpose.c"))?;
        let [text, library] = [&text, &path].map(|path| path.display().to_string());
        room::run("gcc", ["-O2", "-Wall", "-shared", "-fPIC", "-o", &library, &text, "-ldl"])?;
        Ok(Library { path, notes: directory.join("notes") })
    }

    /// What `env` is to set for a program that starts with it and has messages in files whose names begin with `files`.
    /// A set-id program must be a copy without that bit, or the linker passes the library over.
    pub fn settings(&self, files: &str, stop: bool) -> Vec<String> {
        let preload = format!("LD_PRELOAD={}", self.path.display());
        let notes = format!("{NOTES}={}", self.notes.display());
        let mut settings = vec![preload, notes, format!("{FILES}={files}")];
        settings.extend(stop.then(|| format!("{STOP}=yes")));
        settings
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the notes so far.
    pub fn notes(&self) -> Result<String> {
        std::fs::read_to_string(&self.notes).with_context(|| {
            format!("{}: nothing was noted; was the library loaded?", self.notes.display())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::notes;
    use std::process::Command;

    const READER: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None)
order = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
compare = order(lambda a, b: a[0] - b[0])
os.chdir(sys.argv[1])
libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.opendir(b"."))
while libc.readdir(stream):
    pass
libc.closedir(stream)
numbers = (ctypes.c_int * 5)(3, 1, 2, 5, 4)
libc.qsort(numbers, ctypes.c_size_t(5), ctypes.c_size_t(4), compare)
assert list(numbers) == [1, 2, 3, 4, 5], list(numbers)
libc.open(b"other", os.O_RDWR)
libc.open(b"qf1", os.O_RDONLY)
libc.open(b"./qf1", os.O_RDWR)
print("delivered")
"#;

    fn read(stop: bool) -> (notes::Reading, String) {
        let place = tempfile::tempdir().unwrap();
        let queue = place.path().canonicalize().unwrap().join("queue");
        std::fs::create_dir(&queue).unwrap();
        for name in ["qf1", "qf2", "df1", "df2", "other"] {
            std::fs::write(queue.join(name), "").unwrap();
        }
        let library = Library::build(place.path()).unwrap();
        let mut command = Command::new("env");
        command.args(library.settings("qf", stop)).args(["python3", "-c", READER]).arg(&queue);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let readings = notes::add_up(&library.notes().unwrap(), &queue, 1).unwrap();
        assert_eq!(readings.len(), 1, "{readings:?}");
        (readings[0], String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn reading_and_sorting_are_noted_and_the_program_runs_on_as_ever() {
        let (reading, said) = read(false);
        assert_eq!((reading.messages, reading.sorted, reading.begin_ms), (2, 5, None));
        assert!(reading.read_ms > 0.0 && reading.sort_ms > 0.0, "{reading:?}");
        assert_eq!(said, "delivered\n");
    }

    #[test]
    fn the_program_ends_when_it_opens_the_first_message_for_writing() {
        let (reading, said) = read(true);
        assert!(reading.begin_ms.is_some(), "{reading:?}");
        assert_eq!((reading.messages, said.as_str()), (2, ""));
    }
}
