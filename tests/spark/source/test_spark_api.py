"""The source on releases of Spark that lack a part of the API: what is there works, what is not is refused in words."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark
OLDER = """
import json, sys
import pyspark
import pyspark.sql.datasource as api

pyspark.__version__ = "4.0.1"
sys.modules["pyspark.sql.streaming.datasource"] = None
for name in ("Filter", "EqualNullSafe", "EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "IsNotNull", "LessThan",
             "LessThanOrEqual", "StringStartsWith", "DataSourceStreamArrowWriter"):
    delattr(api, name)

from natsctl.spark.source.data_source import JetStreamDataSource

def said(make):
    try:
        return type(make()).__name__
    except Exception as failure:
        return str(failure)

def source(**options):
    return JetStreamDataSource({"servers": "nats://127.0.0.1:1", "stream": "ORDERS", **options})

schema = source().schema()
print(json.dumps([
    said(lambda: source().reader(schema)),
    said(lambda: source(maxOffsetsPerTrigger="5").streamReader(schema)),
    type(source(maxOffsetsPerTrigger="5").streamReader(schema).getDefaultReadLimit()).__name__,
    said(lambda: source().writer(schema, False)),
    said(lambda: source(filterPushdown="true").reader(schema)),
    said(lambda: source(ackMode="explicit", consumer="C").streamReader(schema).initialOffset()),
    said(lambda: source().streamWriter(schema, False)),
]))
"""


OLDEST = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyspark.sql.datasource" else found(name, *rest)
import pyspark

pyspark.__version__ = "3.5.9"
try:
    import natsctl.spark.registered
except ImportError as failure:
    print(failure)
"""


def test_a_release_without_the_api_is_named_with_what_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", OLDEST], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.startswith("the format jetstream needs Spark 4.0 or newer, and this is 3.5.9")


def test_a_release_without_half_of_the_api_reads_and_writes_and_refuses_the_rest() -> None:
    done = subprocess.run([sys.executable, "-c", OLDER], capture_output=True, text=True, timeout=100, check=True)
    assert json.loads(done.stdout) == [
        "JetStreamBatchReader",
        "JetStreamStreamReader",
        "ReadMaxRows",
        "JetStreamBatchWriter",
        "[JETSTREAM_OPTION] option filterPushdown needs Spark 4.1, and this is 4.0.1",
        "[JETSTREAM_OPTION] option ackMode needs Spark 4.2, and this is 4.0.1",
        "[JETSTREAM_OPTION] writeStream needs Spark 4.1, and this is 4.0.1; foreachBatch with a batch write does the "
        "same",
    ]
