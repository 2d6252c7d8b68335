"""The cost of streams on Spark, and its bounds: `python -m bench.spark`."""
