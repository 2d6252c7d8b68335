"""What Delta needs: a package of its own, which neither Spark nor natsctl brings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from natsctl.api.errors import NatsctlError
from natsctl.spark.export.formats import Format

_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
_HINT = (
    "give it the version that is for this Spark, such as for Spark 4.2 (4.4.0 writes on 4.3 too, but does not read):\n"
    "--conf spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0\n"
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension\n"
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
)


class FormatMissing(NatsctlError):
    """Spark does not know a format that comes as a package of its own."""


@contextmanager
def told(format: Format) -> Iterator[None]:
    """Tell how Spark gets a format that it does not know. Raises FormatMissing."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        if _NOT_FOUND not in str(failure) or not format.is_folder:
            raise
        raise FormatMissing("Spark has no Delta here", hint=_HINT) from failure
