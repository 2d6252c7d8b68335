"""Writing through Spark itself: batch and streaming, ids, what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.messages import RowIds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def api(api: JetStreamApi) -> JetStreamApi:
    """Requests to a server with a stream OUT."""
    api.ask("STREAM.CREATE.OUT", {"name": "OUT", "subjects": ["out.>"]})
    return api


def messages(api: JetStreamApi) -> list[tuple[str, str, Any]]:
    """Subject, headers and JSON value of all messages."""
    found = []
    for seq in range(1, api.stream_info("OUT")["state"]["last_seq"] + 1):
        message = api.ask("STREAM.MSG.GET.OUT", {"seq": seq})["message"]
        value = json.loads(base64.b64decode(message["data"]))
        found.append((message["subject"], base64.b64decode(message.get("hdrs", "")).decode(), value))
    return found


def orders(spark: SparkSession) -> DataFrame:
    return spark.range(6).selectExpr("concat('out.', id % 2) AS subject", "id", "CAST(id / 2 AS decimal(4,1)) AS half")


def test_columns_become_json_and_each_row_has_an_id_of_its_own(spark: SparkSession, api: JetStreamApi) -> None:
    writer = orders(spark).write.format("jetstream").option("servers", api.link.settings.urls[0])
    writer.option("valueFormat", "json").mode("append").save("OUT")
    found = messages(api)
    assert sorted((subject, value["id"], value["half"]) for subject, _, value in found) == sorted(
        (f"out.{n % 2}", n, n / 2) for n in range(6)
    )
    assert len({headers for _, headers, _ in found}) == 6
    assert all("Nats-Msg-Id: " in headers and "Nats-Expected-Stream: OUT" in headers for _, headers, _ in found)


def test_a_streaming_query_writes_ids_of_its_batch_and_goes_on_where_it_was(
    spark: SparkSession, api: JetStreamApi, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    written = 0
    for first in (0, 3):
        rows = spark.range(first, first + 3).selectExpr("id AS n")
        rows.coalesce(1).write.mode("append").json(str(folder))
        values = spark.readStream.schema("n bigint").json(str(folder))
        out = values.selectExpr("concat('out.', n % 2) AS subject", "to_json(struct(n)) AS value", "n")
        query = out.writeStream.format("jetstream").options(
            servers=api.link.settings.urls[0], checkpointLocation=str(tmp_path / "checkpoint"), orderBy="n"
        )
        done = query.trigger(availableNow=True).start("OUT")
        done.awaitTermination()
        found = messages(api)[written:]
        assert [value["n"] for _, _, value in found] == [first, first + 1, first + 2]
        batch = 0 if first == 0 else 1
        contents = pa.array([f'out.{n % 2}\n\n{{"n":{n}}}'.encode() for n in range(first, first + 3)])
        ids = RowIds(f"{done.id}.{batch}", "content").of(3, lambda contents=contents: contents).to_pylist()
        assert [headers.partition("Nats-Msg-Id: ")[2].strip().encode() for _, headers, _ in found] == ids
        written += 3
