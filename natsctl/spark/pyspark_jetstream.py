"""Installed beside pyspark as `pyspark_jetstream`: a name that makes Spark register the data source with no call.

Nothing but a pointer, so that the copy that an editable installation makes of it never grows old.
"""

from natsctl.spark.registered import DefaultSource

__all__ = ["DefaultSource"]
