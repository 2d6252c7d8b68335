"""State of one server: its rates, and its busiest connections; asked through the system account."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec

from natsctl.api.errors import UsageError
from natsctl.api.times import format_time
from natsctl.client.connection import Subscription
from natsctl.client.manager import Manager
from natsctl.client.requests import parse_object
from natsctl.client.system.reports import Row, server_of
from natsctl.client.system.system_account import ServerAnswer, System

SORTS = (
    "cid", "start", "subs", "pending", "msgs_to", "msgs_from", "bytes_to", "bytes_from", "last", "idle", "uptime",
    "rtt",
)  # fmt: skip
"""Sort keys of connections; those with numbers begin with the largest."""
COUNTED = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
LOOKUP_S = 2.0
"""Seconds to look up the name of an address; without a name by then it is shown as a number."""
MAX_NAMES = 4096


class TopView(msgspec.Struct):
    """State of a server at one moment; rates are since the view before, null in the first.

    Connections as the server sent.
    """

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
        return str(self._wanted["sort"])

    def sort_by(self, step: int) -> None:
        """Sort by the key `step` places on in `SORTS`, from the next request on."""
        self._wanted["sort"] = SORTS[(SORTS.index(self.sort) + step) % len(SORTS)]

    def turn_subjects(self) -> bool:
        """Request the subjects of subscriptions from the next request on, or stop; return the new setting."""
        self._wanted["subscriptions"] = not self._wanted["subscriptions"]
        return bool(self._wanted["subscriptions"])

    async def look(self) -> TopView:
        """Return the server now; raises SystemAccountRequiredError, ServerNotFoundError, UnreachableError."""
        if self._before is None:
            # By its id from here on: a name is looked for among all servers.
            self._server = (await self._system.find(self._server)).id
        varz = (await self._system.ask_one(self._server, "VARZ")).data
        connz = (await self._system.ask_one(self._server, "CONNZ", self._wanted)).data
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
        """Return the counts per second since the last call."""
        now_ns = time.monotonic_ns()
        before, self._before = self._before, (now_ns, counts)
        if before is None:
            return None
        seconds = max(now_ns - before[0], 1) / 1e9
        return {name: round(max(0, counts[name] - before[1][name]) / seconds, 3) for name in COUNTED}

    async def _name(self, connections: list[dict[str, Any]]) -> None:
        """Put the host's name next to every address, as `host`."""
        unknown = {str(connection.get("ip") or "") for connection in connections} - self._names.keys()
        if len(self._names) < MAX_NAMES:
            found = await asyncio.gather(*(_host_of(address) for address in unknown if address))
            self._names.update(zip((address for address in unknown if address), found, strict=True))
        for connection in connections:
            connection["host"] = self._names.get(str(connection.get("ip") or ""), str(connection.get("ip") or ""))


async def _host_of(address: str) -> str:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOKUP_S):
            name, _ = await loop.getnameinfo((address, 0), socket.NI_NAMEREQD)
    except (OSError, TimeoutError):
        return address
    return str(name)


