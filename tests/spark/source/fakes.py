"""Servers that do what real ones do seldom: a script of raw bytes, and a proxy before a real server that interferes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

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


class Proxy:
    """Stands before a real server; `to_server` and `to_client` see what passes and give what is passed on."""

    def __init__(self, url: str) -> None:
        self._server = (urlsplit(url).hostname, urlsplit(url).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wires: list[socket.socket] = []
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self.visits = 0
        self.to_server: Callable[[bytes], bytes] = bytes
        self.to_client: Callable[[bytes], bytes] = bytes
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for wire in self._wires:
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server, WAIT_S)
                server.settimeout(None)
                self.visits += 1
                self._wires += [client, server]
                Thread(target=self._pass, args=(client, server, "to_server"), daemon=True).start()
                Thread(target=self._pass, args=(server, client, "to_client"), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(getattr(self, way)(data))
        for wire in (source, target):
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
            wire.close()


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
