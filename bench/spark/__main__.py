"""What streams on Spark cost, and what bounds it: `python -m bench.spark`.

On natsctl's server and, where it is on PATH, on nats-server: a stream of orders of 128 bytes, published, read and
backed up without Spark, then read and written through it. CPU is the comparison, by component; rates are by the clock
and say little on a busy machine. Each ratio is of two figures of one run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import isnan, nan
from pathlib import Path
from typing import Final, NamedTuple

from bench.spark.commands import Run, measure_commands
from bench.spark.direct import Figures, measure_without_spark, temporary
from bench.spark.json_kinds import report_json
from bench.spark.spent import Spent
from bench.spark.through import FEW, measure_through_spark
from natsctl.spark.session import SparkOptions
from natsctl.spark.session.sessions import own_session
from natsctl.spark.session.spark_options import MANY_MESSAGES
from natsctl.testing.process import Kind, ServerProcess, reference_binary

SPARK: Final = SparkOptions(master="local[2]", messages=MANY_MESSAGES)
UNKNOWN: Final = "not known"
"""Of a difference of two runs that other work on the machine has swallowed."""


class Target(NamedTuple):
    """What is computed of the figures, and what was promised of it, if anything."""

    name: str
    value: Callable[[Figures], float]
    least: float | None = None
    most: float | None = None

    def shown(self, figures: Figures) -> str:
        """The value, and whether it is as promised."""
        value = self.value(figures)
        if isnan(value):
            return f"{UNKNOWN:>12}"
        is_met = (self.least is None or value >= self.least) and (self.most is None or value <= self.most)
        wanted = f">= {self.least:,}" if self.least is not None else f"<= {self.most}"
        promised = self.least is not None or self.most is not None
        return f"{value:12,.2f}" + (f" (target {wanted}: {'met' if is_met else 'MISSED'})" if promised else "")


def us(figures: Figures, name: str, of: Callable[[Spent], float] = lambda spent: spent.cpu_s) -> float:
    """Microseconds of CPU for each message."""
    number, spent = figures[name]
    return of(spent) / number * 1e6


def rate(figures: Figures, name: str) -> float:
    """Messages a second by the clock; not a number where what was taken off took as long as the rest."""
    number, spent = figures[name]
    return number / spent.wall_s if spent.wall_s > 0 else nan


def ratio(value: float, of: float) -> float:
    """The ratio of two costs or rates; not a number where one of them is not known."""
    return value / of if value > 0 and of > 0 else nan


def client_us(figures: Figures, name: str) -> float:
    """The same without the server's."""
    return us(figures, name, lambda spent: spent.java_s + spent.python_s)


FLOOR, ARROW_FLOOR, READ, BACKUP, WRITE = (
    "Spark's floor, rows in memory",
    "Spark's floor, Arrow in memory",
    "Spark reads a stream",
    "Spark reads a backup",
    "Spark writes a stream",
)
READER, RAW, NATS_PY = "read, the source's reader", "read, raw", "read, nats-py fetch"
WRITER, PUBLISHED = "publish, the source's writer", "publish, raw, ids and acks"
TARGETS: Final = (
    Target("read of Spark's floor, by the clock", lambda of: ratio(rate(of, READ), rate(of, FLOOR)), least=0.7),
    Target("the same, CPU but for the server", lambda of: ratio(client_us(of, FLOOR), client_us(of, READ))),
    Target(
        "the same, Arrow's batches in place of rows",
        lambda of: ratio(client_us(of, ARROW_FLOOR), client_us(of, READ)),
        least=0.5,
    ),
    Target("read, us of CPU a message, everything", lambda of: us(of, READ), most=3),
    Target("the reader, times a socket nobody parses, CPU", lambda of: ratio(us(of, READER), us(of, RAW))),
    Target("the reader, times nats-py's fetch", lambda of: ratio(rate(of, READER), rate(of, NATS_PY)), least=10),
    Target("the same by the client's CPU", lambda of: ratio(client_us(of, NATS_PY), client_us(of, READER)), least=10),
    Target("a backup of a stream, CPU", lambda of: ratio(us(of, BACKUP), us(of, READ)), most=0.67),
    Target("write, messages a second", lambda of: rate(of, WRITE), least=200_000),
    Target("the same, of what a bare socket reaches", lambda of: rate(of, WRITE) / rate(of, PUBLISHED)),
    Target("the writer, times a bare socket, CPU", lambda of: ratio(us(of, WRITER), us(of, PUBLISHED))),
)


