//! File systems of a test: an image under a loop device, or memory.
//!
//! Must never be visible to another test. Each thread that mounts has a mount namespace of its own, which
//! disappears with the thread and its daemon, even if the test program is killed.

use crate::support::{token, until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mounted file system.
pub struct Volume {
    /// The mount point.
    pub path: PathBuf,
    directory: PathBuf,
    kind: &'static str,
    options: String,
}

/// Runs a program that must succeed. Returns its output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    let output = command.args(arguments).env("PATH", path).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Volume {
    /// Creates an image of `megabytes` MB with these options of mkfs.
    pub fn image(kind: &'static str, megabytes: u64, mkfs: &[&str], options: &str) -> Volume {
        let volume = Volume::place(kind, options);
        let image = volume.image_path();
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(megabytes << 20).unwrap();
        run(&format!("mkfs.{kind}"), &[&["-q"], mkfs, &[text(&image)]].concat());
        volume.mount();
        volume
    }

    /// A file system in memory with these mount options.
    pub fn tmpfs(options: &str) -> Volume {
        let volume = Volume::place("tmpfs", options);
        run("mount", &["-t", "tmpfs", "-o", options, "tmpfs", text(&volume.path)]);
        volume
    }

    /// A layer above `lower` that stores changes in `upper`.
    pub fn overlay(lower: &Path, upper: &Path) -> Volume {
        let work = upper.with_extension("work");
        [lower, upper, &work].iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
        let options =
            format!("lowerdir={},upperdir={},workdir={}", text(lower), text(upper), text(&work));
        let volume = Volume::place("overlay", &options);
        run("mount", &["-t", "overlay", "-o", &options, "overlay", text(&volume.path)]);
        volume
    }

    fn place(kind: &'static str, options: &str) -> Volume {
        own_mounts();
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(token("volume"));
        let path = directory.join("mounted");
        std::fs::create_dir_all(&path).unwrap();
        Volume { path, directory, kind, options: options.into() }
    }

    fn image_path(&self) -> PathBuf {
        self.directory.join("image")
    }

    /// Mounts the image. The loop device is removed when the image is unmounted.
    pub fn mount(&self) {
        let options = match self.options.as_str() {
            "" => "loop".to_string(),
            more => format!("loop,{more}"),
        };
        let (image, path) = (self.image_path(), text(&self.path));
        run("mount", &["-t", self.kind, "-o", &options, text(&image), path]);
    }

    /// Between fork and exec, children of other tests have copies of our descriptors. The call is repeated
    /// until they are closed.
    pub fn unmount(&self) {
        until("the volume to be unmounted", || {
            let output = Command::new("umount").arg(&self.path).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() || said.contains("busy"), "{said}");
            output.status.success().then_some(())
        });
    }

    /// The name of the loop device in /sys.
    pub fn device(&self) -> String {
        let mounts = std::fs::read_to_string("/proc/thread-self/mounts").unwrap();
        let line = mounts.lines().find(|line| line.contains(text(&self.path))).unwrap();
        let device = line.split(' ').next().unwrap();
        device.strip_prefix("/dev/").expect("a loop device").to_string()
    }

    /// Repairs the file system as an operator would before the next mount.
    pub fn repair(&self) {
        let image = self.image_path();
        let status = Command::new("/sbin/e2fsck").args(["-fy", text(&image)]).output().unwrap();
        // Exit code 1: errors were corrected.
        assert!(status.status.code().is_some_and(|code| code < 4), "{status:?}");
    }

    /// Leaves the state of ext4 or xfs after a loss of power: nothing more reaches the disk, not even the log
    /// of the file system.
    pub fn cut(&self) {
        use std::os::fd::AsRawFd;
        // _IOR('X', 125, u32) and EXT4_GOING_FLAGS_NOLOGFLUSH / XFS_FSOP_GOING_FLAGS_NOLOGFLUSH.
        const GOING_DOWN: u64 = 0x8004_587d;
        let (root, how) = (std::fs::File::open(&self.path).unwrap(), 2u32);
        // SAFETY: the ioctl reads one u32 from the pointer, which is valid until it returns.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), GOING_DOWN as _, &how) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Writes files of one megabyte until the disk is full. [`Volume::make_room`] removes them.
    pub fn fill(&self) {
        let megabyte = vec![0x55; 1 << 20];
        for number in 0..1 << 20 {
            let path = self.path.join(format!("ballast-{number}"));
            if std::fs::write(path, &megabyte).is_err() {
                return;
            }
        }
    }

    /// Creates empty files until there is no free inode.
    pub fn fill_inodes(&self) {
        for number in 0..1 << 20 {
            if std::fs::write(self.path.join(format!("ballast-{number}")), b"").is_err() {
                return;
            }
        }
        panic!("inodes without end");
    }

    pub fn make_room(&self) {
        for entry in std::fs::read_dir(&self.path).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("ballast-") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Makes the mounts of this thread, and of what it starts, invisible to others from now on.
fn own_mounts() {
    // SAFETY: unshare and mount take no pointers except to these literals, which are static.
    let result = unsafe {
        libc::unshare(libc::CLONE_NEWNS)
            | libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            )
    };
    assert_eq!(result, 0, "a mount namespace: {}", std::io::Error::last_os_error());
}
