"""Dead letters: messages that a consumer gave up or terminated, with their contents.

    natsctl deadletter enable --all
    python examples/spark/dead_letters.py
    python examples/spark/dead_letters.py --out /data/dead_letters    # as Parquet, not as a table

The stream DEADLETTERS keeps the server's advisories about such messages, and `natsctl deadletter` shows and replays
them one by one. Each advisory has the stream and sequence of its message. The message is still in its stream unless a
limit or its retention has removed it.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from natsctl.spark import json_table

ADVISORIES = "DEADLETTERS"
TYPES = [f"io.nats.jetstream.advisory.v1.{kind}" for kind in ("max_deliver", "terminated")]
ADVISORY = "type string, stream string, consumer string, stream_seq bigint, deliveries bigint, reason string"


def dead_letters(spark: SparkSession, streams: str = "ORDERS", **options: str) -> DataFrame:
    """Return a row for each message that consumers gave up or terminated; without a body if it does not exist."""
    read = spark.read.format("jetstream").options(**options)
    advisories = (
        json_table(spark, ADVISORIES, ADVISORY, **options)
        .select("value.*")
        .where(F.col("type").isin(*TYPES))  # copies of messages are in the stream, too
        .groupBy("stream", F.col("stream_seq").alias("seq"))
        .agg(F.max("deliveries").alias("deliveries"), F.sort_array(F.collect_set("consumer")).alias("consumers"))
    )
    messages = read.load(streams).select("stream", "seq", "subject", "timestamp", F.col("value").cast("string"))
    return advisories.join(messages, ["stream", "seq"], "left").orderBy("stream", "seq")


def main() -> None:
    """What the words of the command line ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default="ORDERS", help="streams by commas")
    parser.add_argument("--out", help="folder for Parquet")
    given = parser.parse_args()
    # Finds a Java and starts Spark here; within spark-submit it is the session of the cluster.
    from natsctl.spark.session import open_session

    with open_session() as spark:
        letters = dead_letters(spark, given.streams)
        if given.out:
            letters.write.mode("overwrite").parquet(given.out)
        else:
            letters.show(50, truncate=60)


if __name__ == "__main__":
    main()
