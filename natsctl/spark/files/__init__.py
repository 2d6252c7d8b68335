"""Streams and files: Parquet, JSON lines, CSV and Delta, written from streams and read into them."""
