"""Installed as the module `pyspark_jetstream`, whose name makes Spark register the data source with no call.

Spark looks for modules named `pyspark_*` with a `DefaultSource` when a format is first used. The class leaves here by
value, with the whole package around it and the rewriting of S2 that backups need: executors need nothing of natsctl.
"""

from pyspark.cloudpickle import register_pickle_by_value

from natsctl.api.archive import s2_rewrite
from natsctl.spark import source
from natsctl.spark.source.data_source import JetStreamDataSource as DefaultSource

register_pickle_by_value(source)  # type: ignore[no-untyped-call]  # cloudpickle has no types
register_pickle_by_value(s2_rewrite)  # type: ignore[no-untyped-call]  # cloudpickle has no types

__all__ = ["DefaultSource"]
