#!/usr/bin/env python3
"""Fills one bound after the other of the release program and prints what each of its processes takes (RSS).

    proof/bounds/rss.py [--program target/release/posthaste] [--work DIR] [--write FILE] [SCENARIO...]

Each scenario starts a mailer of its own on loopback ports, fills what a stranger, a peer or an administrator can fill,
and notes the largest RSS of each role in MiB meanwhile. The table goes to FILE as a page that `cargo xtask bounds`
takes into docs/bounds.md when it lies in docs/measurements/ as DATE-bounds-rss.md.
Must never touch a process that it did not start.
"""
import argparse, os, re, resource, select, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time

ROLES = ["master", "receive", "queue", "send", "local"]


def rss(pid):
    """RSS in MiB; 0 where the process is gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS")), 0)
    except OSError:
        return 0


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            found = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return found + [deeper for child in found for deeper in children(child)]


def role(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return ""
    return words[words.index(b"role") + 1].decode() if b"role" in words else ""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Mailer:
    """A mailer with these tables; its largest RSS by role is noted until it is stopped."""

    def __init__(self, name, tables, routes="", wrapper=()):
        self.directory = os.path.join(ARGUMENTS.work, name)
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        os.chmod(self.directory, 0o755)
        self.port, self.most, self.processes = free_port(), {}, {}
        self.config = os.path.join(self.directory, "posthaste.toml")
        with open(self.config, "w") as file:
            file.write(
                f'hostname = "mx.local.test"\nstate = "{self.directory}/state"\n'
                f'[[listen]]\naddress = "127.0.0.1:{self.port}"\n{routes}\n[processes]\nreceive = 1\nsend = 1\n{tables}\n'
            )
        self.log = open(os.path.join(self.directory, "log"), "wb")
        command = [*wrapper, ARGUMENTS.program, "run", "--config", self.config]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        self.stopping = threading.Event()
        deadline = time.monotonic() + 60
        while b"ready:" not in open(self.log.name, "rb").read():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name}: did not start:\n{open(self.log.name).read()[-2000:]}")
            time.sleep(0.05)
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def watch(self):
        while not self.stopping.wait(0.1):
            now = {}
            for pid in [self.process.pid, *children(self.process.pid)]:
                name = role(pid) or "master"
                now.setdefault(name, []).append(rss(pid))
            for name, sizes in now.items():
                self.most[name] = max(self.most.get(name, 0), max(sizes))
                self.processes[name] = max(self.processes.get(name, 0), len(sizes))

    def pids(self, name):
        return [pid for pid in children(self.process.pid) if role(pid) == name]

    def command(self, *words):
        done = subprocess.run([ARGUMENTS.program, *words, "--config", self.config], capture_output=True, text=True)
        return done.stdout + done.stderr

    def stop(self):
        time.sleep(1)
        self.stopping.set()
        self.watcher.join()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            for pid in [*children(self.process.pid), self.process.pid]:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
        shutil.rmtree(os.path.join(self.directory, "state"), ignore_errors=True)


class Client:
    def __init__(self, mailer, source=None):
        self.socket = socket.create_connection(("127.0.0.1", mailer.port), 120, (source, 0) if source else None)
        self.file = self.socket.makefile("rb")
        self.greeting = self.reply()

    def reply(self):
        while True:
            line = self.file.readline()
            if not line or line[3:4] != b"-":
                return line.decode("latin1").rstrip()

    def ask(self, line):
        self.socket.sendall(line.encode() + b"\r\n")
        return self.reply()

    def begin(self, recipients, parameters=""):
        """EHLO, MAIL and these RCPTs; how many were accepted, until one was refused."""
        self.ask("EHLO client.test")
        self.ask("MAIL FROM:<sender@client.test>")
        accepted = 0
        for at in range(0, len(recipients), 200):
            part = recipients[at : at + 200]
            self.socket.sendall("".join(f"RCPT TO:<{one}>{parameters}\r\n" for one in part).encode())
            codes = [self.reply()[:3] for _ in part]
            accepted += codes.count("250")
            if accepted < at + len(part):
                break
        return accepted

    def message(self, recipients, body="body\r\n", parameters=""):
        self.begin(recipients, parameters)
        if not self.ask("DATA").startswith("354"):
            return "no"
        self.socket.sendall(f"Subject: bound\r\n\r\n{body}.\r\n".encode())
        return self.reply()


class Sink:
    """A next hop: `rcpt(number)` is its reply to the RCPT of this number; it reads nothing where `stalls`."""

    def __init__(self, rcpt=lambda number: "250 2.1.5 Ok", stalls=False):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(1024)
        self.port, self.rcpt, self.stalls, self.number, self.seen = self.socket.getsockname()[1], rcpt, stalls, 0, 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        file, data = connection.makefile("rb"), False

        def say(text):
            connection.sendall(text.encode() + b"\r\n")

        try:
            say("220 sink")
            for line in file:
                verb = line[:4].upper()
                if data:
                    if line == b".\r\n":
                        data = False
                        self.seen += 1
                        say("250 2.0.0 Ok")
                elif verb == b"EHLO":
                    say("250-sink\r\n250-PIPELINING\r\n250 DSN")
                elif verb == b"RCPT":
                    self.number += 1
                    say(self.rcpt(self.number))
                elif verb == b"DATA":
                    data = True
                    say("354 go on")
                    if self.stalls:
                        time.sleep(3600)
                elif verb == b"QUIT":
                    return say("221 bye")
                else:
                    say("250 2.0.0 Ok")
        except OSError:
            pass
        finally:
            connection.close()


def route(port):
    return f'[[route]]\ndomain = "*.sink.test"\nto = "smtp:127.0.0.1:{port}"\n'


def idle():
    """10,000 idle connections, greeted | limits.connections = 20000, session_memory_bytes_max = 256MiB"""
    mailer = Mailer("idle", "")
    kept = []
    for number in range(10_000):
        kept.append(socket.create_connection(("127.0.0.1", mailer.port), 60, (f"127.0.0.{2 + number % 20}", 0)))
        kept[-1].recv(200)
    return mailer, f"{len(kept)} connections"


LONG = " ORCPT=rfc822;" + "y" * 480
NAMES = [f"u{number:06}{'x' * 50}@mx.local.test" for number in range(50_000)]
BOTH = '[relay]\nfrom = ["127.0.0.1/32"]\n[limits]\nstranger_recipients_max = 50000\nconnections_per_client = 1000\n'


def named(mailer, sources):
    """Recipients that clients at these addresses have named until each was refused, and the clients."""
    clients, accepted = [], 0
    for source in sources:
        while True:
            client = Client(mailer, source)
            if not client.greeting.startswith("220"):
                break
            clients.append(client)
            taken = client.begin(NAMES, LONG)
            accepted += taken
            if taken < len(NAMES):
                break
    return clients, accepted


def strangers():
    """strangers of eight networks name recipients with the longest ORCPT until 452 | three quarters of limits.session_memory_bytes_max = 256MiB"""
    mailer = Mailer("strangers", BOTH)
    clients, accepted = named(mailer, [f"127.0.0.{number}" for number in range(2, 10)])
    return mailer, f"{accepted} recipients in {len(clients)} sessions"


def recipients():
    """clients in relay.from name recipients with the longest ORCPT until 452 | limits.session_memory_bytes_max = 256MiB"""
    mailer = Mailer("recipients", BOTH)
    clients, accepted = named(mailer, ["127.0.0.1"])
    return mailer, f"{accepted} recipients in {len(clients)} sessions"


def changing():
    """20 clients in relay.from name recipients of changing sizes until 452 and give them up, 10 times | limits.session_memory_bytes_max = 256MiB"""
    mailer = Mailer("changing", BOTH)
    clients, accepted = [Client(mailer, "127.0.0.1") for _ in range(20)], 0
    for turn in range(10):
        for at, client in enumerate(clients):
            accepted += client.begin(NAMES, " ORCPT=rfc822;" + "y" * (1 + (turn * 97 + at * 23) % 480))
        for client in clients:
            client.ask("RSET")
    return mailer, f"{accepted} recipients in all"


def staged():
    """bodies that stand still at 192 KiB | session_memory_bytes_max = 256MiB, staged bytes 256 MiB"""
    mailer = Mailer("staged", "")
    line, clients = b"x" * 1022 + b"\r\n", []
    for number in range(1_400):
        client = Client(mailer)
        if not client.greeting.startswith("220"):
            break
        client.begin(["box@mx.local.test"])
        if not client.ask("DATA").startswith("354"):
            break
        client.socket.sendall(line * 192)
        clients.append(client)
    time.sleep(3)
    return mailer, f"{len(clients)} bodies"


def unwritten():
    """a sending process that is stopped while mail for it comes | 64 MiB unwritten, message cache 16 MiB, 1,000 attempts"""
    sink = Sink()
    mailer = Mailer("unwritten", "[destination.default]\nconnections = 1000\nstart_connections = 1000\n", route(sink.port))
    stopped = mailer.pids("send")
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    client, count = Client(mailer), 0
    body = ("z" * 70 + "\r\n") * 800
    for number in range(3_000):
        count += client.message([f"u@d{number % 50}.sink.test"], body).startswith("250")
    time.sleep(3)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    time.sleep(3)
    return mailer, f"{count} messages of 57 kB"


def stalled_hops():
    """1,000 next hops that stop to read within a large body | queue.attempts_in_flight_max = 1000"""
    sink = Sink(stalls=True)
    mailer = Mailer("stalled", "[destination.default]\nconnections = 1000\nstart_connections = 1000\n", route(sink.port))
    client = Client(mailer)
    body = ("z" * 998 + "\r\n") * 1_000
    count = sum(client.message([f"u@d{number}.sink.test"], body).startswith("250") for number in range(1_000))
    time.sleep(5)
    return mailer, f"{count} messages of 1 MB"


def reports():
    """a next hop that answers each of 8,000 recipients with 8 KiB of its own, and a page of them | replies 32 MiB, page 4 MiB"""
    sink = Sink(lambda number: "\r\n".join([f"450-4.2.1 {number} " + "w" * 1_900] * 4 + [f"450 4.2.1 {number}"]))
    mailer = Mailer("reports", "[destination.default]\nconnections = 20\n", route(sink.port))
    client = Client(mailer)
    for number in range(400):
        client.message([f"u{number}x{at}@d.sink.test" for at in range(20)])
    for _ in range(600):
        if sink.number >= 8_000:
            break
        time.sleep(0.2)
    time.sleep(2)
    page = mailer.command("queue", "list", "--json")
    return mailer, f"{sink.number} replies, a list of {len(page) >> 20} MiB"


def expiry():
    """a list of 50,000 that is greylisted with 450 octets each and expires | notices of bounded number and size"""
    sink = Sink(lambda number: f"450 4.2.0 {number} " + "w" * 430)
    mailer = Mailer("expiry", '[retry]\nfirst = "1s"\nexpire = "20s"\ndelay_notice = 0\n', route(sink.port))
    print(Client(mailer).message([f"u{number}@d.sink.test" for number in range(50_000)]), file=sys.stderr)
    for _ in range(600):
        time.sleep(0.5)
        if re.search(r'"messages": ?0\b', mailer.command("queue", "summary", "--json")):
            break
    return mailer, "50,000 recipients"


class Names:
    """A name server that gives each domain the longest answer that the cache keeps."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port, self.asked = self.socket.getsockname()[1], 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            packet, client = self.socket.recvfrom(4096)
            end = packet.index(b"\0", 12) + 5
            kind = struct.unpack(">H", packet[end - 4 : end - 2])[0]
            answers = []
            if kind == 15:
                host = b"\x02mx\xc0\x0c"
                for number in range(30):
                    data = struct.pack(">H", number) + bytes([3]) + b"h%02d" % number + b"\xc0\x0c"
                    answers.append(b"\xc0\x0c" + struct.pack(">HHIH", 15, 1, 3600, len(data)) + data)
            elif kind == 1:
                answers.append(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 3600, 4) + bytes([127, 0, 0, 77]))
            self.asked += 1
            head = packet[:2] + b"\x85\x80" + struct.pack(">HHHH", 1, len(answers), 0, 0)
            self.socket.sendto(head + packet[12:end] + b"".join(answers), client)


