"""When a Spark in background stops by itself."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from natsctl.spark.session import serving

IN_USE = None


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def idle_after_s(monkeypatch: pytest.MonkeyPatch, signs: Iterable[object], idle_stop_s: float) -> float:
    """When a server ended that was looked at with these results, the last of them from then on."""
    clock, left = Clock(), list(signs)
    monkeypatch.setattr(serving, "time", clock)
    monkeypatch.setattr(serving, "sign_of_use", lambda session: left.pop(0) if len(left) > 1 else left[0])
    serving.wait_until_idle(None, idle_stop_s)  # type: ignore[arg-type]  # nothing looks at it
    return clock.now_s


def test_a_server_ends_when_nobody_has_used_it_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert idle_after_s(monkeypatch, [7], 60) == 60
    assert idle_after_s(monkeypatch, [7, 7, IN_USE, IN_USE, IN_USE, 8], 60) == 50 + 60
    assert idle_after_s(monkeypatch, [7, 7, 8], 60) == 20 + 60, "a command between two looks"
    assert idle_after_s(monkeypatch, [7], 3) == 3


def test_a_server_without_a_time_ends_with_its_java_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(serving, "time", clock)

    def sign(session: object) -> int:
        if clock.now_s > 1_000_000:
            raise ConnectionError
        return 7

    monkeypatch.setattr(serving, "sign_of_use", sign)
    with pytest.raises(ConnectionError):
        serving.wait_until_idle(None, 0)  # type: ignore[arg-type]  # nothing looks at it
    assert clock.now_s > 1_000_000


def test_python_processes_are_kept_for_a_while_after_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(serving, "time", clock)
    practised: list[float] = []

    def sign(session: object) -> object:
        return IN_USE if 100 <= clock.now_s <= 200 else clock.now_s > 200

    monkeypatch.setattr(serving, "sign_of_use", sign)
    serving.wait_until_idle(None, 3000, lambda: practised.append(clock.now_s))  # type: ignore[arg-type]  # as above
    assert practised
    assert min(practised) > 200, "not before anybody has used it, nor meanwhile"
    assert max(practised) <= 210 + serving.WARM_S
    assert {after - before for before, after in pairwise(practised)} == {serving.PRACTICE_S}


@pytest.mark.parametrize(
    ("sessions", "ended", "sign"), [(True, 5, None), (False, 5, 5), (False, None, None)], ids=["open", "idle", "busy"]
)
def test_a_session_or_a_query_is_use(sessions: bool, ended: int | None, sign: object) -> None:
    executions = SimpleNamespace(isLeft=lambda: ended is not None, left=lambda: SimpleNamespace(get=lambda: ended))
    manager = SimpleNamespace(listActiveSessions=lambda: SimpleNamespace(nonEmpty=lambda: sessions))
    served = SimpleNamespace(sessionManager=lambda: manager, listActiveExecutions=lambda: executions)
    service: Any = SimpleNamespace(**{"SparkConnectService$": SimpleNamespace(**{"MODULE$": served})})
    connect = SimpleNamespace(connect=SimpleNamespace(service=service))
    machine = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(sql=connect))))
    assert serving.sign_of_use(SimpleNamespace(_jvm=machine)) == sign  # type: ignore[arg-type]  # as much as is asked
