"""Streams on Spark, through PySpark.

`source` is the data source `jetstream`, which travels to executors by value; everything beside it stays with the
driver: sessions, commands' work, pipelines. Nothing here is imported unless a command needs Spark or Arrow.
"""
