"""Records: the daemon under load on a device whose writes are logged. Must never leave the daemon or the
storage daemon running."""
import json
import os
import random
import shutil
import time

import device
import mailing
import writelog

PROBES = 100
CLIENTS = 12
# Of the whole daemon: while it makes its spool, and under load.
KILLS_AT_START, KILLS = 3, 6


def probe_flushes(mount, entries):
    """Writes to a file in place and syncs it; each fdatasync must add to the log at least one flush."""
    added = []
    with open(mount / "probe", "wb") as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        for number in range(PROBES):
            os.pwrite(file.fileno(), os.urandom(4096), number * 4096)
            before = entries()
            os.fdatasync(file.fileno())
            added.append(entries() - before)
    os.unlink(mount / "probe")
    return {"syncs": PROBES, "without_flush": added.count(0), "entries": sum(added)}


def commits(options):
    """The spool's commits in flight: 1, 2, 4 or 8, by the seed."""
    return 1 << options.seed // 4 % 4


def kill_at_start(daemon, chance):
    """A spool is made by several starts, each killed a little later than the one before."""
    for number in range(1, KILLS_AT_START + 1):
        daemon.spawn()
        time.sleep(chance.uniform(0, 0.06) * number)
        daemon.kill()


def load(ledger, daemon, options):
    """One client; then several, amid which the daemon is killed; then the next hop that was down is up."""
    third = options.messages // 3
    sinks = [mailing.Sink(mailing.SINK_PORT, ledger)]
    run_clients([mailing.Client(ledger, range(third), options.seed)])
    clients = [mailing.Client(ledger, range(third + at, 2 * third, CLIENTS), options.seed * 100 + at)
               for at in range(CLIENTS)]
    run_clients(clients, lambda: kill_and_start(daemon, ledger, range(third, 2 * third, third // KILLS)))
    sinks.append(mailing.Sink(mailing.DOWN_PORT, ledger))
    daemon.queue("flush")
    run_clients([mailing.Client(ledger, range(2 * third, options.messages), options.seed + 1)])
    time.sleep(1)
    return sinks


def run_clients(clients, meanwhile=lambda: None):
    for client in clients:
        client.start()
    meanwhile()
    for client in clients:
        client.join()


def kill_and_start(daemon, ledger, moments):
    for moment in moments:
        while len(ledger.sent) < moment:
            time.sleep(0.005)
        daemon.kill()
        daemon.start()


def record(filesystem, directory, options):
    """Leaves start (the image at first), log and ledger.json in the directory."""
    directory.mkdir(parents=True)
    device.make_image(options.tools, directory / "image", filesystem)
    shutil.copy(directory / "image", directory / "start")
    logged = device.LoggedDevice(options.tools, directory, filesystem)
    mount = directory / "mount"
    logged.mount(mount)
    log = os.open(logged.log, os.O_RDONLY)
    ledger = mailing.Ledger(lambda: writelog.entries_logged(log, os.pread))
    probe = probe_flushes(mount, ledger.entries)
    begin = ledger.entries()
    daemon = mailing.Daemon(options.daemon, mount / "state", directory, commits(options))
    try:
        kill_at_start(daemon, random.Random(options.seed))
        daemon.start()
        sinks = load(ledger, daemon, options)
        daemon.stop()
    finally:
        if daemon.process.poll() is None:
            daemon.kill()
    device.unmount(mount)
    for sink in sinks:
        sink.stop()
    logged.stop()
    rows = {name: getattr(ledger, name) for name in ("sent", "promised", "sunk", "bounced")}
    (directory / "ledger.json").write_text(json.dumps({**rows, "probe": probe, "begin": begin}))
    (directory / "image").unlink()
