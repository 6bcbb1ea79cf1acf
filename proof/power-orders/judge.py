"""Says of one state that a power cut left whether every promise is kept in it. Must never look at how
the state was made; only at the ledger, and at how many flushes had been answered before the cut."""
import json
import subprocess
from pathlib import Path

import mailing

READER_SECONDS_MAX = 60


class Found:
    """What is in the queue and in the mailboxes of one state, and what is wrong with it by itself."""

    def __init__(self, reader, state):
        self.queued, self.bounces, self.boxed = {}, {}, {}
        self.wrong, self.head = [], {}
        try:
            self.read_spool(reader, state / "spool")
            self.read_mailboxes(state / "mail")
        except OSError as error:
            self.wrong.append(f"the file system: {error}")

    def read_mailboxes(self, boxes):
        for path in sorted(boxes.glob("*/new/*")):
            text = path.read_bytes()
            found = mailing.TOKEN.search(text)
            token = found.group().decode() if found else None
            self.boxed.setdefault(token, []).append(mailing.plain(text[max(text.find(b"Subject: t"), 0):]))

    def read_spool(self, reader, spool):
        if not spool.is_dir():
            return
        done = subprocess.run([reader, spool, str(mailing.SEGMENT_BYTES)], capture_output=True, text=True,
                              timeout=READER_SECONDS_MAX)
        if done.returncode:
            self.wrong.append(f"refused: {done.stderr.strip()[:300]}")
            return
        head, *rows = map(json.loads, done.stdout.splitlines())
        self.head = head
        if not head["check"]["clean"] or head["damage"] != "[]":
            self.wrong.append(f"damage: {head}")
        for row in rows:
            self.take(row)

    def take(self, row):
        bounce = row["sender"] == ""
        text = " ".join(row["waiting"]) if bounce else row["sender"]
        found = mailing.TOKEN.search(text.encode())
        if "error" in row or not found:
            self.wrong.append(f"half there: {row}")
        elif row["waiting"]:
            (self.bounces if bounce else self.queued)[found.group().decode()] = row


def judge(found, case, flushes):
    """Returns the broken promises and the other faults of a cut after `flushes` answered flushes."""
    lost, wrong = [], list(found.wrong)
    for token, row in found.queued.items():
        sent = case.sent.get(token)
        if not sent or sent["sha256"] != row["sha256"]:
            wrong.append(f"not what was sent: {token}: {row}")
        if token in found.bounces:
            wrong.append(f"an outcome without its bounce's record, or the other way: {token}")
    for token, copies in found.boxed.items():
        if token not in case.sent or any(copy != case.sent[token]["plain"] for copy in copies):
            wrong.append(f"a mailbox holds {token} otherwise than it was sent")
    for token, promised in case.promised.items():
        if promised <= flushes and not is_kept(token, found, case, flushes):
            lost.append(token)
    return lost, wrong


def is_kept(token, found, case, flushes):
    return (token in found.queued or token in found.bounces or token in found.boxed
            or case.arrived(token) <= flushes)


class Case:
    """A recording's ledger, its moments counted in flushes."""
    NEVER = 1 << 62

    def __init__(self, directory, log):
        ledger = json.loads((Path(directory) / "ledger.json").read_text())
        self.sent, self.probe = ledger["sent"], ledger["probe"]
        self.begin = log.flushes_at(ledger["begin"])
        self.promised = {token: log.flushes_at(at) for token, at in ledger["promised"].items()}
        self.damaged_at_sink = [token for token, all in ledger["sunk"].items() if not all[0][1]]
        self.first = {token: log.flushes_at(all[0][0]) for token, all in ledger["sunk"].items()}
        for token, all in ledger["bounced"].items():
            self.first.setdefault(token, log.flushes_at(all[0]))
        self.doubled = sum(len(all) > 1 for all in ledger["sunk"].values())

    def arrived(self, token):
        """How many flushes had been answered when the sink had it, or the bounce about it."""
        return self.first.get(token, self.NEVER)


def written_and_flushed_late(case, log):
    """Promised tokens of which no write, with a flush behind it, stood in the log when their 250 came."""
    firsts = {}
    for interval in log.intervals:
        for write in interval.writes:
            for token in set(mailing.TOKEN.findall(bytes(write.data))):
                firsts.setdefault(token.decode(), interval.flush + 1)
    late = [token for token, at in case.promised.items() if firsts.get(token, case.NEVER) > at]
    lags = sorted(at - firsts[token] for token, at in case.promised.items() if token not in late)
    return late, lags