def resolver():
    """mail for 10,000 domains, each with 30 mail servers | cache of 8,192 answers"""
    names = Names()
    mailer = Mailer("resolver", f'[dns]\nservers = ["127.0.0.1:{names.port}"]\n')
    client = Client(mailer)
    for number in range(0, 10_000, 100):
        client.message([f"u@name{at}.example.test" for at in range(number, number + 100)])
    asked = -1
    while asked != names.asked:
        asked = names.asked
        time.sleep(5)
    return mailer, f"{names.asked} questions"


def workers():
    """mail for 70 accounts of the system at once | 64 workers"""
    if os.geteuid() != 0:
        return None, "SKIPPED: needs root, for a list of accounts of its own"
    home = os.path.join(ARGUMENTS.work, "workers-homes")
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(home)
    os.chmod(home, 0o755)
    passwd = os.path.join(ARGUMENTS.work, "workers-passwd")
    with open(passwd, "w") as file:
        file.write(open("/etc/passwd").read())
        for number, name in enumerate(["postmaster"] + [f"w{number}" for number in range(70)]):
            uid, path = 50_000 + number, os.path.join(home, name)
            os.makedirs(path)
            os.chown(path, uid, uid)
            file.write(f"{name}:x:{uid}:{uid}::{path}:/bin/sh\n")
    wrapper = ["unshare", "-m", "sh", "-c", f'mount --bind {passwd} /etc/passwd && exec "$@"', "sh"]
    mailer = Mailer("workers", '[local]\nusers = "system"\ndeliver = "maildir:{home}/Maildir/"\n', "", wrapper)
    client = Client(mailer)
    for _ in range(50):
        client.message([f"w{number}@mx.local.test" for number in range(70)], ("z" * 70 + "\r\n") * 800)
    time.sleep(3)
    return mailer, f"{mailer.processes.get('local', 0)} processes, of which two are no workers"


