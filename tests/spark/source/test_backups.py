"""Backups as tables: everything that an archive holds, however it is cut, and nothing that it holds no more."""

import gzip
import json
import random
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThanOrEqual

from natsctl.api.archive import archive_v1
from natsctl.api.archive.archive import MessageFields
from natsctl.api.archive.s2 import FrameReader
from natsctl.client.backup.archives import read_messages
from natsctl.client.backup.reader import open_backup
from natsctl.spark.source.errors import BackupError, OptionError, SequenceResetError, StreamNotFoundError
from tests.spark.source.backups import archive, as_row, lay, read_all, reader, rows, written
from tests.support import tiers

RELEASES = Path(__file__).parents[2] / "jetstream" / "data" / "releases"
VERSIONS = sorted(path.stem for path in RELEASES.glob("*.s2"))
SECOND_NS = 1_000_000_000
BEGIN_NS = 1_790_000_000 * SECOND_NS
ODD = "a b.\N{SNOWMAN}.>x.*y".encode()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_v1, "BLOCK_BYTES", 64 << 10)


def some(number: int, payload_bytes: int = 100, step: int = 1) -> list[MessageFields]:
    """Messages of random content, every fourth with a header, a second apart."""
    chance = random.Random(number)
    header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\nTwice: a\r\nTwice: b\r\n\r\n"
    return [
        (
            1 + at * step,
            BEGIN_NS + at * SECOND_NS + 123_456_789,
            b"S.%d" % (at % 7),
            header % at if at % 4 == 0 else b"",
            chance.randbytes(chance.randrange(2 * payload_bytes)),
        )
        for at in range(number)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_released_servers_saved_has_the_rows_that_the_stream_had(version: str, tmp_path: Path) -> None:
    state = json.loads((RELEASES / f"{version}.json").read_text())["state"]
    path = lay(tmp_path / "b", (RELEASES / f"{version}.s2").read_bytes(), state)

    with open_backup(path) as backup:
        held = [as_row(message) for group in read_messages(backup) for message in group]

    assert len(held) == state["messages"]
    assert rows(path) == held


messages_of = st.lists(
    st.tuples(
        st.integers(1, 300),
        st.integers(0, 2**62),
        st.sampled_from([b"a", b"a.b", b"s" * 200, ODD, b"\xff.raw"]),
        st.sampled_from([b"", b"NATS/1.0\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nA:" + b"x" * 20_000 + b"\r\n\r\n"]),
        st.one_of(st.binary(max_size=200), st.sampled_from([b"", bytes(70_000), b"NATSARC1" * 20])),
    ),
    min_size=1,
    max_size=40,
)


@tiers.examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=messages_of, version=st.sampled_from([1, 2]), number=st.integers(1, 4))
def test_any_messages_come_back_from_any_split(
    drawn: list[MessageFields], version: int, number: int, tmp_path: Path, small_blocks: None
) -> None:
    seq, messages = 0, []
    for step, ts_ns, *rest in drawn:
        seq += step
        messages.append((seq, ts_ns, *rest))
    path = tmp_path / f"b{len(list(tmp_path.iterdir()))}"

    found = rows(written(path, messages, version), minPartitions=str(number))

    assert found == [as_row(message) for message in messages]


@pytest.mark.parametrize("version", [1, 2])
def test_an_archive_is_split_and_its_parts_hold_every_message_once_in_order(
    version: int, tmp_path: Path, small_blocks: None
) -> None:
    messages = some(1_200, 300)
    path = written(tmp_path / "b", messages, version)

    split = reader(path, minPartitions="4")

    assert [len(list(split.read(part))) > 0 for part in split.partitions()] == [True] * 4
    assert len(reader(path).partitions()) == 1
    assert read_all(split) == [as_row(one) for one in messages]


