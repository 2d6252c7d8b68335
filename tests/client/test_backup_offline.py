"""The order of restores, what is picked, and which server is given which format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream, Progress
from natsctl.api.archive.archive_v1 import WriterV1
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import StorageError, UsageError
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.client.backup.account_backup import in_order
from natsctl.client.backup.archives import FormatFinder, fitted, read_messages, summarise, version_for, version_of
from natsctl.client.backup.discovery import backup_info, verify
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.restore import RestoreOptions
from natsctl.client.backup.writer import Capture, captured_config
from natsctl.client.message import Headers, Message

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
    path = _written(tmp_path / "b", [writer.begin(head, [three]), *writer.end(1, 1)], state, num_replicas=3)
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
    pieces = [writer.begin(head, ())]
    pieces += writer.messages([ArchivedMessage(seq, seq, b"s.a", b"", b"x") for seq in (1, 2, 3, 4)])
    pieces += writer.messages([ArchivedMessage(3 | tombstone, 9, b"", b"", b"")])
    pieces += writer.end(4, 4)
    path = _written(tmp_path / "b", pieces, StreamState(messages=2, first_seq=2, last_seq=4))
    with open_backup(path) as backup:
        found = summarise(backup)
        assert (found.messages, found.first_seq, found.last_seq) == (2, 2, 4)
        assert [message.seq for messages in read_messages(backup) for message in messages] == [2, 4]
    assert verify(path).whole


def test_flags_change_the_saved_configuration_and_nothing_else() -> None:
    saved = {"name": "S", "future": {"kept": True}, "placement": {"tags": ["a"]}, "num_replicas": 3}
    options = RestoreOptions(stream="T", cluster="east", replicas=1)
    assert options.applied(saved) == {
        "name": "T",
        "future": {"kept": True},
        "placement": {"tags": ["a"], "cluster": "east"},
        "num_replicas": 1,
    }
    assert RestoreOptions(config={"subjects": ["x"]}).applied(saved) == {"subjects": ["x"], "name": "S"}
