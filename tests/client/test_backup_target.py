"""Backups on disk: written whole or not at all, read in every form, never trusted, and in the server's format."""

import gzip
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream, Progress
from natsctl.api.archive.archive_v1 import WriterV1
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import NatsctlError, StorageError, UsageError
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.client.backup import reader
from natsctl.client.backup.account_backup import in_order
from natsctl.client.backup.archives import FormatFinder, fitted, read_messages, summarise, version_for, version_of
from natsctl.client.backup.configuration import read_saved
from natsctl.client.backup.discovery import backup_info, find_backups, verify
from natsctl.client.backup.manifest import FORMAT, MadeOn, Manifest
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.writer import BackupWriter, Capture, captured_config
from natsctl.client.message import Headers, Message

CONFIG = {"name": "ORDERS", "future_field": {"kept": True}}
STATE = {"messages": 3}


def _manifest() -> Manifest:
    return Manifest(format=FORMAT, tool="test", created="2026-01-01T00:00:00Z", stream="ORDERS", server=MadeOn())


def _write(target: Path, data: bytes = b"s2 data", *, replace: bool = False) -> None:
    with BackupWriter(target, replace=replace) as writer:
        writer.write(data[:3])
        writer.write(data[3:])
        writer.finish(CONFIG, STATE, _manifest())


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
    with BackupWriter(folder / name, replace=True) as writer:
        writer.write(b"newer")
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


META = {"config": {"name": "S"}, "state": {"messages": 0}}
DEEP = b'{"config":' * 100_000


def put(folder: Path, meta: object = META) -> Path:
    folder.mkdir()
    (folder / "backup.json").write_bytes(meta if isinstance(meta, bytes) else json.dumps(meta).encode())
    (folder / "stream.tar.s2").touch()
    return folder


