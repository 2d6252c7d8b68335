"""Durations of commands: `natsctl sql` beside the same query given to `spark-submit`, and `natsctl stream import`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

from bench.spark.direct import NATSCTL, make
from bench.spark.raw import publish
from bench.spark.rows import lines

QUERY: Final = "select count(*) as n, sum(length(value)) as total, max(seq) as last from ORDERS where seq <= 1000"
COUNT: Final = "select subject, count(*) as n from ORDERS group by subject"
WITHIN_S: Final = 600.0
IMPORT, IMPORT_LINES, WARM = "natsctl stream import", "natsctl stream import, JSON lines", "natsctl spark warm"
COLD, COUNTED = "natsctl sql, cold", "natsctl sql, without Spark"
IMPORTED: Final = 337_000
"""The messages of the import for which seconds are promised."""
STOCK: Final = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
spark.read.format("jetstream").option("servers", {url!r}).load("ORDERS").createOrReplaceTempView("ORDERS")
spark.sql({query!r}).show()
spark.stop()
"""


class Run(NamedTuple):
    """One run of a command: seconds of the clock, and of CPU over all of its processes."""

    wall_s: float
    cpu_s: float


def run(*words: str, folder: Path) -> Run:
    """Run a command; raises RuntimeError where it fails."""
    environment = {**os.environ, "HOME": str(folder), "PYSPARK_PYTHON": sys.executable, "NO_COLOR": "1"}
    environment |= {
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
    }  # as where installed
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=WITHIN_S)
    wall_s, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return Run(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure_commands(url: str, folder: Path, times: int) -> dict[str, Run]:
    """Return runs by name: natsctl's and stock Spark's in turn, the best of each by CPU; then in a warm session."""
    script = folder / "stock.py"
    script.write_text(STOCK.format(url=url, query=QUERY))
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    ours = (NATSCTL, "-s", url, "sql", QUERY, "-j")
    warmed = run(NATSCTL, "spark", "warm", folder=folder)
    stock, cold = [], []
    run(*ours, folder=folder)
    for _ in range(times):
        stock.append(run(submit, str(script), folder=folder))
        cold.append(run(*ours, folder=folder))
    found = {
        WARM: warmed,
        "spark-submit": min(stock, key=lambda one: one.cpu_s),
        COLD: min(cold, key=lambda one: one.cpu_s),
        COUNTED: min(run(NATSCTL, "-s", url, "sql", COUNT, "-j", folder=folder) for _ in range(times + 2)),
    }
    run(NATSCTL, "spark", "start", folder=folder)
    try:
        warm = [run(*ours, folder=folder) for _ in range(times + 2)]
    finally:
        run(NATSCTL, "spark", "stop", folder=folder)
    found["natsctl sql, warm session"] = min(warm)
    return found


def measure_import(url: str, folder: Path) -> dict[str, Run]:
    """Return the runs of an export to Parquet and of its import, of as many messages as seconds are promised for."""
    make(url, "FILES")
    publish(url, lines("FILES", IMPORTED))
    file = str(folder / "files.parquet")
    ours = (NATSCTL, "-s", url, "stream")
    exported = run(*ours, "export", "FILES", file, "-f", folder=folder)
    run(*ours, "purge", "FILES", "-f", folder=folder)
    found = {"natsctl stream export": exported, IMPORT: run(*ours, "import", "FILES", file, folder=folder)}
    lines_file = str(folder / "files.jsonl")
    run(*ours, "export", "FILES", lines_file, "-f", folder=folder)
    run(*ours, "purge", "FILES", "-f", folder=folder)
    make(url, "LINES")
    taken = ("edit", "FILES", "--subjects", "NONE", "-f"), ("edit", "LINES", "--subjects", "FILES.>", "-f")
    for words in taken:  # another stream: FILES knows the ids
        run(*ours, *words, folder=folder)
    return found | {IMPORT_LINES: run(*ours, "import", "LINES", lines_file, folder=folder)}
