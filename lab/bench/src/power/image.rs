//! A file system on a loop image, with the queue in it; its power can be cut.
//!
//! Must never be called unmounted before the loop device is gone: only then does the next mount read the image.

use super::cell::FileSystem;
use super::shutdown::shutdown;
use crate::layout::disks::{format, mount};
use crate::room::run;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Size of the sparse image.
const IMAGE_BYTES: u64 = 1 << 30;
/// Time for which ended processes may keep a file system busy.
const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(20);
/// Time between two tries.
const UNMOUNT_REST: Duration = Duration::from_millis(20);

/// Whether syncs reach the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// As usual.
    Kept,
    /// The queue lies on an overlay mounted `volatile`, whose syncs do nothing and return success.
    Ignored,
}

/// One image, made for one cut.
pub struct Image {
    file: PathBuf,
    /// The mount point.
    disk: PathBuf,
    /// The queue directory that the mailer uses.
    queue: PathBuf,
    mounts: Vec<PathBuf>,
}

impl Image {
    /// A fresh file system in the file `name` below `work`, mounted, with an empty queue directory at `work/queue`.
    pub fn fresh(work: &Path, name: &str, kind: FileSystem, syncs: Syncs) -> Result<Image> {
        let [file, disk, queue] = [name, "disk", "queue"].map(|name| work.join(name));
        format(&file, IMAGE_BYTES, kind)?;
        std::fs::create_dir_all(&disk)?;
        std::fs::create_dir_all(&queue)?;
        let mut image = Image { file, disk, queue, mounts: Vec::new() };
        image.mount_disk()?;
        for name in ["queue", "overlay", "below"] {
            std::fs::create_dir(image.disk.join(name))?;
        }
        image.mount_queue(syncs)?;
        Ok(image)
    }

    /// Mounts the image after a cut; the kernel replays the journal. Syncs are real from then on.
    pub fn mount_again(&mut self) -> Result<()> {
        self.mount_disk()?;
        self.mount_queue(Syncs::Kept)
    }

    fn mount_disk(&mut self) -> Result<()> {
        mount(&self.file, &self.disk, "loop")?;
        self.mounts.push(self.disk.clone());
        Ok(())
    }

    fn mount_queue(&mut self, syncs: Syncs) -> Result<()> {
        let queue = self.queue.display().to_string();
        let disk = self.disk.display();
        match syncs {
            Syncs::Kept => run("mount", ["--bind", &format!("{disk}/queue"), &queue])?,
            Syncs::Ignored => {
                let layers = format!(
                    "lowerdir={disk}/below,upperdir={disk}/queue,workdir={disk}/overlay,volatile"
                );
                run("mount", ["-t", "overlay", "overlay", "-o", &layers, &queue])?
            }
        };
        self.mounts.push(self.queue.clone());
        Ok(())
    }

    /// Syncs everything written so far, even if the mailer's own syncs do nothing.
    pub fn settle(&self) -> Result<()> {
        rustix::fs::syncfs(File::open(&self.disk)?).context("syncfs")
    }

    /// Cuts the power.
    pub fn cut(&self) -> Result<()> {
        shutdown(&self.disk)
    }

    /// Unmounts and waits until the loop device is gone.
    pub fn unmount(&mut self) -> Result<()> {
        let end = Instant::now() + UNMOUNT_TIME_MAX;
        while let Some(mount) = self.mounts.last() {
            match run("umount", [&mount.display().to_string()]) {
                Ok(_) => drop(self.mounts.pop()),
                Err(_) if Instant::now() < end => std::thread::sleep(UNMOUNT_REST),
                Err(error) => return Err(error),
            }
        }
        let file = self.file.display().to_string();
        while !run("losetup", ["-j", &file])?.is_empty() {
            ensure!(Instant::now() < end, "{file} still has a loop device");
            std::thread::sleep(UNMOUNT_REST);
        }
        Ok(())
    }

    /// Copies the image; it must not be mounted.
    pub fn copy(&self, to: &Path) -> Result<()> {
        ensure!(self.mounts.is_empty(), "a mounted image is not copied");
        let [from, to] = [&self.file, to].map(|path| path.display().to_string());
        run("cp", ["--sparse=always", &from, &to]).map(drop)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for mount in self.mounts.iter().rev() {
            let _ = run("umount", ["-l", &mount.display().to_string()]); // the room's end does the rest
        }
        let _ = std::fs::remove_file(&self.file);
    }
}
