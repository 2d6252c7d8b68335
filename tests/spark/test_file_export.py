"""Exports and imports: what a path means, what may be replaced, and that every byte comes back.

Paths of this machine as Spark spells them.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nats.js import errors as nats_errors
from nats.js.api import StreamConfig

from natsctl.api.errors import ExitCode, NotFoundError, StorageError, UsageError
from natsctl.api.stream import StreamConfig as Config
from natsctl.cli.main import run as run_main
from natsctl.spark.files import file_import as source_module
from natsctl.spark.files.direct_export import export_direct, is_direct
from natsctl.spark.files.direct_import import direct_import, noted_schema
from natsctl.spark.files.file_export import (
    Exported,
    FileTarget,
    Note,
    check_written,
    export,
    prepare,
    remove_strays,
    replace_folder,
    report_of,
    target_of,
    writer_of,
)
from natsctl.spark.files.file_formats import local_path, spark_input, spark_path
from natsctl.spark.files.file_import import NUMBER, examine, messages, read_rows, source_of
from natsctl.spark.files.message_columns import IDS, headers_of, left_out, payload_of
from natsctl.spark.session.failures import translated
from natsctl.spark.stream_frames import STREAM_COLUMNS, schema_of
from natsctl.testing.process import ServerProcess
from tests.support import patient_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Message = tuple[str, dict[str, str] | None, bytes]
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
ROWS = "stream string, seq bigint, subject string, headers array<struct<key: string, value: binary>>, value binary"
EXPORTED = """stream string, seq bigint, subject string, timestamp timestamp,
    headers array<struct<key: string, value: binary>>, value binary"""
HOSTILE: list[Message] = [
    ("ORDERS.eu.new", {"Nats-Msg-Id": "own-1", "Color": "red"}, b'{"id": 1}'),
    ("ORDERS.eu.new", None, b""),
    ("ORDERS.us.new", None, b'quoted "twice", \\back, comma'),
    ("ORDERS.us.new", {"X": 'a "b", c'}, b" blanks \t and\r\nline ends \n"),
    ("ORDERS.us.old", None, b"\xff\x00\xfe not UTF-8"),
    ("ORDERS.eu.007", {"Nats-Expected-Stream": "ORDERS"}, "é \U0001f600 \u2028 \x7f \x00".encode()),
    ("ORDERS.eu.new", None, b"#=1+1"),
    ("ORDERS.us.new", None, b'""'),
]


def target(path: Path | str, **more: Any) -> FileTarget:
    return target_of(
        str(path),
        more.get("format", ""),
        more.get("by", ""),
        incremental=more.get("on", False),
        force=more.get("f", False),
    )


def input_of(path: Path, subject: str = "", *, as_json: bool = False) -> Any:
    return source_of(str(path), "", subject, as_json=as_json)


def test_a_path_that_ends_as_a_file_does_is_one_file(tmp_path: Path) -> None:
    kinds = {
        name: (found := target(tmp_path / name)).is_file and found.format.name
        for name in ("a.parquet", "a.jsonl", "a.json", "A.CSV", "a.csv.gz", "a", "a.d", "a.delta")
    }
    assert kinds == {
        "a.parquet": "parquet", "a.jsonl": "json", "a.json": "json", "A.CSV": "csv", "a.csv.gz": "csv",
        "a": False, "a.d": False, "a.delta": False,
    }  # fmt: skip
    assert not target(tmp_path / "a.parquet", by="date").is_file
    assert not target(tmp_path / "a.parquet", on=True).is_file
    assert not target(tmp_path / "a.parquet", format="csv").is_file
    assert not target("s3a://bucket/a.parquet").is_file


def test_nothing_is_replaced_unasked_and_no_folder_that_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00000-x.parquet").touch()
    for name in ("a.csv", "mine", "out"):
        with pytest.raises(UsageError, match="exists"):
            target(tmp_path / name)
    with pytest.raises(UsageError, match=r"no export: it holds thesis\.tex"):
        target(tmp_path / "mine", f=True)
    assert target(tmp_path / "a.csv", f=True).is_file
    assert not target(tmp_path / "out", f=True).is_file


@pytest.mark.parametrize(
    ("path", "more", "why"),
    [
        ("a.parquet.gz", {}, "compressed already"),
        ("a", {"by": "hour"}, "date or subject"),
        ("a", {"format": "xml"}, "expected one of"),
        ("none/a.csv", {}, "is no folder"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, path: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        target(tmp_path / path, **more)


def test_an_export_goes_on_only_as_it_was_begun(tmp_path: Path) -> None:
    note = Note(stream="ORDERS", subject="", format="parquet", partition_by="")
    prepare(target(tmp_path / "out", on=True), note)
    prepare(target(tmp_path / "out", on=True), note)
    with pytest.raises(UsageError, match="export with stream ORDERS, not OTHER"):
        prepare(target(tmp_path / "out", on=True), Note(stream="OTHER", subject="", format="parquet", partition_by=""))
    (tmp_path / "out" / "part-0").touch()
    prepare(target(tmp_path / "out", on=True, f=True), note)
    assert not (tmp_path / "out" / "part-0").exists()


def test_files_that_no_finished_batch_names_are_removed(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    (log / "0").write_text('v1\n{"path":"file:///x/date=1/part-0.parquet","action":"add"}\n')
    (log / "9.compact").write_text('v1\n{"path":"file:///x/part-1.parquet","action":"add"}\n')
    for name in ("part-0.parquet", "part-1.parquet", "part-2.parquet"):
        (tmp_path / name).touch()
    assert remove_strays(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.glob("part-*")) == ["part-0.parquet", "part-1.parquet"]


def test_the_format_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "d=1").mkdir()
    (tmp_path / "_natsctl").mkdir()
    (tmp_path / "_natsctl" / "export.json").touch()
    (tmp_path / "d=1" / "part-0.csv.gz").touch()
    assert input_of(tmp_path).format.name == "csv"
    (tmp_path / "part-1.parquet").touch()
    with pytest.raises(UsageError, match="several formats"):
        input_of(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("none", "empty"):
        with pytest.raises(NotFoundError):
            input_of(tmp_path / name)
    (tmp_path / "a[1].csv").touch()
    with pytest.raises(UsageError, match="reads no CSV"):  # Spark takes it for a pattern
        input_of(tmp_path / "a[1].csv")


def test_columns_of_files_are_read_whatever_writers_left_out() -> None:
    """JSON lacks the columns that are null in every row."""
    assert "value_base64" not in payload_of({"value": "string"})
    assert payload_of({"value_base64": "string"}).startswith("coalesce(to_binary(cast(value_base64 as string)")
    assert "to_json(value)" in payload_of({"value": "struct<a:int>"})
    assert "pair.value " not in headers_of({"headers": "array<struct<key:string,value_base64:string>>"})
    assert "map_entries" in headers_of({"headers": "map<string,string>"})
    assert headers_of({"value": "binary"}).startswith("cast(null")
    for kind in ("array<string>", "bigint", "struct<A:binary>", "array<struct<key:string,value:array<binary>>>"):
        with pytest.raises(UsageError, match="cannot be converted to headers"):
            headers_of({"headers": kind})


@pytest.fixture
def natsctl(server: ServerProcess, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a command that has to succeed, in the session of Spark that there is."""
    monkeypatch.setenv("NATS_URL", server.url)

    def run(*words: str) -> None:
        assert run_main(list(words)) == 0, words

    return run


