"""Stream backups on disk: written whole or not at all, and read in every form."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tarfile
from pathlib import Path

import pytest

from natsctl.api.errors import StorageError, UsageError
from natsctl.client.backup.manifest import FORMAT, MadeOn, Manifest
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.writer import BackupWriter

CONFIG = {"name": "ORDERS", "future_field": {"kept": True}}
STATE = {"messages": 3}


def _manifest() -> Manifest:
    return Manifest(format=FORMAT, tool="test", created="2026-01-01T00:00:00Z", stream="ORDERS", server=MadeOn())


def _write(target: Path, data: bytes = b"s2 data", *, replace: bool = False) -> None:
    writer = BackupWriter(target, replace=replace)
    writer.write(data[:3])
    writer.write(data[3:])
    writer.finish(CONFIG, STATE, _manifest())
    writer.discard()


@pytest.mark.parametrize("name", ["ORDERS", "ORDERS.tgz", "ORDERS.tar.gz", "ORDERS.tar", "ORDERS.tar.s2"])
def test_every_form_reads_back_as_written(tmp_path: Path, name: str) -> None:
    target = tmp_path / "made" / name
    _write(target)
    with open_backup(target) as archive:
        assert (archive.config, archive.state, archive.stream) == (CONFIG, STATE, "ORDERS")
        assert (archive.data.read(), archive.size) == (b"s2 data", 7)
    assert [entry.name for entry in target.parent.iterdir()] == [name]


def test_a_directory_has_the_two_files_of_the_nats_tool_and_a_manifest(tmp_path: Path) -> None:
    _write(tmp_path / "b")
    names = ["backup.json", "manifest.json", "stream.tar.s2"]
    assert sorted(entry.name for entry in (tmp_path / "b").iterdir()) == names
    assert json.loads((tmp_path / "b" / "backup.json").read_text()) == {"config": CONFIG, "state": STATE}
    assert stat.S_IMODE((tmp_path / "b" / "backup.json").stat().st_mode) == 0o600


def test_a_tgz_is_a_gzipped_tar_of_the_same_files(tmp_path: Path) -> None:
    _write(tmp_path / "b.tgz")
    with tarfile.open(tmp_path / "b.tgz", "r:gz") as tar:
        assert tar.getnames() == ["backup.json", "manifest.json", "stream.tar.s2"]
    assert stat.S_IMODE((tmp_path / "b.tgz").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["b", "b.tgz"])
def test_a_discarded_backup_leaves_nothing_and_keeps_the_older_one(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    _write(folder / name, b"older data")
    writer = BackupWriter(folder / name, replace=True)
    writer.write(b"newer")
    writer.discard()
    assert [entry.name for entry in folder.iterdir()] == [name]
    with open_backup(folder / name) as archive:
        assert archive.data.read() == b"older data"


@pytest.mark.parametrize(
    ("target", "text"), [("photos", r"not a backup: it holds cat\.jpg"), ("photos/cat.jpg/b", "cannot write a backup")]
)
def test_a_target_that_is_something_else_is_a_usage_error(tmp_path: Path, target: str, text: str) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(UsageError, match=text):
        BackupWriter(tmp_path / target)


@pytest.mark.parametrize(
    ("file", "change", "text"),
    [
        ("", None, "does not exist"),
        ("stream.tar.s2", None, r"stream\.tar\.s2 does not exist"),
        ("backup.json", b"{", r"backup\.json"),
        ("backup.json", b"[]", r"backup\.json"),
        ("backup.json", b'{"config": {}, "state": {}}', r"backup\.json"),
        ("backup.json", b'{"config": {"name": "A"}}', r"backup\.json"),
    ],
)
def test_what_is_no_backup_is_told(tmp_path: Path, file: str, change: bytes | None, text: str) -> None:
    _write(tmp_path / "b")
    if not file:
        shutil.rmtree(tmp_path / "b")
    elif change is None:
        (tmp_path / "b" / file).unlink()
    else:
        (tmp_path / "b" / file).write_bytes(change)
    with pytest.raises((UsageError, StorageError), match=text), open_backup(tmp_path / "b"):
        pass


def test_a_manifest_of_a_later_kind_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "b")
    said = tmp_path / "b" / "manifest.json"
    said.write_text(said.read_text().replace(FORMAT, "somebody.else/3"))
    with pytest.raises(StorageError, match="unknown format"), open_backup(tmp_path / "b"):
        pass


def test_a_tar_that_is_no_backup_or_ends_early_is_told(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_text("{}")
    with tarfile.open(tmp_path / "old.tgz", "w:gz") as tar:
        tar.add(tmp_path / "cat.jpg", "cat.jpg")
    with pytest.raises(UsageError, match=r"lacks backup\.json"), open_backup(tmp_path / "old.tgz"):
        pass
    _write(tmp_path / "b.tgz", os.urandom(100_000))
    (tmp_path / "b.tgz").write_bytes((tmp_path / "b.tgz").read_bytes()[:200])
    with pytest.raises(StorageError, match="cannot read the backup"), open_backup(tmp_path / "b.tgz"):
        pass


def test_what_another_command_restores_is_told_with_that_command(tmp_path: Path) -> None:
    (tmp_path / "stream_S.json").write_text("{}")
    with pytest.raises(UsageError) as raised, open_backup(tmp_path):
        pass
    assert "natsctl restore" in raised.value.hint
    _write(tmp_path / "account" / "S")
    with pytest.raises(UsageError) as raised, open_backup(tmp_path / "account"):
        pass
    assert "natsctl account restore" in raised.value.hint


def test_a_stream_of_the_longest_name_has_a_backup(tmp_path: Path) -> None:
    name = "N" * 255
    _write(tmp_path / "out" / name)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [name]
