"""The messages that are read and written, as protocol lines and as Arrow, and sources that have them in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from natsctl.spark.source.rows import SCHEMA_FIELDS, arrow_schema

ROWS_OF_BATCH: Final = 10_000
NOTE_AT: Final = 100
"""Within the text that ends a payload."""


def payload(chance: random.Random, number: int) -> bytes:
    """An order as JSON, 128 bytes."""
    fields = b'{"order":%d,"customer":"c%d","amount":%d.%02d,"note":"' % (
        number, chance.randrange(1000), chance.randrange(9999), chance.randrange(100),
    )  # fmt: skip
    return fields + chance.randbytes(64).hex().encode()[: 126 - len(fields)] + b'"}'


def lines(stream: str, number: int, reply: bytes = b"") -> list[bytes]:
    """So many messages on a thousand subjects, every tenth with a header; those with a reply have ids as well."""
    chance, found = random.Random(7), []
    for at in range(number):
        body, subject = payload(chance, at), b"%s.%d %s" % (stream.encode(), at % 1000, reply)
        head = b"" if at % 10 else b"Trace: %d\r\n" % at
        if reply:
            head += b"Nats-Msg-Id: %016x\r\n" % chance.getrandbits(64)
        if head:
            head = b"NATS/1.0\r\n%s\r\n" % head
            found.append(b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, len(head), len(head) + len(body), head, body))
        else:
            found.append(b"PUB %s %d\r\n%s\r\n" % (subject, len(body), body))
    return found


def batches(stream: str, number: int, first: int = 1) -> Iterator[pa.RecordBatch]:
    """The same messages as rows of all columns: made once and yielded again and again, with another number each time.

    Parts that begin at another `first` have no row in common: rows that are alike in two tasks cost a write far more.
    """
    chance, size = random.Random(7), min(number, ROWS_OF_BATCH)
    schema = arrow_schema(StructType([*SCHEMA_FIELDS]))
    kinds = {field.name: field.type for field in schema}
    columns = {
        "stream": pa.repeat(pa.scalar(stream, kinds["stream"]), size),
        "seq": pa.array(range(first, first + size), pa.int64()),
        "subject": pa.array([f"{stream}.{at % 1000}" for at in range(size)]),
        "timestamp": pa.array([1_790_000_000_000_000 + at for at in range(size)], kinds["timestamp"]),
        "headers": pa.array(
            [None if at % 10 else [{"key": "Trace", "value": b"%d" % at}] for at in range(size)], kinds["headers"]
        ),
        "value": pa.array([payload(chance, at) for at in range(size)], pa.binary()),
    }
    values = columns["value"]
    for at in range(0, number, size):
        columns["value"] = pc.binary_replace_slice(values, NOTE_AT, NOTE_AT + 12, b"%012d" % (first + at))
        batch = pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)
        yield batch.slice(0, min(size, number - at))


class MemoryReader(DataSourceReader):
    """A reader of rows that are in memory as Python's objects."""

    def __init__(self, number: int, parts: int) -> None:
        self._number, self._count = number, parts

    def partitions(self) -> list[InputPartition]:
        """Equal parts."""
        size = self._number // self._count
        return [InputPartition((1 + part * size, size)) for part in range(self._count)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        """The rows of one part."""
        first, number = partition.value
        (made,) = batches("MEMORY", min(number, ROWS_OF_BATCH), first)
        rows = list(zip(*(column.to_pylist() for column in made.columns), strict=True))
        for at in range(0, number, ROWS_OF_BATCH):
            yield from rows[: number - at]


class ArrowReader(MemoryReader):
    """A reader of batches that are in memory: nothing is made, nothing is converted."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        first, number = partition.value
        yield from batches("MEMORY", number, first)


class MemorySource(DataSource):
    """Spark's own floor: what a Python data source costs whose rows cost nothing."""

    made: type[MemoryReader] = MemoryReader

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "memory_rows"

    def schema(self) -> StructType:
        """All columns of a stream."""
        return StructType([*SCHEMA_FIELDS])

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader."""
        return self.made(int(self.options["messages"]), int(self.options["parts"]))


class ArrowSource(MemorySource):
    """The same with Arrow's batches in place of rows."""

    made = ArrowReader

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "memory_batches"