def test_what_a_later_block_says_is_gone_is_no_row_of_an_earlier_one(tmp_path: Path, small_blocks: None) -> None:
    messages = some(1_200, 300)
    deleted = (3, 500, 1_200)
    tombstones = [(seq | 1 << 62, BEGIN_NS, b"", b"", b"") for seq in deleted]
    state = {"messages": 1_197, "first_seq": 1, "last_seq": 1_200}

    path = lay(tmp_path / "b", archive([*messages, *tombstones], 1), state)

    found = [row["seq"] for row in rows(path, minPartitions="3")]
    assert found == [seq for seq in range(1, 1_201) if seq not in deleted]


@pytest.mark.parametrize("version", [1, 2])
def test_options_choose_by_offset_time_and_subject(version: int, tmp_path: Path) -> None:
    path = written(tmp_path / "b", some(100, 10), version)
    from_ms, to_ms = str((BEGIN_NS + 50 * SECOND_NS) // 10**6), str((BEGIN_NS + 60 * SECOND_NS) // 10**6)

    def found(**options: str) -> list[int]:
        return [row["seq"] for row in rows(path, **options)]

    assert found(startingOffsets='{"S": 90}', endingOffsets='{"S": 95}') == list(range(90, 96))
    assert found(startingOffsets="latest") == []
    assert found(startingTimestamp=from_ms, endingTimestamp=to_ms) == list(range(51, 61))
    by_stream = {"startingOffsetsByTimestamp": f'{{"S": {from_ms}}}', "endingOffsetsByTimestamp": f'{{"S": {to_ms}}}'}
    assert found(**by_stream) == list(range(51, 61))
    assert found(**by_stream, startingOffsets='{"S": 90}') == list(range(51, 61))
    assert found(**by_stream, startingTimestamp=to_ms) == []
    with pytest.raises(OptionError, match="endingOffsetsByTimestamp: X is not read; read are S"):
        found(endingOffsetsByTimestamp=f'{{"X": {to_ms}}}')
    assert found(subject="S.3,S.5", endingOffsets='{"S": 14}') == [4, 6, 11, 13]
    assert found(subject="S.*", endingOffsets='{"S": 2}') == [1, 2]
    assert found(subject="S.>", endingOffsets='{"S": 2}') == [1, 2]
    assert found(subject="S.*.x") == []
    assert rows(written(tmp_path / "empty", [], version)) == []
    with pytest.raises(OptionError, match="startingOffsets: X is not read; read are S"):
        found(startingOffsets='{"X": 2}')


def test_where_narrows_what_the_options_choose(tmp_path: Path) -> None:
    options = {"startingOffsets": '{"S": 40}', "endingOffsets": '{"S": 60}', "filterPushdown": "true"}
    path, moment = written(tmp_path / "b", some(100), 1), datetime.fromtimestamp(BEGIN_NS // SECOND_NS + 49, UTC)
    by_subject = EqualTo(("subject",), "S.2")
    for where, left, expected in (
        ([GreaterThan(("timestamp",), moment)], 1, [*range(50, 61)]),
        ([LessThanOrEqual(("timestamp",), moment)], 1, [*range(40, 50)]),
        ([GreaterThan(("seq",), 10), LessThanOrEqual(("seq",), 50), by_subject], 1, [45]),
    ):
        of = reader(path, **options)
        assert len(list(of.pushFilters(where))) == left  # type: ignore[attr-defined]  # it has, with the option
        assert [row["seq"] for row in read_all(of)] == expected


@pytest.mark.parametrize(
    ("option", "said", "told"),
    [
        ("startingOffsets", 5, "startingOffsets: it says 5, and S ends at 3"),
        ("endingOffsets", 4, "endingOffsets: it says 4, and S ends at 3"),
    ],
)
def test_offsets_behind_the_last_message_are_told(option: str, said: int, told: str, tmp_path: Path) -> None:
    path = written(tmp_path / "b", some(3), 1)
    with pytest.raises(SequenceResetError, match=told):
        rows(path, **{option: json.dumps({"S": said})})
    left = rows(path, **{option: json.dumps({"S": said})}, failOnDataLoss="false")
    assert len(left) == (0 if option == "startingOffsets" else 3)
    assert rows(path, startingOffsets='{"S": 4}') == []


@pytest.mark.parametrize("name", ["b.tar", "b.tgz"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_tar_file_has_the_rows_of_its_folder(name: str, version: int, tmp_path: Path, small_blocks: None) -> None:
    folder = written(tmp_path / "b", some(3_000), version, manifest=True)
    with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as tar:
        for each in ("backup.json", "manifest.json", "stream.tar.s2"):
            tar.add(folder / each, arcname=each)

    assert rows(tmp_path / name, minPartitions="3") == rows(folder)
    files = b"".join(FrameReader().read(archive(some(3_000), version)))
    (tmp_path / name).write_bytes(gzip.compress(files) if name.endswith("gz") else files)
    if version == 1:
        assert rows(tmp_path / name) == rows(folder), "the server's own files"


def test_an_accounts_folder_is_a_table_of_all_streams_or_of_those_named(tmp_path: Path) -> None:
    for name, version in (("A", 1), ("B", 2), ("C", 1)):
        written(tmp_path / name, some(10), version, name)

    assert [row["stream"] for row in rows(tmp_path)] == ["A"] * 10 + ["B"] * 10 + ["C"] * 10
    assert {row["stream"] for row in rows(tmp_path, stream="A,C")} == {"A", "C"}
    assert {row["stream"] for row in rows(tmp_path, streamPattern="[BC]")} == {"B", "C"}
    with pytest.raises(StreamNotFoundError, match="has no stream Z; it has A, B, C"):
        rows(tmp_path, stream="Z")


@pytest.mark.parametrize("version", [1, 2])
def test_an_archive_that_was_cut_short_is_told_wherever_it_was_cut(version: int, tmp_path: Path) -> None:
    messages = some(300)
    data, chance = archive(messages, version), random.Random(1)
    state = {"messages": 300, "first_seq": 1, "last_seq": 300}

    for cut in [0, 1, 7, *(chance.randrange(8, len(data) - 1) for _ in range(25))]:
        path = lay(tmp_path / str(cut), data[:cut], state)
        with pytest.raises(BackupError, match=r"damaged|cannot read"):
            rows(path)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("manifest", [True, False])
def test_a_changed_byte_is_told_by_a_manifest_and_else_breaks_nothing_but_the_query(
    version: int, manifest: bool, tmp_path: Path
) -> None:
    path = written(tmp_path / "b", some(100), version, manifest=manifest)
    data, chance = (path / "stream.tar.s2").read_bytes(), random.Random(3)
    told = 0
    for at in (chance.randrange(len(data)) for _ in range(30)):
        (path / "stream.tar.s2").write_bytes(data[:at] + bytes((data[at] ^ 0x81,)) + data[at + 1 :])
        try:
            rows(path)
        except BackupError as fault:
            told += not manifest or "is damaged" in str(fault)
    assert told == 30 if manifest else told


def test_what_is_no_backup_is_told_with_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.tar").write_text("no tar")

    for path, told in (("missing", "there is no backup"), ("empty", "is no backup"), ("text.tar", "cannot read")):
        with pytest.raises(BackupError, match=told):
            rows(tmp_path / path)
    with pytest.raises(BackupError, match="not from a URL"):
        read_all(reader(Path("s3a:"), backup="s3a://bucket/b"))


def test_a_task_where_the_backup_is_not_says_that_it_has_to_be_shared(tmp_path: Path) -> None:
    path = written(tmp_path / "b", some(10), 1)
    of = reader(path)
    parts = of.partitions()
    (path / "stream.tar.s2").unlink()

    with pytest.raises(BackupError, match="every machine"):
        list(of.read(parts[0]))
