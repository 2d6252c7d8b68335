"""What streams on Spark cost, and what bounds it: `python -m bench.spark`."""
