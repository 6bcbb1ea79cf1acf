"""Mail with tokens: a client that notes how much of the log of writes stood when each 250 came, a sink
that notes the same for each message it takes, and the daemon. Must never sync anything itself."""
import hashlib
import os
import random
import re
import signal
import socket
import socketserver
import subprocess
import threading
import time

SMTP_PORT, SINK_PORT, DOWN_PORT = 2525, 2600, 2601
START_SECONDS_MAX, REPLY_SECONDS_MAX, STOP_SECONDS_MAX = 20, 60, 20
SEGMENT_BYTES = 1 << 20
TOKEN = re.compile(rb"t\d{5}x[0-9a-f]{8}")
SETTINGS = """
hostname = "orders.test"
state = "{state}"
[[listen]]
address = "127.0.0.1:2525"
[local]
domains = ["local.test"]
deliver = "maildir:{{state}}/mail/{{user}}/"
[[route]]
domain = "down.test"
to = "smtp:127.0.0.1:2601"
[[route]]
domain = "*"
to = "smtp:127.0.0.1:2600"
[retry]
first = "1s"
longest = "2s"
[spool]
segment_bytes = "1MiB"
batch_bytes_max = "256KiB"
reserve_bytes = "1MiB"
keep_free_bytes = 0
snapshot_log_bytes = "1MiB"
commits_in_flight = {commits}
"""


class Daemon:
    def __init__(self, program, state, directory, commits):
        self.program, self.config = program, directory / "posthaste.toml"
        self.config.write_text(SETTINGS.format(state=state, commits=commits))
        self.log = open(directory / "daemon.log", "ab")

    def start(self):
        """Starts it and waits for its banner; gives itself."""
        self.spawn()
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", SMTP_PORT), 1) as probe:
                    if probe.recv(3) == b"220":
                        return self
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(f"the daemon does not answer; see {self.log.name}")

    def spawn(self):
        # A session of its own, so that kill reaches every role.
        self.process = subprocess.Popen([self.program, "run", "--config", self.config], stderr=self.log,
                                        stdout=self.log, stdin=subprocess.DEVNULL, start_new_session=True)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def queue(self, *words):
        return subprocess.run([self.program, "--config", self.config, "queue", *words], capture_output=True,
                              timeout=REPLY_SECONDS_MAX, text=True)


def plain(body):
    """The hash of a body whose line ends do not count: a mailbox has its own."""
    return hashlib.sha256(body.replace(b"\r\n", b"\n")).hexdigest()


class Ledger:
    """What was sent, what was promised, what arrived, and when, in flushes of the log."""

    def __init__(self, entries):
        self.entries, self.lock = entries, threading.Lock()
        self.sent, self.promised, self.sunk, self.bounced = {}, {}, {}, {}

    def compose(self, chance, number):
        token = f"t{number:05d}x{chance.getrandbits(32):08x}"
        kind = ("local", "sink", "down", "local", "sink", "fail", "down", "sink")[number % 8]
        bytes_wanted = 1_300_000 if number % 97 == 96 else 200_000 if number % 29 == 28 else \
            chance.randrange(100, 9000)
        lines = [f"Subject: {token}", "", f"begin {token}"]
        random_bytes = chance.randbytes(bytes_wanted // 2).hex()
        lines += [random_bytes[at:at + 72] for at in range(0, len(random_bytes), 72)]
        body = "\r\n".join(lines + [f"end {token}", ""]).encode()
        recipient = f"u{number % 5}@local.test" if kind == "local" else f"{token}@{kind}.test"
        row = {"kind": kind, "to": recipient, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest(),
               "plain": plain(body)}
        with self.lock:
            self.sent[token] = row
        return token, recipient, body

    def arrived(self, recipient, text):
        """At the sink: a message of ours, or a bounce to the sender s.TOKEN."""
        now, found = self.entries(), TOKEN.search(recipient)
        if not found:
            return
        token = found.group().decode()
        with self.lock:
            if recipient.startswith(b"s."):
                self.bounced.setdefault(token, []).append(now)
            else:
                whole = plain(text[max(text.find(b"Subject: t"), 0):]) == self.sent[token]["plain"]
                self.sunk.setdefault(token, []).append([now, whole])


class Client(threading.Thread):
    """Sends the messages of its share one by one; a lost connection leaves that message unpromised."""

    def __init__(self, ledger, numbers, seed):
        super().__init__(daemon=True)
        self.ledger, self.numbers, self.chance = ledger, numbers, random.Random(seed)

    def run(self):
        connection = None
        for number in self.numbers:
            connection = connection or self.connect()
            token, recipient, body = self.ledger.compose(self.chance, number)
            try:
                if connection.send(f"s.{token}@sink.test", recipient, body):
                    self.ledger.promised[token] = self.ledger.entries()
            except OSError:
                connection = None

    def connect(self):
        """Waits for a daemon that has been killed to come back."""
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return Connection()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)


class Connection:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", SMTP_PORT), REPLY_SECONDS_MAX)
        self.lines = self.socket.makefile("rb")
        self.reply()
        self.say("EHLO client.test")

    def reply(self):
        while True:
            line = self.lines.readline()
            if not line:
                raise ConnectionError("the daemon has gone")
            if line[3:4] != b"-":
                return line[:3]

    def say(self, text):
        self.socket.sendall(text.encode() + b"\r\n")
        return self.reply()

    def send(self, sender, recipient, body):
        replies = [self.say(f"MAIL FROM:<{sender}>"), self.say(f"RCPT TO:<{recipient}>"), self.say("DATA")]
        if replies != [b"250", b"250", b"354"]:
            self.say("RSET")
            return False
        self.socket.sendall(body + b".\r\n")
        return self.reply() == b"250"


class Sink(socketserver.ThreadingTCPServer):
    """Takes mail, refuses what goes to fail.test, and notes each message before it says 250."""
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 64

    def __init__(self, port, ledger):
        self.ledger = ledger
        super().__init__(("127.0.0.1", port), Conversation)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # A daemon that was killed.

    def stop(self):
        self.shutdown()
        self.server_close()


class Conversation(socketserver.StreamRequestHandler):
    def say(self, text):
        self.wfile.write(text + b"\r\n")

    def handle(self):
        self.say(b"220 sink.test")
        recipients = []
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"RCPT" and b"@fail.test" in line:
                self.say(b"550 5.1.1 no such user")
            elif verb == b"RCPT":
                recipients.append(line[line.index(b"<") + 1:line.index(b">")])
                self.say(b"250 ok")
            elif verb == b"DATA":
                self.say(b"354 go on")
                text = self.data()
                for recipient in recipients:
                    self.server.ledger.arrived(recipient, text)
                recipients = []
                self.say(b"250 ok")
            elif verb == b"QUIT":
                return self.say(b"221 bye")
            else:
                self.say(b"250 ok")

    def data(self):
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            if not line:
                raise ConnectionError("the daemon has gone")
            lines.append(line[1:] if line.startswith(b".") else line)
        return b"".join(lines)