SCENARIOS = [idle, strangers, recipients, changing, staged, unwritten, stalled_hops, reports, expiry, resolver, workers]

HEAD = """Written by `proof/bounds/rss.py`: the largest RSS of each role in MiB (of several processes the largest, and how many) while the
bound is filled; each row is a mailer of its own with one receive and one send process.

| what is filled | bound | how far | """ + " | ".join(ROLES) + " |\n|" + "---|" * 3 + "--:|" * len(ROLES) + "\n"


def row(scenario):
    what, bound = (part.strip() for part in scenario.__doc__.split("|"))
    mailer, reached = scenario()
    cells = ["", "", "", "", ""]
    if mailer:
        mailer.stop()
        several = lambda name: f" ({mailer.processes[name]})" if mailer.processes.get(name, 1) > 1 else ""
        cells = [f"{mailer.most.get(name, 0):.0f}{several(name)}" for name in ROLES]
    line = f"| {what} | {bound} | {reached} | " + " | ".join(cells) + " |\n"
    print(line, end="", flush=True)
    return line


def main():
    global ARGUMENTS
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--program", default="target/release/posthaste")
    words.add_argument("--work", default=os.path.join(tempfile.gettempdir(), f"posthaste-bounds-{os.getpid()}"))
    words.add_argument("--write", help="the page")
    words.add_argument("scenario", nargs="*", choices=[[], *(one.__name__ for one in SCENARIOS)])
    ARGUMENTS = words.parse_args()
    ARGUMENTS.program = os.path.abspath(ARGUMENTS.program)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 40_000)), hard))
    os.makedirs(ARGUMENTS.work, exist_ok=True)
    os.chmod(ARGUMENTS.work, 0o755)
    page = HEAD
    for scenario in SCENARIOS:
        if not ARGUMENTS.scenario or scenario.__name__ in ARGUMENTS.scenario:
            page += row(scenario)
    if ARGUMENTS.write:
        with open(ARGUMENTS.write, "w") as file:
            file.write(page)
    shutil.rmtree(ARGUMENTS.work, ignore_errors=True)


main()
