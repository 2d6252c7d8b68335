"""Results of a benchmark: of each client, and of all together."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from natsctl.api.times import format_time
from natsctl.client.bench.client import ClientProgress, Latencies, Spread
from natsctl.client.bench.load import Load

_COLUMNS = (
    "#RunID", "ClientID", "MsgCount", "MsgBytes", "MsgsPerSec", "BytesPerSec", "DurationSecs", "MinLatencyMicroSecs",
    "AvgLatencyMicroSecs", "MaxLatencyMicroSecs", "P50LatencyMicroSecs", "P90LatencyMicroSecs", "P99LatencyMicroSecs",
    "P99.9LatencyMicroSecs", "StdDevLatencyMicroSecs",
)  # fmt: skip
"""The columns of the nats tool's benchmark files."""
_SPREAD = ("min_ns", "avg_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "stddev_ns")


class Part(msgspec.Struct, omit_defaults=True):
    msgs: int
    bytes: int
    duration_ns: int
    msgs_per_s: float
    bytes_per_s: float
    latency: Spread | None = None
    client: int | None = None
    """From 1; absent in what all did together."""


class Report(msgspec.Struct):
    """A benchmark and its result; rates of the total are from the first client's begin to the last one's end."""

    benchmark: str
    clients: int
    processes: int
    """Number of processes that the clients ran in."""
    size: int
    """Bytes of a message, on average."""
    started: str
    total: Part
    each: list[Part]
    subject: str = ""
    stream: str = ""
    timed: str = ""
    """Unit of the latencies: a message, a batch; "" if none were measured."""


@dataclass(slots=True)
class ClientResult:
    """Result of one client; times on the machine's monotonic clock, common to all processes."""

    number: int
    msgs: int
    size: int
    begin_ns: int
    end_ns: int
    latencies: Latencies

    @classmethod
    def of(cls, number: int, progress: ClientProgress) -> ClientResult:
        return cls(number, progress.msgs, progress.bytes, progress.begin_ns, progress.end_ns, progress.latencies)

    @property
    def part(self) -> Part:
        return _part(self.msgs, self.size, self.begin_ns, self.end_ns, self.latencies, self.number + 1)


def _part(msgs: int, size: int, begin_ns: int, end_ns: int, latencies: Latencies, client: int | None = None) -> Part:
    lasted_ns = max(end_ns - begin_ns, 1)
    per_s = 1e9 / lasted_ns
    return Part(msgs, size, lasted_ns, round(msgs * per_s, 3), round(size * per_s, 3), latencies.spread(), client)


def report(load: Load, results: Iterable[ClientResult], processes: int, started_ns: int) -> Report:
    found = sorted(results, key=lambda result: result.number)
    worked = [one for one in found if one.msgs] or found
    together = Latencies()
    for one in found:
        together.merge(one.latencies)
    total = _part(
        sum(one.msgs for one in found),
        sum(one.size for one in found),
        min(one.begin_ns for one in worked),
        max(one.end_ns for one in worked),
        together,
    )
    return Report(
        benchmark=load.kind,
        clients=load.clients,
        processes=processes,
        size=total.bytes // total.msgs if total.msgs else 0,
        started=format_time(started_ns),
        total=total,
        each=[one.part for one in found],
        subject=load.subject,
        stream=load.stream_name,
        timed=load.about.timed,
    )


def csv_text(result: Report) -> str:
    """Return a line for each client, in the columns of the nats tool's files."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(_COLUMNS)
    run = uuid.uuid4().hex[:22]
    letter = "S" if result.benchmark in ("sub", "js ordered", "js consume", "js fetch") else "P"
    for part in result.each:
        spread = [getattr(part.latency, name) / 1000 if part.latency else 0.0 for name in _SPREAD]
        lines.writerow(
            [
                run,
                f"{letter}{(part.client or 1) - 1}",
                part.msgs,
                part.bytes,
                round(part.msgs_per_s),
                f"{part.bytes_per_s:.6f}",
                f"{part.duration_ns / 1e9:.6f}",
                *(f"{us:.6f}" for us in spread),
            ]
        )
    return out.getvalue()
