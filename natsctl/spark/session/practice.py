"""Queries that make a server quick for those to come: what they load, compile and start stays there.

They read a backup that is made for them, as no NATS server is needed for that.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from natsctl.api.archive.archive import ArchivedStream
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.stream import StreamConfig, StreamState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMES = 3
"""The first is the slow one; the others still become quicker."""
MESSAGES = 100
_NAME = "PRACTICE"
_SCHEMA = "seq bigint, subject string, timestamp timestamp, value binary"
_QUERIES = (
    "select count(*) as n, sum(length(value)) as total, max(seq) as last from practice where seq <= 50",
    "select subject, count(*) as messages from practice where seq > 5 group by subject order by 2 desc limit 5",
    "select seq, timestamp, cast(value as string) as text from practice where subject like 'ORDERS.%' limit 3",
)


def has_source(session: SparkSession) -> bool:
    """Whether Spark knows the data source without being given it."""
    from pyspark.errors import PySparkException

    try:
        return bool(session.read.format("jetstream").schema(_SCHEMA).load(_NAME).columns)
    except PySparkException as failure:  # of several kinds, not all of which tell their condition
        if "DATA_SOURCE_NOT_FOUND" in str(failure):
            return False
        raise


def practise(session: SparkSession, times: int = TIMES) -> None:
    """Ask what commands ask, of a data source that the session knows and whose tasks run on this machine."""
    with backup() as folder:
        for _ in range(times):
            table(session, folder).createOrReplaceTempView("practice")
            for query in _QUERIES:
                session.sql(query).toArrow()


def table(session: SparkSession, folder: str) -> DataFrame:
    """The messages of the backup in that folder."""
    reader = session.read.format("jetstream").schema(_SCHEMA)
    return reader.options(filterPushdown="true", backup=folder).load()


@contextlib.contextmanager
def backup() -> Iterator[str]:
    """The folder of a backup to practise on, for a while."""
    with tempfile.TemporaryDirectory(prefix="natsctl-spark-") as folder:
        write_backup(Path(folder))
        yield folder


def write_backup(folder: Path) -> None:
    """A backup of MESSAGES messages of 128 bytes."""
    state = StreamState(messages=MESSAGES, first_seq=1, last_seq=MESSAGES, num_subjects=1)
    messages = [(seq, seq * 10**9, b"ORDERS.new", b"", b"." * 128) for seq in range(1, MESSAGES + 1)]
    archive, frames = WriterV2(), FrameWriter()
    begin = archive.begin(ArchivedStream(StreamConfig(name=_NAME), 1, state), ())
    parts = [begin, *archive.messages(messages), *archive.end(MESSAGES, MESSAGES * 10**9)]
    (folder / "stream.tar.s2").write_bytes(b"".join([*map(frames.write, parts), frames.finish()]))
    told = {"config": {"name": _NAME}, "state": {"messages": MESSAGES, "first_seq": 1, "last_seq": MESSAGES}}
    (folder / "backup.json").write_text(json.dumps(told))
