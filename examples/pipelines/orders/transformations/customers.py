"""What each customer has ordered so far, made anew by each update."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dp.materialized_view
def customers() -> DataFrame:
    return (
        spark.read.table("orders_kept")  # noqa: F821  # Spark gives `spark` to these files
        .groupBy("customer")
        .agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"), F.max("timestamp").alias("last"))
    )
