"""Starting a Spark in background: one, or none and the reason."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from natsctl.spark.session import connect
from natsctl.spark.session.connect import (
    BackgroundServer,
    beginning_of,
    memory_bytes,
    recorded_server,
    running_server,
    source_code,
    spark_version,
    start_server,
    state_file,
    stop_server,
)
from natsctl.spark.session.doctor import MESSAGES, write_backup
from natsctl.spark.session.failures import SparkStartFailed
from natsctl.spark.session.spark_home import installed_spark, quick_home
from natsctl.spark.session.spark_options import SparkOptions
from tests.spark.session.fakes import java
from tests.spark.source.backups import rows
from tests.spark.source.streams import until


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


def test_it_is_recorded_of_which_code_the_data_source_is(started: list[BackgroundServer]) -> None:
    server = start_server(SparkOptions(), 60)
    assert server.source_code == source_code()
    assert server.idle_stop_s == 60
    assert recorded_server() == server
    assert oct(state_file().stat().st_mode & 0o777) == "0o600"
    until(lambda: (memory_bytes(server) or 0) > 1 << 20)  # which a process has only once it has begun


def test_of_a_server_that_lacks_the_data_source_none_is_recorded(
    started: list[BackgroundServer], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_server_is_stopped_and_forgotten(started: list[BackgroundServer]) -> None:
    server = start_server(SparkOptions())
    stop_server(server)
    assert not server.runs
    assert recorded_server() is None


def test_a_java_that_ends_at_once_is_told_with_what_it_says(bare: Path) -> None:
    program = java(bare / "home", "21.0.1")
    (quick_home(installed_spark({})).folder / "natsctl-java-options").write_text("")  # what that Java can not tell
    words = program.read_text()
    program.write_text(
        words.replace("  *) printf", "  *pyspark-shell*) echo 'Error: no room here' >&2; exit 3 ;;\n  *) printf")
    )
    with pytest.raises(SparkStartFailed, match="no room here"):
        start_server(SparkOptions(java=str(program)))
    assert recorded_server() is None


def test_what_is_practised_on_is_a_backup_that_the_data_source_reads(tmp_path: Path) -> None:
    write_backup(tmp_path)
    found = rows(tmp_path)
    assert [row["seq"] for row in found] == list(range(1, MESSAGES + 1))
    assert {(row["subject"], row["value"]) for row in found} == {("ORDERS.new", b"." * 128)}
