"""Read a stream whose payloads are Avro, and publish Avro, with the functions of Spark's package `spark-avro`.

    spark-submit --packages org.apache.spark:spark-avro_2.13:4.1.1 avro_orders.py

Take the package in the version of your Spark. Payloads are single Avro records without a container and without a
schema registry's header of five bytes; `--registry` skips that header, and takes all records for those of one schema.
Protobuf works alike: `from_protobuf(value, "Order", binaryDescriptorSet=…)` of the package `spark-protobuf`.
"""

from __future__ import annotations

import argparse
import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "customer", "type": "string"},
            {"name": "amount", "type": "double"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
HEADER_BYTES = 5
"""A zero and the schema's number, as clients of a schema registry write them."""


def orders(spark: SparkSession, stream: str = "ORDERS", *, registry: bool = False, **server: str) -> DataFrame:
    """Return the orders of a stream; a payload that is no record of the schema has null in all fields."""
    found = spark.read.format("jetstream").options(**server).load(stream)
    value = F.expr(f"substring(value, {HEADER_BYTES + 1})") if registry else F.col("value")
    record = from_avro(value, SCHEMA, {"mode": "PERMISSIVE"})
    return found.select("seq", "subject", record.alias("order")).select("seq", "subject", "order.*")


def publish(frame: DataFrame, stream: str, **server: str) -> None:
    """Publish orders as Avro, each on the subject of its customer, once by the sequence that it came from."""
    record = to_avro(F.struct("customer", "amount", "note"), SCHEMA)
    rows = frame.select(
        F.concat(F.lit(f"{stream}."), "customer").alias("subject"),
        record.alias("value"),
        F.concat(F.lit("avro:"), "seq").alias("msgId"),
    )
    rows.write.format("jetstream").options(stream=stream, **server).mode("append").save()


def main() -> None:
    """Show the orders of a stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", default="ORDERS")
    parser.add_argument("--registry", action="store_true")
    options = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    orders(spark, options.stream, registry=options.registry).show()


if __name__ == "__main__":
    main()
