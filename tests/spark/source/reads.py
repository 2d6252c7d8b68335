"""What tests of reads share: a login, an API, shapes, and the sequences that a read gives."""

import re
from typing import Final

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch_task import FetchLimits, ReadRange, Transport
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link
from natsctl.spark.source.rows import RowShape, default_schema, row_shape
from natsctl.spark.source.source_options import BATCH_READ, Options
from tests.spark.source.streams import make, until

TRANSPORTS: tuple[Transport, ...] = ("auto", "consumer", "direct", "get")
"""By `auto` blocks are read on natsctl's server, and on nats-server, which has none, what else suits."""
FEW = FetchLimits(messages=7)
SOME_KIB = b"x" * 2000


KINDS: Final = (BinaryType, DateType, DoubleType, FloatType, IntegerType, LongType, StringType, TimestampType)
TYPES: Final[dict[str, type[DataType]]] = {kind().simpleString(): kind for kind in KINDS}


def parsed_schema(ddl: str) -> StructType:
    """A schema of DDL without Spark, whose own parser is in the JVM."""
    fields = []
    for column in re.findall(r"(?:[^,<(]|\(.*?\)|<(?:[^<>]|<[^<>]*>|<[^<>]*<[^<>]*>[^<>]*>)*>)+", ddl):
        name, kind = re.split(r"[\s:]+", column.strip(), maxsplit=1)
        nullable = not kind.lower().endswith(" not null")
        fields.append(StructField(name, _type(kind if nullable else kind[:-9]), nullable))
    return StructType(fields)


def _type(text: str) -> DataType:
    outer, _, inner = text.strip().partition("<")
    inner = inner.removesuffix(">")
    if outer == "array":
        return ArrayType(_type(inner))
    if outer == "struct":
        return parsed_schema(inner)
    if outer == "map":
        key, value = inner.split(",", 1)
        return MapType(_type(key), _type(value))
    if outer.startswith("decimal("):
        return DecimalType(*map(int, outer[8:-1].split(",")))
    return TYPES[outer]()


def said(**options: str) -> Options:
    return Options(options, BATCH_READ)


def shape(ddl: str = "", **options: str) -> RowShape:
    """A shape of options, and of a schema where one is given."""
    return row_shape(parsed_schema(ddl) if ddl else default_schema(said(**options)), said(**options))


SEQS = shape("seq bigint, value binary")


def seqs(
    settings: ServerSettings, todo: ReadRange, limits: FetchLimits | None = None, wanted: RowShape = SEQS
) -> list[int]:
    batches = list(read_range(settings, todo, limits or FetchLimits(), wanted))
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def fill(api: JetStreamApi, number: int, body: bytes = SOME_KIB) -> None:
    """A stream ORDERS of larger messages, for reads that last."""
    make(api, "ORDERS", 0, allow_direct=True)
    for first in range(0, number, 500):
        frames = [b"PUB ORDERS.%d %d\r\n%b\r\n" % (at % 4, len(body), body) for at in range(first, first + 500)]
        api.link.send(b"".join(frames))
    until(lambda: bool(api.stream_info("ORDERS")["state"]["last_seq"] == number))


def consumers(api: JetStreamApi) -> int:
    return int(api.stream_info("ORDERS")["state"]["consumer_count"])


def sent_by(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Where everything goes that connections send from here on."""
    sent: list[bytes] = []
    send = Link.send

    def noted(link: Link, data: bytes) -> None:
        sent.append(data)
        send(link, data)

    monkeypatch.setattr(Link, "send", noted)
    return sent
