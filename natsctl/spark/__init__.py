"""Streams on Spark, through PySpark.

`source` is the data source `jetstream`, sent to executors by value; everything else stays with the
driver: sessions, commands' work, pipelines. Nothing here imports Spark or Arrow before it is used.
"""

from natsctl.spark.stream_frames import json_table

__all__ = ["SOURCE_BY_NAME", "json_table"]

SOURCE_BY_NAME = "NATSCTL_SPARK_SOURCE_BY_NAME"
"""A variable in the environment of Python processes that all have this very natsctl, where names are enough."""
