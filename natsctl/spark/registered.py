"""The data source as Spark is given it: by value, with its whole package and the rewriting of S2 that backups need.

Executors need nothing of natsctl. Spark finds it through the module `pyspark_jetstream`. Within one machine it goes by
name: a query's Python processes would make the value out of one another's, for half a second altogether.
"""

import os

from pyspark.cloudpickle import register_pickle_by_value

from natsctl.api.archive import s2_rewrite
from natsctl.spark import SOURCE_BY_NAME, source
from natsctl.spark.source.data_source import JetStreamDataSource as DefaultSource

if SOURCE_BY_NAME not in os.environ:
    register_pickle_by_value(source)  # type: ignore[no-untyped-call]  # cloudpickle has no types
    register_pickle_by_value(s2_rewrite)  # type: ignore[no-untyped-call]  # cloudpickle has no types

__all__ = ["DefaultSource"]
