"""Commits that native threads write on the simulated disk keep every promise, and a fault of theirs is noticed."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from natsctl.native.build import BuildError
from natsctl.server.committer import WRITE_FAILED
from natsctl.store.encrypted_disk import LogFile
from natsctl.store.errors import StoreError
from tests.support import native_disk
from tests.support.native_disk import (
    SYNC,
    WRITE,
    Call,
    EncryptedNativeSession,
    NativeDisk,
    NativeSession,
    NumberedFile,
    simulate_natively,
    simulate_natively_encrypted,
)
from tests.support.store_model import Violation

SEEDS = 12
pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module", autouse=True)
def built() -> NativeDisk:
    try:
        return native_disk.native_disk()
    except BuildError as failure:
        pytest.skip(f"the native module cannot be built: {failure}")


@pytest.mark.parametrize(("kind", "least"), [(NativeSession, SEEDS), (EncryptedNativeSession, SEEDS // 2)])
def test_no_promise_is_broken_by_native_threads(kind: type[NativeSession], least: int) -> None:
    total = Counter[str]()
    for seed in range(SEEDS):
        session = kind(seed)
        session.run()
        total.update(session.calls)
    assert total["written"] > 10 * SEEDS
    assert all(total[name] > least for name in ("short", "synced", "interrupted", "abandoned", "again")), total


def gives_plain_bytes(log: LogFile, data: bytes, offset: int) -> tuple[int, bytes, int]:
    fd, _, place = placed(log, data, offset)
    return fd, data, place


placed = LogFile.placed


def test_plain_bytes_for_native_threads_are_noticed() -> None:
    with mock.patch.object(LogFile, "placed", gives_plain_bytes), pytest.raises((Violation, StoreError, LookupError)):
        for seed in range(100):
            simulate_natively_encrypted(seed)


def test_a_seed_reproduces_its_session_with_native_threads() -> None:
    sessions = [NativeSession(7) for _ in range(2)]
    reports = [session.run() for session in sessions]
    assert reports[0] == reports[1]
    assert sessions[0].calls == sessions[1].calls


done, error_of = NativeSession._do, NativeSession.error_of


def leaves_syncs_out(self: NativeSession, call: Call, file: NumberedFile) -> int:
    return 0 if call.kind == SYNC else done(self, call, file)


def takes_a_part_for_the_whole(self: NativeSession, call: Call, file: NumberedFile) -> int:
    wrote = done(self, call, file)
    return len(call.data) if call.kind == WRITE else wrote


def does_failed_syncs_again(self: NativeSession, call: Call, file: NumberedFile) -> int:
    try:
        return done(self, call, file)
    except OSError:
        return done(self, call, file)


def overlooks_failed_writes(self: NativeSession, flight: Any, outcome: int, number: int) -> Any:
    return None if outcome == WRITE_FAILED else error_of(self, flight, outcome, number)


@pytest.mark.parametrize(
    ("name", "planted", "seeds"),
    [
        ("_do", leaves_syncs_out, 1),
        ("_do", takes_a_part_for_the_whole, 1),
        ("_do", does_failed_syncs_again, 30),
        ("error_of", overlooks_failed_writes, 1),
    ],
)
def test_a_planted_fault_of_native_threads_is_noticed(name: str, planted: Callable[..., Any], seeds: int) -> None:
    with mock.patch.object(NativeSession, name, planted), pytest.raises((Violation, StoreError, LookupError)):
        for seed in range(seeds):
            simulate_natively(seed)
