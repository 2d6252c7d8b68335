"""The fuzzing of the native module finds no fault in a few inputs, and finds those that are planted."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from natsctl.native import lib
from tests.support import native_fuzz, native_threads, tiers
from tests.support.native_cases import CASES, Case, FaultError, functions_of, same_as

pytestmark = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")


def test_each_function_has_a_row() -> None:
    assert lib is not None
    assert CASES.keys() == functions_of(lib).keys()
    types = {name for name, value in vars(lib).items() if isinstance(value, type)}
    assert types == {"PublishRun", "CommitThreads"}
    assert {name for name in dir(lib.CommitThreads) if not name.startswith("_")} == {"collect", "run", "stop", "submit"}


@pytest.mark.parametrize("number", tiers.seeds(1, 20))
def test_a_block_of_inputs_of_each_function_finds_no_fault(number: int) -> None:
    for name, (function, case) in native_fuzz.cases_of(lib).items():
        native_fuzz.run_block(name, function, case, "suite", number)


def test_threads_that_write_find_no_fault() -> None:
    native_threads.run_threads(lib, 3, "suite")


def answer(data: bytes) -> bytes:
    return data + b"!"


PLAIN = Case(lambda chance: (chance.randbytes(3),), same_as(answer))


def sometimes_wrong(data: bytes) -> bytes:
    return answer(data) if data[0] else b""


def refuses(data: bytes) -> bytes:
    raise ValueError(data)


def breaks_a_rule_of_python(data: Any) -> bytes:
    if len(data) != 3:
        raise SystemError("a result with an exception set")
    return answer(data)


@pytest.mark.parametrize("function", [sometimes_wrong, refuses, breaks_a_rule_of_python])
def test_a_function_that_does_otherwise_is_found(function: Any) -> None:
    native_fuzz.run_block("good", answer, PLAIN, "suite", 0)
    with pytest.raises(FaultError):
        for number in range(40):
            native_fuzz.run_block("bad", function, PLAIN, "suite", number)


def test_a_function_that_keeps_memory_or_references_is_found() -> None:
    kept: list[Any] = []

    def keeps_references(data: bytes) -> bytes:
        kept.append(data)
        return answer(data)

    def keeps_memory(data: bytes) -> bytes:
        kept.append(object())
        return answer(data)

    native_fuzz.find_leaks("good", answer, PLAIN, "suite", 20000)
    with pytest.raises(FaultError, match="keeps references"):
        native_fuzz.find_leaks("bad", keeps_references, PLAIN, "suite", 20000)
    with pytest.raises(FaultError, match="blocks"):
        native_fuzz.find_leaks("bad", keeps_memory, PLAIN, "suite", 20000)


class LosesData:
    """Threads that report jobs as done that they never did."""

    def __init__(self, wake_fd: int, threads: int) -> None:
        self.jobs: list[Any] = []
        self.wake_fd = wake_fd

    def run(self, writes: Any) -> tuple[int, int, float]:
        return 0, 0, 0.0

    def submit(self, token: Any, writes: Any) -> None:
        self.jobs.append(token)
        os.write(self.wake_fd, b"x")

    def collect(self) -> list[tuple[Any, int, int, float]]:
        jobs, self.jobs = self.jobs, []
        return [(job, 0, 0, 0.0) for job in jobs]

    def stop(self) -> None: ...


def test_threads_that_write_nothing_are_found() -> None:
    with pytest.raises(FaultError):
        native_threads.run_threads(SimpleNamespace(CommitThreads=LosesData), 5, "suite")
