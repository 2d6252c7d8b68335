"""What Spark needs on this machine: what was found of it, and what to do where something is missing."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from natsctl.api.errors import NatsctlError
from natsctl.api.model import Model, WireEnum
from natsctl.api.units import format_size
from natsctl.spark.session.background import running_server
from natsctl.spark.session.caches import cache_folder
from natsctl.spark.session.class_data import archive_path
from natsctl.spark.session.failures import INSTALL_PIPELINES, INSTALL_SPARK, ExtraMissing, JavaUnsuitable
from natsctl.spark.session.java import OLDEST, Java, choose_java, find_javas
from natsctl.spark.session.local_settings import machine_memory_bytes, memory_option
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.spark_home import installed_spark, quick_home

NEEDED = (("pyspark", (4, 2)), ("pyarrow", (18,)))
"""Packages, and the first version of each that will do."""
FOR_SERVERS = (("pandas", (2, 2)), ("grpcio", ()), ("grpcio-status", ()), ("protobuf", ()), ("zstandard", ()))
"""What --remote, the server in background and pipelines need beside them."""
LEAST_MEMORY_BYTES = 2 << 30
LEAST_DISK_BYTES = 1 << 30


class State(WireEnum):
    """How a finding is to be taken."""

    GOOD = "good"
    WARNING = "warning"
    WRONG = "wrong"


class Finding(Model, kw_only=True):
    """One thing that was looked at; `do` says what to do about it."""

    name: str
    state: State
    found: str
    do: str = ""


class Checkup(Model, kw_only=True):
    """Everything that was looked at; `ready` says that Spark will start."""

    ready: bool
    findings: list[Finding]


def check_up(options: SparkOptions, environment: Mapping[str, str] | None = None, *, start: bool = False) -> Checkup:
    """Look at everything, with `start` at a real start too."""
    environment = os.environ if environment is None else environment
    findings = [
        _python(),
        *(_package(name, least, needed=True) for name, least in NEEDED),
        *(_package(name, least, needed=False) for name, least in FOR_SERVERS),
        *_java(options.java, environment),
        *_spark(options, environment),
        _memory(options),
        _disk(environment),
        _server(),
    ]
    ready = all(one.state is not State.WRONG for one in findings)
    if start and ready:
        findings.append(_start(options))
        ready = findings[-1].state is State.GOOD
    return Checkup(ready=ready, findings=findings)


def _finding(name: str, found: str, state: State = State.GOOD, do: str = "") -> Finding:
    return Finding(name=name, state=state, found=found, do=do)


def _python() -> Finding:
    numbers = ".".join(str(number) for number in sys.version_info[:3])
    return _finding("python", f"{numbers} ({sys.executable})")


def _package(name: str, least: tuple[int, ...], *, needed: bool) -> Finding:
    """Whether a package is there, and new enough."""
    install = INSTALL_SPARK if needed else INSTALL_PIPELINES
    state = State.WRONG if needed else State.WARNING
    wanted = ".".join(str(number) for number in least)
    what = "" if needed else ": no --remote, no server in background, no pipelines"
    try:
        found = version(name)
    except PackageNotFoundError:
        return _finding(name, f"not installed{what}", state, install)
    if _numbers(found) < least:
        return _finding(name, f"{found}, older than {wanted}", state, install)
    return _finding(name, found)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _java(asked: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    """The Java that is chosen, and those that are not."""
    chosen: Java | None = None
    try:
        java = chosen = choose_java(asked, environment)
        yield _finding("java", f"{java.version} ({java.program}, of {java.origin})")
    except JavaUnsuitable as failure:
        yield _finding("java", failure.text, State.WRONG, failure.hint)
    for other in find_javas(environment):
        if not isinstance(other, Java):
            yield _finding("java found", f"{other.program} ({other.origin}): {other.reason}", State.WARNING)
        elif chosen is None or other.home != chosen.home:
            old = "" if other.suits else f", older than {OLDEST}"
            yield _finding("java found", f"{other.version} ({other.program}, of {other.origin}){old}")


def _spark(options: SparkOptions, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Spark itself, and what was made to start it quickly."""
    try:
        spark = installed_spark(environment)
    except ExtraMissing as failure:
        yield _finding("spark", failure.text, State.WRONG, failure.hint)
        return
    yield _finding("spark", f"{spark.version} ({spark.folder})")
    named = environment.get("SPARK_HOME")
    if named and spark.origin != "SPARK_HOME":
        yield _finding(
            "SPARK_HOME", f"{named} is not Spark {spark.version}: not used", State.WARNING, "unset SPARK_HOME"
        )
    try:
        home = quick_home(spark)
        archive = archive_path(choose_java(options.java, environment), home)
    except JavaUnsuitable:
        return  # told as `java`
    except OSError as failure:
        yield _finding(
            "cache", f"{cache_folder(environment)}: {failure}", State.WARNING, "XDG_CACHE_HOME names another"
        )
        return
    if home.folder.parent != cache_folder():
        text = f"{cache_folder(environment)} cannot be made or written to: starts take twice as long"
        yield _finding("cache", text, State.WARNING, "XDG_CACHE_HOME names another")
    elif archive.is_file():
        yield _finding("cache", f"{archive} ({format_size(archive.stat().st_size)})")
    else:
        text = f"no archive of classes in {archive.parent}: starts take twice as long"
        yield _finding("cache", text, State.WARNING, "natsctl spark warm")


def _memory(options: SparkOptions) -> Finding:
    whole = machine_memory_bytes()
    heap = memory_option(options.settings).removeprefix("-Xmx")
    if 0 < whole < LEAST_MEMORY_BYTES:
        return _finding("memory", f"{format_size(whole)}", State.WARNING, "Spark wants 2 GiB and more")
    return _finding("memory", f"{format_size(whole) if whole else 'unknown'}, {heap} of it for Spark's Java")


def _disk(environment: Mapping[str, str]) -> Finding:
    folder = Path(environment.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir())
    try:
        free = shutil.disk_usage(folder).free
    except OSError as failure:
        return _finding("disk", f"{folder}: {failure.strerror}", State.WARNING, "SPARK_LOCAL_DIRS names another folder")
    state = State.GOOD if free >= LEAST_DISK_BYTES else State.WARNING
    do = "" if state is State.GOOD else "SPARK_LOCAL_DIRS names another folder"
    return _finding("disk", f"{format_size(free)} free in {folder}", state, do)


def _server() -> Finding:
    server = running_server()
    return _finding("server", f"runs in background, process {server.pid}" if server else "none runs in background")


def _start(options: SparkOptions) -> Finding:
    """A session that is opened, and answers."""
    from natsctl.spark.session.launches import launch_of
    from natsctl.spark.session.warming import timed_start

    try:
        return _finding("start", f"first answer after {timed_start(options, launch_of(options)):.1f} s")
    except NatsctlError as failure:
        log = getattr(failure, "log", "")
        return _finding("start", failure.text, State.WRONG, "\n".join([failure.hint, *log.splitlines()[-5:]]).strip())
