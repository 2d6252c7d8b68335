"""The cost of streams on Spark, and its bounds: `python -m bench.spark`.

On natsctl's server and, where it is on PATH, on nats-server: a stream of orders of 128 bytes, published, read and
backed up without Spark, then read and written through it. CPU is the comparison, by component; rates are by the clock
and say little on a busy machine. Each ratio is of two figures of one run.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Final

from bench.spark.commands import COLD, WARM, Run, measure_commands, measure_import
from bench.spark.direct import Figures, measure_without_spark, temporary
from bench.spark.targets import SHOWN, Results, rate, shown, summary, us
from bench.spark.through import FEW, measure_through_spark
from natsctl.spark.session import SparkOptions
from natsctl.spark.session.sessions import own_session
from natsctl.spark.session.spark_options import MANY_MESSAGES
from natsctl.testing.process import Kind, ServerProcess, reference_binary

SPARK: Final = SparkOptions(master="local[2]", messages=MANY_MESSAGES)


def report(kind: Kind, figures: Figures) -> None:
    """Print a server's figures."""
    heads = " ".join(f"{each:>8}" for each in ("server", "Java", "Python", "all"))
    print(f"\n{f'on {SHOWN[kind]}':40} {'msgs/s':>10} {heads}  us of CPU a message")
    for name in (each for each in figures if not each.endswith(FEW.format(""))):
        parts = (us(figures, name, of) for of in (lambda s: s.server_s, lambda s: s.java_s, lambda s: s.python_s))
        cells = " ".join(f"{value:8.2f}" for value in (*parts, us(figures, name)))
        print(f"  {name:38} {shown(rate(figures, name)):>10} {cells}")
        if FEW.format(name) in figures:
            print(f"  {_subtracted(figures, name)}", flush=True)


def _subtracted(figures: Figures, name: str) -> str:
    """Return the cost of a query on few messages: that much is not in the line above, which is of the others."""
    number, spent = figures[FEW.format(name)]
    seconds = f"server {spent.server_s:.2f}, Java {spent.java_s:.2f}, Python {spent.python_s:.2f} s of CPU"
    return f"  subtracted: a query on {number:,}, {seconds}, {spent.wall_s:.2f} s by the clock"


def report_commands(kind: Kind, found: dict[str, Run]) -> None:
    """Print how long commands take."""
    print(f"\ncommands on {SHOWN[kind]}")
    for name, one in found.items():
        print(f"  {name:38} {one.wall_s:8.2f} s   {one.cpu_s:8.2f} s of CPU")
    if WARM in found:
        ratio = found[COLD].cpu_s / found["spark-submit"].cpu_s
        warm_s = found["natsctl sql, warm session"].wall_s
        print(f"  cold / stock, CPU: {ratio:.2f} (target 0.5: {'met' if ratio <= 0.5 else 'MISSED'})")
        print(f"  warm: {warm_s:.2f} s (target 2 s: {'met' if warm_s <= 2 else 'MISSED'})", flush=True)


def main() -> None:
    """Measure what was asked for and print it."""
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--servers", default="natsctl,reference")
    parser.add_argument(
        "--parts",
        default="direct,spark,commands,import",
        help="of direct, spark (needs direct), commands (needs direct), import",
    )
    parser.add_argument("--times", type=int, default=2, help="runs of each command")
    options = parser.parse_args()
    kinds: list[Kind] = ["natsctl"] if "natsctl" in options.servers else []
    if "reference" in options.servers and reference_binary():
        kinds.append("reference")
    parts, results = set(options.parts.split(",")), Results()
    with temporary() as home:
        for kind in kinds:
            _measure(kind, parts, options, results, Path(home))
    print("", *summary(results), sep="\n")
    print(f"  in {time.monotonic() - begun:.0f} s", flush=True)


def _measure(kind: Kind, parts: set[str], options: argparse.Namespace, results: Results, home: Path) -> None:
    """Measure what is asked for on one server; `home` is the home of commands, the same for all servers."""
    with temporary() as name, ServerProcess(Path(name) / "server", kind) as server:
        if "direct" in parts:
            figures = measure_without_spark(server, options.messages, Path(name))
            if "spark" in parts:
                with own_session(SPARK) as spark:
                    figures |= measure_through_spark(spark, server, options.messages, Path(name))
            results.figures[kind] = figures
            report(kind, figures)
        found = results.commands.setdefault(kind, {})
        if {"direct", "commands"} <= parts and not any(WARM in each for each in results.commands.values()):
            found |= measure_commands(server.url, home, options.times)
        if "import" in parts:
            found |= measure_import(server.url, home)
        if found:
            report_commands(kind, found)


if __name__ == "__main__":
    main()
