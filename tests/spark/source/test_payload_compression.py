"""Compressed payloads become what they were, each by itself; what is damaged is null, or an error."""

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pyarrow as pa
import pytest

from natsctl.spark.source import rows
from natsctl.spark.source.data_source import JetStreamDataSource
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.rows import DecompressionError, decompressed, encoding_of
from natsctl.spark.source.source_options import TABLE
from tests.spark.source.streams import make
from tests.spark.source.test_data_source import table

TEXT = b"an order, an order, an order for Ann " * 40
REPEAT = bytes((44,)) + bytes((3 << 2,)) + b"abcd" + bytes((0b00000001 | 4 << 2, 4)) + bytes((0x15, 0, 24))
"""An S2 block: a literal, a copy of it, and that copy repeated, which Snappy does not have."""
MAKERS: dict[str, Callable[[bytes], Any]] = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zstd": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    "brotli": lambda data: pa.compress(data, codec="brotli", asbytes=True),
    "lz4": lambda data: pa.compress(data, codec="lz4", asbytes=True),
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "s2": lambda data: bytes(cramjam.snappy.compress(data)),
}


def plain(compression: str, *payloads: bytes, headers: tuple[bytes, ...] = (), strict: bool = True) -> list[Any]:
    return list(decompressed(payloads, headers, compression, strict=strict).to_pylist())


@pytest.mark.parametrize("name", MAKERS)
def test_each_payload_becomes_what_it_was(name: str) -> None:
    option = next(option for option in TABLE if option.name == "payloadCompression")
    assert option.parse(name) == name
    make_one = MAKERS[name]
    assert plain(name, make_one(TEXT), make_one(b""), make_one(b"x"), b"") == [TEXT, b"", b"x", b""]


def test_members_of_gzip_and_frames_of_both_kinds_are_one_payload() -> None:
    framed = bytes(cramjam.snappy.compress(TEXT))
    blocks = framed.replace(b"sNaPpY", b"S2sTwO") + b"\xfe\x03\x00\x00pad" + framed
    assert plain("gzip", gzip.compress(b"one ") + gzip.compress(b"two")) == [b"one two"]
    assert plain("snappy", blocks) == [TEXT * 2]
    assert plain("s2", REPEAT) == [b"abcd" * 11]


def test_auto_follows_the_header_of_each_message() -> None:
    def headed(name: bytes) -> bytes:
        return b"NATS/1.0\r\nA: b\r\ncontent-ENCODING: %b\r\n\r\n" % name

    payloads = (gzip.compress(TEXT), TEXT, bytes(cramjam.snappy.compress(TEXT)), TEXT)
    headers = (headed(b"gzip"), b"", headed(b" Snappy"), headed(b"identity"))
    assert plain("auto", *payloads, headers=headers) == [TEXT] * 4
    assert plain("auto", TEXT) == [TEXT]
    assert encoding_of(b"NATS/1.0\r\nX: content-encoding: gzip\r\n\r\n") == "identity"


@pytest.mark.parametrize("name", [*MAKERS, "auto"])
def test_a_damaged_payload_is_null_and_its_neighbours_are_not(name: str) -> None:
    good = MAKERS.get(name, gzip.compress)(TEXT)
    header = b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n"
    payloads = (good, good[: len(good) // 2], b"{}", good)
    assert plain(name, *payloads, headers=(header,) * 4, strict=False) == [TEXT, None, None, TEXT]
    with pytest.raises(DecompressionError) as damage:
        plain(name, *payloads, headers=(header,) * 4)
    assert damage.value.row == 1


@pytest.mark.parametrize("name", ["gzip", "zstd", "brotli", "lz4", "s2"])
def test_what_becomes_too_large_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_BYTES", 1000)
    assert plain(name, MAKERS[name](b"x" * 1000)) == [b"x" * 1000]
    with pytest.raises(DecompressionError, match="more than"):
        plain(name, MAKERS[name](b"x" * 1001))


@pytest.mark.parametrize(("value", "expected"), [("binary", b'{"id": 7}'), ("text", '{"id": 7}')])
def test_a_read_decompresses_before_it_reads_the_value(api: JetStreamApi, value: str, expected: object) -> None:
    make(api, number=0)
    for payload in (gzip.compress(b'{"id": 7}'), b"damaged"):
        api.link.request("ORDERS.1", payload)
    options = {"stream": "ORDERS", "payloadCompression": "gzip", "valueFormat": value}
    assert [row["value"] for row in table(api, **options)] == [expected, None]
    source = JetStreamDataSource({"servers": api.link.settings.urls[0], **options, "valueMode": "FAILFAST"})
    reader = source.reader(source.schema())
    with pytest.raises(Exception, match="message ORDERS 2: its payload is not gzip"):
        [batch for part in reader.partitions() for batch in reader.read(part)]
