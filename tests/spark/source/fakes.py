"""A server that does what real ones do seldom: a script of raw bytes."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

WAIT_S = 20.0

Talk = Callable[["Visitor"], None]


class Visitor:
    """A client of a fake server, from the server's side."""

    def __init__(self, wire: socket.socket) -> None:
        self.wire = wire
        self.wire.settimeout(WAIT_S)
        self._file = wire.makefile("rb")

    def greet(self, **info: Any) -> dict[str, Any]:
        """Send INFO and take the login; what CONNECT says."""
        about = {"server_id": "FAKE", "version": "2.11.0", "max_payload": 1 << 20, "headers": True, "proto": 1, **info}
        self.send(b"INFO " + json.dumps(about).encode() + b"\r\n")
        connect: dict[str, Any] = json.loads(self.line().removeprefix(b"CONNECT "))
        assert self.line() == b"PING"
        self.send(b"PONG\r\n")
        return connect

    def line(self) -> bytes:
        return self._file.readline().rstrip(b"\r\n")

    def lines_until(self, start: bytes) -> bytes:
        """The first line that begins so, or an empty one."""
        while (line := self.line()) and not line.startswith(start):
            pass
        return line

    def asked(self) -> tuple[bytes, bytes, bytes]:
        words = self.lines_until(b"PUB ").split()
        if not words:
            return b"", b"", b""
        body = self._file.read(int(words[-1]) + 2)[:-2]
        return words[1], words[2] if len(words) == 4 else b"", body

    def send(self, data: bytes) -> None:
        self.wire.sendall(data)


@contextmanager
def scripted(talk: Talk, visits: int = 1) -> Iterator[str]:
    """The address of a server that talks so to each of its clients, and hangs up then."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)

        def serve() -> None:
            for _ in range(visits):
                with suppress(OSError):
                    wire, _ = listener.accept()
                    with wire:
                        talk(Visitor(wire))

        thread = Thread(target=serve)
        thread.start()
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(WAIT_S)