def made(url: str, streams: dict[str, list[str]], messages: list[Message]) -> None:
    """Make streams anew, or with other subjects, and publish the messages."""

    async def work() -> None:
        connection = await patient_client.connect(url)
        stream = connection.jetstream()
        for name, subjects in streams.items():
            with suppress(nats_errors.NotFoundError):
                await stream.delete_stream(name)
            await stream.add_stream(StreamConfig(name=name, subjects=subjects))
        for subject, headers, payload in messages:
            await stream.publish(subject, payload, headers=headers)
        await connection.close()

    asyncio.run(work())


def stored(url: str, name: str) -> list[Message]:
    async def work() -> list[Message]:
        connection = await patient_client.connect(url)
        stream = connection.jetstream()
        state = (await stream.stream_info(name)).state
        found = [await stream.get_msg(name, seq) for seq in range(1, state.last_seq + 1)]
        await connection.close()
        return [(one.subject or "", one.headers, one.data or b"") for one in found]

    return asyncio.run(work())


def as_imported(messages: list[Message]) -> list[Message]:
    """The messages as an import stores them: each with an id, without what servers obey."""
    found = []
    for seq, (subject, headers, payload) in enumerate(messages, 1):
        kept = {key: value for key, value in (headers or {}).items() if not key.startswith("Nats-Expected-")}
        found.append((subject, {"Nats-Msg-Id": f"ORDERS:{seq}", **kept}, payload))
    return found


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("all é [1].parquet", ()),
        ("all.jsonl", ()),
        ("out é 50%20", ("--format", "csv", "--partition-by", "date")),
        ("out é [1]%20", ("--format", "parquet", "--partition-by", "subject")),
    ],
)
def test_what_is_exported_comes_back_once_and_in_order(
    natsctl: Callable[..., None],
    server: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    flags: tuple[str, ...],
) -> None:
    """A file of Parquet or of JSON lines without Spark, the rest by Spark."""
    made(server.url, {"ORDERS": ["ORDERS.>"], "COPY": ["elsewhere"]}, HOSTILE)
    path = str(tmp_path / name)
    natsctl("stream", "export", "ORDERS", path, *flags)
    made(server.url, {"ORDERS": ["was.orders"], "COPY": ["ORDERS.>"]}, [])
    capsys.readouterr()
    natsctl("stream", "import", "COPY", path)
    assert stored(server.url, "COPY") == as_imported(HOSTILE)
    assert "left out headers that the server would act on: Nats-Expected-… of 1 message" in capsys.readouterr().err
    natsctl("stream", "import", "COPY", path)
    assert len(stored(server.url, "COPY")) == len(HOSTILE)
    made(server.url, {"COPY": ["elsewhere"]}, [])


