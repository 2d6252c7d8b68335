"""Keep two tables in Delta up to date with a stream: all orders, and the newest order of each customer.

Delta needs a Spark that it has a release for: 4.4.0 is built for Spark 4.0, 4.1 and 4.2.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
      --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
      --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
      orders_to_delta.py --folder /data/orders

The first table is written by Delta's own sink, which stores each batch once. The second is merged by `foreachBatch`: a
batch that is run again after a failure finds its orders there already, and changes nothing.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from natsctl.spark import json_table

SCHEMA = "customer string, amount double"
COLUMNS = ("seq", "timestamp", "value.customer", "value.amount")
TABLE = "CREATE TABLE IF NOT EXISTS delta.`{path}` (customer string, seq bigint, amount double) USING delta"
MERGE = """
MERGE INTO delta.`{path}` AS kept USING (
  SELECT customer, max_by(seq, seq) AS seq, max_by(amount, seq) AS amount FROM {batch}
  WHERE customer IS NOT NULL GROUP BY customer
) AS found ON kept.customer = found.customer
WHEN MATCHED AND found.seq > kept.seq THEN UPDATE SET seq = found.seq, amount = found.amount
WHEN NOT MATCHED THEN INSERT *
"""


def orders(spark: SparkSession, stream: str = "ORDERS", **server: str) -> DataFrame:
    """Return the orders of a stream as they come, from the first one on."""
    return json_table(spark, stream, SCHEMA, streaming=True, startingOffsets="earliest", **server).select(*COLUMNS)


def start_all(found: DataFrame, folder: str) -> StreamingQuery:
    """Start the query that appends every order; it ends with what the stream holds now."""
    writer = found.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoints/all")
    return writer.trigger(availableNow=True).start(f"{folder}/all")


def start_newest(found: DataFrame, folder: str) -> StreamingQuery:
    """Start the query that keeps the newest order of each customer; it ends with what the stream holds now."""
    path = f"{folder}/newest"
    found.sparkSession.sql(TABLE.format(path=path))

    def merge(batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("batch_of_orders")
        batch.sparkSession.sql(MERGE.format(path=path, batch="batch_of_orders"))

    writer = found.writeStream.foreachBatch(merge).option("checkpointLocation", f"{folder}/checkpoints/newest")
    return writer.trigger(availableNow=True).start()


def main() -> None:
    """Bring both tables up to date, and print the newest orders as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", default="ORDERS")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--servers", default="", help="URLs, unless NATS_URL or the selected context names them")
    options = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    found = orders(spark, options.stream, **({"servers": options.servers} if options.servers else {}))
    for start in (start_all, start_newest):
        start(found, options.folder).awaitTermination()
    for line in spark.read.format("delta").load(f"{options.folder}/newest").orderBy("customer").toJSON().collect():
        print(line)


if __name__ == "__main__":
    main()
