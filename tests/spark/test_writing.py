"""Writing through Spark itself: batch and streaming, ids, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.messages import RowIds
from tests.spark.source.streams import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def api(api: JetStreamApi) -> JetStreamApi:
    api.ask("STREAM.CREATE.OUT", {"name": "OUT", "subjects": ["out.>"]})
    return api


def values(api: JetStreamApi) -> list[tuple[str, str, Any]]:
    return [(subject, headers.decode(), json.loads(value)) for subject, headers, value in messages(api, "OUT")]


def orders(spark: SparkSession) -> DataFrame:
    return spark.range(6).selectExpr("concat('out.', id % 2) AS subject", "id", "CAST(id / 2 AS decimal(4,1)) AS half")


def test_columns_become_json_and_each_row_has_an_id_of_its_own(spark: SparkSession, api: JetStreamApi) -> None:
    writer = orders(spark).write.format("jetstream").option("servers", api.link.settings.urls[0])
    writer.option("valueFormat", "json").mode("append").save("OUT")
    found = values(api)
    assert sorted((subject, value["id"], value["half"]) for subject, _, value in found) == sorted(
        (f"out.{n % 2}", n, n / 2) for n in range(6)
    )
    assert len({headers for _, headers, _ in found}) == 6
    assert all("Nats-Msg-Id: " in headers and "Nats-Expected-Stream: OUT" in headers for _, headers, _ in found)


def test_a_write_without_a_stream_for_it_says_so_at_once(spark: SparkSession, api: JetStreamApi) -> None:
    writer = orders(spark).write.format("jetstream").option("servers", api.link.settings.urls[0])
    writer = writer.option("valueFormat", "json").mode("append")
    with pytest.raises(Exception, match=r"stream NOPE does not exist"):
        writer.save("NOPE")
    with pytest.raises(Exception, match=r"no stream takes this subject"):
        writer.option("subject", "elsewhere").save()


def test_a_streaming_query_writes_ids_of_its_batch_and_goes_on_where_it_was(
    spark: SparkSession, api: JetStreamApi, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    written = 0
    for first in (0, 3):
        rows = spark.range(first, first + 3).selectExpr("id AS n")
        rows.coalesce(1).write.mode("append").json(str(folder))
        stream = spark.readStream.schema("n bigint").json(str(folder))
        out = stream.selectExpr("concat('out.', n % 2) AS subject", "to_json(struct(n)) AS value", "n")
        query = out.writeStream.format("jetstream").options(
            servers=api.link.settings.urls[0], checkpointLocation=str(tmp_path / "checkpoint"), orderBy="n"
        )
        done = query.trigger(availableNow=True).start("OUT")
        done.awaitTermination()
        found = values(api)[written:]
        assert [value["n"] for _, _, value in found] == [first, first + 1, first + 2]
        batch = 0 if first == 0 else 1
        contents = pa.array([f'out.{n % 2}\n\n{{"n":{n}}}'.encode() for n in range(first, first + 3)])
        ids = RowIds(f"{done.id}.{batch}", "content").of(3, lambda contents=contents: contents).to_pylist()
        assert [headers.partition("Nats-Msg-Id: ")[2].strip().encode() for _, headers, _ in found] == ids
        written += 3
