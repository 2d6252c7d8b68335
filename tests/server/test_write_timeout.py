"""Clients that read too slowly for the write deadline: closed, or kept as long as they take something within it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from natsctl.testing.process import Kind
from tests.support.callouts import until
from tests.support.conf_server import PATIENCE_S, ConfServer, Wire

both = pytest.mark.parametrize("kind", ["natsctl", "reference"])
SIZE, COUNT = 1_000_000, 50
READ = 400_000
"""Bytes that a slow client takes at a time."""
DEADLINE = 'write_deadline: "300ms"\nmax_pending: 256MB\n'
MISSED = r"Slow Consumer Detected: WriteDeadline of 300ms exceeded with \d+ chunks of \d+ total bytes\."


def subscribed(server: ConfServer) -> Wire:
    wire = Wire(server.port)
    assert wire.connect() == b"PONG"
    wire.send(b"SUB flood 1\r\nPING\r\n")
    while wire.line() != b"PONG":
        pass
    return wire


def flood(server: ConfServer) -> None:
    with Wire(server.port) as wire:
        assert wire.connect(echo=False) == b"PONG"
        for _ in range(COUNT):
            wire.send(b"PUB flood %d\r\n%b\r\n" % (SIZE, bytes(SIZE)))
        wire.send(b"PING\r\n")
        while wire.line() != b"PONG":
            pass


def read_slowly(wire: Wire, server: ConfServer) -> int:
    """Return the bytes that a client gets that takes a little at a time until it is known as slow."""
    total, slow, end = 0, False, time.monotonic() + PATIENCE_S * 3
    wanted = COUNT * SIZE
    while total < wanted and time.monotonic() < end:
        chunk = wire.sock.recv(READ)
        if not chunk:
            break
        total += len(chunk)
        slow = slow or "Slow Consumer Detected" in server.log()
        if not slow:
            time.sleep(0.04)  # the reader's slowness is what is tested
    return total


@pytest.mark.live
@both
def test_a_client_that_takes_something_is_kept_and_loses_nothing(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, f"{DEADLINE}write_timeout: retry\n", monitoring=True) as server:
        assert server.monitor("varz")["write_timeout"] == "retry"
        with subscribed(server) as wire:
            flood(server)
            assert read_slowly(wire, server) >= COUNT * SIZE
            server.await_line(MISSED)
            server.await_line("Slow Consumer Recovered: Flush took ")
            assert server.monitor("varz")["slow_consumers"] >= 1
            assert server.monitor("connz")["connections"]


@both
@pytest.mark.parametrize("policy", ["retry", "close", "default"])
def test_a_client_that_takes_nothing_is_closed(tmp_path: Path, kind: Kind, policy: str) -> None:
    with ConfServer(tmp_path, kind, f"{DEADLINE}write_timeout: {policy}\n", monitoring=True) as server:
        assert server.monitor("varz").get("write_timeout", "default") == policy
        with subscribed(server):
            flood(server)
            server.await_line(MISSED)
            until(lambda: not server.monitor("connz")["connections"])
            reasons = {one["reason"] for one in server.monitor("connz?state=closed")["connections"]}
            assert "Slow Consumer (Write Deadline)" in reasons
