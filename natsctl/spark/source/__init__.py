"""The data source `jetstream`: batch and streaming, reading and writing, on PySpark's Python Data Source API.

This package is pickled by value (`natsctl.spark.registered`), so that executors need pyspark and pyarrow and nothing
else. Therefore its modules import at their top, and nothing but the standard library, pyarrow, pyspark and each other;
only `driver_settings` looks up things that exist only on the driver, such as contexts. Sockets block, since a task is a
process of its own.
"""
