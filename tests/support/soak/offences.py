"""What clients do wrong: each offence is a conversation that one connection has with a server before it is thrown out.

An offence gets a reader and a writer of a fresh connection, does its harm, and returns; who runs it closes the
connection. None of them may cost the server memory that stays, or other clients their service.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from tests.support.soak.citizen import HELLO

Offence: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter, random.Random], Awaitable[None]]

READ_S: Final = 3.0
"""How long an offender waits for what the server says."""
MOST_S: Final = 10.0
"""How long an offender listens at most."""


async def told(reader: asyncio.StreamReader, wait_s: float = READ_S) -> bytes:
    """Return the end of what the server says until it closes, is quiet for `wait_s`, or has talked long enough."""
    heard, end = b"", asyncio.get_running_loop().time() + MOST_S
    try:
        while asyncio.get_running_loop().time() < end and (chunk := await asyncio.wait_for(reader.read(65536), wait_s)):
            heard = (heard + chunk)[-4096:]
    except (TimeoutError, ConnectionError):
        pass
    return heard


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send random bytes."""
    writer.write(chance.randbytes(chance.randrange(1, 4096)))
    await told(reader)


async def endless_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send a control line that does not end."""
    writer.write(HELLO + b"SUB " + b"a" * 100_000)
    await told(reader)


async def oversized_payload(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Announce more than max_payload."""
    writer.write(HELLO + b"PUB a %d\r\n" % ((1 << 20) + 1 + chance.randrange(9)) + b"x" * 1000)
    await told(reader)


async def wrong_sizes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Announce sizes that are none."""
    writer.write(HELLO + chance.choice([
        b"PUB a -1\r\n\r\n", b"PUB a 99999999999999999999\r\n", b"HPUB a 10 5\r\nhello\r\n", b"HPUB a 12\r\n",
        b"PUB a 3\r\nhello\r\n", b"PUB\r\n", b"PUB a b c d 5\r\nhello\r\n", b"UNSUB\r\n", b"SUB a\r\n",
    ]))  # fmt: skip
    await told(reader)


async def half_a_message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Announce a large message and send half of it, then wait."""
    writer.write(HELLO + b"PUB a 1000000\r\n" + b"x" * 500_000)
    await told(reader, 1.0 + chance.random() * 5)


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
    await told(reader, 0.5)


async def deep_subjects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Subscribe and publish on subjects of a thousand tokens."""
    deep = b".".join([b"a"] * 1500)
    writer.write(HELLO + b"".join(b"SUB %b.%d %d\r\nPUB %b.%d 1\r\nx\r\n" % (deep, n, n, deep, n) for n in range(200)))
    await told(reader, 0.5)


async def fresh_subjects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Publish on subjects that nobody ever used."""
    head = chance.randrange(1 << 40)
    writer.write(HELLO)
    for start in range(0, 20_000, 1000):
        writer.write(b"".join(b"PUB f.%d.%d 1\r\nx\r\n" % (head, n) for n in range(start, start + 1000)))
        await writer.drain()
    await told(reader, 0.5)


async def ping_flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ping a hundred thousand times and read nothing."""
    writer.write(HELLO)
    for _ in range(100):
        writer.write(b"PING\r\n" * 1000)
    await asyncio.sleep(1.0)


async def requests_to_nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask what nobody answers."""
    writer.write(HELLO + b"SUB _INBOX.o.* 1\r\n")
    writer.write(b"".join(b"PUB nobody.%d _INBOX.o.%d 0\r\n\r\n" % (n, n) for n in range(5000)))
    await told(reader, 0.5)


async def pulls_that_wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask the JetStream API for what is not there, with bodies that are no requests."""
    writer.write(HELLO + b"SUB _INBOX.p.* 1\r\n")
    bodies = [b"{", b"[" * 5000, b'{"batch":-1}', b'{"batch":1e99}', b"\xff\xfe", b'{"a":' * 900, b"null", b"5"]
    subjects = [b"STREAM.CREATE.X", b"CONSUMER.MSG.NEXT.S.C", b"STREAM.INFO.%b" % (b"n" * 300), b"INFO"]
    for number in range(500):
        body = chance.choice(bodies)
        subject = chance.choice(subjects)
        writer.write(b"PUB $JS.API.%b _INBOX.p.%d %d\r\n%b\r\n" % (subject, number, len(body), body))
    await told(reader, 0.5)


async def connect_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send CONNECT again and again, with and without sense."""
    writer.write(HELLO * 50 + b'CONNECT {"verbose":' + b"[" * 3000 + b"\r\n")
    await told(reader)


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
