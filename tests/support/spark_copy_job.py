"""The Spark job that spark_kills.py kills and starts again: it copies one stream into another.

Every message's text is made upper-case and its amount doubled. The copies have ids of stream and sequence, or such as
the sink makes, so a message is stored once however often it is sent. Each subject is in one partition, sorted by
sequence: only so does the order of its messages stay, since partitions write at the same time, and what a shuffle
brings is in no order.

With `--write-id` it is a batch job instead of a query, and writes two streams under that name: the copies, and rows
that are alike and have neither a sequence nor an id, so that only their content and their number tell them apart. Both
the read and the write are cut into as many tasks as there are cores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.spark.session import SparkOptions, open_session
from tests.support.spark_kills import ALIKE, ALIKE_VALUES, SINK, SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_FIELDS = "n bigint, amount bigint, text string"


def transformed(frame: DataFrame, partitions: int, with_ids: bool) -> DataFrame:
    made = frame.selectExpr(
        "replace(subject, 'in.', 'out.') AS subject",
        "seq",
        f"from_json(cast(value AS string), '{_FIELDS}') AS said",
        "concat(stream, ':', seq) AS msgId",
    )
    value = "to_json(struct(said.n, 2 * said.amount AS amount, upper(said.text) AS text)) AS value"
    ids = ["msgId"] if with_ids else []
    return made.selectExpr("subject", "seq", value, *ids).repartition(partitions, "subject")


def copy(spark: SparkSession, options: argparse.Namespace) -> None:
    reach = {"servers": options.server[0]}
    frame = spark.readStream.format("jetstream").options(**reach).option("maxOffsetsPerTrigger", options.per_batch)
    out = transformed(
        frame.option("startingOffsets", "earliest").load(SOURCE),
        options.partitions,
        with_ids=options.idempotence == "explicit",
    )
    writer = out.writeStream.format("jetstream").options(**reach).option("checkpointLocation", options.checkpoint)
    writer = writer.option("orderBy", "seq").option("window", options.window)
    if options.idempotence in ("none", "ledger"):
        writer = writer.option("idempotence", options.idempotence)
    query = writer.trigger(availableNow=True).start(SINK)
    query.awaitTermination()


def copy_batch(spark: SparkSession, options: argparse.Namespace) -> None:
    """Write both sinks of each server under the name of the job."""
    for server in options.server:
        reader = spark.read.format("jetstream").option("servers", server)
        table = reader.option("maxRecordsPerPartition", options.per_batch).load(SOURCE)
        copies = transformed(table, options.partitions, with_ids=False)
        alike = table.selectExpr(f"'{ALIKE}' AS subject", f"string(seq % {ALIKE_VALUES}) AS value")
        for frame, sink in ((copies, SINK), (alike, ALIKE)):
            writer = frame.write.format("jetstream").options(servers=server, writeId=options.write_id)
            writer = writer.option("orderBy", "seq") if "seq" in frame.columns else writer
            writer.mode("append").save(sink)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.spark_copy_job", description=__doc__)
    parser.add_argument("--server", required=True, action="append", help="with --write-id one or more, in turn")
    parser.add_argument("--master", required=True)
    parser.add_argument("--java", default="")
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--write-id", default="", help="run as a batch job of this name")
    parser.add_argument("--per-batch", type=int, required=True, help="messages of a batch; of a task with --write-id")
    parser.add_argument("--partitions", type=int, default=2, help="tasks that write")
    parser.add_argument("--window", type=int, default=4000)
    parser.add_argument("--idempotence", choices=("explicit", "ids", "ledger", "none"), default="explicit")
    return parser.parse_args(words)


def main() -> int:
    options = parsed()
    with open_session(SparkOptions(master=options.master, java=options.java)) as spark:
        try:
            (copy_batch if options.write_id else copy)(spark, options)
        except Exception as failure:  # of whatever kind; its text is Java's, which ends with the session
            print(failure, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
