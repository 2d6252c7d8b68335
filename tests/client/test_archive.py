"""Stream backups on disk."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from pathlib import Path

import pytest

from natsctl.api.errors import StorageError, UsageError
from natsctl.client.archive import ArchiveWriter, open_archive

CONFIG = {"name": "ORDERS", "future_field": {"kept": True}}
STATE = {"messages": 3}


def _write(target: Path, data: bytes = b"s2 data") -> None:
    writer = ArchiveWriter(target)
    writer.write(data[:3])
    writer.write(data[3:])
    writer.finish(CONFIG, STATE)
    writer.discard()


@pytest.mark.parametrize("name", ["ORDERS", "ORDERS.tgz", "ORDERS.tar.gz", "ORDERS.tar", "ORDERS.tar.s2"])
def test_every_form_reads_back_as_written(tmp_path: Path, name: str) -> None:
    target = tmp_path / "made" / name
    _write(target)
    with open_archive(target) as archive:
        assert (archive.config, archive.state, archive.stream) == (CONFIG, STATE, "ORDERS")
        assert (archive.data.read(), archive.size) == (b"s2 data", 7)
    assert [entry.name for entry in target.parent.iterdir()] == [name]


def test_a_directory_has_the_two_files_of_the_nats_tool(tmp_path: Path) -> None:
    _write(tmp_path / "b")
    assert sorted(entry.name for entry in (tmp_path / "b").iterdir()) == ["backup.json", "stream.tar.s2"]
    assert json.loads((tmp_path / "b" / "backup.json").read_text()) == {"config": CONFIG, "state": STATE}
    assert stat.S_IMODE((tmp_path / "b" / "backup.json").stat().st_mode) == 0o600


def test_a_tgz_is_a_gzipped_tar_of_the_same_files(tmp_path: Path) -> None:
    _write(tmp_path / "b.tgz")
    with tarfile.open(tmp_path / "b.tgz", "r:gz") as tar:
        assert tar.getnames() == ["backup.json", "stream.tar.s2"]
    assert stat.S_IMODE((tmp_path / "b.tgz").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["b", "b.tgz"])
def test_a_discarded_backup_leaves_nothing_and_keeps_the_older_one(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    _write(folder / name, b"older data")
    writer = ArchiveWriter(folder / name)
    writer.write(b"newer")
    writer.discard()
    assert [entry.name for entry in folder.iterdir()] == [name]
    with open_archive(folder / name) as archive:
        assert archive.data.read() == b"older data"


@pytest.mark.parametrize("name", ["b", "b.tgz"])
def test_a_whole_backup_replaces_an_older_one(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    _write(folder / name, b"older data")
    _write(folder / name, b"newer data")
    assert [entry.name for entry in folder.iterdir()] == [name]
    with open_archive(folder / name) as archive:
        assert archive.data.read() == b"newer data"


def test_a_directory_with_other_things_in_it_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(UsageError, match=r"not a backup: it holds cat\.jpg"):
        ArchiveWriter(tmp_path / "photos")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        ArchiveWriter(tmp_path / "b")


def test_a_target_below_a_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write a backup"):
        ArchiveWriter(tmp_path / "file" / "b")


def test_what_does_not_exist_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"), open_archive(tmp_path / "none"):
        pass


def test_a_directory_without_its_data_is_no_backup(tmp_path: Path) -> None:
    _write(tmp_path / "b")
    (tmp_path / "b" / "stream.tar.s2").unlink()
    with pytest.raises(UsageError, match=r"stream\.tar\.s2 does not exist"), open_archive(tmp_path / "b"):
        pass


def test_an_archive_of_a_servers_data_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "meta.inf").write_text("{}")
    with tarfile.open(tmp_path / "old.tgz", "w:gz") as tar:
        tar.add(tmp_path / "meta.inf", "meta.inf")
    with pytest.raises(UsageError, match=r"lacks backup\.json") as raised, open_archive(tmp_path / "old.tgz"):
        pass
    assert "2020" in raised.value.hint


def test_a_cut_archive_is_damaged(tmp_path: Path) -> None:
    _write(tmp_path / "b.tgz", os.urandom(100_000))
    whole = (tmp_path / "b.tgz").read_bytes()
    (tmp_path / "b.tgz").write_bytes(whole[:200])
    with pytest.raises(StorageError, match="cannot read the backup"), open_archive(tmp_path / "b.tgz"):
        pass


@pytest.mark.parametrize("meta", ["{", "[]", '{"config": {}, "state": {}}', '{"config": {"name": "A"}}'])
def test_a_bad_description_is_told(tmp_path: Path, meta: str) -> None:
    _write(tmp_path / "b")
    (tmp_path / "b" / "backup.json").write_text(meta)
    with pytest.raises((UsageError, StorageError), match=r"backup\.json"), open_archive(tmp_path / "b"):
        pass
