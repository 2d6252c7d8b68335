"""Whole servers in memory, joined as leaf nodes by a cable that a test can cut.

Theory of operation. A `Cable` has a link at each end and carries what one writes to the other. `Servers` lets machines
come to rest together: as long as a cable has something to carry, they take turns.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from natsctl.broker.leaf.leafs import Leafs
from natsctl.broker.leaf.link import LeafLink
from natsctl.broker.leaf.options import LeafOptions, RemoteOptions
from natsctl.broker.options import BrokerOptions
from natsctl.jetstream.engine import JetStreamOptions
from natsctl.store.options import StoreOptions
from natsctl.testing.clock import VirtualClock
from natsctl.testing.machine import Machine
from natsctl.testing.simdisk import SimDisk

MAX_ROUNDS = 1000
"""Rounds after which servers that do not come to rest are called broken."""


class Lines(list[str]):
    """A log that keeps its lines."""

    def info(self, text: str) -> None:
        """Keep a line."""
        self.append(f"[INF] {text}")

    def warn(self, text: str) -> None:
        """Keep a line."""
        self.append(f"[WRN] {text}")

    def error(self, text: str) -> None:
        """Keep a line."""
        self.append(f"[ERR] {text}")

    def debug(self, text: str) -> None:
        """Keep a line."""
        self.append(f"[DBG] {text}")


class Server:
    """A machine with leaf nodes."""

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
        self.leafs = Leafs(self.machine.broker, leaf, self.log)


class End:
    """One end of a cable: what its link has written waits here."""

    def __init__(self, link: LeafLink) -> None:
        self.link = link
        self.waiting: list[bytes] = []

    def drain(self, chunks: Iterable[bytes]) -> None:
        """Take what the link wrote."""
        self.waiting += chunks

    def take(self) -> bytes:
        """Return what waits."""
        data, self.waiting = b"".join(self.waiting), []
        return data


class Cable:
    """A connection between two links."""

    def __init__(self, spoke: Server, hub: Server, remote: RemoteOptions) -> None:
        """Connect; `spoke` is the server that asks to."""
        self.carried: list[tuple[str, bytes]] = []
        """What went over it: `>` from the side that connected, `<` to it."""
        self.far = End(hub.leafs.accept("127.0.0.1", 40001))
        self.near = End(spoke.leafs.solicit(remote, "127.0.0.1", 7422))
        hub.machine.attach(self.far.link, self.far)
        spoke.machine.attach(self.near.link, self.near)
        self.cut_off = False
        self.left: int | None = None
        """Bytes that it will carry before it breaks."""

    def carry(self) -> bool:
        """Carry what waits at both ends, and tell whether there was anything."""
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
    """Servers on one clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.servers: dict[str, Server] = {}
        self.cables: list[Cable] = []

    def start(
        self,
        name: str,
        domain: str = "",
        leaf: LeafOptions | None = None,
        disk: SimDisk | None = None,
        store: StoreOptions | None = None,
    ) -> Server:
        """Start one more server, or one of before on its disk."""
        server = self.servers[name] = Server(name, self.clock, domain, leaf, disk, store)
        return server

    def lose(self, name: str) -> None:
        """Take note that a server is gone; the others notice that their cables to it are."""
        gone = self.servers.pop(name)
        for cable in self.cables:
            if not cable.cut_off and gone.machine.broker in (cable.near.link.broker, cable.far.link.broker):
                cable.cut(gone)
        self.cables = [cable for cable in self.cables if not cable.cut_off]

    def join(self, spoke: Server, hub: Server, remote: RemoteOptions | None = None) -> Cable:
        """Let one server connect to another."""
        cable = Cable(spoke, hub, remote or RemoteOptions())
        self.cables.append(cable)
        self.settle()
        return cable

    def settle(self) -> None:
        """Let everything happen that follows from what was done."""
        for _ in range(MAX_ROUNDS):
            for server in self.servers.values():
                server.machine.settle()
            if not sum(cable.carry() for cable in self.cables):
                return
        raise AssertionError(f"not at rest after {MAX_ROUNDS} rounds")

    def advance(self, seconds: float) -> None:
        """Let time pass in steps of a tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(100_000_000)
            for server in self.servers.values():
                server.machine.engine.run_timers()
                server.machine.broker.tick()
            self.settle()