@pytest.mark.parametrize(
    "flags", [{}, {"startingOffsets": '{"ORDERS": 3}', "subject": "ORDERS.us.>"}, {"subject": "ORDERS.no"}]
)
@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.json.gz"])
def test_an_export_without_spark_is_that_of_spark(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, name: str, flags: dict[str, str]
) -> None:
    made(server.url, {"ORDERS": ["ORDERS.>"]}, HOSTILE)
    options = {"servers": server.url, "stream": "ORDERS", "failOnDataLoss": "false", **flags}
    (tmp_path / "spark").mkdir()
    by_spark = export(spark, options, "ORDERS", target(tmp_path / "spark" / name))
    seen = [0]
    direct = export_direct(options, "ORDERS", target(tmp_path / name), seen.append)
    assert replace_path(direct) == replace_path(by_spark)
    assert seen[-1] == direct.messages
    if name.endswith("parquet"):
        found, expected = (pq.read_table(folder / name) for folder in (tmp_path, tmp_path / "spark"))
        assert found.to_pylist() == expected.to_pylist()
        assert found.schema.remove_metadata() == expected.schema.remove_metadata()
        assert parquet_rows(spark, tmp_path / name) == parquet_rows(spark, tmp_path / "spark" / name)
    else:
        texts = [(folder / name).read_bytes() for folder in (tmp_path, tmp_path / "spark")]
        texts = [gzip.decompress(text) for text in texts] if name.endswith("gz") else texts
        found, expected = ([json.loads(line) for line in text.splitlines()] for text in texts)
        assert found == expected


def test_large_streams_folders_and_other_formats_are_exported_by_spark(tmp_path: Path) -> None:
    small, parquet = {"messages": 1000, "bytes": 1000}, target(tmp_path / "a.parquet")
    assert is_direct(parquet, small)
    assert is_direct(parquet, {"messages": 2_000_001, "bytes": 2 << 30})
    assert is_direct(target(tmp_path / "a.jsonl"), {"messages": 0})
    for other in (
        target(tmp_path / "a.csv"), target(tmp_path / "a"), target("s3a://bucket/a.parquet"),
        target(tmp_path / "a.parquet", by="date"), target(tmp_path / "a.parquet", on=True),
    ):  # fmt: skip
        assert not is_direct(other, small)
    assert not is_direct(parquet, {"messages": 10_000_001, "bytes": 1000})
    assert not is_direct(parquet, {"messages": 1, "bytes": 9 << 30})
    assert not is_direct(target(tmp_path / "a.jsonl"), {"messages": 2_000_001, "bytes": 1000})


def replace_path(exported: Exported) -> dict[str, Any]:
    return {**msgspec.structs.asdict(exported), "path": ""}


def parquet_rows(spark: SparkSession, path: Path) -> list[Any]:
    return spark.read.parquet(spark_path(path)).orderBy("seq").collect()


