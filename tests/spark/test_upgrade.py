"""Queries, exports and tables that an earlier version began are continued by today's code, each message once.

The kept files are made by `python -m tests.support.stored_work`, which says what is in them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyarrow import parquet

from natsctl.api.errors import StorageError, UsageError
from natsctl.cli.main import run as run_main
from natsctl.spark.files.file_export import NOTE, OWN, FileTarget, Note, prepare
from natsctl.spark.files.file_formats import PARQUET
from natsctl.spark.pipeline.update import TABLES_FORMAT, kept_tables
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.ledger import Ledger
from natsctl.spark.source.offsets import parse_offsets
from natsctl.testing.process import ServerProcess
from tests.support.stored_version import unpack
from tests.support.stored_work import QUERY, ROWS, STOPPED_AT, content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSIONS = Path(__file__).parent.parent / "store" / "versions"
KEPT = sorted(VERSIONS.glob("*/spark.tar.gz"))


@pytest.fixture(params=KEPT, ids=lambda path: path.parent.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    unpack(request.param, tmp_path)
    return tmp_path


def test_versions_are_kept() -> None:
    assert KEPT


def test_a_query_that_was_stopped_within_a_batch_stores_each_message_once(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerProcess(folder) as server:
        assert asyncio.run(content(server.url, "OUT"))["state"]["messages"] == STOPPED_AT
        monkeypatch.setattr(sys, "argv", ["query", server.url, str(folder / "checkpoint"), "0"])
        exec(QUERY, {})
        stored = asyncio.run(content(server.url, "OUT"))["messages"]
        source = asyncio.run(content(server.url, "IN"))["messages"]
    assert len(stored) == ROWS
    copied = sorted((subject, payload) for _, subject, _, payload, _ in stored)
    assert copied == sorted((subject.replace("in.", "out."), payload) for _, subject, _, payload, _ in source)


def test_an_incremental_export_adds_what_is_new(spark: SparkSession, folder: Path) -> None:
    with ServerProcess(folder) as server:
        assert run_main(["-s", server.url, "pub", "in.new", "one more", "--wait"]) == 0
        assert run_main(["-s", server.url, "stream", "export", "IN", str(folder / "export"), "--incremental"]) == 0
    parts = sorted((folder / "export").glob("part-*.parquet"))
    assert sorted(parquet.read_table(part).num_rows for part in parts) == [1, ROWS]


def test_a_checkpoint_of_a_later_version_is_refused(folder: Path) -> None:
    offsets = json.loads((folder / "checkpoint" / "offsets" / "2").read_text().splitlines()[-1])
    assert set(parse_offsets(offsets)) == {"IN"}
    with pytest.raises(OptionError, match="use the natsctl that wrote it"):
        parse_offsets({**offsets, "v": 99})


def test_a_note_of_the_ledger_of_a_later_version_is_refused() -> None:
    data = base64.b64encode(json.dumps({"v": 99, "stream": "OUT"}).encode()).decode()
    api = types.SimpleNamespace(ask=lambda *_: {"message": {"subject": "$KV.natsctl_spark.q.1.r.0", "data": data}})
    ledger = Ledger.__new__(Ledger)
    ledger._api = api  # type: ignore[assignment]
    with pytest.raises(OptionError, match="of version 99") as caught:
        ledger.stored("q.1")
    assert "natsctl that began the write" in str(caught.value)


def test_an_export_of_a_later_version_is_refused(folder: Path) -> None:
    target = FileTarget(str(folder / "export"), PARQUET, incremental=True)
    note = Note(stream="IN", subject="", format="parquet", partition_by="")
    path = folder / "export" / OWN / NOTE
    begun = json.loads(path.read_text())
    prepare(target, msgspec.convert(begun, Note))
    path.write_text(json.dumps({**begun, "version": 99}))
    with pytest.raises(UsageError, match="version 99") as caught:
        prepare(target, note)
    assert "natsctl that made it" in caught.value.hint


def test_tables_of_a_pipeline_are_read_in_both_formats_and_refused_in_others(tmp_path: Path) -> None:
    path, tables = tmp_path / "tables.json", {"orders": "CREATE TABLE orders (id bigint)"}
    assert kept_tables(path) == {}
    path.write_text(json.dumps(tables))
    assert kept_tables(path) == tables
    path.write_text(json.dumps({"format": TABLES_FORMAT, "tables": tables}))
    assert kept_tables(path) == tables
    path.write_text(json.dumps({"format": "natsctl.pipeline-tables/99", "tables": tables}))
    with pytest.raises(StorageError, match=r"natsctl\.pipeline-tables/99") as caught:
        kept_tables(path)
    assert "natsctl that wrote it" in caught.value.hint