def report(kind: Kind, figures: Figures) -> None:
    """Print a server's table and its targets."""
    heads = " ".join(f"{each:>8}" for each in ("server", "Java", "Python", "all"))
    print(f"\n{f'on the {kind} server':40} {'msgs/s':>10} {heads}  us of CPU a message")
    for name in (each for each in figures if not each.endswith(FEW.format(""))):
        parts = (us(figures, name, of) for of in (lambda s: s.server_s, lambda s: s.java_s, lambda s: s.python_s))
        cells = " ".join(f"{value:8.2f}" for value in (*parts, us(figures, name)))
        print(f"  {name:38} {_rate(figures, name):>10} {cells}")
        if FEW.format(name) in figures:
            print(f"  {_taken_off(figures, name)}")
    for target in TARGETS if READ in figures else ():
        print(f"  {target.name:48} {target.shown(figures)}", flush=True)


def _rate(figures: Figures, name: str) -> str:
    found = rate(figures, name)
    return UNKNOWN if isnan(found) else f"{found:,.0f}"


def _taken_off(figures: Figures, name: str) -> str:
    """What a query on few messages cost: that much is not in the line above, which is of the others."""
    number, spent = figures[FEW.format(name)]
    seconds = f"server {spent.server_s:.2f}, Java {spent.java_s:.2f}, Python {spent.python_s:.2f} s of CPU"
    return f"  taken off: a query on {number:,}, {seconds}, {spent.wall_s:.2f} s by the clock"


def report_commands(found: dict[str, Run]) -> None:
    """Print how long commands take."""
    print("\na query on 1,000 messages")
    for name, one in found.items():
        print(f"  {name:38} {one.wall_s:8.2f} s   {one.cpu_s:8.2f} s of CPU")
    ratio = found["natsctl sql, cold"].cpu_s / found["spark-submit"].cpu_s
    warm_s = found["natsctl sql, warm session"].wall_s
    print(f"  cold / stock, CPU: {ratio:.2f} (target 0.5: {'met' if ratio <= 0.5 else 'MISSED'})")
    print(f"  warm: {warm_s:.2f} s (target 2 s: {'met' if warm_s <= 2 else 'MISSED'})", flush=True)


def main() -> None:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--servers", default="natsctl,reference")
    parser.add_argument(
        "--parts", default="direct,spark,commands,json", help="of direct, spark (needs direct), commands, json"
    )
    parser.add_argument("--times", type=int, default=2, help="runs of each command")
    options = parser.parse_args()
    kinds: list[Kind] = ["natsctl"] if "natsctl" in options.servers else []
    if "reference" in options.servers and reference_binary():
        kinds.append("reference")
    if "json" in options.parts:
        with own_session(SPARK) as spark:
            report_json(spark)
    for kind in kinds if "direct" in options.parts else ():
        with temporary() as name, ServerProcess(Path(name) / "server", kind) as server:
            figures = measure_without_spark(server, options.messages, Path(name))
            if "spark" in options.parts:
                with own_session(SPARK) as spark:
                    figures |= measure_through_spark(spark, server, options.messages, Path(name))
            report(kind, figures)
            if "commands" in options.parts and kind == kinds[0]:
                report_commands(measure_commands(server.url, Path(name), options.times))


if __name__ == "__main__":
    main()
