"""Reads a log of writes (the format of Linux's dm-log-writes, as QEMU's blklogwrites writes it) and
builds what a power cut may leave of them. Must never know what the writes mean."""
import bisect
import mmap
import struct
from dataclasses import dataclass, field

SECTOR, BLOCK = 512, 4096
MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
SUPER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")


@dataclass(eq=False)
class Write:
    number: int      # of the entry in the log
    offset: int      # bytes on the device
    length: int
    data: memoryview


@dataclass
class Interval:
    """The writes between two flushes. All before it is on the medium; of these, nobody knows."""
    flush: int                                   # how many flushes were logged before
    entries: int                                 # how many entries, the flush included
    writes: list = field(default_factory=list)


def entries_logged(path_fd, pread):
    """How many entries the log's first sector says; QEMU brings it up to date at each flush."""
    magic, _, entries, _ = SUPER.unpack(pread(path_fd, SUPER.size, 0))
    return entries if magic == MAGIC else 0


class Log:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, version, self.entries, sector = SUPER.unpack_from(self.map, 0)
        if (magic, version, sector) != (MAGIC, 1, SECTOR):
            raise ValueError(f"{path} is no log of writes in sectors of {SECTOR} bytes")
        self.intervals = [Interval(0, 0)]
        self.flush_at = []  # the number of entries when each flush was logged
        self.read()

    def read(self):
        view, at = memoryview(self.map), SECTOR
        for number in range(self.entries):
            sector, sectors, flags, _ = ENTRY.unpack_from(view, at)
            at += SECTOR
            length = sectors * SECTOR
            if flags & (FUA | DISCARD | MARK):
                raise ValueError(f"entry {number} has flags {flags}: not expected of a loop device")
            if flags & FLUSH:
                self.flush_at.append(number + 1)
                self.intervals.append(Interval(len(self.flush_at), number + 1))
            if length:
                write = Write(number, sector * SECTOR, length, view[at:at + length])
                self.intervals[-1].writes.append(write)
                at += length

    def flushes_at(self, entries):
        """Returns how many flushes are among the first `entries` entries."""
        return bisect.bisect_right(self.flush_at, entries)


def apply(image, writes):
    for write in writes:
        image[write.offset:write.offset + write.length] = write.data


def tear(chance, write, whole_at):
    """A write of which some sectors did not make it, as smaller writes. The block of BLOCK bytes at
    whole_at is not torn."""
    pieces, at = [], 0
    while at < write.length:
        place = write.offset + at - whole_at
        size = BLOCK - place if 0 <= place < BLOCK else SECTOR
        piece = write.data[at:at + size]
        if chance.random() < 0.5:
            pieces.append(Write(write.number, write.offset + at, len(piece), piece))
        at += size
    return pieces


def subset(writes, mask):
    return [write for at, write in enumerate(writes) if mask >> at & 1]


def masks(chance, count, few, samples):
    """All subsets where there are few writes; else none, all, all but one, and random ones."""
    everything = (1 << count) - 1
    if count <= few:
        return list(range(everything + 1))
    found = {0, everything}
    while len(found) < samples:
        density = chance.choice((0.1, 0.5, 0.5, 0.9))
        if chance.random() < 0.2:
            found.add(everything & ~(1 << chance.randrange(count)))
        elif chance.random() < 0.2:
            found.add((1 << chance.randrange(count)) - 1)
        else:
            found.add(sum(1 << at for at in range(count) if chance.random() < density))
    return sorted(found)


def states(chance, interval, few, samples, torn, whole_at):
    """(name, writes that survive) for each state of this interval that is tried."""
    writes = interval.writes
    for mask in masks(chance, len(writes), few, samples):
        yield f"{mask:x}", subset(writes, mask)
    long = [write for write in writes if write.length > SECTOR]
    for number in range(torn if long else 0):
        # One write torn among whole and missing ones; each second time all of them are torn.
        victims = writes if number % 2 else [chance.choice(long)]
        mask = chance.getrandbits(len(writes))
        survivors = []
        for at, write in enumerate(writes):
            if write in victims:
                survivors += tear(chance, write, whole_at)
            elif mask >> at & 1:
                survivors.append(write)
        yield f"{mask:x}-torn-{number}", survivors
