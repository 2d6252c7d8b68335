"""The figures that are promised of streams on Spark, and whether a run reaches them, on each server.

Each ratio is of two figures of one run. What a read is compared with is the floor: the same rows in Arrow's batches,
out of the memory of Spark's Python processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Final, NamedTuple

from bench.spark.commands import COLD, COUNTED, IMPORT, IMPORT_LINES, IMPORTED, WARM, Run
from bench.spark.direct import Figures
from bench.spark.spent import Spent
from natsctl.testing.process import Kind

FLOOR, ARROW_FLOOR, READ, BACKUP, WRITE = (
    "Spark's floor, rows in memory",
    "Spark's floor, Arrow in memory",
    "Spark reads a stream",
    "Spark reads a backup",
    "Spark writes a stream",
)
MEMORY_GROUP, GROUP, MEMORY_FILE, FILE, EXPORT, SPARK_EXPORT = (
    "Spark groups Arrow in memory",
    "Spark groups a stream",
    "Spark, Arrow in memory to Parquet",
    "Spark, a stream to Parquet",
    "stream export, to Parquet",
    "stream export by Spark, to Parquet",
)
DUCKDB_GROUP, DUCKDB_FILE = "DuckDB groups the exported Parquet", "DuckDB, Parquet to Parquet"
NATS_PY_FILE, NATS_PY_WRITE = "to Parquet, nats-py fetch", "publish, nats-py, 500 in flight"
READER, RAW, NATS_PY = "read, the source's reader", "read, raw", "read, nats-py fetch"
WRITER, PUBLISHED = "publish, the source's writer", "publish, raw, ids and acks"
UNKNOWN: Final = "not known"
"""Of a difference of two runs that other work on the machine has swallowed, and of what was not measured."""
NATS_SERVER: Final[Kind] = "reference"
SHOWN: Final[dict[Kind, str]] = {"natsctl": "natsctl", "reference": "nats-server"}


@dataclass
class Results:
    """All that one run has measured."""

    figures: dict[Kind, Figures] = field(default_factory=dict)
    commands: dict[Kind, dict[str, Run]] = field(default_factory=dict)


class Target(NamedTuple):
    """A figure of one server, and its limit: `least` or `most`."""

    name: str
    value: Callable[[Results, Kind], float]
    least: float | None = None
    most: float | None = None

    @property
    def limit(self) -> str:
        """The limit in words."""
        return f">= {self.least:,}" if self.least is not None else f"<= {self.most:,}"

    def verdict(self, value: float) -> str:
        """Return the value, and whether it is within the limit."""
        if isnan(value):
            return UNKNOWN
        is_met = value >= self.least if self.least is not None else value <= (self.most or 0)
        return f"{shown(value)} {'met' if is_met else 'MISSED'}"


def us(figures: Figures, name: str, of: Callable[[Spent], float] = lambda spent: spent.cpu_s) -> float:
    """Return microseconds of CPU for each message."""
    number, spent = figures[name]
    return of(spent) / number * 1e6


def wall_s(figures: Figures, name: str) -> float:
    """Return seconds by the clock for a million messages; not a number if it is not known."""
    number, spent = figures[name]
    return spent.wall_s / number * 1e6 if spent.wall_s > 0 else nan


def rate(figures: Figures, name: str) -> float:
    """Return messages a second by the clock; not a number where what is subtracted took as long as the rest."""
    number, spent = figures[name]
    return number / spent.wall_s if spent.wall_s > 0 else nan


def ratio(value: float, of: float) -> float:
    """Return the ratio of two costs or rates; not a number where one of them is not known."""
    return value / of if value > 0 and of > 0 else nan


def client_us(figures: Figures, name: str) -> float:
    """Return microseconds of CPU for each message, without the server's."""
    return us(figures, name, lambda spent: spent.java_s + spent.python_s)


