"""Installed next to pyspark as `pyspark_jetstream`: with this name Spark registers the data source without a call.

Nothing but a pointer, so that the copy that an editable installation makes of it never grows old.
"""

from natsctl.spark.registered import DefaultSource

__all__ = ["DefaultSource"]
