"""WebSocket requests and frames by hand, for the tests that look at answers byte by byte."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from wsproto.frame_protocol import Opcode

from natsctl.server.websocket.protocol import COMPRESSED, FINAL, frame
from tests.support.tls_clients import PATIENCE_S, Talk, talking

REQUEST = {
    "Host": "example.com", "Upgrade": "websocket", "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13",
}  # fmt: skip
BINARY = FINAL | Opcode.BINARY
PING = FINAL | Opcode.PING
MASK = b"mask"


def request(line: str = "GET / HTTP/1.1", **changes: str | None) -> bytes:
    headers: dict[str, str | None] = dict(REQUEST)
    for name, value in changes.items():
        known = {key.lower(): key for key in headers}
        headers[known.get(name.replace("_", "-").lower(), name.replace("_", "-"))] = value
    lines = [line, *(f"{name}: {value}" for name, value in headers.items() if value is not None), "", ""]
    return "\r\n".join(lines).encode()


def masked(head: int, payload: bytes) -> bytes:
    plain = frame(head, payload)
    start = plain[: len(plain) - len(payload)]
    repeated = MASK * (len(payload) // 4 + 1)
    coded = int.from_bytes(payload, "big") ^ int.from_bytes(repeated[: len(payload)], "big")
    return start[:1] + bytes([start[1] | 0x80]) + start[2:] + MASK + coded.to_bytes(len(payload), "big")


def said(payload: bytes) -> bytes:
    return masked(BINARY, payload)


QUIET_S = 2.0
"""How long to wait for more where neither frames nor the end have come; a busy server takes its time."""
_FRAMES = re.compile(rb"\r\n\r\n[\x82\xc2]")


async def answer(port: int, sent: bytes, quiet_s: float = QUIET_S) -> bytes:
    """Return what comes for a request up to the first frame or the end, or until nothing more does."""
    async with talking(port) as talk:
        talk.writer.write(sent)
        found = b""
        while not _FRAMES.search(found):
            try:
                data = await asyncio.wait_for(talk.reader.read(65536), quiet_s if found else PATIENCE_S)
            except (TimeoutError, ConnectionError):
                return found
            if not data:
                return found + b"<end>"
            found += data
        return found


def comparable(data: bytes) -> bytes:
    """Return an answer without what differs from server to server; INFO is left out."""
    data = re.sub(rb"Date: [^\r]*", b"Date: now", data)
    return re.sub(rb"\r\n\r\n[\x82\xc2].*", b"\r\n\r\n", data, flags=re.DOTALL)


class Frames:
    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.info = b""

    def send(self, *frames: bytes) -> None:
        self.talk.writer.write(b"".join(frames))

    async def next(self) -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            head, size = await self.talk.reader.readexactly(2)
            if size >= 126:
                size = int.from_bytes(await self.talk.reader.readexactly(2 if size == 126 else 8), "big")
            return head, await self.talk.reader.readexactly(size)


@asynccontextmanager
async def upgraded(port: int, context: Any = None, **headers: str) -> AsyncIterator[Frames]:
    async with talking(port, context) as talk:
        talk.writer.write(request(**headers))
        head = await asyncio.wait_for(talk.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        assert head.startswith(b"HTTP/1.1 101 "), head
        frames = Frames(talk)
        first, frames.info = await frames.next()
        if not first & COMPRESSED:
            assert frames.info.startswith(b"INFO ")
        yield frames
