"""Streams as files: Parquet, JSON lines, CSV and Delta, one file or a folder of them, at once or bit by bit."""
