"""Trace of one message through the servers.

Every server that a message with the header `Nats-Trace-Dest` reaches sends a report to that subject; with
`Nats-Trace-Only` none of them delivers it. A message that leaves for another server has a hop number, and that server's
report has the same number: this shows the missing reports, and how reports are connected.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.errors import ProtocolError, UnreachableError
from natsctl.client.requests import parse_object

if TYPE_CHECKING:
    from natsctl.client.connection import Connection
    from natsctl.client.messaging.messages import Outgoing

HOP = "Nats-Trace-Hop"
ROOT = ""
MAX_REPORTS = 10_000
LATE_S = 1.0
"""Maximum wait for the reports that hops announce, after the first report."""
PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
"""Value of `traceparent`: version, trace, span, flags. Source: W3C Trace Context, used by OpenTelemetry."""
CONNECTIONS = {0: "Client", 1: "Router", 2: "Gateway", 3: "System", 4: "Leafnode", 5: "JetStream", 6: "Account"}


class TraceContext(NamedTuple):
    """OpenTelemetry's trace and span that a message belongs to, in hexadecimal digits."""

    trace: str
    span: str
    sampled: bool


@dataclass(slots=True)
class TraceReport:
    """Report of one server on the message; `hop` is "" for the first, `onward` are the reports after each egress."""

    raw: dict[str, Any]
    hop: str = ROOT
    onward: dict[str, TraceReport] = field(default_factory=dict)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Events in the server's order."""
        return [event for event in self.raw.get("events") or () if isinstance(event, dict)]

    @property
    def hops(self) -> list[str]:
        """Return the hop numbers of messages that left for other servers without an error."""
        return [str(event["hop"]) for event in self.events if event.get("type") == "eg" and event.get("hop")]

    @property
    def context(self) -> TraceContext | None:
        """Trace context in the header `traceparent` of the message, None without a valid one."""
        headers = self.raw["request"].get("header") or {}
        values = [value for key, every in headers.items() if key.lower() == "traceparent" for value in every]
        found = PARENT.fullmatch(str(values[0])) if values else None
        return TraceContext(found[1], found[2], bool(int(found[3], 16) & 1)) if found else None

    def walk(self) -> Iterator[TraceReport]:
        """Yield this report and all after it."""
        yield self
        for one in self.onward.values():
            yield from one.walk()


def headers_of(message: Outgoing, dest: str, deliver: bool) -> tuple[tuple[str, str], ...]:
    """Return the headers that a message is traced with."""
    only = () if deliver else (("Nats-Trace-Only", "true"),)
    return (*message.headers, ("Nats-Trace-Dest", dest), *only)


async def trace(connection: Connection, message: Outgoing, *, deliver: bool) -> TraceReport:
    """Return the reports of every server that the message reached. Raises UnreachableError without any."""
    dest = connection.new_inbox()
    subscription = await connection.subscribe(dest)
    subscription.watched = message.subject
    found: dict[str, TraceReport] = {}
    clock = asyncio.get_running_loop().time
    try:
        await connection.publish(message.subject, message.body, headers=headers_of(message, dest, deliver))
        until_s = clock() + connection.timeout_s
        while len(found) < MAX_REPORTS and (left_s := until_s - clock()) > 0:
            heard = await subscription.next(left_s)
            if heard is None:
                break
            report = _report(heard.body)
            found[report.hop] = report
            if not _missing(found):
                break
            until_s = min(until_s, clock() + LATE_S)
    finally:
        await subscription.stop()
    if ROOT not in found:
        await connection.flush()
        raise UnreachableError(
            f"no server reports a message on {message.subject} within {connection.timeout_s:g}s",
            hint="messages are traced by servers from 2.11 on, and only where the account may publish to inboxes",
        )
    return _linked(found)


def _report(body: bytes) -> TraceReport:
    try:
        raw = parse_object(body, "the inbox of reports")
        headers = raw["request"].get("header") or {}
        hop = headers.get(HOP) or [ROOT]
    except (ValueError, KeyError, AttributeError, TypeError) as failure:
        raise ProtocolError(f"cannot read the report of a traced message: {body[:64]!r}") from failure
    return TraceReport(raw, str(hop[0]))


def _missing(found: dict[str, TraceReport]) -> set[str]:
    """Return the hops that were announced and have not reported."""
    announced = {hop for report in found.values() for hop in report.hops}
    return ({ROOT} | announced) - set(found)


def _linked(found: dict[str, TraceReport]) -> TraceReport:
    for report in found.values():
        report.onward = {hop: found[hop] for hop in report.hops if hop in found and hop != report.hop}
    return found[ROOT]
