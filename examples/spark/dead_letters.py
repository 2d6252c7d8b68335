"""Dead letters: messages that a consumer was given too often, with what they hold.

    natsctl stream add DEAD --subjects '$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>' --defaults
    python examples/spark/dead_letters.py
    python examples/spark/dead_letters.py --out /data/dead_letters    # as Parquet, in place of the table

A consumer with --max-deliver gives up a message after so many deliveries, and the server tells that in an advisory. The
stream DEAD keeps the advisories; each names stream and sequence of its message, which is still in its stream unless
limits have removed it.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from natsctl.spark import json_table

ADVISORIES = "DEAD"
ADVISORY = "stream string, consumer string, stream_seq bigint, deliveries bigint"


def dead_letters(spark: SparkSession, streams: str = "ORDERS", **options: str) -> DataFrame:
    """A row for each message of the streams that a consumer has given up; without a body where it is gone."""
    read = spark.read.format("jetstream").options(**options)
    advisories = (
        json_table(spark, ADVISORIES, ADVISORY, **options)
        .select("value.*")
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
