"""Latency of exported services: the requests that are measured, and the reports that are published about them.

Source: nats-server, shouldSample and ServiceLatency in server/accounts.go. Random names and hashes of base62 digits
are made as nats-server makes them.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import field

from natsctl.api.advisories import ClientInfo
from natsctl.api.codec import encode
from natsctl.api.model import Model, blank, zero
from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker_options import Rng
    from natsctl.broker.imports.account_config import Latency


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BITS: Final = 16
"""Random bits of each digit: more than six, so that no digit is noticeably likelier than another."""


def draw_digits(rng: Rng, length: int) -> str:
    bits = rng.getrandbits(_BITS * length)
    return "".join(_DIGITS[(bits >> _BITS * at & 0xFFFF) % 62] for at in range(length))


def hash_digits(name: str, length: int) -> str:
    """Return the beginning of a name's SHA-256, a digit for each byte."""
    import hashlib  # loads OpenSSL; a plain server does not need it

    return "".join(_DIGITS[byte % 62] for byte in hashlib.sha256(name.encode()).digest()[:length])


TYPE: Final = "io.nats.server.metric.v1.service_latency"
_ID_DIGITS: Final = 22

BAD_REQUEST: Final = (400, "Bad Request")
INTEREST_LOST: Final = (408, "Request Timeout")
UNAVAILABLE: Final = (503, "Service Unavailable")
TIMEOUT: Final = (504, "Service Timeout")

Trace = dict[str, list[str]]
"""Headers that made a request be measured, with Go's spelling of their keys."""


class LatencyMetric(Model):
    """The metric, keys in nats-server's order; times in ns."""

    type: str = field(default_factory=lambda: TYPE)
    id: str = field(default_factory=blank)
    timestamp: str = field(default_factory=blank)
    status: int = field(default_factory=zero)
    description: str = ""
    requestor: ClientInfo | None = None
    responder: ClientInfo | None = None
    header: dict[str, list[str]] | None = None
    start: str = field(default_factory=blank)
    service: int = field(default_factory=zero)
    system: int = field(default_factory=zero)
    total: int = field(default_factory=zero)


class Sample(msgspec.Struct, frozen=True):
    subject: str
    """Subject of the metric."""
    requestor: ClientInfo
    start_ns: int
    """Time of forwarding the request, wall clock."""
    trace: Trace | None


def publish_failure(exporter: Account, sample: Sample, status: tuple[int, str]) -> None:
    """Publish that a measured request came to nothing."""
    begin_ns = sample.start_ns - sample.requestor.rtt
    metric = LatencyMetric(
        status=status[0], description=status[1], requestor=sample.requestor, header=sample.trace,
        start=format_time(begin_ns),
    )  # fmt: skip
    _publish(exporter, sample, metric)


def publish_success(exporter: Account, sample: Sample, responder: ClientInfo) -> None:
    """Publish how long a measured request has taken until its response."""
    broker = exporter.broker
    passed_ns = broker.clock.now_ns() - sample.start_ns
    asked_rtt, answered_rtt = sample.requestor.rtt, responder.rtt
    system_ns = max(broker.clock.now_ns() - sample.start_ns - passed_ns, 0) if answered_rtt else 0
    metric = LatencyMetric(
        status=200,
        requestor=sample.requestor,
        responder=responder,
        header=sample.trace,
        start=format_time(sample.start_ns - asked_rtt),
        service=max(passed_ns - answered_rtt, 0),
        system=system_ns,
        total=asked_rtt + passed_ns + system_ns,
    )
    _publish(exporter, sample, metric)


def _publish(exporter: Account, sample: Sample, metric: LatencyMetric) -> None:
    broker = exporter.broker
    metric.id = draw_digits(broker.rng, _ID_DIGITS)
    metric.timestamp = format_time(broker.clock.now_ns())
    exporter.publish(sample.subject.encode(), b"", b"", encode(metric))


# The choice of requests to measure


def is_measured(exporter: Account, latency: Latency, header: bytes) -> tuple[bool, Trace | None]:
    """Return whether a request is measured, and the headers that requested it, if any."""
    if latency.sampling >= 100:
        return True, None
    if latency.sampling > 0 and int(exporter.broker.rng.random() * 100) <= latency.sampling:
        return True, None
    trace = _asked_by(_tracing(header)) if header else None
    return trace is not None, trace


_TRACING: Final = re.compile(
    rb"\r\n(uber-trace-id|uberctx-[^\r\n:]*+|x-b3-(?:sampled|traceid|parentspanid|spanid)|b3|traceparent|tracestate)"
    rb":([^\r\n]*+)(?=\r\n)",
    re.IGNORECASE,
)
MAX_TRACING_LINES: Final = 256
"""Lines of one request's header that are looked at for tracing."""


def _tracing(header: bytes) -> Trace:
    """Return the tracing headers of a block, keys in the spelling of Go's textproto, and all values of each."""
    trace: Trace = {}
    for match in islice(_TRACING.finditer(header), MAX_TRACING_LINES):
        name = "-".join(part.capitalize() for part in match[1].decode("utf-8", "replace").split("-"))
        trace.setdefault(name, []).append(match[2].strip().decode("utf-8", "replace"))
    return trace


def _asked_by(found: Trace) -> Trace | None:
    """Return the tracing headers of a request that want it to be measured."""
    uber, sampled, b3, parent = (found.get(name) for name in ("Uber-Trace-Id", "X-B3-Sampled", "B3", "Traceparent"))
    if uber:
        baggage = {key: value for key, value in found.items() if key.startswith("Uberctx-")}
        return {"Uber-Trace-Id": uber, **baggage} if _uber_samples(uber[0]) else None
    if sampled and sampled[0] in ("0", "1"):
        return _b3(found) if sampled[0] == "1" else None
    if "X-B3-Traceid" in found:
        return _b3(found)
    if b3:
        parts = b3[0].split("-")
        return None if (len(parts) > 2 and parts[2] == "0") or parts == ["0"] else {"B3": b3}
    if parent and _parent_samples(parent[0]):
        state = found.get("Tracestate")
        return {"Traceparent": parent, **({"Tracestate": state} if state else {})}
    return None


def _b3(found: Trace) -> Trace:
    names = ("X-B3-Sampled", "X-B3-Traceid", "X-B3-Parentspanid", "X-B3-Spanid")
    return {name: found[name] for name in names if name in found}


def _uber_samples(value: str) -> bool:
    parts = value.split(":")
    return len(parts) == 4 and 1 <= len(parts[3]) <= 2 and _flags(parts[3])


def _parent_samples(value: str) -> bool:
    parts = value.split("-")
    return len(parts) == 4 and len(parts[3]) == 2 and _flags(parts[3]) and int(parts[3], 16) < 128


def _flags(text: str) -> bool:
    """Return whether the lowest bit of a number in hexadecimal digits is set."""
    return all(digit in "0123456789abcdefABCDEF" for digit in text) and bool(int(text, 16) & 1)
