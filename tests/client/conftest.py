"""One server of each kind for all tests of the client; one of a few lines that refuses, stays silent or hangs up."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Self

import pytest

from natsctl.client import servers
from natsctl.client.connection import Connection
from natsctl.client.dial import connect
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from tests.support.servers import PATIENCE_S, manager, server, started

__all__ = ["manager", "server", "started"]

INFO: dict[str, Any] = {
    "server_id": "FAKE",
    "version": "2.10.29",
    "max_payload": 1048576,
    "headers": True,
    "client_id": 7,
    "proto": 1,
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for answers than five seconds, for which a busy machine stands still now and then."""
    monkeypatch.setattr(servers, "DEFAULT_TIMEOUT_S", PATIENCE_S)


async def connected(url: str, timeout_s: float | None = None, **settings: Any) -> Connection:
    return await connect(resolve(Settings(url=url, timeout_s=timeout_s, **settings), {"HOME": "/nowhere"}), name="test")


class Listener:
    """What listens on a free port of this host while it is running."""

    url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()


class FakeServer(Listener):
    """Speaks enough of the protocol.

    A publish on `refused` gets a permissions violation, one on `answers` an answer, one on `fatal` ends the connection.
    The first one on a subject of `first` gets that answer.
    """

    def __init__(self, **info: Any) -> None:
        self.info = {**INFO, **info}
        self.refused: set[str] = set()
        self.answers: dict[str, bytes] = {}
        self.first: dict[str, bytes] = {}
        self.fatal: set[str] = set()
        self.login_error = ""
        self.connects: list[dict[str, Any]] = []
        self.subscribed: list[str] = []
        self.published: list[tuple[str, bytes]] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(self.info).encode() + b"\r\n")
        inboxes: dict[str, str] = {}
        try:
            while line := await reader.readline():
                verb, *words = line.decode().split()
                if verb == "CONNECT":
                    self.connects.append(json.loads(line.partition(b" ")[2]))
                    if self.login_error:
                        writer.write(f"-ERR '{self.login_error}'\r\n".encode())
                        break
                elif verb == "PING":
                    writer.write(b"PONG\r\n")
                elif verb == "SUB":
                    if words[0] in self.refused:
                        writer.write(f"-ERR 'Permissions Violation for Subscription to \"{words[0]}\"'\r\n".encode())
                    inboxes[words[0]] = words[-1]
                    self.subscribed.append(words[0])
                elif verb in ("PUB", "HPUB"):
                    body = await reader.readexactly(int(words[-1]) + 2)
                    if not self._published(words, body[:-2], inboxes, writer):
                        break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _published(self, words: list[str], body: bytes, inboxes: dict[str, str], writer: asyncio.StreamWriter) -> bool:
        subject = words[0]
        self.published.append((subject, body))
        if subject in self.fatal:
            return False
        if subject in self.refused:
            writer.write(f"-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n".encode())
        elif subject in self.first or subject in self.answers:
            reply = words[1]
            sid = next(sid for inbox, sid in inboxes.items() if reply.startswith(inbox.rstrip("*")))
            answer = self.first.pop(subject, None) or self.answers[subject]
            writer.write(b"MSG %b %b %d\r\n%b\r\n" % (reply.encode(), sid.encode(), len(answer), answer))
        return True


@contextmanager
def beside(opened: AbstractAsyncContextManager[object]) -> Iterator[None]:
    """Keep something open on a loop in a thread of its own, beside this thread, which blocks."""
    loop, ready, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def keep() -> None:
        async with opened:
            ready.set()
            await end.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(keep())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


@contextmanager
def serving(fake: FakeServer) -> Iterator[str]:
    """Run the fake server beside this thread."""
    with beside(fake.running()):
        yield fake.url


@pytest.fixture
def other() -> FakeServer:
    return FakeServer()


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer()
