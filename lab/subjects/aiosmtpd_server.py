#!/usr/bin/python3
"""A mail server of forty lines on Debian's python3-aiosmtpd, as an example of a subject that the laboratory does not know.

Duty `relay`: 250 is said when the next hop has said it, so nothing is ever queued here. Duty `hold`: mail is kept in
memory, and lost when the program ends. Neither writes to a disk.
"""

import argparse
import asyncio
import smtplib

from aiosmtpd.smtp import SMTP


class Relay:
    """Passes each message on over a connection of its own."""

    def __init__(self, next_hop):
        self.next_hop = next_hop

    def send(self, envelope):
        with smtplib.SMTP("127.0.0.1", self.next_hop) as client:
            client.sendmail(envelope.mail_from, envelope.rcpt_tos, envelope.original_content)

    async def handle_DATA(self, server, session, envelope):
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.send, envelope)
        except (OSError, smtplib.SMTPException) as error:
            return f"451 4.4.1 {type(error).__name__}"
        return "250 2.0.0 passed on"

    async def handle_VRFY(self, server, session, envelope, address):
        return "252 2.0.0 0"


class Hold:
    """Keeps everything, and says to VRFY how many messages that are."""

    def __init__(self):
        self.messages = []

    async def handle_DATA(self, server, session, envelope):
        self.messages.append((envelope.mail_from, envelope.rcpt_tos, envelope.original_content))
        return "250 2.0.0 kept"

    async def handle_VRFY(self, server, session, envelope, address):
        return f"252 2.0.0 {len(self.messages)}"


async def serve(options):
    handler = Hold() if options.duty == "hold" else Relay(options.next_hop)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(handler, hostname="lab.test", data_size_limit=None), "127.0.0.1", options.port, backlog=512
    )
    print(f"listens on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def count(port):
    with smtplib.SMTP("127.0.0.1", port) as client:
        client.ehlo()
        _, text = client.verify("queue")
        print(int(text.split()[-1]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--next-hop", type=int, default=0)
    parser.add_argument("--duty", choices=["relay", "hold"], default="relay")
    parser.add_argument("--count", action="store_true", help="print how many messages the running server keeps")
    options = parser.parse_args()
    if options.count:
        count(options.port)
    else:
        asyncio.run(serve(options))


main()
