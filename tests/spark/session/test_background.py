"""How the Spark in background is recorded, and when it counts."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from natsctl.spark.session import connect
from natsctl.spark.session.connect import (
    BackgroundServer,
    Remote,
    record,
    recorded_server,
    remote_for,
    running_server,
    source_code,
    state_file,
)
from natsctl.spark.session.spark_options import SparkOptions


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


def test_a_process_that_took_its_number_is_not_it(server: BackgroundServer) -> None:
    record(replace(server, began="1"))
    assert running_server() is None
    assert recorded_server() is not None


def test_a_server_of_another_spark_is_not_used(server: BackgroundServer) -> None:
    record(replace(server, version="4.2.0"))
    assert running_server() is None


def test_what_can_not_be_read_is_no_server(server: BackgroundServer) -> None:
    for text in ("", "{}", "[1]", '{"port": 1}'):
        state_file().write_text(text)
        assert running_server() is None