@pytest.mark.parametrize("by", ["", "subject"])
@pytest.mark.parametrize("name", ["json", "csv", "parquet"])
def test_an_export_of_no_messages_is_read_as_none(spark: SparkSession, tmp_path: Path, name: str, by: str) -> None:
    path = tmp_path / "out"
    frame = spark.createDataFrame([], schema_of(STREAM_COLUMNS))
    writer_of(frame, target(path, format=name, by=by)).save(spark_path(path))
    assert rows_of(spark, path) == []


def rows_of(spark: SparkSession, path: Path) -> list[tuple[str, list[tuple[str, bytes]], bytes]]:
    """What a file or folder of others is imported as, in the order of the import."""
    found = read_rows(spark, input_of(path)).sort("stream", "seq", NUMBER).collect()
    return [(row["subject"], _pairs(row["headers"]), bytes(row["value"])) for row in found]


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ('{"B": "1", "A": "2"}', [("B", b"1"), ("A", b"2")]),
        ('{"A": ["1", "2"], "B": []}', [("A", b"1"), ("A", b"2")]),
        ('{"A": ["1"], "B": 2, "C": null}', [("A", b'["1"]'), ("B", b"2"), ("C", b"")]),
        ('[{"key": "A", "value": 1}, {"key": "A", "value_base64": "/w=="}]', [("A", b"1"), ("A", b"\xff")]),
        ('{"": "1"}', [("", b"1")]),
        ("null", []),
    ],
)
def test_headers_that_others_wrote_as_json_are_kept(
    spark: SparkSession, tmp_path: Path, headers: str, found: list[tuple[str, bytes]]
) -> None:
    lines, table = tmp_path / "a.jsonl", tmp_path / "a.csv"
    lines.write_text(f'{{"subject": "a", "value": "1", "headers": {headers}}}\n')
    quoted = headers.replace('"', '""').replace("null", "" if headers == "null" else "null")
    table.write_text(f'subject,value,headers\na,1,"{quoted}"\n')
    assert rows_of(spark, lines) == rows_of(spark, table) == [("a", found, b"1")]


def test_json_is_a_payload_as_it_is_spelled(spark: SparkSession, tmp_path: Path) -> None:
    long = '"%s"' % ("x" * 21_000_000)  # 64 MiB is the most; Spark's own is 20 M
    values = ['{"z":1.10,"a":null}', "12345678901234567890", "1.10", "[1,null]", "true", long]
    path = tmp_path / "a.jsonl"
    path.write_text("\n")
    assert rows_of(spark, path) == []
    path.write_text("{}\n")
    with pytest.raises(UsageError, match="no column subject"):
        rows_of(spark, path)
    path.write_text("".join(f'{{"subject": "a", "value": {value}}}\n' for value in values))
    assert [value.decode() for _, _, value in rows_of(spark, path)] == [*values[:-1], long.strip('"')]