@pytest.mark.parametrize("name", ["backup.json", "stream.tar.s2", "manifest.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_plain_files_are_read(tmp_path: Path, name: str, kind: str) -> None:
    place = put(tmp_path / "backup") / name
    place.unlink(missing_ok=True)
    writer = -1
    if kind == "pipe":
        os.mkfifo(place)
        writer = os.open(place, os.O_RDWR)  # or a reader that is at fault would wait for ever
        os.write(writer, json.dumps(META).encode())
        os.set_blocking(writer, False)
    else:
        place.symlink_to("/dev/null")
    try:
        with pytest.raises(StorageError, match="is not a regular file"), open_backup(tmp_path / "backup"):
            pass
    finally:
        if writer >= 0:
            os.close(writer)


def test_a_description_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    for name in ("backup.json", "manifest.json"):
        folder = put(tmp_path / name)
        (folder / name).touch()
        os.truncate(folder / name, 1 << 36)
        with pytest.raises(StorageError, match="has more than"), open_backup(folder):
            pass


@pytest.mark.parametrize(
    "meta",
    [
        DEEP,
        {**META, "state": {"messages": "x"}},
        {**META, "state": {"bytes": []}},
        {**META, "state": {"last_seq": -1}},
        {**META, "state": {"first_seq": 1 << 64}},
        {**META, "config": {"name": "S", "placement": 5}},
        {**META, "config": {"name": "S", "subjects": "a"}},
    ],
    ids=lambda meta: "deep" if isinstance(meta, bytes) else str(meta),
)
def test_a_description_that_lies_is_a_damaged_backup(tmp_path: Path, meta: object) -> None:
    folder = put(tmp_path / "backup", meta)
    with pytest.raises(StorageError), open_backup(folder):
        pass
    (found,) = find_backups(tmp_path)
    assert found.error


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_of_a_bomb_is_not_read_into_memory(
    tmp_path: Path, kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 33
    path = tmp_path / "bomb.tgz"
    with gzip.open(path, "wb") as file:
        file.write(header.tobuf() + bytes(1 << 20))
    asked: list[int] = []
    read: Callable[..., bytes] = gzip.GzipFile.read

    def noted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        asked.append(size or 0)
        return read(self, min(size or 0, 1 << 20))

    monkeypatch.setattr(gzip.GzipFile, "read", noted)
    with pytest.raises(StorageError), open_backup(path):
        pass
    assert max(asked) <= reader._MAX_EXTENDED_BYTES


def test_a_file_of_a_configuration_that_is_none_is_refused(tmp_path: Path) -> None:
    deep, pipe = tmp_path / "stream_a.json", tmp_path / "stream_b.json"
    deep.write_bytes(DEEP)
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"{")
    os.close(writer)
    faults: list[Any] = []
    for path in (deep, pipe):
        with pytest.raises(NatsctlError) as raised:
            read_saved(path)
        faults.append(str(raised.value))
    assert "is not a file of a configuration backup" in faults[0] and "is not a regular file" in faults[1]


DATA = Path(__file__).parents[1] / "jetstream" / "data"


def _directory(folder: Path, archive: Path, meta: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    shutil.copy(archive, folder / "stream.tar.s2")
    (folder / "backup.json").write_text(json.dumps({"config": meta["config"], "state": meta["state"]}))
    return folder


def _v1(folder: Path) -> Path:
    return _directory(folder, DATA / "reference_v1_S.s2", json.loads((DATA / "reference_v1_S.json").read_text()))


def test_origins_come_before_what_copies_them() -> None:
    configs: dict[str, dict[str, Any]] = {
        "A": {"sources": [{"name": "B"}, {"name": "ELSEWHERE"}]},
        "B": {"mirror": {"name": "C"}},
        "C": {},
        "D": {"mirror": {"name": "A", "external": {"api": "$JS.x.API"}}},
    }
    assert in_order(configs) == ([["C", "D"], ["B"], ["A"]], [])


def test_streams_in_a_circle_are_told_apart() -> None:
    configs: dict[str, dict[str, Any]] = {
        "A": {"sources": [{"name": "B"}]},
        "B": {"sources": [{"name": "A"}]},
        "C": {"mirror": {"name": "A"}},
        "SELF": {"sources": [{"name": "SELF"}]},
    }
    assert in_order(configs) == ([["SELF"]], ["A", "B", "C"])


@pytest.mark.parametrize(
    ("release", "name", "storage", "version"),
    [
        ("2.15.2", "S", "file", 1),
        ("2.15.2", "T", "file", 2),
        ("2.14.9", "S", "file", 1),
        ("2.10.29", "T", "file", 1),
        ("2.16.0-dev", "S", "memory", 2),
        ("", "S", "file", 1),
    ],
)
def test_each_server_is_given_the_format_that_it_reads(
    tmp_path: Path, release: str, name: str, storage: str, version: int
) -> None:
    with open_backup(_v1(tmp_path / "b")) as backup:
        assert version_for(backup, {"name": name, "storage": storage}, release) == version


@pytest.mark.parametrize("version", [1, 2])
async def test_consumers_have_no_more_copies_than_their_stream(tmp_path: Path, version: int) -> None:
    writer = WriterV1() if version == 1 else WriterV2()
    state = StreamState(first_seq=2, last_seq=1)
    three = ArchivedConsumer("C", ConsumerConfig(durable_name="C", num_replicas=3), Progress())
    head = ArchivedStream(config=StreamConfig(name="S", num_replicas=3), created_ns=1, state=state)
    path = _written(tmp_path / "b", [*writer.beginning(head, [three]), *writer.end(1, 1)], state, num_replicas=3)
    config = {"name": "S", "storage": "file"}
    with open_backup(path) as backup:
        async with fitted(backup, {**config, "num_replicas": 3}, version) as done:
            assert (done, [one.config.num_replicas for one in summarise(backup).consumers]) == ("", [3])
        async with fitted(backup, {**config, "num_replicas": 1}, version) as done:
            assert (done, version_of(backup)) == ("1 replica, as the stream has, for C", version)
            assert [one.config.num_replicas for one in summarise(backup).consumers] == [1]


def test_an_old_server_restores_nothing_in_memory(tmp_path: Path) -> None:
    with open_backup(_v1(tmp_path / "b")) as backup, pytest.raises(UsageError, match="no stream in memory") as raised:
        version_for(backup, {"name": "S", "storage": "memory"}, "2.14.1")
    assert "--config" in raised.value.hint


def test_the_format_is_known_by_the_first_bytes_in_any_pieces() -> None:
    for number, name in ((1, "reference_v1_S.s2"), (2, "reference_v2.s2")):
        data = (DATA / name).read_bytes()
        for size in (1, 7, 64, len(data)):
            finder = FormatFinder()
            for at in range(0, len(data), size):
                finder.add(data[at : at + size])
            assert finder.version == number, (name, size)
    with pytest.raises(StorageError, match="unknown type"):
        FormatFinder().add(b"PK\x03\x04 this is something else")


def _written(folder: Path, pieces: list[bytes], state: StreamState, **config: Any) -> Path:
    frames = FrameWriter()
    folder.mkdir()
    (folder / "stream.tar.s2").write_bytes(b"".join(map(frames.write, pieces)) + frames.finish())
    meta = {
        "config": {"name": "S", **config},
        "state": {"messages": state.messages, "first_seq": 2, "last_seq": state.last_seq},
    }
    (folder / "backup.json").write_text(json.dumps(meta))
    return folder


def test_published_messages_are_captured_under_numbers_of_their_own(tmp_path: Path) -> None:
    target = tmp_path / "LOGS"
    capture = Capture(target, captured_config(target, ["log.>"]), ["log.>"], stored=False)
    for number in range(300):
        capture.add(Message(f"log.{number % 3}", b"x" * number, headers=Headers([("N", str(number))])))
    done = capture.finish(dropped=2)
    assert (done.stream, done.messages, verify(target).whole) == ("LOGS", 300, True)
    with open_backup(target) as backup:
        found = backup_info(backup)
        assert (found.first_seq, found.last_seq, found.num_subjects, found.bytes) == (1, 300, 3, done.bytes)
        assert found.source is not None
        assert (found.source.subjects, found.source.stream, found.source.dropped) == (["log.>"], "", 2)
    with pytest.raises(UsageError, match="exists"):
        Capture(target, captured_config(target, ["log.>"]), [], stored=False)


def test_messages_of_version_1_that_are_gone_are_not_counted(tmp_path: Path) -> None:
    tombstone = 1 << 62
    writer, head = WriterV1(), ArchivedStream(config=StreamConfig(name="S"), created_ns=1)
    pieces = [*writer.beginning(head, ())]
    pieces += writer.messages([ArchivedMessage(seq, seq, b"s.a", b"", b"x") for seq in (1, 2, 3, 4)])
    pieces += writer.messages([ArchivedMessage(3 | tombstone, 9, b"", b"", b"")])
    pieces += writer.end(4, 4)
    path = _written(tmp_path / "b", pieces, StreamState(messages=2, first_seq=2, last_seq=4))
    with open_backup(path) as backup:
        found = summarise(backup)
        assert (found.messages, found.first_seq, found.last_seq) == (2, 2, 4)
        assert [message.seq for messages in read_messages(backup) for message in messages] == [2, 4]
    assert verify(path).whole
