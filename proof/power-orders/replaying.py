"""Replays: builds each state that a power cut could have left, mounts it, and has it judged. Must never
write to the recording."""
import collections
import json
import random
import time

import device
import judge
import mailing
import recording
import writelog

# Flushes in a row that the control takes for not having happened.
FLUSHES_IGNORED = 4
DRAIN_SECONDS_MAX = 45


class Replay:
    """Walks a recording flush by flush; builds, mounts and judges states in an image in memory."""

    def __init__(self, filesystem, directory, options, name):
        self.filesystem, self.directory, self.options = filesystem, directory, options
        self.log = writelog.Log(directory / "log")
        self.case = judge.Case(directory, self.log)
        self.base = bytearray((directory / "start").read_bytes())
        self.image = directory / f"state-{name}"
        self.mount = directory / f"mount-{name}"
        self.counts = collections.Counter()
        self.failures = []

    def intervals(self, wanted):
        """The intervals since the daemon's start, each with everything before it applied."""
        for interval in self.log.intervals:
            if interval.flush >= self.case.begin and wanted(interval):
                yield interval
            writelog.apply(self.base, interval.writes)

    def chance(self, interval, what):
        return random.Random(f"{self.options.seed} {what} {interval.flush}")

    def build(self, writes):
        with open(self.image, "r+b" if self.image.exists() else "w+b") as file:
            file.write(self.base)
            for write in writes:
                file.seek(write.offset)
                file.write(write.data)

    def mounted(self, writes, look):
        """What look says of the state, or None: it cannot be mounted."""
        self.build(writes)
        if device.mount(self.filesystem, self.image, self.mount).returncode:
            return None
        try:
            return look(self.mount / "state")
        finally:
            device.unmount(self.mount)

    def try_state(self, name, interval, writes, flushes):
        self.counts["states"] += 1
        found = self.mounted(writes, lambda state: judge.Found(self.options.reader, state))
        if found is None and "torn" in name:
            # Blocks of the file system's own that it takes for granted to be written whole.
            self.counts["unmountable_torn"] += 1
            return
        if found is None:
            self.note("unmountable", name, interval, "")
            return
        lost, wrong = judge.judge(found, self.case, flushes)
        self.counts["messages"] += len(found.queued)
        self.counts["torn_tail"] += bool(found.head.get("torn"))
        if lost:
            self.note("loss", name, interval, lost)
        if wrong:
            self.note("wrong", name, interval, wrong)

    def note(self, kind, name, interval, what):
        self.counts[kind] += 1
        self.failures.append({"kind": kind, "state": f"{interval.flush}:{name}", "what": what[:5]})

    def legal(self, wanted):
        options = self.options
        for interval in self.intervals(wanted):
            self.counts["intervals"] += 1
            chance = self.chance(interval, "legal")
            share = self.chance(interval, "share")
            for name, writes in writelog.states(chance, interval, options.few, options.samples, options.torn,
                                                device.SUPERBLOCK_AT[self.filesystem]):
                if not f"{interval.flush}:{name}".startswith(options.only):
                    continue
                many = len(interval.writes) > options.few
                if many or share.random() < options.share:
                    self.counts["states_torn"] += "torn" in name
                    self.counts["states_of_many_writes"] += many
                    self.try_state(name, interval, writes, interval.flush)

    def control(self, picked):
        """As if some flushes in a row had not been: a subset of all writes up to the last of them."""
        for interval in self.intervals(lambda interval: interval.flush in picked):
            together = self.log.intervals[interval.flush:interval.flush + FLUSHES_IGNORED + 1]
            writes = [write for one in together for write in one.writes]
            chance = self.chance(interval, "control")
            survivors = [write for write in writes if chance.random() < 0.5]
            self.try_state("control", interval, survivors, together[-1].flush)

    def drain(self, picked):
        """The daemon itself on a sample of states: it starts, delivers all it has, and all that was
        promised has arrived, before the cut or now."""
        for interval in self.intervals(lambda interval: interval.flush in picked):
            chance = self.chance(interval, "drain")
            mask = chance.getrandbits(max(len(interval.writes), 1))
            writes = writelog.subset(interval.writes, mask)
            self.counts["states"] += 1
            if self.mounted(writes, lambda state: self.drain_one(interval, mask, state)) is None:
                self.note("unmountable", f"{mask:x}", interval, "")

    def drain_one(self, interval, mask, state):
        before = judge.Found(self.options.reader, state)
        ledger = mailing.Ledger(lambda: 0)
        ledger.sent = self.case.sent
        sinks = [mailing.Sink(port, ledger) for port in (mailing.SINK_PORT, mailing.DOWN_PORT)]
        daemon = mailing.Daemon(self.options.daemon, state, self.directory, recording.commits(self.options))
        try:
            daemon.start()
            if not self.wait_empty(daemon):
                self.note("not drained", f"{mask:x}", interval, "")
            daemon.stop()
        except RuntimeError as error:
            self.note("does not start", f"{mask:x}", interval, [str(error)])
        finally:
            for sink in sinks:
                sink.stop()
            if daemon.process.poll() is None:
                daemon.kill()
        self.judge_drained(interval, mask, before, judge.Found(self.options.reader, state), ledger)
        return True

    def wait_empty(self, daemon):
        end = time.monotonic() + DRAIN_SECONDS_MAX
        while time.monotonic() < end:
            said = daemon.queue("summary", "--json")
            if said.returncode == 0 and json.loads(said.stdout)["messages"] == 0:
                return True
            daemon.queue("flush")
            time.sleep(0.1)
        return False

    def judge_drained(self, interval, mask, before, after, ledger):
        name, case = f"{mask:x}", self.case
        gone = [token for token, promised in case.promised.items() if promised <= interval.flush
                and token not in after.boxed and token not in ledger.sunk and token not in ledger.bounced
                and case.arrived(token) > interval.flush]
        torn = [token for token, all in ledger.sunk.items() if not all[0][1]]
        again = [token for token in ledger.sunk if token not in before.queued]
        self.counts["delivered"] += len(ledger.sunk) + len(ledger.bounced)
        self.counts["doubled"] += sum(case.arrived(token) <= interval.flush for token in ledger.sunk)
        for kind, what in (("loss", gone), ("wrong", after.wrong + torn), ("delivered what was done", again)):
            if what:
                self.note(kind, name, interval, what)
