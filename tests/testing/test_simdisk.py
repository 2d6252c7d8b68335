"""The simulated disk behaves like a disk, and is as cruel as one."""

import errno
import random
from pathlib import Path

import pytest

from natsctl.store.disk import Disk, PosixDisk
from natsctl.store.errors import StoreLockedError
from tests.support.simdisk import Crash, DiskFault, Journalling, SimDisk


def sim(seed: int = 1, journalling: Journalling = Journalling.ORDERED) -> SimDisk:
    return SimDisk(random.Random(seed), journalling)


@pytest.fixture(params=["posix", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return PosixDisk(tmp_path / "disk") if request.param == "posix" else sim()


def put(disk: Disk, path: str, data: bytes, sync: bool = True) -> None:
    file = disk.open(path, create=True)
    file.pwrite(data, 0)
    if sync:
        file.sync()
    file.close()


def read(disk: Disk, path: str) -> bytes:
    file = disk.open_read(path)
    try:
        return file.pread(1 << 20, 0)
    finally:
        file.close()


def test_bytes_read_back_are_those_written_holes_are_zero(disk: Disk) -> None:
    put(disk, "a", b"hello")
    file = disk.open("a")
    file.pwrite(b"far", 1000)
    assert file.size() == 1003
    assert file.pread(1003, 0) == b"hello" + bytes(995) + b"far"
    file.truncate(3)
    assert file.pread(10, 0) == b"hel"
    file.close()


def test_names_follow_creation_renaming_and_removal(disk: Disk) -> None:
    disk.mkdir("d")
    put(disk, "d/a", b"1")
    put(disk, "b", b"2")
    disk.rename("b", "d/a")
    assert (disk.listdir(""), disk.listdir("d"), read(disk, "d/a")) == (["d"], ["a"], b"2")
    disk.rename("d", "e")
    assert disk.exists("e/a")
    assert disk.is_dir("e")
    disk.unlink("e/a")
    disk.rmdir("e")
    assert not disk.exists("e")
    disk.fsync_dir("")


def test_errors_are_those_of_the_system(disk: Disk) -> None:
    disk.mkdir("d")
    put(disk, "d/a", b"")
    for call, expected in (
        (lambda: disk.open("missing"), errno.ENOENT),
        (lambda: disk.open("d/a", create=True), errno.EEXIST),
        (lambda: disk.mkdir("d"), errno.EEXIST),
        (lambda: disk.rmdir("d"), errno.ENOTEMPTY),
        (lambda: disk.unlink("d/b"), errno.ENOENT),
        (lambda: disk.listdir("nowhere"), errno.ENOENT),
    ):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == expected


def test_a_lock_is_held_until_it_is_closed(disk: Disk) -> None:
    held = disk.lock("LOCK")
    with pytest.raises(StoreLockedError):
        disk.lock("LOCK")
    held.close()
    disk.lock("LOCK").close()


def test_kill_keeps_the_cache_and_gives_locks_back() -> None:
    disk = sim()
    disk.lock("LOCK")
    put(disk, "a", b"unsynced", sync=False)
    disk.kill()
    assert read(disk, "a") == b"unsynced"
    disk.lock("LOCK")


def test_an_open_file_of_a_killed_process_is_of_no_use() -> None:
    disk = sim()
    file = disk.open("a", create=True)
    disk.kill()
    with pytest.raises(OSError, match="closed"):
        file.pwrite(b"ghost", 0)


@pytest.mark.parametrize("journalling", list(Journalling))
def test_synced_data_under_a_synced_name_always_survives_power_loss(journalling: Journalling) -> None:
    for seed in range(200):
        disk = sim(seed, journalling)
        put(disk, "a", b"x" * 3000)
        disk.fsync_dir("")
        file = disk.open("a")
        file.pwrite(b"y" * 3000, 3000)
        disk.power_loss()
        assert read(disk, "a")[:3000] == b"x" * 3000


def test_unsynced_data_may_be_lost_torn_or_kept() -> None:
    seen = set()
    for seed in range(300):
        disk = sim(seed)
        put(disk, "a", b"o" * 1024)
        disk.fsync_dir("")
        disk.open("a").pwrite(b"n" * 1024, 0)
        disk.power_loss()
        image = read(disk, "a")
        seen.add((image[:512] == b"o" * 512, image[512:] == b"o" * 512, image == b"n" * 1024))
    assert {(True, True, False), (True, False, False), (False, True, False), (False, False, True)} <= seen


def test_an_unsynced_name_may_be_lost_although_its_data_was_synced() -> None:
    outcomes = set()
    for seed in range(50):
        disk = sim(seed)
        put(disk, "a", b"data")
        disk.power_loss()
        outcomes.add(disk.exists("a"))
    assert outcomes == {True, False}


def test_a_weak_disk_may_keep_a_later_name_and_lose_an_earlier_one() -> None:
    outcomes = set()
    for seed in range(100):
        disk = sim(seed, Journalling.WEAK)
        put(disk, "a", b"1")
        put(disk, "b", b"2")
        disk.power_loss()
        outcomes.add((disk.exists("a"), disk.exists("b")))
    assert (False, True) in outcomes


def test_a_failed_sync_loses_what_it_covered_even_when_the_next_one_succeeds() -> None:
    disk = sim()
    put(disk, "a", b"old")
    disk.fsync_dir("")
    file = disk.open("a")
    file.pwrite(b"new", 0)
    disk.plan = lambda call, path: DiskFault(error=errno.EIO) if call == "sync" else None
    with pytest.raises(OSError, match="EIO"):
        file.sync()
    disk.plan = lambda call, path: None
    file.sync()
    assert read(disk, "a") == b"new"
    disk.power_loss()
    assert read(disk, "a") == b"old"


def test_a_planned_crash_stops_inside_the_write() -> None:
    disk = sim()
    file = disk.open("a", create=True)
    disk.plan = lambda call, path: DiskFault(crash=True) if call == "pwrite" else None
    with pytest.raises(Crash):
        file.pwrite(b"x" * 100, 0)
    disk.kill()
    disk.plan = lambda call, path: None
    assert len(read(disk, "a")) < 100


def test_the_platter_holds_only_what_is_durable() -> None:
    disk = sim()
    put(disk, "a", b"synced")
    disk.fsync_dir("")
    put(disk, "b", b"not yet named")
    twin = disk.synced_image(0)
    assert (twin.listdir(""), read(twin, "a")) == (["a"], b"synced")
    assert read(disk, "b") == b"not yet named"


@pytest.mark.parametrize("name", ["LOCK", "RESERVE", "s1.torn"])
def test_what_was_erased_is_forgotten_where_a_crash_left_old_blocks_for_good(name: str) -> None:
    held = 0
    for seed in range(60):
        disk = sim(seed)
        put(disk, "old", b"erased " * 100)
        disk.fsync_dir("")
        disk.unlink("old")
        put(disk, name, b"unsynced " * 100, sync=False)
        disk.fsync_dir("")
        disk.power_loss()
        held += disk.holds(b"erased " * 3)
        disk.forget(b"erased " * 3)
        assert not disk.holds(b"erased " * 3)
    assert held


def test_the_same_seed_gives_the_same_images() -> None:
    def image(seed: int) -> bytes:
        disk = sim(seed)
        put(disk, "a", bytes(range(256)) * 20, sync=False)
        disk.fsync_dir("")
        disk.power_loss()
        return read(disk, "a")

    assert image(7) == image(7)
    assert len({image(seed) for seed in range(20)}) > 10