class Rates:
    """Rates per second between the last two values of each counter; 0 at the first."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}

    def rate(self, key: Hashable, counter: float, at_s: float) -> float:
        """Return the rate of a counter since its last value; one that was reset counts from 0."""
        before, then_s = self._last.get(key, (counter, at_s))
        self._last[key] = (counter, at_s)
        if at_s <= then_s:
            return 0.0
        return max(0.0, (counter - before if counter >= before else counter) / (at_s - then_s))


def server_rows(servers: Iterable[ServerAnswer], rates: Rates, at_s: float) -> list[Row]:
    """Return a row for each server: its statistics, and under `rates` its traffic and requests to the JetStream API."""
    rows = []
    for server in servers:
        stats = server.data
        moved = {
            f"{side}_{unit}": rates.rate((server.id, side, unit), _number(stats.get(key), unit), at_s)
            for side, key in (("in", "received"), ("out", "sent"))
            for unit in ("msgs", "bytes")
        }
        api = ((stats.get("jetstream") or {}).get("stats") or {}).get("api")
        moved["api"] = rates.rate((server.id, "api"), _number(api, "total"), at_s)
        rows.append({**stats, "server": server_of(server), "rates": moved})
    return rows


def account_rows(rows: Iterable[Row], rates: Rates, at_s: float) -> list[Row]:
    return [
        {
            **row,
            "rates": {
                f"{side}_{unit}": rates.rate((row["acc"], side, unit), _number(row.get(key), unit), at_s)
                for side, key in (("in", "received"), ("out", "sent"))
                for unit in ("msgs", "bytes")
            },
        }
        for row in rows
    ]


def _number(part: Mapping[str, Any] | None, key: str) -> float:
    return float((part or {}).get(key) or 0)


MAX_SUBJECTS = 10_000
"""Kinds of requests that are counted: beyond it new ones are left out."""
API_ADVISORIES = "$JS.EVENT.ADVISORY.API"
LAST_WAIT_S = 0.05
"""Seconds without an advisory after which all that had come are read."""
ANY_ACCOUNT = re.compile("")


CONSUMER_REQUEST = re.compile(
    r"^(\$JS(?:\.[^.]+)?\.API\.CONSUMER\.(?:DURABLE\.CREATE|MSG\.NEXT|LEADER\.STEPDOWN|[A-Z]+)\.[^.]+)\..+$"
)
"""Subject of a request about one consumer, up to the name of its stream."""


class ApiCounts:
    """Requests to the JetStream API by account, subject and client, from the servers' advisories.

    Rates are taken over an interval; `accounts` leaves out accounts with other names. Without `consumers` the requests
    about all consumers of a stream are counted together.
    """

    def __init__(self, interval_s: float, accounts: re.Pattern[str] = ANY_ACCOUNT, *, consumers: bool = True) -> None:
        self._consumers = consumers
        self._interval_s = interval_s
        self._accounts = accounts
        self._subscription: Subscription | None = None
        self._rows: dict[tuple[str, str], Row] = {}
        self._seen: dict[tuple[str, str], deque[float]] = {}

    def add(self, advisory: Mapping[str, Any], at_s: float) -> None:
        client = advisory.get("client") or {}
        account, subject = str(client.get("acc") or ""), str(advisory.get("subject") or "")
        if not self._consumers:
            subject = CONSUMER_REQUEST.sub(r"\1.*", subject)
        key = (account, subject)
        if not self._accounts.search(account):
            return
        if key not in self._rows and len(self._rows) >= MAX_SUBJECTS:
            return
        row = self._rows.setdefault(
            key, {"account": account, "subject": subject, "requests": 0, "errors": 0, "rate": 0.0}
        )
        row["requests"] += 1
        row["errors"] += '"error"' in str(advisory.get("response") or "")
        row["last_client"] = str(client.get("user") or client.get("name") or client.get("host") or "")
        self._seen.setdefault(key, deque(maxlen=100_000)).append(at_s)

    async def listen(self, manager: Manager) -> None:
        """Subscribe to the advisories of the account that is logged in."""
        connection = manager.connection
        self._subscription = await connection.subscribe(connection.target.event_subject(API_ADVISORIES))
        await connection.flush()

    async def take(self) -> None:
        """Count the advisories that have arrived since the last call."""
        assert self._subscription is not None, "listen first"
        while (message := await self._subscription.next(LAST_WAIT_S)) is not None:
            self.add(parse_object(message.body, API_ADVISORIES), time.monotonic())

    def rows(self, now_s: float) -> list[Row]:
        """Return a row for each subject, with the rate a second over the interval."""
        for key, row in self._rows.items():
            seen = self._seen[key]
            while seen and seen[0] < now_s - self._interval_s:
                seen.popleft()
            row["rate"] = len(seen) / self._interval_s
        return [dict(row) for row in self._rows.values()]
