"""Offences of clients in the soak test: conversations after which a server ends the connection, and reloads.

An offence gets a reader and a writer of a fresh connection, does its harm, and returns; its caller closes the
connection. None of them may cost the server memory that stays, or other clients their service. Most only send something
and listen for a while: `SENT`. Some are at the server's other edges: logins, permissions, monitoring, WebSocket, leaf
nodes.

`CONFIG` has what they need; both servers read it. Good clients come without credentials.
"""

import asyncio
import json
import os
import random
import signal
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

HELLO: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'

Offence: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter, random.Random], Awaitable[None]]

READ_S: Final = 3.0
"""Time that an offender waits for the server's output."""
MAX_S: Final = 10.0
"""Longest time that an offender listens."""
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
NKEY: Final = "UBEAOWSZPZZBUFLOFYDZTXS4YDCTETOG47VPDTOUMJIINDWFGIK52DYE"


def _hello(**options: object) -> bytes:
    said = {"verbose": False, "pedantic": False, "protocol": 1, "headers": True, "no_responders": True, **options}
    return b"CONNECT " + json.dumps(said).encode() + b"\r\n"


def _as_server(chance: random.Random) -> bytes:
    options = {"name": "x", "server_id": f"N{chance.random()}", "user": "good", "version": "2.15.2", "pass": "good"}
    return _hello(**options)


def _bad_frames(chance: random.Random) -> Iterator[bytes]:
    from tests.support.fuzz.websocket import make

    yield UPGRADE
    yield from (make(chance) for _ in range(20))


def _leaf_garbage(chance: random.Random) -> Iterator[bytes]:
    from tests.support.fuzz.leaf import make

    yield _as_server(chance)
    yield from (make(chance) for _ in range(20))


def _leaf_interest(chance: random.Random) -> Iterator[bytes]:
    head = chance.randrange(1 << 40)
    yield _as_server(chance)
    yield b"".join(b"LS+ l.%d.%d.*\r\nLS+ q.%d g %d\r\n" % (head, n, n, n + 1) for n in range(3000))


def _many_subscriptions(chance: random.Random) -> Iterator[bytes]:
    head = chance.randrange(1 << 30)
    yield HELLO
    for start in range(500, 5000, 500):
        yield b"".join(b"SUB s.%d.*.%d.> %d\r\n" % (head, sid, sid) for sid in range(start, start + 500))


def _deep_subjects(chance: random.Random) -> Iterator[bytes]:
    deep = b".".join([b"a"] * 1500)
    yield HELLO + b"".join(b"SUB %b.%d %d\r\nPUB %b.%d 1\r\nx\r\n" % (deep, n, n, deep, n) for n in range(200))


def _fresh_subjects(chance: random.Random) -> Iterator[bytes]:
    head = chance.randrange(1 << 40)
    yield HELLO
    for start in range(0, 20_000, 1000):
        yield b"".join(b"PUB f.%d.%d 1\r\nx\r\n" % (head, n) for n in range(start, start + 1000))


def _requests_to_nobody(chance: random.Random) -> Iterator[bytes]:
    yield HELLO + b"SUB _INBOX.o.* 1\r\n"
    yield b"".join(b"PUB nobody.%d _INBOX.o.%d 0\r\n\r\n" % (n, n) for n in range(5000))


def _bodies_that_are_no_requests(chance: random.Random) -> Iterator[bytes]:
    yield HELLO + b"SUB _INBOX.p.* 1\r\n"
    bodies = [b"{", b"[" * 5000, b'{"batch":-1}', b'{"batch":1e99}', b"\xff\xfe", b'{"a":' * 900, b"null", b"5"]
    subjects = [b"STREAM.CREATE.X", b"CONSUMER.MSG.NEXT.S.C", b"STREAM.INFO.%b" % (b"n" * 300), b"INFO"]
    for number in range(500):
        body = chance.choice(bodies)
        yield b"PUB $JS.API.%b _INBOX.p.%d %d\r\n%b\r\n" % (chance.choice(subjects), number, len(body), body)


