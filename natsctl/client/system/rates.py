"""How fast counters grow from one look to the next."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from natsctl.client.answer import parse_object
from natsctl.client.system.answers import ServerAnswer
from natsctl.client.system.reports import Row, told_by

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.subscription import Subscription


class Rates:
    """Rates a second between the last two looks at each counter; 0 at the first."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}

    def rate(self, key: Hashable, counter: float, at_s: float) -> float:
        """The rate of a counter since it was last looked at; one that began anew counts from 0."""
        before, then_s = self._last.get(key, (counter, at_s))
        self._last[key] = (counter, at_s)
        if at_s <= then_s:
            return 0.0
        return max(0.0, (counter - before if counter >= before else counter) / (at_s - then_s))


def server_rows(census: Iterable[ServerAnswer], rates: Rates, at_s: float) -> list[Row]:
    """A row for each server: its statistics, and under `rates` what it moves and what JetStream's API is asked."""
    rows = []
    for one in census:
        stats = one.data
        moved = {
            f"{side}_{unit}": rates.rate((one.id, side, unit), _number(stats.get(key), unit), at_s)
            for side, key in (("in", "received"), ("out", "sent"))
            for unit in ("msgs", "bytes")
        }
        api = ((stats.get("jetstream") or {}).get("stats") or {}).get("api")
        moved["api"] = rates.rate((one.id, "api"), _number(api, "total"), at_s)
        rows.append({**stats, "server": told_by(one), "rates": moved})
    return rows


def account_rows(rows: Iterable[Row], rates: Rates, at_s: float) -> list[Row]:
    """The rows of accounts with `rates` added."""
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


class ApiCounts:
    """Requests to the JetStream API by account, subject and client, as the advisories of servers tell of them.

    Rates are taken over an interval; `accounts` leaves out those whose name it does not match.
    """

    def __init__(self, interval_s: float, accounts: re.Pattern[str] = ANY_ACCOUNT) -> None:
        self._interval_s = interval_s
        self._accounts = accounts
        self._subscription: Subscription | None = None
        self._rows: dict[tuple[str, str], Row] = {}
        self._seen: dict[tuple[str, str], deque[float]] = {}

    def add(self, advisory: Mapping[str, Any], at_s: float) -> None:
        """Count one advisory of type api_audit."""
        client = advisory.get("client") or {}
        account, subject = str(client.get("acc") or ""), str(advisory.get("subject") or "")
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
        """Count the advisories that have come since they were taken last."""
        assert self._subscription is not None, "listen first"
        while (message := await self._subscription.next(LAST_WAIT_S)) is not None:
            self.add(parse_object(message.body, API_ADVISORIES), time.monotonic())

    def rows(self, now_s: float) -> list[Row]:
        """A row for each subject, with the rate a second over the interval."""
        for key, row in self._rows.items():
            seen = self._seen[key]
            while seen and seen[0] < now_s - self._interval_s:
                seen.popleft()
            row["rate"] = len(seen) / self._interval_s
        return [dict(row) for row in self._rows.values()]
