"""One server as it is now: what it does a second, and its busiest connections; asked through the system account."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.errors import UsageError
from natsctl.api.times import format_time
from natsctl.client.system.census import System

if TYPE_CHECKING:
    from natsctl.client.manager import Manager

SORTS = (
    "cid", "start", "subs", "pending", "msgs_to", "msgs_from", "bytes_to", "bytes_from", "last", "idle", "uptime",
    "rtt",
)  # fmt: skip
"""What a server sorts its connections by; those with numbers begin with the largest."""
COUNTED = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
LOOKUP_S = 2.0
"""Seconds for the name of an address; it is shown as a number when there is none by then."""
MAX_NAMES = 4096


class TopView(msgspec.Struct):
    """A server at one moment; rates are since the view before, null in the first. Connections as the server told."""

    time: str
    server: str
    id: str
    version: str
    uptime: str
    cpu: float
    mem: int
    slow_consumers: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    rates: dict[str, float] | None
    total_connections: int
    connections: list[dict[str, Any]]


class Top:
    """Looks at one server again and again."""

    def __init__(
        self, manager: Manager, server: str, *, limit: int, sort: str, subs: bool = False, lookup: bool = False
    ) -> None:
        if sort not in SORTS:
            raise UsageError(f"--sort: expected one of {', '.join(SORTS)}, not {sort!r}")
        self._system = System(manager)
        self._server = server
        self._lookup = lookup
        self._wanted = {"limit": limit, "sort": sort, "subscriptions": subs}
        self._names: dict[str, str] = {}
        self._before: tuple[int, dict[str, int]] | None = None

    @property
    def sort(self) -> str:
        """What connections are sorted by."""
        return str(self._wanted["sort"])

    def sort_by(self, step: int) -> None:
        """Sort by another of `SORTS` from the next look on, so many behind this one."""
        self._wanted["sort"] = SORTS[(SORTS.index(self.sort) + step) % len(SORTS)]

    def turn_subjects(self) -> bool:
        """Ask for the subjects of subscriptions from the next look on, or no longer, and return which."""
        self._wanted["subscriptions"] = not self._wanted["subscriptions"]
        return bool(self._wanted["subscriptions"])

    async def look(self) -> TopView:
        """The server now; raises SystemAccountRequiredError, ServerNotFoundError, UnreachableError."""
        if self._before is None:
            # By its id from here on: a name is looked for among all servers.
            self._server = (await self._system.find(self._server)).id
        server = [await self._system.find(self._server)]
        varz, connz = [
            (await self._system.ask_each(server, what, body))[0].data
            for what, body in (("VARZ", None), ("CONNZ", self._wanted))
        ]
        connections = list(connz.get("connections") or ())
        if self._lookup:
            await self._name(connections)
        counts = {name: int(varz.get(name) or 0) for name in COUNTED}
        return TopView(
            time=format_time(time.time_ns()),
            server=str(varz.get("server_name") or ""),
            id=str(varz.get("server_id") or ""),
            version=str(varz.get("version") or ""),
            uptime=str(varz.get("uptime") or ""),
            cpu=float(varz.get("cpu") or 0),
            mem=int(varz.get("mem") or 0),
            slow_consumers=int(varz.get("slow_consumers") or 0),
            **counts,
            rates=self._rates(counts),
            total_connections=int(connz.get("total") or len(connections)),
            connections=connections,
        )

    def _rates(self, counts: dict[str, int]) -> dict[str, float] | None:
        """What was counted a second since the last look."""
        now_ns = time.monotonic_ns()
        before, self._before = self._before, (now_ns, counts)
        if before is None:
            return None
        seconds = max(now_ns - before[0], 1) / 1e9
        return {name: round(max(0, counts[name] - before[1][name]) / seconds, 3) for name in COUNTED}

    async def _name(self, connections: list[dict[str, Any]]) -> None:
        """Put the host's name beside every address, as `host`."""
        unknown = {str(one.get("ip") or "") for one in connections} - self._names.keys()
        if len(self._names) < MAX_NAMES:
            found = await asyncio.gather(*(_host_of(address) for address in unknown if address))
            self._names.update(zip((address for address in unknown if address), found, strict=True))
        for one in connections:
            one["host"] = self._names.get(str(one.get("ip") or ""), str(one.get("ip") or ""))


async def _host_of(address: str) -> str:
    """The name of an address, or the address."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOKUP_S):
            name, _ = await loop.getnameinfo((address, 0), socket.NI_NAMEREQD)
    except (OSError, TimeoutError):
        return address
    return str(name)
