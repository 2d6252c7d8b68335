"""Offences of clients in the soak test: conversations after which a server ends the connection, and reloads.

An offence gets a reader and a writer of a fresh connection, does its harm, and returns; its caller closes the
connection. None of them may cost the server memory that stays, or other clients their service. Some are at the server's
other edges: logins, permissions, monitoring, WebSocket, leaf nodes.

`CONFIG` has what they need; both servers read it. Good clients come without credentials.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

HELLO: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'


Offence: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter, random.Random], Awaitable[None]]

READ_S: Final = 3.0
"""Time that an offender waits for the server's output."""
MAX_S: Final = 10.0
"""Longest time that an offender listens."""


async def read_until_silent(reader: asyncio.StreamReader, wait_s: float = READ_S) -> bytes:
    """Return the end of what the server says until it closes, is quiet for `wait_s`, or has talked long enough."""
    heard, end = b"", asyncio.get_running_loop().time() + MAX_S
    try:
        while asyncio.get_running_loop().time() < end and (chunk := await asyncio.wait_for(reader.read(65536), wait_s)):
            heard = (heard + chunk)[-4096:]
    except (TimeoutError, ConnectionError):
        pass
    return heard


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send random bytes."""
    writer.write(chance.randbytes(chance.randrange(1, 4096)))
    await read_until_silent(reader)


async def endless_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send a control line that does not end."""
    writer.write(HELLO + b"SUB " + b"a" * 100_000)
    await read_until_silent(reader)


