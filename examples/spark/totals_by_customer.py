"""A streaming aggregation from a stream into another one: what each customer has ordered, by the minute.

    python examples/spark/totals_by_customer.py /data/checkpoints/totals

Orders are JSON such as {"customer": "ann", "amount": 12.5, "at": "2026-11-21T10:00:05Z"}. A minute with its orders
becomes a message on TOTALS.<customer> once an order is there that is later by more than LATE. What was counted is in
the checkpoint, and the id of a total says what it is a total of: however often the query is killed and started again,
each is in TOTALS once.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from natsctl.spark import json_table

STREAM, TOTALS = "ORDERS", "TOTALS"
LATE = "10 seconds"
ORDER = "customer string, amount double, at timestamp"


def totals_of(orders: DataFrame) -> DataFrame:
    """Messages of totals: a row for each customer and minute, once no order of it can come any more."""
    minutes = (
        orders.select("value.*")
        .where("customer IS NOT NULL")
        .withWatermark("at", LATE)
        .groupBy(F.window("at", "1 minute"), "customer")
        .agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    )
    minute = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm")
    return minutes.select(
        F.concat(F.lit(f"{TOTALS}."), "customer").alias("subject"),
        F.to_json(F.struct(minute.alias("minute"), "orders", "amount")).alias("value"),
        F.concat_ws(":", "customer", minute).alias("msgId"),
    )


def start(spark: SparkSession, checkpoint: str, **options: str) -> StreamingQuery:
    """Start the query: everything that waits, from the first order on, then it ends."""
    orders = json_table(spark, STREAM, ORDER, streaming=True, startingOffsets="earliest", **options)
    return (
        totals_of(orders)
        .writeStream.format("jetstream")
        .options(**options)
        .option("stream", TOTALS)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    """What the words of the command line ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    given = parser.parse_args()
    # Finds a Java and starts Spark here; within spark-submit it is the session of the cluster.
    from natsctl.spark.session import open_session

    with open_session() as spark:
        start(spark, given.checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