def test_tables_of_others_are_read_with_all_their_columns_and_by_the_names_of_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One file lacks columns of another; times in nanoseconds and headers as objects are what pandas makes."""
    folder = tmp_path / "tables"
    folder.mkdir()
    pq.write_table(pa.table({"subject": ["a"], "value": [b"1"]}), folder / "a.parquet")
    many = pa.table({"subject": ["b"] * 2000, "value": [b"%d" % one for one in range(2000)]})
    pq.write_table(many, folder / "b.parquet")
    headers = pa.array([{"A": "1", "B": None}])
    moment = pa.array([1], pa.timestamp("ns", "UTC"))
    last = pa.table({"subject": ["c"], "value": [b"3"], "headers": headers, "timestamp": moment})
    pq.write_table(last, folder / "c.parquet")
    found = rows_of(spark, folder)
    assert [value for _, _, value in found] == [b"1", *(b"%d" % one for one in range(2000)), b"3"]
    assert (found[0][1], found[-1][1]) == ([], [("A", b"1")])


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"a.csv": b"subject,value\na,1\n", "b.csv": b"value,subject\n1,a\n"}, "does not conform"),
        ({"a.csv": b"subject,value\na,1\nb\n"}, "Malformed CSV record: b"),
        ({"a.csv": b"subject,value\na,\xe9\n"}, "not in UTF-8"),
        ({"a.csv": b"subject,value\na,1\n", "b.csv.gz": gzip.compress(b"subject,value\na,\xe9\n")}, "not in UTF-8"),
        ({"a.csv": b"subject,value,headers\na,1,A: 1\n"}, "headers in a text are JSON"),
        ({"a.jsonl": b'{"subject": "a", "value_base64": "!!!"}\n'}, "malformed"),
        ({"a.jsonl": b'{"subject": "a", "value": "1", "headers": [{"name": "A"}]}\n'}, "a header has no key"),
    ],
)
def test_what_cannot_be_read_as_it_was_meant_is_told(
    spark: SparkSession, tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises((PySparkException, Py4JError, UsageError)) as failed:
        rows_of(spark, tmp_path)
    told = translated(failed.value)
    assert why in f"{told} {told.hint}"


def test_text_is_utf8_however_it_is_cut_for_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PIECE_BYTES", 1)
    for text, valid in (("é€😀".encode(), True), (b"a\xc3", False), (b"\xc3a", False), (b"", True)):
        (tmp_path / "a.csv").write_bytes(text)
        assert source_module._is_utf8(tmp_path / "a.csv") is valid


def _pairs(headers: Any) -> list[tuple[str, bytes]]:
    return [(key, bytes(value)) for key, value in headers or ()]


def test_what_is_left_out_is_counted_and_all_else_stays_in_its_order(spark: SparkSession) -> None:
    kept = ["A", "nats-rollup", "KV-Operation", "Nats-Schedule-Target", "Z"]
    headers = [(name, b"1") for name in ("Z", "Nats-TTL", "Nats-Rollup", "Nats-Stream-Source", *kept)]
    rows = [
        ("ORDERS", 1, "o", headers, b"", 1),
        ("ORDERS", 2, "o", headers[1:3], b"", 2),
        ("ORDERS", 3, "o", None, b"", 3),
    ]
    frame, left = spark.createDataFrame(rows, f"{ROWS}, {NUMBER} bigint"), left_out(Config(name="A"))
    content = examine(frame, ["o"], left)
    assert content.left_out == {"Nats-TTL": 2, "Nats-Rollup": 2, "Nats-Stream-Source": 1}
    assert (content.messages, content.first_seq, content.last_seq, content.has_repeated_ids) == (3, 1, 3, False)
    found = messages(frame, "seq", 1, left).collect()
    assert [_pairs(row["headers"]) for row in found] == [
        [(name, b"1") for name in ("Z", *kept)], [], [],
    ]  # fmt: skip
    assert not [row for row in found if row["headers"] is None], "null lists cost Spark 27 us each"


def test_headers_that_a_server_obeys_are_left_out_unless_the_stream_takes_them() -> None:
    plain = {one.name for one in left_out(Config(name="A"))}
    assert {"Nats-TTL", "Nats-Schedule", "Nats-Rollup", "Nats-Stream-Source"} <= plain
    for header, allowed in (("Nats-TTL", "allow_msg_ttl"), ("Nats-Schedule", "allow_msg_schedules")):
        assert plain - {one.name for one in left_out(Config(name="A", **{allowed: True}))} == {header}


def test_ids_that_occur_twice_give_way_to_where_the_messages_were(spark: SparkSession) -> None:
    ids = ("once", "twice", "twice", None)
    rows = [("ORDERS", seq, "o", id and [("Nats-Msg-Id", id.encode())], b"", seq) for seq, id in enumerate(ids, 1)]
    frame = spark.createDataFrame(rows, f"{ROWS}, {NUMBER} bigint")
    content = examine(frame, ["p", "q.>"], ())
    assert (content.refused, content.has_repeated_ids) == ("o", True)
    found = messages(frame, "auto", 1, left_out(Config(name="A")), has_repeated_ids=True).collect()
    assert [row["msgId"] for row in found] == ["once", "ORDERS:2", "ORDERS:3", "ORDERS:4"]


def test_arrow_finds_in_an_export_what_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    id_of = {1: [b"a"], 2: [b"b", b"c"], 4: [None], 5: [b""], 6: [b"c"], 7: [b"b"]}
    rows = [
        (
            "ORDERS",
            None if seq == 3 else seq,
            None if seq == 9 else f"o.{seq}",
            MOMENT,
            [("Nats-TTL", b"1s"), ("nats-ttl", b"1s"), ("Nats-TTL", b"2s"), *(("Nats-Msg-Id", each) for each in ids)]
            if (ids := id_of.get(seq)) is not None
            else [] if seq % 2 else None,
            None if seq == 8 else b"x" * seq,
        )
        for seq in range(1, 10)
    ]  # fmt: skip
    left = left_out(Config(name="A"))
    spark.createDataFrame(rows, EXPORTED).repartition(2).write.parquet(str(tmp_path / "files"))
    for subject, taken in (("", ["o.>"]), ("", ["o.1", "*.[1-4]"]), ("", []), ("p", ["o.>"]), ("o.1", ["o.*"])):
        source = input_of(tmp_path / "files", subject)
        found = direct_import(source, taken, left)
        assert not found.is_in_order
        assert found.content == examine(read_rows(spark, source), taken, left)
    assert found.content == (9, 37, None, 1, 9, True, {"Nats-TTL": 6})
    assert noted_schema(source) == spark.read.parquet(source.path).schema
    assert direct_import(replace(source, as_json=True), ["o.>"], left) is None


@pytest.mark.parametrize("subject", ["", "p"])
def test_arrow_publishes_of_an_export_what_spark_publishes(spark: SparkSession, tmp_path: Path, subject: str) -> None:
    ids = {1: [b" a\xff"], 2: [b"b", b"c"], 3: [None]}
    rows = [
        (
            "ORDERS",
            seq,
            f"o.{seq}",
            MOMENT,
            [(name, b"%d" % seq) for name in ("Z", "Nats-TTL", "A", "nats-ttl", "Nats-Rollup") if seq % 3]
            + [("Nats-Msg-Id", each) for each in ids.get(seq, ())]
            if seq % 5
            else None,
            None if seq % 7 == 0 else b"x" * seq,
        )
        for seq in range(1, 30)
    ]  # fmt: skip
    left = left_out(Config(name="A"))
    frame = spark.createDataFrame(rows, EXPORTED).coalesce(1).sortWithinPartitions("seq")
    frame.write.option("parquet.block.size", 1).parquet(str(tmp_path / "files"))
    source = input_of(tmp_path / "files", subject)
    export = direct_import(source, [">"], left)
    assert export.is_in_order
    assert (export.subjects, export.largest) == (1 if subject else 29, 29)
    for kind in IDS:
        wanted = messages(read_rows(spark, source), kind, 1, left).toArrow()
        for largest in (64 << 20, 10 << 20):  # the larger a payload may be, the fewer rows are read at once
            found = export._replace(largest=largest).batches(kind)
            assert as_sent(pa.Table.from_batches(found)) == as_sent(wanted)


LINES = {
    "an export": """
        {"stream": "O", "seq": 3, "subject": "o.1", "timestamp": "2026-01-31T12:00:00.123456Z", "value": "a\\u00e9\\n"}
        {"stream": "O", "seq": 4, "subject": "o.2", "value_base64": "/wA=", "headers": [{"key": "A", "value": "1"}]}

        {"stream": "O", "seq": 7, "subject": "o.1", "value": "", "headers": [{"key": "A", "value_base64": "/w=="}]}
        {"stream": "O", "seq": 8, "subject": "o.1", "headers": [{"key": "Nats-Msg-Id", "value": "x"}, {"key": "B"}]}
        {"stream": "O", "seq": 9, "subject": "o.1", "headers": [{"key": "Nats-TTL", "value": "1s"}], "value": null}
    """,
    "values that are not texts": """
        {"subject": "a", "value": {"z":1.10, "a" : null}}
        {"subject": "a", "value": 12345678901234567890}
        {"subject": "a", "value": "text"}
        {"subject": "a", "value": [1,null]}
        {"subject": "a", "value": true}
        {"subject": "a", "value": null}
        {"subject": "a", "value": "\\ud83d\\ude00"}
    """,
}


@pytest.mark.parametrize("content", LINES.values(), ids=LINES)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json.gz", "folder"])
def test_json_lines_are_read_without_spark_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path, content: str, name: str
) -> None:
    lines = [line.strip() for line in content.strip().splitlines()]
    (tmp_path / "folder").mkdir()
    for number, part in enumerate((lines[:2], lines[2:])):
        (tmp_path / "folder" / f"part-{number}.json").write_text("\n".join(part))
    (tmp_path / "a.jsonl").write_text("\r\n".join(lines))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    left = left_out(Config(name="A"))
    for subject in ("", "p"):
        source = input_of(tmp_path / name, subject)
        direct = direct_import(source, ["o.*"], left)
        assert direct.is_in_order
        assert direct.content == examine(read_rows(spark, source), ["o.*"], left)
        for kind in IDS:
            by_spark = messages(read_rows(spark, source), kind, 1, left).toArrow()
            for largest in (direct.largest, 40 << 20):
                batches = direct._replace(largest=largest).batches(kind)
                assert as_sent(pa.Table.from_batches(batches)) == as_sent(by_spark)


@pytest.mark.parametrize(
    "line",
    [
        b'{"subject": "a", "value": "1", "extra": 1}',
        b'{"Subject": "a", "value": "1"}',
        b'{"value": "1"}',
        b'{"subject": "a"}',
        b'{"subject": "a", "value": "1", "seq": "3"}',
        b'{"subject": "a", "value": "1", "seq": 9223372036854775808}',
        b'{"subject": "a", "value": "1", "headers": {"A": "1"}}',
        b'{"subject": "a", "value": "1", "headers": [{"name": "A"}]}',
        b'{"subject": "a", "value_base64": "!!!"}',
        b'{"subject": "a", "value": "\xff"}',
        b'{"subject": "a", "value": {"a": "\xff"}}',
        b'{"subject": "a", "value": "1"',
        b'{"subject": "a", "value": "1"}\n{"subject": "a", "value": "1", "seq": 1, "stream": "A"}',
        b'[{"subject": "a", "value": "1"}]',
    ],
)
def test_other_json_lines_are_left_to_spark(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line)
    assert direct_import(input_of(path), [">"], ()) is None
    path.write_bytes(b'{"subject": "a", "value": "1"}\n')
    assert direct_import(input_of(path, as_json=True), [">"], ()) is None
    assert direct_import(input_of(path), [">"], ()).is_in_order


def test_json_lines_out_of_order_are_counted_here_and_published_by_spark(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = '{"stream": "A", "seq": %d, "subject": "a", "value": "1"}\n'
    path.write_text(line % 2 + line % 1)
    direct = direct_import(input_of(path), [">"], ())
    assert (direct.is_in_order, direct.content.messages) == (False, 2)


def as_sent(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a write: an id need not be UTF-8, and what is null is sent as nothing."""
    table = table.set_column(3, "msgId", table["msgId"].cast(pa.binary()))
    return [
        {
            **row,
            "value": row["value"] or b"",
            "headers": [(pair["key"], pair["value"] or b"") for pair in row["headers"] or ()],
        }
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize(
    ("places", "is_in_order"),
    [
        ([("A", 1), ("A", 3), ("A", 4)], True),
        ([], True),
        ([("A", 1), ("A", 3), ("A", 3)], False),
        ([("A", 2), ("A", 1), ("A", 3)], False),
        ([("A", 1), ("B", 2), ("B", 3)], False),
        ([("A", 1), (None, 2)], False),
        ([("A", 1), ("A", None)], False),
    ],
)
@pytest.mark.parametrize("files", [1, 2])
def test_messages_out_of_order_are_left_to_spark(
    tmp_path: Path, places: list[tuple[str | None, int | None]], files: int, *, is_in_order: bool
) -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    kinds = {"stream": pa.string(), "seq": pa.int64(), "subject": pa.string(), "headers": headers, "value": pa.binary()}
    schema = pa.schema([*kinds.items(), ("timestamp", pa.timestamp("us", "UTC"))])
    rows = [{"stream": stream, "seq": seq, "subject": "a"} for stream, seq in places]
    for part, some in enumerate((rows,) if files == 1 else (rows[:1], rows[1:])):
        pq.write_table(pa.Table.from_pylist(some, schema), tmp_path / f"{part}.parquet")
    found = direct_import(input_of(tmp_path), ["a"], ())
    assert found.is_in_order is is_in_order


def test_files_that_are_no_export_are_left_to_spark(tmp_path: Path) -> None:
    schema = pa.schema([("subject", pa.string()), ("value", pa.string())])
    for name in ("a", "b/date=1/b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(schema.empty_table(), tmp_path / f"{name}.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    for name in ("a.parquet", "b", "torn.parquet"):
        source = input_of(tmp_path / name)
        assert noted_schema(source) is None
        assert direct_import(source, [">"], ()) is None


def test_an_import_without_spark_fails_as_one_by_spark_does(
    natsctl: Callable[..., None], server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(server.url, {"ORDERS": ["ORDERS.>"], "SMALL": ["small"]}, HOSTILE)
    path = str(tmp_path / "a.parquet")
    natsctl("stream", "export", "ORDERS", path)
    capsys.readouterr()
    assert run_main(["stream", "import", "SMALL", path, "-j"]) == ExitCode.USAGE
    assert "does not take messages on ORDERS.eu.007" in capsys.readouterr().err
    assert run_main(["stream", "import", "SMALL", path, "--subject", "small", "--dry-run", "-j"]) == 0
    assert '"subjects": 1' in capsys.readouterr().out
    assert run_main(["stream", "edit", "SMALL", "--max-msg-size", "10", "-f"]) == 0
    assert run_main(["stream", "import", "SMALL", path, "--subject", "small"]) == ExitCode.FAILED
    assert "message size exceeds maximum allowed" in capsys.readouterr().err


def test_an_incremental_export_adds_what_is_new_and_only_that(
    natsctl: Callable[..., None], server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(server.url, {"INC": ["INC.>"]}, [("INC.a", None, b"1"), ("INC.b", None, b"2")])
    path = str(tmp_path / "out é 50%20")
    natsctl("stream", "export", "INC", path, "--incremental", "--format", "json")
    made(server.url, {}, [("INC.a", None, b"3")])
    natsctl("stream", "export", "INC", path, "--incremental", "--format", "json", "-j")
    assert '"messages": 1' in capsys.readouterr().out
    lines = [line for part in Path(path).glob("part-*.json") for line in part.read_text().splitlines()]
    assert sorted(line.rpartition(":")[2] for line in lines) == ['"1"}', '"2"}', '"3"}']


def test_csv_can_be_read_by_others(natsctl: Callable[..., None], server: ServerProcess, tmp_path: Path) -> None:
    made(server.url, {"ORDERS": ["ORDERS.>"]}, HOSTILE[:3])
    natsctl("stream", "export", "ORDERS", str(tmp_path / "a.csv.gz"), "--start-seq", "2", "--end-seq", "3")
    with gzip.open(tmp_path / "a.csv.gz", "rt", newline="") as file:
        rows = [(row["seq"], row["value"], row["encoding"]) for row in csv.DictReader(file)]
    assert rows == [("2", "", "text"), ("3", 'quoted "twice", \\back, comma', "text")]


def test_what_an_incremental_export_added_is_told_also_by_a_server_that_tells_only_of_sources(tmp_path: Path) -> None:
    def batch(rows: int, last: int) -> dict[str, Any]:
        offset = f'{{"v": 1, "streams": {{"INC": {{"seq": {last}}}}}}}'
        return {"numInputRows": None, "sources": [{"numInputRows": rows, "endOffset": offset}]}

    told = report_of([batch(2, 2), batch(1, 5)], "INC", target(tmp_path / "out", on=True))
    assert (told.messages, told.last_seq) == (3, 5)
    assert report_of([], "INC", target(tmp_path / "out", on=True)).messages == 0
    check_written(0, 0, tmp_path)
    check_written(2, 1, tmp_path)
    with pytest.raises(StorageError, match="on other machines"):
        check_written(2, 0, tmp_path)


def test_a_folder_is_replaced_as_a_whole_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / name).touch()
    link = tmp_path / "link"
    link.symlink_to("in/old")
    replace_folder(tmp_path / "in" / "new", link)
    assert [path.name for path in link.iterdir()] == ["new"]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["old"]
    with pytest.raises(OSError, match="No such"):
        replace_folder(tmp_path / "in" / "none", link)
    assert [path.name for path in link.iterdir()] == ["new"]


@pytest.mark.parametrize("name", ["plain", "with space", "zażółć é", "50%20 #?&=+", "[a]{b}*"])
def test_nothing_of_a_path_is_escaped_and_it_is_found_again(name: str) -> None:
    path = Path("/data") / name
    assert spark_path(path) == f"file:///data/{name}"
    assert local_path(spark_path(path)) == path
    assert local_path(f"file:/data/{name}") == path  # as Spark writes it
    assert local_path(f"here/{name}") == Path("here") / name
    assert not any(map(local_path, (f"s3a://bucket/{name}", f"hdfs://name/{name}", "dbfs:/x", "hdfs:/x")))
    assert spark_input(Path("/d/a[1]*{x}? b")) == r"file:///d/a\[1\]\*\{x\}\? b", "what is read is no pattern"
