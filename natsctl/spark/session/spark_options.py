"""The options of a session: those of the command line, and the settings for Spark and its Java that follow."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from natsctl.api.errors import UsageError
from natsctl.spark import SOURCE_BY_NAME

LOCAL = "local[*]"
"""All cores of this machine, within one process."""

MANY_MESSAGES = 3_000_000
"""From so many on it pays to have Java compile once more what runs for each: 5 s of CPU, and 1.7 us less for each."""

_LOCAL_MASTER = re.compile(r"local(\[[^\]]*\])?")
_MASTERS = ("spark://", "yarn", "k8s://")


@dataclass(frozen=True)
class SparkOptions:
    """The place where Spark runs, and its settings; an empty `master` is this machine, or the server in the background.

    `remote` is the URL of a Spark Connect server (sc://host:port), `conf` what spark-submit takes as --conf. `messages`
    is their expected number, if known: a new Java is sized for it.
    """

    master: str = ""
    remote: str = ""
    java: str = ""
    conf: tuple[tuple[str, str], ...] = ()
    messages: int = 0

    def check(self) -> None:
        """Raise UsageError if values are invalid or contradict each other."""
        if self.master and self.remote:
            raise UsageError(
                "--master and --remote exclude each other", hint="sc:// goes with --remote, all else with --master"
            )
        if self.remote and not self.remote.startswith("sc://"):
            raise UsageError(
                f"--remote {self.remote}: expected sc://host:port", hint="spark:// and yarn go with --master"
            )
        if self.master.startswith("sc://"):
            raise UsageError(
                f"--master {self.master} is a Spark Connect server", hint=f"give it as --remote {self.master}"
            )
        if self.master and not (self.is_local or self.master.startswith(_MASTERS)):
            raise UsageError(
                f"--master {self.master} is no master of Spark",
                hint="local[N], spark://host:7077, yarn or k8s://https://host:port",
            )

    @property
    def is_local(self) -> bool:
        """Return whether Spark runs in one process on this machine."""
        return not self.remote and _LOCAL_MASTER.fullmatch(self.master or LOCAL) is not None

    @property
    def settings(self) -> dict[str, str]:
        """`conf` by key, the last of several."""
        return dict(self.conf)


def parse_conf(words: list[str] | None) -> tuple[tuple[str, str], ...]:
    """Parse arguments `--conf KEY=VALUE`. Raises UsageError."""
    pairs = []
    for text in words or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--conf {text}: expected KEY=VALUE", hint="such as --conf spark.driver.memory=4g")
        pairs.append((key.strip(), value))
    return tuple(pairs)


MIN_HEAP_BYTES = 1 << 30
MAX_HEAP_BYTES = 4 << 30
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For work of seconds: half the time to the first answer; whole minutes of work want the JIT that these leave out."""

SECRET_OPTIONS = "(?i)url|servers|user|password|token|nkey|credentials|content"
"""The options of data sources that Spark leaves out of plans, failures and its pages, as they may hold logins."""

BATCH_ROWS = 2000
"""Rows that Spark hands to Python at once, 10,000 by default: half a window of publishing.

For each row Spark (4.3) counts the bytes of its batch, and to do so goes through all rows of the batch since the last
list that was not null. Rows without headers cost 27 us each with batches of 10,000, and 5 us with these.
"""

_LOOPBACK = ("127.", "localhost", "[::1]")


def session_settings(options: SparkOptions) -> dict[str, str]:
    """Return the settings of any session; --conf wins."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.redaction.options.regex": SECRET_OPTIONS,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
        **{key: value for key, value in options.conf if key.startswith("spark.sql.")},
    }


def application_settings(options: SparkOptions) -> dict[str, str]:
    """Return the settings of an application that this command starts, on this machine or as a cluster's driver."""
    master = options.master or LOCAL
    settings = {
        "spark.master": master,
        "spark.app.name": "natsctl",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **session_settings(options),
    }
    if options.is_local:
        parallel = str(cores(master))
        settings["spark.sql.shuffle.partitions"] = parallel
        settings["spark.default.parallelism"] = parallel
    if options.is_local or _is_here(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    return {**settings, **options.settings}


def cores(master: str) -> int:
    """Return the number of tasks that run at once on local, local[2], local[*] or local[2,3]."""
    text = master.removeprefix("local").strip("[]").partition(",")[0].strip()
    if text == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(text) if text.isdigit() else 1


def memory_option(settings: Mapping[str, str]) -> str:
    """Return the option of the heap: spark.driver.memory, else a quarter of the machine within the limits above."""
    said = settings.get("spark.driver.memory")
    if said:
        return f"-Xmx{said if said[-1:].isalpha() else f'{said}m'}".removesuffix("b")
    return f"-Xmx{min(max(machine_memory_bytes() // 4, MIN_HEAP_BYTES), MAX_HEAP_BYTES) >> 20}m"


def machine_memory_bytes() -> int:
    """Return the memory of the machine or its container's limit; 0 if unknown."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return whole
    return min(whole, int(limit)) if limit.isdigit() else whole


def process_environment(options: SparkOptions, home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Spark's Java, and of the Python processes that it starts here.

    On this machine those are this Python, with this natsctl. On a cluster the name has to be right on every machine, so
    it is PYSPARK_PYTHON, or python3, found next to this Python first. PYSPARK_DRIVER_PYTHON is the same: Spark looks
    there for formats, and has the tasks of a format that it finds run in a Python of that name.
    """
    found = {**environment, "SPARK_HOME": str(home)}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        found.pop(name, None)
    found["PYSPARK_PYTHON"] = found["PYSPARK_DRIVER_PYTHON"] = python_program(options, environment)
    if options.is_local:
        found[SOURCE_BY_NAME] = "1"
    else:
        found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    return found


def python_program(options: SparkOptions, environment: Mapping[str, str]) -> str:
    if options.is_local:
        return sys.executable
    return options.settings.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON") or "python3"


def _is_here(master: str) -> bool:
    hosts = master.removeprefix("spark://").split(",")
    return master.startswith("spark://") and all(host.startswith(_LOOPBACK) for host in hosts)
