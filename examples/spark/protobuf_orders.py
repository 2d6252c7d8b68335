"""Read a stream whose payloads are Protobuf, and publish Protobuf, with the functions of Spark's package.

    protoc --descriptor_set_out=order.desc --include_imports order.proto
    spark-submit --packages org.apache.spark:spark-protobuf_2.13:4.1.1 protobuf_orders.py --descriptors order.desc

Take the package in the version of your Spark. Payloads are single messages, without a schema registry's header.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf

MESSAGE = "Order"
"""The message's name in the descriptors; with its package where it has one, as in `shop.Order`."""


def orders(spark: SparkSession, descriptors: str, stream: str = "ORDERS", **server: str) -> DataFrame:
    """Return the orders of a stream; a payload that is no such message has null in all fields."""
    found = spark.read.format("jetstream").options(**server).load(stream)
    order = from_protobuf("value", MESSAGE, descriptors, {"mode": "PERMISSIVE"})
    return found.select("seq", "subject", order.alias("order")).select("seq", "subject", "order.*")


def publish(frame: DataFrame, descriptors: str, stream: str, **server: str) -> None:
    """Publish orders as Protobuf, each on the subject of its customer."""
    rows = frame.select(
        F.concat(F.lit(f"{stream}."), "customer").alias("subject"),
        to_protobuf(F.struct("customer", "amount", "note"), MESSAGE, descriptors).alias("value"),
    )
    rows.write.format("jetstream").options(stream=stream, **server).mode("append").save()


def main() -> None:
    """Show the orders of a stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", default="ORDERS")
    parser.add_argument("--descriptors", required=True, help="the file that protoc --descriptor_set_out wrote")
    options = parser.parse_args()
    orders(SparkSession.builder.getOrCreate(), options.descriptors, options.stream).show()


if __name__ == "__main__":
    main()
