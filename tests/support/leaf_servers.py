"""Servers joined as leaf nodes over a link that a test can cut: in memory, and as processes.

Theory of operation. In memory a `MemoryLink` has a leaf connection at each end and carries what one writes to the
other. `Servers` lets machines come to rest together: as long as a link has something to carry, they take turns. A
`joined` has a relay between two server processes.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.leaf.handshake import LeafOptions, RemoteOptions
from natsctl.broker.leaf.leaf_nodes import LeafLinks
from natsctl.broker.leaf.link import LeafLink
from natsctl.jetstream.engine_options import JetStreamOptions
from natsctl.store.options import StoreOptions
from natsctl.testing.process import Kind, ServerProcess
from tests.support.clock import VirtualClock
from tests.support.machine import Machine
from tests.support.relay import Relay
from tests.support.simdisk import SimDisk

MAX_ROUNDS = 1000
"""Rounds after which servers that do not come to rest are called broken."""


class Lines(list[str]):
    def info(self, text: str) -> None:
        self.append(f"[INF] {text}")

    def warn(self, text: str) -> None:
        self.append(f"[WRN] {text}")

    def error(self, text: str) -> None:
        self.append(f"[ERR] {text}")

    def debug(self, text: str) -> None:
        self.append(f"[DBG] {text}")


class Server:
    def __init__(
        self,
        name: str,
        clock: VirtualClock,
        domain: str = "",
        leaf: LeafOptions | None = None,
        disk: SimDisk | None = None,
        store: StoreOptions | None = None,
    ) -> None:
        """Start a server, with JetStream under the name of a domain or of none, on a disk of before or a new one."""
        broker = BrokerOptions(server_name=name, jetstream=True, domain=domain)
        seed = sum(name.encode()) + (disk.life if disk is not None else 0)
        self.machine = Machine(disk, clock, seed, store, JetStreamOptions(domain=domain), broker)
        self.log = Lines()
        leaf = replace(leaf or LeafOptions(), host="127.0.0.1", port=7422)
        self.leafs = LeafLinks(self.machine.broker, leaf, self.log)


class End:
    """One end of a cable: what its link has written waits here."""

    def __init__(self, link: LeafLink) -> None:
        self.link = link
        self.waiting: list[bytes] = []

    def drain(self, chunks: Iterable[bytes]) -> None:
        self.waiting += chunks

    def take(self) -> bytes:
        data, self.waiting = b"".join(self.waiting), []
        return data


class MemoryLink:
    def __init__(self, spoke: Server, hub: Server, remote: RemoteOptions) -> None:
        """Connect; `spoke` is the server that asks to."""
        self.carried: list[tuple[str, bytes]] = []
        """Its traffic: `>` from the side that connected, `<` to it."""
        self.far = End(hub.leafs.accept("127.0.0.1", 40001))
        self.near = End(spoke.leafs.solicit(remote, "127.0.0.1", 7422))
        hub.machine.attach(self.far.link, self.far.drain)
        spoke.machine.attach(self.near.link, self.near.drain)
        self.cut_off = False
        self.left: int | None = None
        """Bytes that it will carry before it breaks."""

    def carry(self) -> bool:
        """Carry the bytes that wait at both ends, and return whether there were any."""
        moved = False
        for mark, source, sink in ((">", self.near, self.far), ("<", self.far, self.near)):
            data = source.take()
            if self.left is not None:
                data = data[: self.left]
                self.left -= len(data)
            if data and not self.cut_off:
                moved = True
                self.carried.append((mark, data))
                sink.link.receive(data)
        closed = any(end.link.close_reason is not None for end in (self.near, self.far))
        if closed and not moved and not self.cut_off:  # after its last words
            self.cut()
            moved = True
        if self.left == 0 and not self.cut_off:
            self.cut()
        return moved

    def cut(self, gone: Server | None = None) -> None:
        """Break the connection; both servers notice, or the one that is not gone."""
        self.cut_off = True
        for end in (self.near, self.far):
            if gone is None or end.link.broker is not gone.machine.broker:
                end.link.closed()


class Servers:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.servers: dict[str, Server] = {}
        self.cables: list[MemoryLink] = []

    def start(
        self,
        name: str,
        domain: str = "",
        leaf: LeafOptions | None = None,
        disk: SimDisk | None = None,
        store: StoreOptions | None = None,
    ) -> Server:
        server = self.servers[name] = Server(name, self.clock, domain, leaf, disk, store)
        return server

    def lose(self, name: str) -> None:
        """Record that a server is gone; the others notice that their connections to it are."""
        gone = self.servers.pop(name)
        for cable in self.cables:
            if not cable.cut_off and gone.machine.broker in (cable.near.link.broker, cable.far.link.broker):
                cable.cut(gone)
        self.cables = [cable for cable in self.cables if not cable.cut_off]

    def join(self, spoke: Server, hub: Server, remote: RemoteOptions | None = None) -> MemoryLink:
        cable = MemoryLink(spoke, hub, remote or RemoteOptions())
        self.cables.append(cable)
        self.settle()
        return cable

    def settle(self) -> None:
        """Run both servers until nothing is left to do."""
        for _ in range(MAX_ROUNDS):
            for server in self.servers.values():
                server.machine.settle()
            if not sum(cable.carry() for cable in self.cables):
                return
        raise AssertionError(f"not at rest after {MAX_ROUNDS} rounds")

    def advance(self, seconds: float) -> None:
        """Advance time in steps of a tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(100_000_000)
            for server in self.servers.values():
                server.machine.engine.run_timers()
                server.machine.broker.tick()
            self.settle()


_T = TypeVar("_T")

SETTLE_S: Final = 40.0
"""Time limit for events that must come; a server that was refused for a while waits as long before it asks again."""
_LISTENING: Final = re.compile(r"Listening for leafnode connections on \S*:(\d+)")


def server(folder: Path, kind: Kind, name: str, config: str) -> ServerProcess:
    """Return a server, not started, with a configuration file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "server.conf"
    path.write_text(f"server_name: {name}\n" + config)
    return ServerProcess(folder, kind, "-c", str(path), "-D")


def leaf_port(process: ServerProcess) -> int:
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
) -> Iterator[tuple[ServerProcess, ServerProcess, Relay]]:
    """Run a hub and a spoke; `%PORT%` in the spoke's configuration is where the cable to the hub begins."""
    with server(folder / "hub", hub, "HUB", hub_config) as hub_process:
        cable = Relay(f"//127.0.0.1:{leaf_port(hub_process)}")
        try:
            config = spoke_config.replace("%PORT%", str(cable.port))
            with server(folder / "spoke", spoke, "SPOKE", config) as spoke_process:
                if wait:
                    linked(spoke_process)
                    linked(hub_process)
                yield hub_process, spoke_process, cable
        finally:
            cable.close()
