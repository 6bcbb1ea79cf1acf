//! One message as it streams by: proven by its mark, counted, written to a file if told to.
//!
//! Must never hold a message in memory.

use crate::mark::{Finding, Verifier};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The message as it streams by.
pub struct Body {
    verifier: Verifier,
    /// So far.
    pub bytes: u64,
    /// Bare line ends.
    pub bare: u64,
    dump: Option<io::BufWriter<std::fs::File>>,
}

impl Body {
    /// The file to which it is written as well, if there is a directory for it.
    pub fn open(dump: Option<&Path>, sender: &str, recipients: &[String]) -> io::Result<Body> {
        let dump = dump.map(|directory| dump_file(directory, sender, recipients));
        Ok(Body { verifier: Verifier::new(), bytes: 0, bare: 0, dump: dump.transpose()? })
    }

    /// Takes the next bytes, dots unstuffed.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.verifier.feed(bytes);
        if let Some(dump) = &mut self.dump {
            // A full disk shows in `finish`, where it can be said.
            let _ = dump.write_all(bytes);
        }
    }

    /// Returns the verdict of the mark on all bytes.
    pub fn finish(self) -> io::Result<Finding> {
        if let Some(mut dump) = self.dump {
            dump.flush()?;
        }
        Ok(self.verifier.finish())
    }
}

fn dump_file(
    directory: &Path,
    sender: &str,
    recipients: &[String],
) -> io::Result<io::BufWriter<std::fs::File>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let path = directory.join(format!("{:08}.eml", NUMBER.fetch_add(1, Relaxed)));
    let mut file = io::BufWriter::new(std::fs::File::create(path)?);
    write!(file, "X-Sink-From: <{sender}>\r\n")?;
    for recipient in recipients {
        write!(file, "X-Sink-To: <{recipient}>\r\n")?;
    }
    Ok(file)
}