async def oversized_payload(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Announce more than max_payload."""
    writer.write(HELLO + b"PUB a %d\r\n" % ((1 << 20) + 1 + chance.randrange(9)) + b"x" * 1000)
    await read_until_silent(reader)


async def wrong_sizes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Announce sizes that are none."""
    writer.write(HELLO + chance.choice([
        b"PUB a -1\r\n\r\n", b"PUB a 99999999999999999999\r\n", b"HPUB a 10 5\r\nhello\r\n", b"HPUB a 12\r\n",
        b"PUB a 3\r\nhello\r\n", b"PUB\r\n", b"PUB a b c d 5\r\nhello\r\n", b"UNSUB\r\n", b"SUB a\r\n",
    ]))  # fmt: skip
    await read_until_silent(reader)


async def half_a_message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Announce a large message and send half of it, then wait."""
    writer.write(HELLO + b"PUB a 1000000\r\n" + b"x" * 500_000)
    await read_until_silent(reader, 1.0 + chance.random() * 5)


async def vanish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Reset the connection in the middle of a message."""
    writer.write(HELLO + b"SUB a 1\r\nPUB a 100\r\nxx")
    await writer.drain()
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Connect and say nothing."""
    await asyncio.sleep(chance.random() * 8)


async def slow_reader(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Subscribe to everything the other clients say, send more, and read nothing."""
    writer.write(HELLO + b"SUB flood.> 1\r\n")
    body = b"x" * 65_000
    for _ in range(chance.randrange(20, 400)):
        writer.write(b"PUB flood.a %d\r\n%b\r\n" % (len(body), body))
        if writer.transport.get_write_buffer_size() > 1 << 20:
            await asyncio.sleep(0.05)
            if writer.transport.is_closing():
                return
    await asyncio.sleep(chance.random() * 3)


async def many_subscriptions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Subscribe to thousands of subjects with wildcards, and leave without a word."""
    head = chance.randrange(1 << 30)
    for start in range(0, 5000, 500):
        writer.write(
            b"".join(b"SUB s.%d.*.%d.> %d\r\n" % (head, sid, sid) for sid in range(start, start + 500))
            if start
            else HELLO
        )
        await writer.drain()
    await read_until_silent(reader, 0.5)


async def deep_subjects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Subscribe and publish on subjects of a thousand tokens."""
    deep = b".".join([b"a"] * 1500)
    writer.write(HELLO + b"".join(b"SUB %b.%d %d\r\nPUB %b.%d 1\r\nx\r\n" % (deep, n, n, deep, n) for n in range(200)))
    await read_until_silent(reader, 0.5)


async def fresh_subjects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Publish on subjects that were never used."""
    head = chance.randrange(1 << 40)
    writer.write(HELLO)
    for start in range(0, 20_000, 1000):
        writer.write(b"".join(b"PUB f.%d.%d 1\r\nx\r\n" % (head, n) for n in range(start, start + 1000)))
        await writer.drain()
    await read_until_silent(reader, 0.5)


async def ping_flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ping a hundred thousand times and read nothing."""
    writer.write(HELLO)
    for _ in range(100):
        writer.write(b"PING\r\n" * 1000)
    await asyncio.sleep(1.0)


async def requests_to_nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send requests without a responder."""
    writer.write(HELLO + b"SUB _INBOX.o.* 1\r\n")
    writer.write(b"".join(b"PUB nobody.%d _INBOX.o.%d 0\r\n\r\n" % (n, n) for n in range(5000)))
    await read_until_silent(reader, 0.5)


async def pulls_that_wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask the JetStream API for what is not there, with bodies that are no requests."""
    writer.write(HELLO + b"SUB _INBOX.p.* 1\r\n")
    bodies = [b"{", b"[" * 5000, b'{"batch":-1}', b'{"batch":1e99}', b"\xff\xfe", b'{"a":' * 900, b"null", b"5"]
    subjects = [b"STREAM.CREATE.X", b"CONSUMER.MSG.NEXT.S.C", b"STREAM.INFO.%b" % (b"n" * 300), b"INFO"]
    for number in range(500):
        body = chance.choice(bodies)
        subject = chance.choice(subjects)
        writer.write(b"PUB $JS.API.%b _INBOX.p.%d %d\r\n%b\r\n" % (subject, number, len(body), body))
    await read_until_silent(reader, 0.5)


async def connect_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send CONNECT again and again, with and without sense."""
    writer.write(HELLO * 50 + b'CONNECT {"verbose":' + b"[" * 3000 + b"\r\n")
    await read_until_silent(reader)


async def flood_of_connections(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random
) -> None:
    """Open and close connections as quickly as they come."""
    host, port = writer.get_extra_info("peername")[:2]
    for _ in range(100):
        _, other = await asyncio.open_connection(host, port)
        other.transport.abort()


OFFENCES: Final[tuple[Offence, ...]] = (
    garbage, endless_line, oversized_payload, wrong_sizes, half_a_message, vanish, silent, slow_reader,
    many_subscriptions, deep_subjects, fresh_subjects, ping_flood, requests_to_nobody, pulls_that_wait, connect_twice,
    flood_of_connections,
)  # fmt: skip


CONFIG: Final = """
authorization {
  timeout: 2
  users: [
    {user: good, password: good}
    {user: narrow, password: x, permissions: {publish: "n.>", subscribe: {allow: ["n.>", "_INBOX.>"], deny: "n.no"}}}
    {user: answers, password: x, permissions: {subscribe: "n.>", allow_responses: {max: 2, expires: "1s"}}}
    {user: hashed, password: "$2a$04$igRjN11Z3BPB1hnNNL88YeQOqI52IWeyoa6itve8ho4ksh1AyBrVa"}
    {nkey: UBEAOWSZPZZBUFLOFYDZTXS4YDCTETOG47VPDTOUMJIINDWFGIK52DYE}
  ]
}
no_auth_user: good
http: "127.0.0.1:%(monitoring)d"
websocket { listen: "127.0.0.1:%(websocket)d", no_tls: true, compression: true, handshake_timeout: "2s" }
leafnodes { listen: "127.0.0.1:%(leafnodes)d" }
"""
UPGRADE: Final = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
CLIENT_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
LONG: Final = 100_000


def _hello(**options: object) -> bytes:
    said = {"verbose": False, "pedantic": False, "protocol": 1, "headers": True, "no_responders": True, **options}
    return b"CONNECT " + json.dumps(said).encode() + b"\r\n"


# Logins and permissions


async def wrong_logins(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Show credentials that are none."""
    writer.write(_hello(**chance.choice((
        {"user": "good", "pass": "bad"}, {"user": f"u{chance.random()}", "pass": "x"}, {"auth_token": "x" * 1000},
        {"user": "hashed", "pass": f"{chance.random()}"}, {"jwt": "e.e.e", "sig": "A" * 86}, {"user": "a\nb\x1b[2J"},
        {"nkey": "UBEAOWSZPZZBUFLOFYDZTXS4YDCTETOG47VPDTOUMJIINDWFGIK52DYE", "sig": "A" * 86},
    ))))  # fmt: skip
    writer.write(b"PUB c.1 1\r\nx\r\n" * 1000)
    await read_until_silent(reader)


async def half_a_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Begin to say who one is, and wait."""
    writer.write(b'CONNECT {"user":"go')
    await read_until_silent(reader, 4.0)


async def other_users(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Become one user after another on one connection, with subscriptions."""
    for _ in range(30):
        writer.write(_hello(user=chance.choice(("good", "narrow", "answers")), **{"pass": "x"}))
        writer.write(b"".join(b"SUB n.%d %d\r\n" % (n, n) for n in range(100)))
    await read_until_silent(reader, 0.5)


async def violations(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Publish, subscribe and ask for answers where that is not allowed."""
    writer.write(_hello(user="narrow", **{"pass": "x"}))
    for number in range(2000):
        writer.write(b"PUB c.%d 1\r\nx\r\nSUB c.> %d\r\nPUB n.x $JS.ACK.%d 0\r\n\r\n" % (number, number, number))
    writer.write(b"SUB n.> 1\r\n" + b"PUB n.no 0\r\n\r\n" * 2000)
    await read_until_silent(reader, 0.5)


async def replies_that_wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Receive tens of thousands of requests, and answer none."""
    writer.write(_hello(user="answers", **{"pass": "x"}) + b"SUB n.r 1\r\nPING\r\n")
    await read_until_silent(reader, 0.3)
    host, port = writer.get_extra_info("peername")[:2]
    _, asker = await asyncio.open_connection(host, port)
    head = chance.randrange(1 << 40)
    asker.write(HELLO + b"".join(b"PUB n.r r.%d.%d 0\r\n\r\n" % (head, n) for n in range(20_000)))
    await read_until_silent(reader, 0.5)
    asker.transport.abort()


async def without_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Publish to tens of thousands of one's own subscriptions, and hear nothing."""
    writer.write(_hello(echo=False) + b"".join(b"SUB e.x %d\r\n" % n for n in range(10_000)))
    writer.write(b"PUB e.x 0\r\n\r\n" * 200)
    await read_until_silent(reader, 1.0)


async def tls_on_a_plain_port(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random
) -> None:
    """Begin an unrequested TLS handshake."""
    writer.write(CLIENT_HELLO + chance.randbytes(500))
    await read_until_silent(reader, 1.0)


async def asking_about_the_account(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random
) -> None:
    """Ask for long answers of the system's, and for what is not one's own."""
    writer.write(HELLO + b"SUB _INBOX.s 1\r\n")
    for body in (b'{"limit":100}', b'{"subscriptions":true,"limit":50}', b"{", b"[" * 3000, b'{"cid":1}'):
        for subject in (b"ACCOUNT.PING.CONNZ", b"SERVER.PING.VARZ", b"ACCOUNT.$SYS.CONNZ", b"USER.INFO"):
            writer.write(b"PUB $SYS.REQ.%b _INBOX.s %d\r\n%b\r\n" % (subject, len(body), body))
    await read_until_silent(reader, 0.5)


# WebSocket


async def no_upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send malformed HTTP, too much of it, or only a part."""
    writer.write(chance.choice((
        chance.randbytes(2000), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", UPGRADE[:-2], UPGRADE + b"early",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9000, b"GET /" + b"a" * LONG, CLIENT_HELLO,
        UPGRADE.replace(b"13", b"99"), UPGRADE[:-2] + b"Cookie: jwt=" + b"e" * 5000 + b"\r\n\r\n",
    )))  # fmt: skip
    await read_until_silent(reader, 2.5)


async def bad_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send frames that are not allowed, endless, compressed beyond measure, or garbage."""
    from tests.support.fuzz.websocket import make

    writer.write(UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    for _ in range(20):
        writer.write(make(chance))
    await read_until_silent(reader, 1.0)


# Leaf nodes


async def leaf_garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Connect as a server that sends nonsense."""
    from tests.support.fuzz.leaf import make

    writer.write(_hello(name="x", server_id=f"N{chance.random()}", user="good", version="2.15.2", **{"pass": "good"}))
    for _ in range(20):
        writer.write(make(chance))
    await read_until_silent(reader, 1.0)


async def leaf_interest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Connect as a server with thousands of subscriptions, and leave."""
    writer.write(_hello(name="x", server_id=f"N{chance.random()}", user="good", version="2.15.2", **{"pass": "good"}))
    head = chance.randrange(1 << 40)
    writer.write(b"".join(b"LS+ l.%d.%d.*\r\nLS+ q.%d g %d\r\n" % (head, n, n, n + 1) for n in range(3000)))
    await read_until_silent(reader, 0.5)


# Monitoring


async def monitoring_queries(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask for the longest pages, for pages that are none, and do not read the answer."""
    writer.write(chance.choice((
        b"GET /connz?subs=detail&limit=5000&auth=1 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /subsz?subs=1 HTTP/1.0\r\n\r\n",
        b"GET /" + b"a" * LONG, b"GET /connz?sort=x HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /varz HTTP/1.1\r\nHost: x\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", chance.randbytes(500),
        b"GET /jsz?streams=1 HTTP/1.1\r\nHost: x\r\n\r\n",
    )))  # fmt: skip
    await asyncio.sleep(chance.random() * 2)


EDGES: Final[dict[str, tuple[Offence, ...]]] = {
    "clients": (
        *OFFENCES, wrong_logins, half_a_connect, other_users, violations, replies_that_wait, without_echo,
        tls_on_a_plain_port, asking_about_the_account,
    ),
    "websocket": (no_upgrade, bad_frames),
    "leafnodes": (leaf_garbage, leaf_interest),
    "monitoring": (monitoring_queries,),
}  # fmt: skip
"""Offences by listener."""


# Reloads

MEMBER: Final = "  users: [\n"
VARIED: Final = (
    'ping_interval: "%ds"', "ping_max: %d", "max_control_line: %d000", 'write_deadline: "%ds"',
    "max_traced_msg_len: %d", "debug: false # %d", "connect_error_reports: %d",
    "reconnect_error_reports: %d", 'server_tags: ["n:%d"]',
)  # fmt: skip
"""Options that a reload takes, each with a number from 4 to 20."""
RELOAD_S: Final = 0.5
"""Mean time between two reloads."""


class Operator:
    """An operator who rewrites the server's configuration all the time: most are good, some are cut off or refused.

    Each good configuration has one more user, `op` with the number of the reload as its password.
    """

    def __init__(self, path: Path, pid: int, seed: int) -> None:
        """`path` is the configuration that the server of process `pid` has read; it is the base of all others."""
        self.kinds: Counter[str] = Counter()
        self._path, self._pid, self._chance = path, pid, random.Random(seed)
        self._base = path.read_text()
        self._number = 0

    async def run(self, end: float) -> None:
        """Reload until the loop's time `end`."""
        loop = asyncio.get_running_loop()
        while loop.time() < end:
            self.reload(self._chance.choice(("good", "good", "good", "cut off", "refused", "missing")))
            await asyncio.sleep(self._chance.random() * 2 * RELOAD_S)

    def reload(self, kind: str = "good") -> None:
        """Write a configuration of a kind and send the signal."""
        self.kinds[kind] += 1
        self._number += 1
        text = self._base.replace(MEMBER, f'{MEMBER}    {{user: op, password: "{self._number}"}}\n')
        for option in self._chance.sample(VARIED, 3):
            text += option % self._chance.randint(4, 20) + "\n"
        if kind == "cut off":  # inside the block of the users, so that no prefix is a configuration by chance
            text = text[: text.index(MEMBER) + self._chance.randint(0, len(MEMBER))]
        elif kind == "refused":
            text += 'server_name: "another"\n'
        if kind == "missing":
            self._path.unlink(missing_ok=True)
        else:
            self._path.write_text(text)
        os.kill(self._pid, signal.SIGHUP)

    async def check(self, host: str, port: int) -> list[str]:
        """Reload once more, well, and return what is wrong with the users that the server knows then."""
        stale = f"{self._number}"
        self.reload()
        wrong = [f"reload {self._number} was not carried out"]
        for _ in range(100):
            if await _accepted(host, port, f"{self._number}"):
                wrong = []
                break
            await asyncio.sleep(0.1)
        return wrong + ([f"the password of reload {stale} is still good"] if await _accepted(host, port, stale) else [])


async def _accepted(host: str, port: int, password: str) -> bool:
    """Return whether the server lets user `op` in with this password."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(_hello(user="op", **{"pass": password}) + b"PING\r\n")
    heard = await reader.readline()
    while heard and not heard.startswith((b"PONG", b"-ERR")):
        heard = await reader.readline()
    writer.transport.abort()
    return heard.startswith(b"PONG")
