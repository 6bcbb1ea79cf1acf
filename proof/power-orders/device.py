"""A block device whose writes are logged, and file systems on it: QEMU's storage daemon exports an image
through FUSE, the export is loop-mounted. Must run in mount and network namespaces of its own (see `run`),
so that nothing of it outlives the harness."""
import os
import shutil
import subprocess
import time
from pathlib import Path

# qemu-storage-daemon, mkfs, and the libraries that a small Debian may lack; unpacked, not installed.
PACKAGES = ["qemu-system-common", "libfuse3-3", "liburing2", "libaio1", "libnuma1", "libglib2.0-0",
            "e2fsprogs", "xfsprogs", "btrfs-progs", "liburcu8", "libinih1", "liblzo2-2"]
START_SECONDS_MAX = 20
IMAGE_BYTES = 64 << 20
# So small a file system of xfs is "unsupported", which is about speed; small ones of btrfs are mixed.
EXT4 = ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]
MKFS = {
    "ext4": [*EXT4, "-b", "4096"],
    # Blocks smaller than those of the spool's format: one of its blocks is several of the file system's.
    "ext4-1k": [*EXT4, "-b", "1024"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K", "--unsupported"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K", "--mixed"],
}
# Each file system takes for granted that its superblock is written whole; this block is never torn.
SUPERBLOCK_AT = {"ext4": 0, "ext4-1k": 0, "xfs": 0, "btrfs": 65536}


def call(*argv, **options):
    return subprocess.run([str(word) for word in argv], check=True, **options)


def unpacked(tools):
    """The environment in which the programs of the packages run."""
    if not (tools / "usr/bin/qemu-storage-daemon").exists():
        tools.mkdir(parents=True, exist_ok=True)
        call("apt-get", "-qq", "download", *PACKAGES, cwd=tools)
        for package in tools.glob("*.deb"):
            call("dpkg", "-x", package, tools)
            package.unlink()
    libraries = ":".join(str(path) for path in tools.glob("**/*-linux-gnu") if path.is_dir())
    places = [os.environ["PATH"], "/usr/sbin", "/sbin"]
    places += [str(tools / place) for place in ("usr/bin", "usr/sbin", "bin", "sbin")]
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "PATH": ":".join(places)}


def make_image(tools, path, filesystem):
    with open(path, "wb") as file:
        file.truncate(IMAGE_BYTES)
    environment = unpacked(tools)
    program, *words = MKFS[filesystem]
    call(shutil.which(program, path=environment["PATH"]), *words, path, env=environment,
         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def mount(filesystem, image, where):
    where.mkdir(parents=True, exist_ok=True)
    options = "loop,noatime,nouuid" if filesystem == "xfs" else "loop,noatime"
    kind = filesystem.split("-")[0]
    return subprocess.run(["mount", "-t", kind, "-o", options, image, where], capture_output=True)


def unmount(where):
    for _ in range(100):
        if subprocess.run(["umount", where], capture_output=True).returncode == 0:
            return
        time.sleep(0.02)
    raise RuntimeError(f"{where} stays busy")


class LoggedDevice:
    """An image whose writes and flushes are logged while it is mounted."""

    def __init__(self, tools, directory, filesystem):
        self.image, self.log, self.export = directory / "image", directory / "log", directory / "export"
        self.filesystem = filesystem
        self.log.write_bytes(b"")
        self.export.write_bytes(b"")
        self.process = subprocess.Popen([
            tools / "usr/bin/qemu-storage-daemon",
            "--blockdev", f"driver=file,node-name=image,filename={self.image}",
            "--blockdev", f"driver=file,node-name=log,filename={self.log}",
            "--blockdev", "driver=blklogwrites,node-name=logged,file=image,log=log",
            "--export", f"type=fuse,id=export,node-name=logged,mountpoint={self.export},writable=on",
        ], env=unpacked(tools), stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS_MAX
        while self.export.stat().st_size != IMAGE_BYTES:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("qemu-storage-daemon does not export the image")
            time.sleep(0.02)

    def mount(self, where):
        done = mount(self.filesystem, self.export, where)
        if done.returncode:
            raise RuntimeError(done.stderr.decode())

    def stop(self):
        self.process.terminate()
        self.process.wait()
