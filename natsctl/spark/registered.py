"""The data source as Spark is given it: by value, with its whole package and the modules of others that it needs.

They rewrite S2, for backups, and are the client: connection, protocol, signatures, and server URLs.

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

from natsctl import hints
from natsctl.api.archive import s2_rewrite
from natsctl.client import blocking
from natsctl.spark import SOURCE_BY_NAME, source
from natsctl.spark.source.data_source import JetStreamDataSource as DefaultSource
from natsctl.wire import client, ed25519, server_frames, server_url

if SOURCE_BY_NAME not in os.environ:
    for module in (source, s2_rewrite, blocking, client, ed25519, server_frames, server_url, hints):
        register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # cloudpickle has no types

__all__ = ["DefaultSource"]
