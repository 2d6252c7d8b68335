"""What answers are compressed with."""

from __future__ import annotations

import gzip

import cramjam
import pytest

from natsctl.api.headers import compressed

BODY = b'{"a": "' + b"x" * 1000 + b'"}'


def asking(encoding: str) -> bytes:
    return f"NATS/1.0\r\nAccept-Encoding: {encoding}\r\n\r\n".encode()


@pytest.mark.parametrize("encoding", ["gzip", "GZIP, br", "deflate, gzip"])
def test_gzip_is_given_to_those_who_take_it(encoding: str) -> None:
    block, body = compressed(BODY, asking(encoding))
    assert (block, gzip.decompress(body)) == (b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n", BODY)


@pytest.mark.parametrize("encoding", ["snappy", "s2", "gzip, s2"])
def test_snappy_goes_before_gzip(encoding: str) -> None:
    block, body = compressed(BODY, asking(encoding))
    assert block == b"NATS/1.0\r\nContent-Encoding: snappy\r\n\r\n"
    assert bytes(cramjam.snappy.decompress(body)) == BODY


def test_an_unknown_encoding_is_answered_with_identity() -> None:
    assert compressed(BODY, asking("br")) == (b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n", BODY)


@pytest.mark.parametrize("header", [b"", asking(""), b"NATS/1.0\r\nOther: gzip\r\n\r\n"])
def test_who_does_not_ask_gets_plain_json(header: bytes) -> None:
    assert compressed(BODY, header) == (b"", BODY)
