"""The data source as Spark is given it: by value, with its whole package and four modules of others that it needs.

They rewrite S2, for backups, decide on TLS, take URLs apart, and read the protocol.

Executors need nothing of natsctl. Spark finds it through the module `pyspark_jetstream`. Within one machine it goes by
name: a query's Python processes would make the value out of one another's, for half a second altogether.
"""

import os
from importlib.util import find_spec

import pyspark
from pyspark.cloudpickle import register_pickle_by_value

if find_spec("pyspark.sql.datasource") is None:
    raise ImportError(
        f"the format jetstream needs Spark 4.0 or newer, and this is {pyspark.__version__}: before, there was no data "
        "source API for Python (docs/spark-where.md)"
    )

from natsctl.api.archive import s2_rewrite
from natsctl.spark import SOURCE_BY_NAME, source
from natsctl.spark.source.data_source import JetStreamDataSource as DefaultSource
from natsctl.wire import client, server_frames, server_url

if SOURCE_BY_NAME not in os.environ:
    register_pickle_by_value(source)  # type: ignore[no-untyped-call]  # cloudpickle has no types
    register_pickle_by_value(s2_rewrite)  # type: ignore[no-untyped-call]  # cloudpickle has no types
    register_pickle_by_value(client)  # type: ignore[no-untyped-call]  # cloudpickle has no types
    register_pickle_by_value(server_frames)  # type: ignore[no-untyped-call]  # cloudpickle has no types
    register_pickle_by_value(server_url)  # type: ignore[no-untyped-call]  # cloudpickle has no types

__all__ = ["DefaultSource"]
