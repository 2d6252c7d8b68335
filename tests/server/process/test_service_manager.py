"""Notices to systemd, received on a socket of our own."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsctl.server.process.service_manager import ServiceManager
from tests.server.process.test_process import Running

PATIENCE_S = 60.0


class Receiver:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE_S)

    def next(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().split("\n"))

    def next_of(self, key: str) -> dict[str, str]:
        while key not in (notice := self.next()):
            pass
        return notice

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    found = Receiver(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(found.path))
    yield found
    found.close()


def test_a_server_reports_ready_reloads_and_its_stop(receiver: Receiver, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("debug: false\n")
    server = Running(tmp_path, "-c", str(config))
    try:
        assert receiver.next() == {"READY": "1", "STATUS": "Server is ready"}
        server.wait_for("Server is ready")
        config.write_text("debug: true\n")
        server.process.send_signal(signal.SIGHUP)
        assert receiver.next()["RELOADING"] == "1"
        assert receiver.next() == {"READY": "1", "STATUS": "Server is ready"}
        config.write_text("nonsense: 1\n")
        server.process.send_signal(signal.SIGHUP)
        assert int(receiver.next()["MONOTONIC_USEC"]) > 0
        assert receiver.next()["STATUS"] == "The last reload failed: see the log"
    finally:
        assert server.end(signal.SIGTERM) == 0
    assert receiver.next()["STOPPING"] == "1"


def test_the_watchdog_hears_from_a_loop_that_turns(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

    async def serve() -> None:
        manager = ServiceManager()
        manager.ready("up")
        manager.ready("up again")
        for _ in range(3):
            await asyncio.to_thread(receiver.next_of, "WATCHDOG")
        manager.close()

    asyncio.run(serve())


@pytest.mark.parametrize("variables", [{}, {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
def test_the_watchdog_of_another_process_hears_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for key, value in variables.items():
        monkeypatch.setenv(key, value)

    async def serve() -> None:
        manager = ServiceManager()
        manager.ready("up")
        manager.stopping("down")
        manager.close()

    asyncio.run(serve())
    assert [receiver.next().keys() for _ in range(2)] == [{"READY", "STATUS"}, {"STOPPING", "STATUS"}]


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_a_name_in_the_abstract_namespace_and_a_socket_that_is_gone() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0natsctl-test-{os.getpid()}")
        receiver.settimeout(PATIENCE_S)
        manager = ServiceManager({"NOTIFY_SOCKET": f"@natsctl-test-{os.getpid()}"})
        manager.stopping("bye")
        assert receiver.recv(100) == b"STOPPING=1\nSTATUS=bye"
    manager.stopping("nobody there")
    ServiceManager({"NOTIFY_SOCKET": "relative"}).stopping("nowhere")
