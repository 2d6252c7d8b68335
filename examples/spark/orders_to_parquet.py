"""A stream to Parquet, with a folder for each day, and from there back into a stream.

    python examples/spark/orders_to_parquet.py /data/orders            # ORDERS as files
    python examples/spark/orders_to_parquet.py /data/orders --back     # the files into ORDERS_COPY

The server is that of NATS_URL or of the selected context. On a cluster: spark-submit --master … with the same words.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

STREAM, COPY = "ORDERS", "ORDERS_COPY"


def to_parquet(spark: SparkSession, folder: str, **options: str) -> None:
    """Write all messages of the stream as Parquet, in place of what is in the folder."""
    orders = spark.read.format("jetstream").options(**options).load(STREAM)
    by_day = orders.withColumn("day", F.to_date("timestamp"))
    by_day.write.partitionBy("day").mode("overwrite").parquet(folder)


def from_parquet(spark: SparkSession, folder: str, **options: str) -> None:
    """Publish what the files hold into the other stream: below its name, each message once, subjects in order."""
    copies = spark.read.parquet(folder).select(
        F.concat(F.lit(f"{COPY}."), F.regexp_replace("subject", "^[^.]*[.]", "")).alias("subject"),
        "headers",
        "value",
        "seq",
        # The same row has the same id, whenever this runs: the stream drops what it has had within its window.
        F.concat("stream", F.lit(":"), "seq").alias("msgId"),
    )
    in_order = copies.repartition("subject").sortWithinPartitions("subject", "seq")
    in_order.write.format("jetstream").options(**options).option("stream", COPY).mode("append").save()


def main() -> None:
    """What the words of the command line ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--back", action="store_true")
    given = parser.parse_args()
    # Finds a Java and starts Spark here; within spark-submit it is the session of the cluster.
    from natsctl.spark.session import open_session

    with open_session() as spark:
        (from_parquet if given.back else to_parquet)(spark, given.folder)


if __name__ == "__main__":
    main()
