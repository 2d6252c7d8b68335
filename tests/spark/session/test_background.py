"""How the Spark in background is recorded, and when it counts."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from natsctl.spark.session import background, opened
from natsctl.spark.session.background import BackgroundServer, recorded_server, running_server, state_file
from natsctl.spark.session.options import SparkOptions


@pytest.fixture
def server(bare: Path, monkeypatch: pytest.MonkeyPatch) -> BackgroundServer:
    """A server that is recorded; its process is this one, and somebody listens at its port."""
    monkeypatch.setattr(background, "_version", lambda: "4.3.0")
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    listener = socket.create_server(("127.0.0.1", 0))
    began = background._began(os.getpid())
    made = BackgroundServer(listener.getsockname()[1], "secret", os.getpid(), began, "4.3.0", "local[*]", "17", 0.0)
    record(made)
    yield made  # type: ignore[misc]  # a fixture that closes what it opened
    listener.close()


def record(server: BackgroundServer) -> None:
    state_file().parent.mkdir(parents=True, exist_ok=True)
    state_file().write_text(json.dumps(asdict(server)))


def test_a_server_that_runs_is_used_unless_another_is_named(server: BackgroundServer) -> None:
    assert running_server() == server
    assert opened._remote_url(SparkOptions()) == f"sc://localhost:{server.port}/;token=secret"
    assert opened._remote_url(SparkOptions(conf=(("spark.sql.ansi.enabled", "false"),))) == server.url
    for other in (
        SparkOptions(master="local[*]"),
        SparkOptions(java="/usr/bin/java"),
        SparkOptions(conf=(("spark.driver.memory", "8g"),)),
    ):
        assert opened._remote_url(other) == ""
    assert opened._remote_url(SparkOptions(remote="sc://h")) == "sc://h"


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
