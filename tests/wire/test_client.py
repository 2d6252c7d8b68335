"""INFO, and the decision on TLS that every client makes before it sends a byte."""

from __future__ import annotations

import itertools

import pytest

from natsctl.wire.client import TlsNotOfferedError, read_info, starts_tls


@pytest.mark.parametrize("offer", [{}, {"tls_available": False}, {"tls_required": False}, {"tls_verify": True}])
def test_wanted_and_not_offered_is_refused(offer: dict[str, bool]) -> None:
    with pytest.raises(TlsNotOfferedError):
        starts_tls(offer, wanted=True)
    assert not starts_tls(offer, wanted=False)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_server_that_requires_it_gets_it(wanted: bool) -> None:
    assert starts_tls({"tls_required": True}, wanted=wanted)


@pytest.mark.parametrize("wanted", [False, True])
def test_where_it_is_available_the_user_decides(wanted: bool) -> None:
    assert starts_tls({"tls_available": True}, wanted=wanted) is wanted


def test_a_secured_connection_is_not_secured_again() -> None:
    for required, available, wanted in itertools.product([False, True], repeat=3):
        assert not starts_tls({"tls_required": required, "tls_available": available}, wanted=wanted, secured=True)


def test_info_is_read() -> None:
    assert read_info(b'INFO {"tls_required":true} ') == {"tls_required": True}


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"",
            b"PING",
            b"INFO",
            b"INFO ",
            b"INFO []",
            b"INFO 5",
            b'INFO {"a"',
            b"INFO \xff",
            b"info {}",
            b"HTTP/1.1 200",
        ),
        b"INFO " + b"[" * 100_000,
    ],
)
def test_anything_else_is_not_info(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_info(line)
