"""Reading and writing without Spark: what the source's own code costs, beside a socket whose bytes are not parsed."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql.types import StructType

from bench.spark.raw import Wire, drain, fetch, publish, publish_acknowledged, publish_nats_py
from bench.spark.rows import batches, lines, payload
from bench.spark.spent import Spent, spent_by
from natsctl.spark.source.backups import backup_reader
from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch_task import FetchLimits, ReadRange
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.rows import SCHEMA_FIELDS, row_shape
from natsctl.spark.source.source_options import BATCH_READ, Options
from natsctl.spark.source.writers import JetStreamBatchWriter
from natsctl.testing.process import ServerProcess

Figures = dict[str, tuple[int, Spent]]
"""By what was done: how many messages, and what it cost."""
NATS_PY_SHARE: Final = 20
WRITTEN_SHARE: Final = 2
"""Of the messages, so that what takes long takes no longer than the rest."""
WARM_UP: Final = 5_000
"""Messages by which modules are imported, and connections known to work."""
NATSCTL: Final = str(Path(sys.executable).with_name("natsctl"))
SCHEMA: Final = StructType([*SCHEMA_FIELDS])


def make(url: str, stream: str) -> None:
    """An empty stream on files."""
    wire = Wire(url)
    wire.ask(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "allow_direct": True})
    wire.close()


def measure_without_spark(server: ServerProcess, number: int, folder: Path) -> Figures:
    """Fill ORDERS with raw publishing, write COPY with the source's writer; read ORDERS in each way; back it up."""
    url, pid, figures = server.url, server.pid, Figures()
    make(url, "ORDERS")
    make(url, "COPY")
    make(url, "WARM")
    make(url, "ASKED")
    sent = lines("ORDERS", number)
    figures["publish, raw"] = number, spent_by(lambda: publish(url, sent), pid)
    _write(url, "WARM", WARM_UP)
    written = number // WRITTEN_SHARE
    asked = lines("ASKED", written, b"i.ack ")
    figures["publish, raw, ids and acks"] = written, spent_by(lambda: publish_acknowledged(url, asked), pid)
    figures["publish, the source's writer"] = written, spent_by(lambda: _write(url, "COPY", written), pid)
    _read(url, "WARM", WARM_UP)
    figures["read, raw"] = number, spent_by(lambda: drain(url, "ORDERS", number), pid)
    figures["read, the source's reader"] = number, spent_by(lambda: _read(url, "ORDERS", number), pid)
    some = number // NATS_PY_SHARE
    figures["read, nats-py fetch"] = some, spent_by(lambda: fetch(url, "ORDERS", some), pid)
    file = folder / "nats-py.parquet"
    figures["to Parquet, nats-py fetch"] = some, spent_by(lambda: fetch(url, "ORDERS", some, file), pid)
    make(url, "PY")
    chance = random.Random(7)
    payloads = [payload(chance, index) for index in range(some)]
    figures["publish, nats-py, 500 in flight"] = some, spent_by(lambda: publish_nats_py(url, "PY.x", payloads), pid)
    backup = folder / "backup"
    subprocess.run([NATSCTL, "-s", url, "stream", "backup", "ORDERS", str(backup)], check=True, capture_output=True)
    figures["read, a backup"] = number, spent_by(lambda: _scan(backup, number))
    return figures


def _write(url: str, stream: str, number: int) -> None:
    options = {"servers": url, "path": stream, "subject": f"{stream}.x"}
    writer = JetStreamBatchWriter(options, SCHEMA, overwrite=False)
    message = writer.write(batches(stream, number))
    writer.commit([message])


def _read(url: str, stream: str, number: int) -> None:
    shape = row_shape(SCHEMA, Options({"stream": stream}, BATCH_READ))
    todo = ReadRange(stream, 1, number)
    _check(sum(each.num_rows for each in read_range(ServerSettings(urls=(url,)), todo, FetchLimits(), shape)), number)


def _scan(backup: Path, number: int) -> None:
    options = Options({"backup": str(backup)}, BATCH_READ)
    reader = backup_reader(options, row_shape(SCHEMA, options))
    _check(sum(each.num_rows for part in reader.partitions() for each in reader.read(part)), number)


def _check(rows: int, number: int) -> None:
    """Raise RuntimeError where something was read twice or not at all."""
    if rows != number:
        raise RuntimeError(f"{rows:,} rows in place of {number:,}")


def temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder for a server and its backups."""
    return tempfile.TemporaryDirectory(prefix="natsctl-spark-")
