"""What natsctl tells Spark before what the user says with --conf, and the options of its Java."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from natsctl.spark import SOURCE_BY_NAME
from natsctl.spark.session.options import LOCAL, SparkOptions

HEAP_LEAST_BYTES = 1 << 30
HEAP_MOST_BYTES = 4 << 30
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For work of seconds: half the time to the first answer; whole minutes of work want the JIT that these leave out."""

SECRET_OPTIONS = "(?i)url|servers|user|password|token|nkey|credentials|content"
"""The options of data sources that Spark leaves out of plans, failures and its pages: what logins may be in."""

_LOOPBACK = ("127.", "localhost", "[::1]")


def session_settings(options: SparkOptions) -> dict[str, str]:
    """Settings of any session: what has been said by --conf wins."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.redaction.options.regex": SECRET_OPTIONS,
        **{key: value for key, value in options.conf if key.startswith("spark.sql.")},
    }


def application_settings(options: SparkOptions) -> dict[str, str]:
    """Settings of an application that this command starts: all of it, on this machine or as a cluster's driver."""
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
    """How many tasks run at once on local, local[2], local[*] or local[2,3]."""
    text = master.removeprefix("local").strip("[]").partition(",")[0].strip()
    if text == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(text) if text.isdigit() else 1


def memory_option(settings: Mapping[str, str]) -> str:
    """The heap: spark.driver.memory, else a quarter of the machine between HEAP_LEAST_BYTES and HEAP_MOST_BYTES."""
    said = settings.get("spark.driver.memory")
    if said:
        return f"-Xmx{said if said[-1:].isalpha() else f'{said}m'}".removesuffix("b")
    return f"-Xmx{min(max(machine_memory_bytes() // 4, HEAP_LEAST_BYTES), HEAP_MOST_BYTES) >> 20}m"


def machine_memory_bytes() -> int:
    """The memory of the machine, or what its container may use; 0 where that is not told."""
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
    """The environment of Spark's Java, and of the Python processes that it starts here.

    On this machine those are this Python, with this natsctl. On a cluster the name has to be right on every machine, so
    it is what PYSPARK_PYTHON says, or python3, which here is found beside this Python first.
    """
    found = {**environment, "SPARK_HOME": str(home)}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        found.pop(name, None)
    found["PYSPARK_PYTHON"] = python_program(options, environment)
    found["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.is_local:
        found[SOURCE_BY_NAME] = "1"
    else:
        found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    return found


def python_program(options: SparkOptions, environment: Mapping[str, str]) -> str:
    """The program that tasks run."""
    if options.is_local:
        return sys.executable
    return options.settings.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON") or "python3"


def _is_here(master: str) -> bool:
    """Whether every master that is named is on this machine."""
    hosts = master.removeprefix("spark://").split(",")
    return master.startswith("spark://") and all(host.startswith(_LOOPBACK) for host in hosts)
