"""A folder of account JWTs by itself."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from natsctl.broker.jwt.account_registry import AccountStoreError
from natsctl.server.operator_mode import JwtDirectory
from natsctl.server.options import DirectoryOptions
from tests.support.operators import Key


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "jwt"


ONE, TWO, THREE = (Key("account").public for _ in range(3))


def test_what_is_saved_is_there_for_the_next_server(folder: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder / "a" / "b"))
    assert store.save(ONE, "jwt 1")
    assert not store.save(ONE, "jwt 1")
    assert store.save(ONE, "jwt 2")
    again = JwtDirectory(DirectoryOptions(folder / "a" / "b"))
    assert (again.fetch(ONE), again.fetch(TWO)) == ("jwt 2", None)
    assert [path.name for path in (folder / "a" / "b").iterdir()] == [f"{ONE}.jwt"]


def test_names_are_public_keys_and_nothing_else(folder: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder / "in"))
    (folder / "secret.jwt").write_text("out")
    for name in ("../secret", "", "x", Key("user").public, ONE.lower()):
        assert store.fetch(name) is None
        with pytest.raises(AccountStoreError):
            store.save(name, "jwt")
    (folder / "in" / "stray.jwt").write_text("stray")
    assert JwtDirectory(DirectoryOptions(folder / "in")).accounts() == []


def test_full_store_refuses_more_accounts_than_its_limit(folder: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder, limit=1))
    store.save(ONE, "jwt")
    with pytest.raises(AccountStoreError, match="jwt store is full"):
        store.save(TWO, "jwt")
    assert store.save(ONE, "newer") and store.accounts() == [ONE]


def test_cache_forgets_what_was_sent_longest_ago(folder: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder, full=False, limit=2))
    for account in (ONE, TWO, ONE, THREE):
        store.save(account, "jwt")
    assert store.accounts() == sorted([ONE, THREE])
    assert sorted(path.stem for path in folder.iterdir()) == sorted([ONE, THREE])


def test_cache_forgets_what_is_too_old(folder: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder, full=False, ttl_s=10.0))
    before = time.time()
    store.save(ONE, "jwt")
    after = time.time()  # a disk may take its time
    with patch.object(time, "time", return_value=before + 9):
        assert store.fetch(ONE) == "jwt"
    with patch.object(time, "time", return_value=after + 11):
        assert store.fetch(ONE) is None and store.accounts() == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("deleting", "left"), [("rename", [f"{ONE}.jwt.deleted"]), ("remove", [])])
def test_deleted_account_is_gone(folder: Path, deleting: str, left: list[str]) -> None:
    store = JwtDirectory(DirectoryOptions(folder, deleting="rename" if deleting == "rename" else "remove"))
    store.save(ONE, "jwt")
    store.delete(ONE)
    store.delete(ONE)
    assert (store.fetch(ONE), store.accounts()) == (None, [])
    assert [path.name for path in folder.iterdir()] == left


def test_disk_that_is_full_refuses_and_keeps_what_is_there(folder: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder))
    store.save(ONE, "jwt")
    with patch.object(os, "fsync", side_effect=OSError(28, "No space left on device")):
        for account in (ONE, TWO):
            with pytest.raises(AccountStoreError, match="No space left on device"):
                store.save(account, "newer")
    assert (store.fetch(ONE), store.fetch(TWO)) == ("jwt", None)
    assert [path.name for path in folder.iterdir()] == [f"{ONE}.jwt"]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what waits: a pipe that nobody writes to would hold the whole run."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_whatever_lies_in_the_folder_stops_nobody(folder: Path) -> None:
    folder.mkdir()
    place = folder / f"{ONE}.jwt"
    for put in (
        lambda: os.mkfifo(place), place.mkdir, lambda: place.symlink_to(folder / "nowhere"),
        lambda: place.symlink_to(place), lambda: place.symlink_to("/dev/zero"), lambda: place.write_bytes(b"\xff"),
    ):  # fmt: skip
        put()
        with within(20):
            store = JwtDirectory(DirectoryOptions(folder))
            store.reload()
            assert (store.fetch(ONE), store.accounts()) == (None, [ONE] if place.is_file() else [])
        place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()


def test_a_file_that_is_too_long_is_not_read(folder: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder))
    store.save(ONE, "jwt")
    os.truncate(folder / f"{ONE}.jwt", 1 << 40)
    assert store.fetch(ONE) is None
    assert store.save(ONE, "jwt")
    assert store.fetch(ONE) == "jwt"


def test_what_is_saved_goes_through_no_link_and_no_pipe(folder: Path, tmp_path: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder))
    (tmp_path / "other").write_text("untouched")
    (folder / f"{ONE}.jwt").symlink_to(tmp_path / "other")
    os.mkfifo(folder / f"{TWO}.jwt")
    with within(20):
        assert store.save(ONE, "jwt 1") and store.save(TWO, "jwt 2")
    assert (store.fetch(ONE), store.fetch(TWO)) == ("jwt 1", "jwt 2")
    assert (tmp_path / "other").read_text() == "untouched"
    assert sorted(path.suffix for path in folder.iterdir()) == [".jwt", ".jwt"]
    assert all(not path.is_symlink() and path.stat().st_mode & 0o027 == 0 for path in folder.iterdir())


def test_cache_forgets_what_it_can_not_remove(folder: Path) -> None:
    store = JwtDirectory(DirectoryOptions(folder, full=False, limit=1))
    store.save(ONE, "jwt")
    (folder / f"{ONE}.jwt").unlink()
    (folder / f"{ONE}.jwt").mkdir()
    store.save(TWO, "jwt")
    assert store.accounts() == [TWO]
