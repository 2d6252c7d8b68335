"""Files, in-process servers and hand-written clients for tests of TLS and WebSocket."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.options import ServerOptions, TlsOptions
from natsctl.testing.certificates import Authority, Issued

PATIENCE_S = 30.0
"""Time limit for events that must come; a busy machine stands still for some seconds now and then."""
HELLO = b'CONNECT {"verbose":false}\r\nPING\r\n'


@dataclass
class Files:
    """An authority, a server's certificate, and a stranger's authority."""

    folder: Path
    authority: Authority = field(init=False)
    server: Issued = field(init=False)
    stranger: Authority = field(init=False)

    def __post_init__(self) -> None:
        self.authority = Authority(self.folder)
        self.server = self.authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
        self.stranger = Authority(self.folder, "stranger")

    def tls(self, **more: Any) -> TlsOptions:
        return TlsOptions(self.server.cert, self.server.key, self.authority.cert, **more)

    def client(self, issued: Issued | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts the authority, with a certificate if one is given."""
        context = ssl.create_default_context(cafile=self.authority.cert)
        if issued is not None:
            context.load_cert_chain(issued.cert, issued.key)
        return context


class ListLog(Log):
    def __init__(self) -> None:
        super().__init__(debug=True)
        self.lines: list[str] = []

    def _write(self, level: str, text: str) -> None:
        self.lines.append(f"[{level}] {text}")

    def said(self, words: str) -> bool:
        return any(words in line for line in self.lines)


@asynccontextmanager
async def serving(log: Log | None = None, **options: Any) -> AsyncIterator[ServerInstance]:
    async with ServerInstance(ServerOptions(host="127.0.0.1", port=-1, **options), log) as server:
        yield server


class Talk:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def line(self) -> bytes:
        return await asyncio.wait_for(self.reader.readline(), PATIENCE_S)

    async def rest(self) -> bytes:
        """Return everything up to the end; a reset is one."""
        found = b""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while data := await self.reader.read(65536):
                    found += data
            except (ConnectionError, ssl.SSLError):
                pass
        return found

    async def ask(self, what: bytes = HELLO) -> bytes:
        """Return the next line, without the PING that a server sends after a while."""
        self.writer.write(what)
        while (line := await self.line()) == b"PING\r\n":
            pass
        return line

    async def secure(self, context: ssl.SSLContext, name: str = "localhost") -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.writer.start_tls(context, server_hostname=name)


@asynccontextmanager
async def talking(port: int, context: ssl.SSLContext | None = None, name: str = "localhost") -> AsyncIterator[Talk]:
    """Connect; with `context` the handshake comes first."""
    more: dict[str, Any] = {"ssl": context, "server_hostname": name} if context else {}
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, **more)
    try:
        yield Talk(reader, writer)
    finally:
        writer.transport.abort()


async def answered(port: int, context: ssl.SSLContext, name: str = "localhost", *, alerts: bool = False) -> bytes:
    """Return the answer to HELLO under TLS, after INFO in clear; nothing where the server hangs up.

    With `alerts`, an alert raises ssl.SSLError.
    """
    async with talking(port) as talk:
        await talk.line()
        try:
            await talk.secure(context, name)
            return await talk.ask()
        except ssl.SSLError:
            if alerts:
                raise
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
    return b""


@dataclass
class Visit:
    """One connection of a client that may have come with the session of an earlier one."""

    heard: bytes
    """The last event: PONG, an error, or the reason of the connection's end."""
    session: ssl.SSLSession | None = None
    resumed: bool = False


def visit(
    port: int,
    context: ssl.SSLContext,
    session: ssl.SSLSession | None = None,
    *,
    greeted: bool = True,
    request: bytes = b"",
    hello: bytes = HELLO,
) -> Visit:
    """Connect, say `hello` under TLS and return the answer; blocking, as asyncio knows nothing of sessions.

    `greeted`: INFO comes in clear before the handshake. `request`: what is answered with INFO before `hello`.
    """
    heard = b""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as raw:
            while greeted and not heard.endswith(b"\n"):
                heard += raw.recv(1)
            with context.wrap_socket(raw, server_hostname="localhost", session=session) as sock:
                sock.sendall(request)
                while request and not (b"INFO {" in heard and heard.endswith(b"} \r\n")):
                    heard += more(sock)
                sock.sendall(hello)
                while not heard.endswith((b"PONG\r\n", b"'\r\n")):
                    heard += more(sock)
                seen = Visit(heard.splitlines(keepends=True)[-1], sock.session, bool(sock.session_reused))
                with suppress(OSError):  # the server may have gone before
                    sock.unwrap()  # a session that is not ended is not resumed
                return seen
    except (ssl.SSLError, ConnectionError) as error:
        return Visit(str(error).encode())


def more(sock: socket.socket) -> bytes:
    """Return what comes next; raises ConnectionError where that is the end."""
    data = sock.recv(65536)
    if not data:
        raise ConnectionError("the end")
    return data


async def until(condition: Any) -> None:
    """Wait until something holds that the server does by itself."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
