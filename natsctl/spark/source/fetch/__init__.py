"""Reading a range of a stream as Arrow batches, without a trace on the server."""

from natsctl.spark.source.fetch.reading import read_range

__all__ = ["read_range"]
