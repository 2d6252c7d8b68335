"""A whole server in memory behind the connections of a write, with a clock and connections that break.

Everything above the socket is the product's own: `connected` has `Link` talk to a `Machine`. The process that writes
can be killed after so many messages (`lives`). Real servers pass the same tests.
"""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from natsctl.spark.source.link import Link
from natsctl.wire.client import encode_connect
from tests.support.jet import Jet, ok

_OPERATION = re.compile(rb"(?:SUB \S+ \d+|UNSUB \d+|H?PUB (\S+) (?:\S+ )?(?:\d+ )?(\d+))\r\n")
BREAKS = 0.01
"""How often, of all messages."""


class Killed(BaseException):
    """The process that writes is killed."""


class MemoryServer:
    """The server, with a stream OUT."""

    def __init__(self, retention: str = "limits", transform: dict[str, str] | None = None) -> None:
        self._jet = Jet()
        self._moves = {} if transform is None else {"subject_transform": transform}
        self._retention = retention
        self._consumed: list[tuple[str, bytes]] = []
        self.machine = self._jet.machine
        self.advance = self._jet.advance
        self.breaks: random.Random | None = None
        """Chance by which connections end, with the answers that are on their way; None: they do not."""
        self.outage_s = 0.0
        """For how long the server is away then."""
        self.lives: int | None = None
        """Messages until the process that writes is killed; None: it is not."""
        self.make()

    def make(self) -> None:
        """Make the stream, anew if it is there."""
        self._jet.api("STREAM.DELETE.OUT")
        self._jet.stream("OUT", "out.>", retention=self._retention, **self._moves)

    @property
    def ever(self) -> list[tuple[str, bytes]]:
        """Subject and payload of all that was ever stored."""
        store = self.machine.streams["OUT"].store
        found = filter(None, map(store.get, range(1, store.last_seq + 1)))
        return self._consumed + [(message.subject.decode(), message.payload) for message in found]

    def consume(self) -> None:
        """Remove all messages, as consumers of a work queue do."""
        self._consumed = self.ever
        ok(self._jet.api("STREAM.PURGE.OUT"))


class MemoryWire:
    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._session = server.machine.broker.connect("127.0.0.1", 1)
        server.machine.attach(self._session, lambda chunks: self._out.extend(chunks))
        self._out: list[bytes] = []
        self._rest = b""
        self._broken = False
        self._pass_on(encode_connect({"verbose": False, "headers": True, "no_responders": True, "protocol": 1}))
        self._out.clear()

    def settimeout(self, _: float) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        self._session.closed()

    def recv(self, _: int) -> bytes:
        if self._broken:
            raise ConnectionResetError
        if not self._out:
            raise TimeoutError
        data = b"".join(self._out)
        self._out.clear()
        return data

    def sendall(self, data: bytes) -> None:
        """Take whole operations, one after the other; raises Killed."""
        server = self._server
        self._rest += data
        while not self._broken and (found := _OPERATION.match(self._rest)):
            end = found.end() + (int(found[2]) + 2 if found[2] else 0)
            operation, self._rest = self._rest[:end], self._rest[end:]
            if server.lives is not None and found[1] and not found[1].startswith(b"$JS.API."):
                server.lives -= 1
                if server.lives < 0:
                    raise Killed
            answers = len(self._out)
            self._pass_on(operation)
            if len(self._out) > answers and server.breaks is not None and server.breaks.random() < BREAKS:
                self._broken = True
                server.advance(server.outage_s)

    def _pass_on(self, data: bytes) -> None:
        self._session.receive(data)
        self._server.machine.settle()


@contextmanager
def connected(server: MemoryServer) -> Iterator[MemoryServer]:
    """Route every connection of this process to the server."""

    def reopen(link: Link) -> None:
        link.close()
        link._wire = cast(Any, MemoryWire(server))
        link._protocol.info = {"max_payload": 1 << 20}

    def new_inbox(link: Link) -> str:
        return f"_INBOX.{link.new_sid()}"  # few, so that regular expressions with one are compiled once

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "reopen", cast(Callable[[Link], None], reopen))
        patch.setattr(Link, "new_inbox", new_inbox)
        yield server
