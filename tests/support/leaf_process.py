"""Two server processes joined as leaf nodes over a cable that a test can cut."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from natsctl.testing.process import Kind, ServerProcess

_T = TypeVar("_T")

SETTLE_S: Final = 40.0
"""How long to wait for what must come; a server that was refused for a while waits as long before it asks again."""
_LISTENING: Final = re.compile(r"Listening for leafnode connections on \S*:(\d+)")


class Cable:
    """A TCP relay in threads: what connects to `port` is connected to `target`, until it is cut."""

    def __init__(self, target: int) -> None:
        """Carry connections to a port of this machine."""
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.broken = False
        self.carried = 0
        """Connections that were made."""
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection, and let none be made until `heal`."""
        self.broken = True
        waiting, self._open = self._open, []
        for end in waiting:
            _shut(end)

    def heal(self) -> None:
        """Let connections be made again."""
        self.broken = False

    def close(self) -> None:
        """End for good."""
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = None if self.broken else socket.create_connection(("127.0.0.1", self.target), 2)
            except OSError:
                far = None
            if far is None:
                near.close()
                continue
            far.settimeout(None)
            self.carried += 1
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    _shut(source)
    _shut(sink)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def server(folder: Path, kind: Kind, name: str, config: str) -> ServerProcess:
    """Return a server, not started, with a configuration file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "server.conf"
    path.write_text(f"server_name: {name}\n" + config)
    return ServerProcess(folder, kind, "-c", str(path), "-D")


def leaf_port(process: ServerProcess) -> int:
    """Return where a running server accepts leaf nodes."""
    found = eventually(lambda: _LISTENING.search(process.log()), "no leaf node listener")
    assert found is not None
    return int(found[1])


def eventually(probe: Callable[[], _T], what: str) -> _T:
    """Return the first true answer of `probe`, within a bounded time."""
    deadline = time.monotonic() + SETTLE_S
    while not (found := probe()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


def linked(process: ServerProcess, times: int = 1) -> None:
    """Wait until a server has joined with another one so many times."""
    eventually(lambda: process.log().count("JetStream using domains") >= times, "no link:\n" + process.log())


@contextmanager
def joined(
    folder: Path, hub: Kind, spoke: Kind, hub_config: str, spoke_config: str, *, wait: bool = True
) -> Iterator[tuple[ServerProcess, ServerProcess, Cable]]:
    """Run a hub and a spoke; `%PORT%` in the spoke's configuration is where the cable to the hub begins."""
    with server(folder / "hub", hub, "HUB", hub_config) as hub_process:
        cable = Cable(leaf_port(hub_process))
        try:
            config = spoke_config.replace("%PORT%", str(cable.port))
            with server(folder / "spoke", spoke, "SPOKE", config) as spoke_process:
                if wait:
                    linked(spoke_process)
                    linked(hub_process)
                yield hub_process, spoke_process, cable
        finally:
            cable.close()
