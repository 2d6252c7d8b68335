"""Cost of desired state (`python -m bench.desired`) on natsctl's server and, where it is on PATH, on nats-server.

500 streams with 4 consumers each, on files: applied by natsctl in one process; by the nats tool, one process per
object, one after the other as a script does; planned and applied again with nothing to do; exported; destroyed. The
reference tool makes `--sample` streams with their consumers unless it is told to make `--all`, and its time is scaled.
Next to the time is the CPU of the command, without the server's. With `--streams 1400` there are 7,000 assets, with a
target: 2 s for a plan on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.listing import Cost
from bench.measure import Target, shown
from natsctl.testing.process import Kind, ServerProcess, reference_binary

CONSUMERS: Final = 4
WITHIN_S: Final = 900.0
NATSCTL: Final = str(Path(sys.executable).with_name("natsctl"))
DRIFT: Final = 10
PLAN: Final = "plan, nothing to do"
PLAN_ASSETS: Final = 7000
PLAN_TARGET: Final = Target(2, ratio=False)
"""Seconds for so many assets."""


def document(streams: int) -> dict[str, Any]:
    """Return the streams and consumers as a document."""

    def consumer(stream: str, number: int) -> dict[str, Any]:
        name = f"C{number}"
        return {"durable_name": name, "filter_subject": f"{stream}.{number}", "ack_policy": "explicit"}

    return {
        "streams": [
            {
                "name": name,
                "subjects": [f"{name}.>"],
                "max_age": "1h",
                "consumers": [consumer(name, one) for one in range(CONSUMERS)],
            }
            for name in (f"S{number}" for number in range(streams))
        ]
    }


def timed(url: str, folder: Path, *words: str, code: int = 0) -> Cost:
    """Return the cost of one process; raise RuntimeError if its exit status is not `code`."""
    environment = {**os.environ, "NATS_URL": url, "HOME": str(folder), "NO_COLOR": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=WITHIN_S)
    seconds = time.perf_counter() - begun
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def one_by_one(url: str, folder: Path, streams: int) -> list[Cost]:
    """Return the costs of the nats tool for the first `streams`, one process per object."""
    nats = shutil.which("nats") or ""
    costs: list[Cost] = []
    for stream in document(streams)["streams"]:
        consumers = stream.pop("consumers")
        name = stream["name"]
        (folder / "one.json").write_text(json.dumps({**stream, "max_age": 3_600_000_000_000, "num_replicas": 1}))
        costs.append(timed(url, folder, nats, "stream", "add", name, "--config", "one.json"))
        for one in consumers:
            (folder / "one.json").write_text(json.dumps({**one, "deliver_policy": "all", "replay_policy": "instant"}))
            words = ("consumer", "add", name, one["durable_name"], "--config", "one.json")
            costs.append(timed(url, folder, nats, *words))
    return costs


def measure(url: str, folder: Path, streams: int, sample: int) -> dict[str, Cost]:
    """Return the cost of each step, by name."""
    path = folder / "desired.json"
    path.write_text(json.dumps(document(streams)))
    words = ("-f", str(path))
    figures: dict[str, Cost] = {}
    if sample and shutil.which("nats"):
        totals = map(sum, zip(*one_by_one(url, folder, sample), strict=True))
        figures["nats, a process per object"] = Cost(*(total * streams / sample for total in totals))
        for number in range(sample):  # `destroy` keeps what natsctl did not create
            timed(url, folder, NATSCTL, "stream", "rm", f"S{number}", "--force")
    figures["plan, all to do"] = timed(url, folder, NATSCTL, "plan", *words, code=DRIFT)
    figures["apply"] = timed(url, folder, NATSCTL, "apply", *words)
    figures[PLAN] = min(timed(url, folder, NATSCTL, "plan", *words) for _ in range(3))
    figures["apply, nothing to do"] = min(timed(url, folder, NATSCTL, "apply", *words) for _ in range(3))
    figures["export"] = min(timed(url, folder, NATSCTL, "export", "-o", "out.yaml", "--force") for _ in range(3))
    removals = ("--max-removals", str(streams * (1 + CONSUMERS)))
    figures["destroy"] = timed(url, folder, NATSCTL, "destroy", *words, "--yes", *removals)
    return figures


def report(kind: Kind, figures: dict[str, Cost], streams: int) -> None:
    """Print one server's figures with the two promised ratios."""
    print(f"\n{kind}: {streams:,} streams, {streams * CONSUMERS:,} consumers, on files", flush=True)
    for name, (wall_s, cpu_s) in figures.items():
        line = f"  {name:30} {shown(name, wall_s):>10}   CPU {shown(name, cpu_s):>10}"
        judged = name == PLAN and streams * (1 + CONSUMERS) == PLAN_ASSETS
        print(line + (PLAN_TARGET.judged(name, wall_s, None) if judged else ""))
    told: list[tuple[str, str, str, Callable[[float], bool]]] = [
        ("nats, a process per object", "apply", "at least 10", lambda ratio: ratio >= 10),
        ("apply", PLAN, "at least 10", lambda ratio: ratio >= 10),
    ]
    for slow, fast, target, is_met in told:
        if slow in figures:
            ratio = figures[slow].wall_s / figures[fast].wall_s
            print(f"  {slow} / {fast}: {ratio:.1f} (target {target}: {'met' if is_met(ratio) else 'MISSED'})")


def main() -> None:
    """Measure on each kind of server and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--sample", type=int, default=20, help="streams that the reference tool makes, 0 for none")
    parser.add_argument("--all", action="store_true", help="have the reference tool make all of them")
    parser.add_argument("--servers", default="natsctl,reference")
    options = parser.parse_args()
    kinds: list[Kind] = ["natsctl"] if "natsctl" in options.servers else []
    if "reference" in options.servers and reference_binary():
        kinds.append("reference")
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="natsctl-desired-") as name:
            folder = Path(name)
            with ServerProcess(folder / "server", kind) as server:
                sample = options.streams if options.all else min(options.sample, options.streams)
                report(kind, measure(server.url, folder, options.streams, sample), options.streams)


if __name__ == "__main__":
    main()
