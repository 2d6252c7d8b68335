"""A relay in front of a server: connections that a test can change, hold back and cut."""

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Literal, Self
from urllib.parse import urlsplit

CONNECT_WITHIN_S = 20.0

Way = Literal["to_server", "to_client"]


class Relay:
    """Passes on what clients and the server at `url` say, as `to_server` and `to_client` change it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.target = (parts.hostname or "", parts.port or 4222)
        self.visits = 0
        """Connections that were made."""
        self.to_server: Callable[[bytes], bytes] = bytes
        self.to_client: Callable[[bytes], bytes] = bytes
        self.threads: list[Thread] = []
        self._broken = False
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        login = f"{parts.username}:{parts.password}@" if parts.username else ""
        self.url = f"nats://{login}127.0.0.1:{self.port}"
        self._run(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def cut(self, *, for_good: bool = False) -> None:
        """Break every connection; `for_good`, let none be made until `heal`."""
        self._broken = for_good
        waiting, self._open = self._open, []
        shut(*waiting)

    def heal(self) -> None:
        self._broken = False

    def close(self) -> None:
        shut(self._listener)
        self._listener.close()
        self.cut(for_good=True)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        self.threads.append(Thread(target=work, args=arguments, daemon=True))
        self.threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, (_, port) = self._listener.accept()
                try:
                    if self._broken:
                        raise ConnectionRefusedError
                    server = socket.create_connection(self.target, CONNECT_WITHIN_S)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self.visits += 1
                self._open += [client, server]
                self._run(self._pass_on, client, server, "to_server", port)
                self._run(self._pass_on, server, client, "to_client", port)

    def _pass_on(self, source: socket.socket, sink: socket.socket, way: Way, port: int) -> None:
        """Pass on what comes one way; `port` is the client's."""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(getattr(self, way)(data))
        shut(source, sink)
        source.close()


def shut(*ends: socket.socket) -> None:
    """Break connections: threads that wait for them go on."""
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
