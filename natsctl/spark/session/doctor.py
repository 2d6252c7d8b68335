"""Checks of what Spark needs on this machine, and the archive of classes that makes its start quick."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from natsctl.api.archive.archive import ArchivedStream
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.errors import NatsctlError, install_command
from natsctl.api.model import Model, WireEnum
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.api.units import format_size
from natsctl.spark.session.connect import running_server
from natsctl.spark.session.failures import PIPELINES_PACKAGES, SPARK_PACKAGES, ExtraMissingError, JavaUnsuitableError
from natsctl.spark.session.installation import (
    OLDEST,
    Java,
    cache_folder,
    choose_java,
    find_javas,
    installed_spark,
    quick_home,
)
from natsctl.spark.session.sessions import own_session
from natsctl.spark.session.spark_options import SparkOptions
from natsctl.spark.session.virtual_machine import (
    Launch,
    archive_path,
    being_made,
    launch_of,
    make_base,
    no_archive,
    read_log,
    recording,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MESSAGES = 100
_NAME = "PRACTICE"
_SCHEMA = "seq bigint, subject string, timestamp timestamp, value binary"
_QUERY = """select subject, max(timestamp), sum(length(cast(value as string))) as total from practice
    where seq > 5 and subject like 'ORDERS.%' group by subject order by total desc limit 5"""


def practise(session: SparkSession) -> None:
    """Run a query such as commands run, on a backup that is made for it, since that needs no NATS server."""
    with tempfile.TemporaryDirectory(prefix="natsctl-spark-") as folder:
        write_backup(Path(folder))
        reader = session.read.format("jetstream").schema(_SCHEMA).options(filterPushdown="true", backup=folder)
        reader.load().createOrReplaceTempView("practice")
        session.sql(_QUERY).toArrow()


def write_backup(folder: Path) -> None:
    """Write a backup of MESSAGES messages of 128 bytes."""
    state = StreamState(messages=MESSAGES, first_seq=1, last_seq=MESSAGES, num_subjects=1)
    messages = [(seq, seq * 10**9, b"ORDERS.new", b"", b"." * 128) for seq in range(1, MESSAGES + 1)]
    archive, frames = WriterV2(), FrameWriter()
    begin = b"".join(archive.beginning(ArchivedStream(StreamConfig(name=_NAME), 1, state), ()))
    parts = [begin, *archive.messages(messages), *archive.end(MESSAGES, MESSAGES * 10**9)]
    (folder / "stream.tar.s2").write_bytes(b"".join([*map(frames.write, parts), frames.finish()]))
    description = {"config": {"name": _NAME}, "state": {"messages": MESSAGES, "first_seq": 1, "last_seq": MESSAGES}}
    (folder / "backup.json").write_text(json.dumps(description))


FIRST_QUERY = "select id % 3 as k, count(*) from range(1000) group by 1"
"""The query that `timed_start` times from nothing to its answer."""
Say = Callable[[str], None]


class Warmed(NamedTuple):
    """The archive, and whether it was made now."""

    archive: Path
    made: bool


def warm(options: SparkOptions, *, again: bool = False, say: Say = lambda text: None) -> Warmed:
    """Make the archive of Spark's classes with one start of Spark, unless there is one and not `again`.

    Raises JavaUnsuitableError, SparkStartError, OSError.
    """
    launch = launch_of(options)
    archive = archive_path(launch.java, launch.home)
    if archive.is_file() and not again:
        return Warmed(archive, made=False)
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=archive.parent):  # a folder that cannot be written to fails before the work begins
        pass
    with being_made(archive) as building, tempfile.TemporaryFile() as log:
        say(f"starting Spark on Java {launch.java.version}")
        make_base(launch.java)
        with own_session(options, recording(launch, building), log) as session:
            say("running a query")
            practise(session)
            say(f"writing {archive}")
        if not building.is_file():
            raise no_archive(log=read_log(log))
    return Warmed(archive, made=True)


def archive_of(options: SparkOptions) -> Path:
    """Return the path of the archive for sessions with these options. Raises JavaUnsuitableError, ExtraMissingError."""
    launch = launch_of(options)
    return archive_path(launch.java, launch.home)


def timed_start(options: SparkOptions, launch: Launch) -> float:
    begin_s = time.monotonic()
    with own_session(options, launch) as session:
        session.sql(FIRST_QUERY).collect()
        return time.monotonic() - begin_s


NEEDED = (("pyspark", (4, 2)), ("pyarrow", (18,)))
"""The packages that are needed, and the oldest version of each."""
FOR_SERVERS = (("pandas", (2, 2)), ("grpcio", ()), ("grpcio-status", ()), ("protobuf", ()), ("zstandard", ()))
"""Additional packages for --remote, the server in the background and pipelines."""


class State(WireEnum):
    """The severity of a finding."""

    GOOD = "good"
    WARNING = "warning"
    WRONG = "wrong"


class Finding(Model, kw_only=True):
    """The result of one check; `do` is the remedy."""

    name: str
    state: State
    found: str
    do: str = ""


class Checkup(Model, kw_only=True):
    """The results of all checks; `ready` means that Spark will start."""

    ready: bool
    findings: list[Finding]


def check_up(options: SparkOptions, environment: Mapping[str, str] | None = None, *, start: bool = False) -> Checkup:
    environment = os.environ if environment is None else environment
    findings = [
        _python(),
        *(_package(name, least, needed=True) for name, least in NEEDED),
        *(_package(name, least, needed=False) for name, least in FOR_SERVERS),
        *_java(options.java, environment),
        *_spark(options, environment),
        _server(),
    ]
    ready = all(finding.state is not State.WRONG for finding in findings)
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
    install = install_command(SPARK_PACKAGES if needed else PIPELINES_PACKAGES)
    state = State.WRONG if needed else State.WARNING
    wanted = ".".join(str(number) for number in least)
    what = "" if needed else ": no --remote, no server in background, no pipelines"
    try:
        found = version(name)
    except PackageNotFoundError:
        return _finding(name, f"not installed{what}", state, install)
    if tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < least:
        return _finding(name, f"{found}, older than {wanted}", state, install)
    return _finding(name, found)


def _java(asked: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    chosen: Java | None = None
    try:
        java = chosen = choose_java(asked, environment)
        yield _finding("java", f"{java.version} ({java.program}, of {java.origin})")
    except JavaUnsuitableError as failure:
        yield _finding("java", failure.text, State.WRONG, failure.hint)
    for other in find_javas(environment):
        if not isinstance(other, Java):
            yield _finding("java found", f"{other.program} ({other.origin}): {other.reason}", State.WARNING)
        elif chosen is None or other.home != chosen.home:
            old = "" if other.suits else f", older than {OLDEST}"
            yield _finding("java found", f"{other.version} ({other.program}, of {other.origin}){old}")


def _spark(options: SparkOptions, environment: Mapping[str, str]) -> Iterator[Finding]:
    try:
        spark = installed_spark(environment)
    except ExtraMissingError as failure:
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
    except JavaUnsuitableError:
        return  # reported as `java`
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


def _server() -> Finding:
    server = running_server()
    return _finding("server", f"runs in background, process {server.pid}" if server else "none runs in background")


def _start(options: SparkOptions) -> Finding:
    """Open a session and measure the time to its answer."""
    try:
        return _finding("start", f"first answer after {timed_start(options, launch_of(options)):.1f} s")
    except NatsctlError as failure:
        log = getattr(failure, "log", "")
        return _finding("start", failure.text, State.WRONG, "\n".join([failure.hint, *log.splitlines()[-5:]]).strip())
