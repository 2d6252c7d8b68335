"""The end of a Spark in background that nobody uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from natsctl.spark.session import connect


class Clock:
    """A clock that only sleeping moves; `uses` are times at which a command uses the server for a moment."""

    def __init__(self, *uses: float) -> None:
        self.now_s = connect.time.time()
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


def test_a_server_without_a_time_ends_with_its_java_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(connect, "time", clock)
    end_s = clock.now_s + 1_000_000

    def check() -> None:
        if clock.now_s > end_s:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        connect.wait_until_idle(check, 0)
    assert clock.now_s > end_s


@pytest.mark.skipif(connect.fcntl is None, reason="there are no locks of files")
def test_a_session_is_use_as_long_as_it_lasts(folder: Path) -> None:
    assert connect.last_use_s() <= connect.time.time()
    long_ago_s = 1_000_000
    with connect.in_use(), connect.in_use():
        os.utime(connect.use_file(), (long_ago_s, long_ago_s))
        assert connect.last_use_s() > long_ago_s, "it is used now"
    assert connect.last_use_s() > long_ago_s, "its end is a use too"
    os.utime(connect.use_file(), (long_ago_s, long_ago_s))
    assert connect.last_use_s() == long_ago_s


def test_a_folder_that_cannot_be_written_to_stops_no_session(bare: Path) -> None:
    with connect.in_use():
        assert connect.last_use_s() == 0
