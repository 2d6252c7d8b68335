"""The fuzzing of the native module finds no fault in a few inputs, and finds those that are planted."""

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
    assert types == {"PublishRun", "CommitThreads", "PackedColumn"}
    assert {name for name in dir(lib.PackedColumn) if not name.startswith("_")} == {"index", "total"}
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