def _wrong_logins(chance: random.Random) -> Iterator[bytes]:
    yield _hello(**chance.choice((
        {"user": "good", "pass": "bad"}, {"user": f"u{chance.random()}", "pass": "x"}, {"auth_token": "x" * 1000},
        {"user": "hashed", "pass": f"{chance.random()}"}, {"jwt": "e.e.e", "sig": "A" * 86}, {"user": "a\nb\x1b[2J"},
        {"nkey": NKEY, "sig": "A" * 86},
    )))  # fmt: skip
    yield b"PUB c.1 1\r\nx\r\n" * 1000


def _other_users(chance: random.Random) -> Iterator[bytes]:
    for _ in range(30):
        yield _hello(user=chance.choice(("good", "narrow", "answers")), **{"pass": "x"})
        yield b"".join(b"SUB n.%d %d\r\n" % (n, n) for n in range(100))


def _violations(chance: random.Random) -> Iterator[bytes]:
    yield _hello(user="narrow", **{"pass": "x"})
    for number in range(2000):
        yield b"PUB c.%d 1\r\nx\r\nSUB c.> %d\r\nPUB n.x $JS.ACK.%d 0\r\n\r\n" % (number, number, number)
    yield b"SUB n.> 1\r\n" + b"PUB n.no 0\r\n\r\n" * 2000


def _asking_about_the_account(chance: random.Random) -> Iterator[bytes]:
    yield HELLO + b"SUB _INBOX.s 1\r\n"
    for body in (b'{"limit":100}', b'{"subscriptions":true,"limit":50}', b"{", b"[" * 3000, b'{"cid":1}'):
        for subject in (b"ACCOUNT.PING.CONNZ", b"SERVER.PING.VARZ", b"ACCOUNT.$SYS.CONNZ", b"USER.INFO"):
            yield b"PUB $SYS.REQ.%b _INBOX.s %d\r\n%b\r\n" % (subject, len(body), body)


WRONG_SIZES: Final = (
    b"PUB a -1\r\n\r\n", b"PUB a 99999999999999999999\r\n", b"HPUB a 10 5\r\nhello\r\n", b"HPUB a 12\r\n",
    b"PUB a 3\r\nhello\r\n", b"PUB\r\n", b"PUB a b c d 5\r\nhello\r\n", b"UNSUB\r\n", b"SUB a\r\n",
)  # fmt: skip
NO_UPGRADES: Final = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", UPGRADE[:-2], UPGRADE + b"early", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9000,
    b"GET /" + b"a" * LONG, CLIENT_HELLO, UPGRADE.replace(b"13", b"99"),
    UPGRADE[:-2] + b"Cookie: jwt=" + b"e" * 5000 + b"\r\n\r\n",
)  # fmt: skip
QUERIES: Final = (
    b"GET /connz?subs=detail&limit=5000&auth=1 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /subsz?subs=1 HTTP/1.0\r\n\r\n",
    b"GET /" + b"a" * LONG, b"GET /connz?sort=x HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /varz HTTP/1.1\r\nHost: x\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /jsz?streams=1 HTTP/1.1\r\nHost: x\r\n\r\n",
)  # fmt: skip

