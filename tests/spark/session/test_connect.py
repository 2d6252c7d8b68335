"""Sessions on Spark Connect servers, and the Spark in the background: its record, start, use and end."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from natsctl.spark import SOURCE_BY_NAME
from natsctl.spark.session import connect
from natsctl.spark.session.connect import (
    BackgroundServer,
    Remote,
    beginning_of,
    has_source,
    memory_bytes,
    record,
    recorded_server,
    remote_for,
    remote_session,
    running_server,
    source_code,
    spark_version,
    start_server,
    state_file,
    stop_server,
)
from natsctl.spark.session.doctor import MESSAGES, write_backup
from natsctl.spark.session.failures import SparkStartError
from natsctl.spark.session.installation import installed_spark, quick_home
from natsctl.spark.session.spark_options import SparkOptions
from tests.spark.session.fakes import java
from tests.spark.source.backups import rows
from tests.spark.source.streams import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def server(bare: Path, monkeypatch: pytest.MonkeyPatch) -> BackgroundServer:
    """A server that is recorded; its process is this one, and somebody listens at its port."""
    monkeypatch.setattr(connect, "spark_version", lambda: "4.3.0")
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    listener = socket.create_server(("127.0.0.1", 0))
    began = connect.beginning_of(os.getpid())
    made = BackgroundServer(listener.getsockname()[1], "secret", os.getpid(), began, "4.3.0", "local[*]", "17", 0.0)
    state_file().parent.mkdir(parents=True)
    record(made)
    yield made  # type: ignore[misc]  # a fixture that closes what it opened
    listener.close()


def test_a_server_that_runs_is_used_unless_another_is_named(server: BackgroundServer) -> None:
    assert running_server() == server
    assert server.url == f"sc://localhost:{server.port}/;token=secret"
    assert remote_for(SparkOptions()) == Remote(server.url, in_background=True)
    assert remote_for(SparkOptions(conf=(("spark.sql.ansi.enabled", "false"),))) == Remote(
        server.url, in_background=True
    )
    for other in (
        SparkOptions(master="local[*]"),
        SparkOptions(java="/usr/bin/java"),
        SparkOptions(conf=(("spark.driver.memory", "8g"),)),
    ):
        assert remote_for(other) is None
    assert remote_for(SparkOptions(remote="sc://h")) == Remote("sc://h")


def test_a_server_is_given_the_data_source_unless_it_has_the_same(
    server: BackgroundServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(replace(server, source_code=source_code()))
    assert remote_for(SparkOptions()) == Remote(server.url, has_source=True, in_background=True)
    monkeypatch.setattr(connect, "source_code", lambda: "of a newer natsctl")
    assert remote_for(SparkOptions()) == Remote(server.url, has_source=False, in_background=True)


def test_another_process_another_spark_and_what_can_not_be_read_are_no_server(server: BackgroundServer) -> None:
    record(replace(server, began="1"))  # another process with its number
    assert running_server() is None
    assert recorded_server() is not None
    record(replace(server, version="4.2.0"))
    assert running_server() is None
    for text in ("", "{}", "[1]", '{"port": 1}'):
        state_file().write_text(text)
        assert running_server() is None


@pytest.fixture
def started(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BackgroundServer]]:
    """The servers that were started: processes that do nothing, at a port where somebody listens."""
    found: list[BackgroundServer] = []
    listener = socket.create_server(("127.0.0.1", 0))
    processes = []

    def start(options: SparkOptions, idle_stop_s: float) -> BackgroundServer:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        processes.append(process)
        port, began = listener.getsockname()[1], beginning_of(process.pid)
        found.append(
            BackgroundServer(port, "secret", process.pid, began, spark_version(), "local[*]", "17", 0.0, idle_stop_s)
        )
        return found[-1]

    monkeypatch.setattr(connect, "_started", start)
    monkeypatch.setattr(connect, "_knows_source", lambda server: True)
    yield found
    for process in processes:
        process.kill()
        process.communicate()
    listener.close()


def test_of_two_who_start_one_at_once_both_get_the_same(started: list[BackgroundServer]) -> None:
    answers: list[BackgroundServer] = []
    both = [threading.Thread(target=lambda: answers.append(start_server(SparkOptions(), 60))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(started) == 1
    assert answers[0] == answers[1] == running_server()


def test_it_is_recorded_of_which_code_the_data_source_is_until_it_is_stopped(
    started: list[BackgroundServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server(SparkOptions(), 60)
    assert (server.source_code, server.idle_stop_s) == (source_code(), 60)
    assert recorded_server() == server
    assert oct(state_file().stat().st_mode & 0o777) == "0o600"
    until(lambda: (memory_bytes(server) or 0) > 1 << 20)  # which a process has only once it has begun
    stop_server(server)
    assert not server.runs
    assert recorded_server() is None
    monkeypatch.setattr(connect, "_knows_source", lambda server: False)
    assert start_server(SparkOptions()).source_code == ""


def test_a_server_that_can_not_answer_is_stopped(
    started: list[BackgroundServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(server: BackgroundServer) -> bool:
        raise RuntimeError("no answer")

    monkeypatch.setattr(connect, "_knows_source", fail)
    with pytest.raises(RuntimeError, match="no answer"):
        start_server(SparkOptions())
    assert not started[0].runs
    assert not state_file().exists()


def test_a_java_that_ends_at_once_is_told_with_what_it_says(bare: Path) -> None:
    program = java(bare / "home", "21.0.1")
    (quick_home(installed_spark({})).folder / "natsctl-java-options").write_text("")  # what that Java can not tell
    words = program.read_text()
    program.write_text(
        words.replace("  *) printf", "  *pyspark-shell*) echo 'Error: no room here' >&2; exit 3 ;;\n  *) printf")
    )
    with pytest.raises(SparkStartError, match="no room here"):
        start_server(SparkOptions(java=str(program)))
    assert recorded_server() is None


def test_what_is_practised_on_is_a_backup_that_the_data_source_reads(tmp_path: Path) -> None:
    write_backup(tmp_path)
    found = rows(tmp_path)
    assert [row["seq"] for row in found] == list(range(1, MESSAGES + 1))
    assert {(row["subject"], row["value"]) for row in found} == {("ORDERS.new", b"." * 128)}


class Clock:
    """A clock that only sleeping moves; `uses` are times at which a command uses the server for a moment."""

    def __init__(self, *uses: float) -> None:
        self.now_s = connect.time.time() // 1 + 3600  # later than the file that the first look makes
        self.uses = [self.now_s + use for use in uses]

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        while self.uses and self.uses[0] <= self.now_s:
            with connect.in_use():
                pass
            os.utime(connect.use_file(), (self.uses[0], self.uses.pop(0)))


@pytest.fixture
def folder(bare: Path) -> Path:
    connect.use_file().parent.mkdir(parents=True)
    return connect.use_file().parent


@pytest.mark.parametrize(
    ("uses", "idle_stop_s", "after_s"), [((), 60, 60), ((), 3, 3), ((15,), 60, 80), ((15, 51), 60, 120)]
)
def test_a_server_ends_when_no_command_has_used_it_for_so_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch, uses: tuple[float, ...], idle_stop_s: float, after_s: float
) -> None:
    clock = Clock(*uses)
    monkeypatch.setattr(connect, "time", clock)
    begin_s = clock.now_s
    connect.wait_until_idle(lambda: None, idle_stop_s)
    assert clock.now_s - begin_s == after_s

    def check() -> None:
        if clock.now_s > begin_s + 1_000_000:
            raise ConnectionError

    with pytest.raises(ConnectionError):  # without a time it ends with its Java
        connect.wait_until_idle(check, 0)


@pytest.mark.skipif(connect.fcntl is None, reason="there are no locks of files")
def test_a_session_is_use_as_long_as_it_lasts(bare: Path) -> None:
    with connect.in_use():  # a folder that cannot be written to stops no session
        assert connect.last_use_s() == 0
    connect.use_file().parent.mkdir(parents=True)
    assert connect.last_use_s() <= connect.time.time()
    long_ago_s = 1_000_000
    with connect.in_use(), connect.in_use():
        os.utime(connect.use_file(), (long_ago_s, long_ago_s))
        assert connect.last_use_s() > long_ago_s, "it is used now"
    assert connect.last_use_s() > long_ago_s, "its end is a use too"
    os.utime(connect.use_file(), (long_ago_s, long_ago_s))
    assert connect.last_use_s() == long_ago_s


@pytest.fixture
def served(spark: SparkSession) -> Iterator[Remote]:
    machine = cast(Any, spark)._jvm
    context = cast(Any, spark.sparkContext)._jsc.sc()
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    for key, value in settings.items():
        context.conf().set(key, value)
    service = getattr(getattr(machine.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(context)
    try:
        yield Remote(f"sc://127.0.0.1:{service.localPort()}", has_source=True)
    finally:
        nothing = getattr(getattr(machine.scala, "None$"), "MODULE$")
        service.stop(nothing, nothing)


@pytest.mark.skipif(find_spec("grpc") is None, reason="the extra `pipelines` is not installed")
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are looked for in /proc")
def test_a_second_session_starts_no_python_process(spark: SparkSession, served: Remote, tmp_path: Path) -> None:
    write_backup(tmp_path)
    java = cast(Any, spark)._jvm.java.lang.ProcessHandle.current().pid()
    daemons = []
    for _ in range(2):
        with remote_session(served, SparkOptions()) as session:
            assert has_source(session), "the data source is known without being sent"
            table = session.read.format("jetstream").schema("seq bigint").option("backup", str(tmp_path)).load()
            assert table.where("seq > 1").count() == MESSAGES - 1
        daemons.append(children(java))
    assert daemons[0]
    assert daemons[1] == daemons[0]


def children(pid: int) -> set[int]:
    while True:
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        with suppress(OSError):  # of a thread that has ended meanwhile, whose children another one has now
            return {int(word) for task in tasks for word in task.read_text().split()}


# Where all processes have natsctl, Spark is given the source's name in place of its code


_PICKLED = """
import sys
from pyspark.serializers import CloudPickleSerializer
from natsctl.spark.registered import DefaultSource
sys.stdout.buffer.write(CloudPickleSerializer().dumps(DefaultSource))
"""


def pickled(environment: dict[str, str]) -> bytes:
    """The data source as a process with that environment gives it to Spark."""
    command = [sys.executable, "-c", _PICKLED]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=100).stdout


@pytest.mark.spark
def test_the_source_goes_by_name_only_where_the_environment_says_so() -> None:
    environment = {name: value for name, value in os.environ.items() if name != SOURCE_BY_NAME}
    by_name = pickled({**environment, SOURCE_BY_NAME: "1"})
    assert len(by_name) < 1000
    assert pickle.loads(by_name).name() == "jetstream"
    assert len(pickled(environment)) > 100_000


def test_any_change_of_any_file_is_another_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source" / "reading").mkdir(parents=True)
    files = [tmp_path / "source" / "a.py", tmp_path / "source" / "reading" / "b.py"]
    files += [tmp_path / "s2.py", tmp_path / "frames.py"]
    for file in files:
        file.write_text("first")
    monkeypatch.setattr(connect, "_FOLDER", tmp_path / "source")
    monkeypatch.setattr(connect, "_FILES", files[-2:])
    seen = {source_code()}
    for file in files:
        file.write_text("other")
        seen.add(source_code())
    files[1].rename(tmp_path / "source" / "reading" / "c.py")
    seen.add(source_code())
    assert len(seen) == 6
    assert source_code() in seen
