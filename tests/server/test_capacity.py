"""What JetStream may use when nobody says."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from natsctl.server.resources import default_max_storage

DISK_BYTES = 100 << 20


@pytest.fixture(autouse=True)
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk of 100 MiB that holds what is below the test's folder."""

    def statvfs(_: Path) -> SimpleNamespace:
        used = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*") if path.is_file())
        return SimpleNamespace(f_bavail=DISK_BYTES - used, f_frsize=1)

    monkeypatch.setattr(os, "statvfs", statvfs)


def test_streams_may_use_three_quarters_of_the_free_space(tmp_path: Path) -> None:
    assert default_max_storage(tmp_path / "not" / "there" / "yet") == DISK_BYTES * 3 // 4


def test_what_is_stored_does_not_lower_the_limit_at_a_restart(tmp_path: Path) -> None:
    segment = tmp_path / "store" / "jetstream" / "streams" / "s000001" / "1.seg"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"x" * (60 << 20))
    assert default_max_storage(tmp_path / "store" / "jetstream") == DISK_BYTES * 3 // 4


def test_what_others_store_on_the_disk_lowers_the_limit(tmp_path: Path) -> None:
    (tmp_path / "others").write_bytes(b"x" * (60 << 20))
    (tmp_path / "store").mkdir()
    others = (tmp_path / "others").stat().st_blocks * 512
    assert default_max_storage(tmp_path / "store") == (DISK_BYTES - others) * 3 // 4