def shown(value: float) -> str:
    """Return a figure as text: large ones in whole numbers."""
    return UNKNOWN if isnan(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def of_figures(compute: Callable[[Figures], float]) -> Callable[[Results, Kind], float]:
    """Return what computes a value of a server's figures; not a number where they are not there."""

    def value(results: Results, kind: Kind) -> float:
        try:
            return compute(results.figures[kind])
        except KeyError:
            return nan

    return value


def seconds(name: str) -> Callable[[Results, Kind], float]:
    """Return what finds how long a command took."""

    def value(results: Results, kind: Kind) -> float:
        found = results.commands.get(kind, {}).get(name)
        return found.wall_s if found else nan

    return value


def _import_ratio(results: Results, kind: Kind) -> float:
    commands = results.commands.get(kind, {})
    return commands[IMPORT_LINES].cpu_s / commands[IMPORT].cpu_s if IMPORT_LINES in commands else nan


def _backup_share(results: Results, kind: Kind) -> float:
    """A backup's cost, of what the same messages cost that are read from nats-server.

    Every server's backups are read from disk. natsctl's server sends a stream as it lies there, which costs about as
    much as a backup; by a consumer, as from nats-server, a server takes part for each message.
    """
    read = of_figures(lambda of: us(of, READ))(results, NATS_SERVER)
    return ratio(of_figures(lambda of: us(of, BACKUP))(results, kind), read)


TARGETS: Final = (
    Target("read: us of CPU a message, all processes", of_figures(lambda of: us(of, READ)), most=3),
    Target(
        "read: the Arrow floor / its cost but for the server",
        of_figures(lambda of: ratio(client_us(of, ARROW_FLOOR), client_us(of, READ))),
        least=0.5,
    ),
    Target(
        "read: msgs/s / those of rows in memory", of_figures(lambda of: ratio(rate(of, READ), rate(of, FLOOR))), 0.7
    ),
    Target("reader: msgs/s / nats-py's fetch", of_figures(lambda of: ratio(rate(of, READER), rate(of, NATS_PY))), 10),
    Target("backup: CPU / a read from nats-server", _backup_share, most=0.67),
    Target("write: msgs/s", of_figures(lambda of: rate(of, WRITE)), least=200_000),
    Target(
        "count and group: s / Arrow in memory",
        of_figures(lambda of: ratio(wall_s(of, GROUP), wall_s(of, MEMORY_GROUP))),
        most=1.3,
    ),
    Target(
        "to Parquet: s / Arrow in memory",
        of_figures(lambda of: ratio(wall_s(of, FILE), wall_s(of, MEMORY_FILE))),
        most=1.3,
    ),
    Target(
        "export to Parquet: CPU / Spark's write of a stream",
        of_figures(lambda of: ratio(us(of, EXPORT), us(of, FILE))),
        most=1.0,
    ),
    Target("import of JSON lines: CPU / of Parquet", _import_ratio, most=1.5),
    Target("natsctl sql without Spark, s", seconds(COUNTED), most=0.5),
    Target("natsctl sql after spark warm, s", seconds(COLD), most=8),
    Target(f"import of {IMPORTED:,} rows of Parquet, s", seconds(IMPORT), most=10),
    Target("spark warm, s", seconds(WARM), most=60),
)
COMPARED: Final[tuple[tuple[str, Callable[[Figures], float]], ...]] = (
    ("count and group: CPU / Arrow in memory", lambda of: ratio(us(of, GROUP), us(of, MEMORY_GROUP))),
    ("count and group: CPU but the server's / the same", lambda of: ratio(client_us(of, GROUP), us(of, MEMORY_GROUP))),
    ("to Parquet: CPU / Arrow in memory", lambda of: ratio(us(of, FILE), us(of, MEMORY_FILE))),
    ("export by Spark to one file: CPU / its write", lambda of: ratio(us(of, SPARK_EXPORT), us(of, FILE))),
    ("count and group: nats-py's CPU / Spark's", lambda of: ratio(us(of, NATS_PY), us(of, GROUP))),
    ("to Parquet: nats-py's CPU / Spark's", lambda of: ratio(us(of, NATS_PY_FILE), us(of, FILE))),
    ("count and group: CPU / DuckDB's on the export", lambda of: ratio(us(of, GROUP), us(of, DUCKDB_GROUP))),
    ("to Parquet: CPU / DuckDB's copy of the export", lambda of: ratio(us(of, FILE), us(of, DUCKDB_FILE))),
    ("write: msgs/s / nats-py's, 500 in flight", lambda of: ratio(rate(of, WRITE), rate(of, NATS_PY_WRITE))),
    ("write: nats-py's CPU / Spark's", lambda of: ratio(us(of, NATS_PY_WRITE), us(of, WRITE))),
    ("write: us of CPU a message, all processes", lambda of: us(of, WRITE)),
    ("write: msgs/s / a bare socket's, ids and acks", lambda of: ratio(rate(of, WRITE), rate(of, PUBLISHED))),
    ("writer: CPU / a bare socket's", lambda of: ratio(us(of, WRITER), us(of, PUBLISHED))),
    ("reader: CPU / a socket without a parser", lambda of: ratio(us(of, READER), us(of, RAW))),
    ("nats-py's CPU / the reader's, not the server's", lambda of: ratio(client_us(of, NATS_PY), client_us(of, READER))),
)
"""Figures that say why, of which nothing is promised."""


def summary(results: Results, kinds: Mapping[Kind, str] = SHOWN) -> list[str]:
    """Return the lines of the table that closes a run: each figure on both servers, and their ratio."""
    heads = "".join(f"{name:>18}" for name in kinds.values())
    lines = [f"{'targets of Spark':52} {'limit':>10}{heads}  natsctl / nats-server"]
    for target in TARGETS:
        values = [target.value(results, kind) for kind in kinds]
        cells = "".join(f"{target.verdict(value):>18}" for value in values)
        lines.append(f"  {target.name:50} {target.limit:>10}{cells}  {shown(ratio(*values)):>12}")
    for name, compute in COMPARED:
        values = [of_figures(compute)(results, kind) for kind in kinds]
        cells = "".join(f"{shown(value):>18}" for value in values)
        lines.append(f"  {name:50} {'':>10}{cells}  {shown(ratio(*values)):>12}")
    return lines