SENT: Final[dict[str, dict[str, tuple[float, Callable[[random.Random], bytes | Iterator[bytes]]]]]] = {
    "clients": {
        "garbage": (READ_S, lambda chance: chance.randbytes(chance.randrange(1, 4096))),
        "endless_line": (READ_S, lambda chance: HELLO + b"SUB " + b"a" * LONG),
        "oversized_payload": (READ_S, lambda chance: HELLO + b"PUB a %d\r\n" % ((1 << 20) + 1) + b"x" * 1000),
        "wrong_sizes": (READ_S, lambda chance: HELLO + chance.choice(WRONG_SIZES)),
        "half_a_message": (READ_S, lambda chance: HELLO + b"PUB a 1000000\r\n" + b"x" * 500_000),
        "silent": (READ_S, lambda chance: b""),
        "many_subscriptions": (0.5, _many_subscriptions),
        "deep_subjects": (0.5, _deep_subjects),
        "fresh_subjects": (0.5, _fresh_subjects),
        "requests_to_nobody": (0.5, _requests_to_nobody),
        "bodies_that_are_no_requests": (0.5, _bodies_that_are_no_requests),
        "connect_twice": (READ_S, lambda chance: HELLO * 50 + b'CONNECT {"verbose":' + b"[" * 3000 + b"\r\n"),
        "wrong_logins": (READ_S, _wrong_logins),
        "half_a_connect": (4.0, lambda chance: b'CONNECT {"user":"go'),
        "other_users": (0.5, _other_users),
        "violations": (0.5, _violations),
        "without_echo": (
            1.0,  # tens of thousands of one's own subscriptions hear nothing
            lambda chance: (
                _hello(echo=False) + b"".join(b"SUB e.x %d\r\n" % n for n in range(10_000)) + b"PUB e.x 0\r\n\r\n" * 200
            ),
        ),
        "tls_on_a_plain_port": (1.0, lambda chance: CLIENT_HELLO + chance.randbytes(500)),
        "asking_about_the_account": (0.5, _asking_about_the_account),
    },
    "websocket": {
        "no_upgrade": (2.5, lambda chance: chance.choice((chance.randbytes(2000), *NO_UPGRADES))),
        "bad_frames": (1.0, _bad_frames),
    },
    "leafnodes": {"leaf_garbage": (1.0, _leaf_garbage), "leaf_interest": (0.5, _leaf_interest)},
    "monitoring": {},
}
"""By listener and name: how long an offender listens, and what it sends."""


async def read_until_silent(reader: asyncio.StreamReader, wait_s: float) -> None:
    """Read until the server closes, is quiet for `wait_s`, or has talked long enough."""
    end = asyncio.get_running_loop().time() + MAX_S
    try:
        while asyncio.get_running_loop().time() < end:
            if not await asyncio.wait_for(reader.read(65536), wait_s):
                return
    except (TimeoutError, ConnectionError):
        pass


def _sending(listen_s: float, sent: Callable[[random.Random], bytes | Iterator[bytes]]) -> Offence:
    async def offence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
        chunks = sent(chance)
        for chunk in [chunks] if isinstance(chunks, bytes) else chunks:
            writer.write(chunk)
            await writer.drain()
            if chunk == UPGRADE:  # what comes before the answer is another offence
                await reader.readuntil(b"\r\n\r\n")
        await read_until_silent(reader, listen_s)

    return offence


async def vanish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Reset the connection in the middle of a message."""
    writer.write(HELLO + b"SUB a 1\r\nPUB a 100\r\nxx")
    await writer.drain()
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


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


async def ping_flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    writer.write(HELLO)
    for _ in range(100):
        writer.write(b"PING\r\n" * 1000)
    await asyncio.sleep(1.0)


async def flood_of_connections(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random
) -> None:
    """Open and close connections as quickly as they come."""
    host, port = writer.get_extra_info("peername")[:2]
    for _ in range(100):
        _, other = await asyncio.open_connection(host, port)
        other.transport.abort()


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


async def monitoring_queries(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask for the longest pages, for malformed ones, and do not read the answer."""
    writer.write(chance.choice((chance.randbytes(500), *QUERIES)))
    await asyncio.sleep(chance.random() * 2)


EDGES: Final[dict[str, dict[str, Offence]]] = {
    listener: {name: _sending(*how) for name, how in offences.items()} for listener, offences in SENT.items()
}
"""Offences by listener and name."""
for _offence in (vanish, slow_reader, ping_flood, flood_of_connections, replies_that_wait):
    EDGES["clients"][_offence.__name__] = _offence
EDGES["monitoring"]["monitoring_queries"] = monitoring_queries


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
