"""What clients meet on a TLS listener, on natsctl's server and on the reference: the same words in every mode."""

import asyncio
import contextlib
import json
import re
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from natsctl.testing.process import Kind
from tests.support.conf_server import ConfServer
from tests.support.tls_clients import HELLO, PATIENCE_S, Files, Talk, talking

_T = TypeVar("_T")

pytestmark = pytest.mark.reference
KINDS: list[Kind] = ["natsctl", "reference"]

MODES = {
    "required": ("timeout: 1.5", ""),
    "optional": ("timeout: 1.5", "allow_non_tls: true"),
    "first": ("timeout: 1.5, handshake_first: true", ""),
    "first, optional": ("timeout: 1.5, handshake_first: true", "allow_non_tls: true"),
    "auto": ("timeout: 1.5, handshake_first: auto", ""),
    "auto, optional": ('timeout: 1.5, handshake_first: "800ms"', "allow_non_tls: true"),
    "verify": ('timeout: 1.5, verify: true, ca_file: "%s"', ""),
    "throttled": ("timeout: 1.5, connection_rate_limit: 1", ""),
    "with users": ("timeout: 1.5", "authorization { user: a, password: b }"),
}

RACING = {"TLS handshake timeout"}
"""What the reference logs or not, as two of its timers go off at the same time."""

INFO_KEYS = ("auth_required", "tls_required", "tls_verify", "tls_available")


def seen(line: bytes) -> object:
    """Return what of a line is the same on both servers: of INFO, what it says of TLS."""
    if line.startswith(b"INFO "):
        info = json.loads(line[5:])
        return [key for key in info if key in INFO_KEYS]
    return line


async def heard(talk: Talk) -> list[object]:
    """Return all lines up to the end; its kind is none of the client's business."""
    return [seen(line) for line in (await talk.rest()).splitlines(keepends=True)]


async def in_clear(port: int, sent: bytes) -> list[object]:
    async with talking(port) as talk:
        talk.writer.write(sent)
        return await heard(talk)


async def greeted(port: int, context: ssl.SSLContext) -> list[object]:
    async with talking(port) as talk:
        line = await talk.line()
        try:
            await talk.secure(context)
            return [seen(line), await talk.ask()]
        except (ssl.SSLError, ConnectionError, TimeoutError):
            return [seen(line), "refused"]


async def secured(port: int, context: ssl.SSLContext) -> list[object]:
    return await asyncio.to_thread(_secured, port, context)


def _secured(port: int, context: ssl.SSLContext) -> list[object]:
    """Return INFO and the answers under TLS; the first record is made before, as servers wait for it.

    By `auto` they wait 50 ms, which a busy machine may need between the connection and the record.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    first = outgoing.read()
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        sock.sendall(first)

        def done(step: Callable[[], _T]) -> _T:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    if data := sock.recv(65536):
                        incoming.write(data)
                    else:
                        incoming.write_eof()

        def line() -> bytes:
            found = b""
            while not found.endswith(b"\n"):
                found += done(lambda: tls.read(1))
            return found

        try:
            done(tls.do_handshake)
            info = line()
            tls.write(HELLO)
            sock.sendall(outgoing.read())
            return [seen(info), line()]
        except (ssl.SSLError, ConnectionError):
            return ["refused"]


@pytest.mark.parametrize("mode", MODES)
async def test_every_mode_is_told_in_the_same_words(mode: str, tmp_path: Path) -> None:
    files = Files(tmp_path / "tls")
    block, more = MODES[mode]
    block = block % files.authority.cert if "%s" in block else block
    text = f'tls {{ cert_file: "{files.server.cert}", key_file: "{files.server.key}", {block} }}\n{more}\ndebug: true\n'
    client = files.client(files.authority.issue("client"))

    async def told(kind: Kind) -> list[object]:
        with ConfServer(tmp_path / kind, kind, text) as server:
            port = server.port
            return [
                await in_clear(port, HELLO) if "optional" not in mode or mode == "first, optional" else [],
                await in_clear(port, b"\x16\x03\x01\x02\x00\x01\x00"),
                await greeted(port, files.client()) if not mode.startswith("first") else [],
                await greeted(port, client) if not mode.startswith("first") else [],
                await secured(port, client) if "first" in mode or mode == "auto, optional" else [],
                sorted(set(re.findall(r"TLS [^\n:,]*(?:: tls: [^\n]*)?", server.log())) - RACING),
            ]

    assert await told("natsctl") == await told("reference")
