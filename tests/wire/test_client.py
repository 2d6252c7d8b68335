"""The protocol of every client: INFO, the decision on TLS before a byte is sent, logins, and errors."""

import base64
import itertools
import json
from contextlib import suppress
from typing import Any

import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.wire.client import (
    ClientCredentials,
    ClientProtocol,
    ServerLineError,
    TlsNotOfferedError,
    encode_login,
    is_login_refusal,
    read_error,
    read_info,
    starts_tls,
)
from natsctl.wire.ed25519 import SeedError


@pytest.mark.parametrize("offer", [{}, {"tls_available": False}, {"tls_required": False}, {"tls_verify": True}])
def test_wanted_and_not_offered_is_refused(offer: dict[str, bool]) -> None:
    with pytest.raises(TlsNotOfferedError):
        starts_tls(offer, wanted=True)
    assert not starts_tls(offer, wanted=False)


def test_a_secured_connection_is_not_secured_again() -> None:
    for required, available, wanted in itertools.product([False, True], repeat=3):
        assert not starts_tls({"tls_required": required, "tls_available": available}, wanted=wanted, secured=True)


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


# The handshake

ANN = ClientCredentials("ann", "s3cret")
PAIR = nkeys.from_seed(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER))
SEED, PUBLIC = PAIR.seed.decode(), PAIR.public_key.decode()


def protocol(**options: Any) -> ClientProtocol:
    return ClientProtocol(ANN, name="test", **options)


@given(st.lists(st.integers(0, 60), max_size=6))
def test_the_login_follows_info_however_it_is_split(cuts: list[int]) -> None:
    stream = b'INFO {"headers":true,"nonce":"n"} \r\nPING\r\n+OK\r\nPONG\r\nMSG a 1 1\r\nx\r\n'
    client, sent = protocol(), b""
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(stream)]):
        sent += client.receive(stream[begin:end])
    login, *others = sent.splitlines()
    about = json.loads(login.removeprefix(b"CONNECT "))
    assert (about["user"], about["pass"], about["headers"], about["no_responders"]) == ("ann", "s3cret", True, True)
    assert others == [b"PING", b"PONG"]
    assert (client.ready, client.rest) == (True, b"MSG a 1 1\r\nx\r\n")


def test_nothing_is_sent_before_tls_and_bytes_in_clear_are_dropped() -> None:
    client = protocol(wants_tls=True)
    assert client.receive(b'INFO {"tls_available":true}\r\nPONG\r\n-ERR') == b""
    assert client.starts_tls and not client.ready
    assert b'"tls_required": true' in client.secured()
    assert client.receive(b"PONG\r\n") == b""
    assert client.ready and client.rest == b""


def test_tls_first_leaves_nothing_to_decide() -> None:
    assert protocol(wants_tls=True, secured=True).receive(b"INFO {}\r\n").startswith(b"CONNECT ")


def test_a_refused_login_is_reported() -> None:
    client = protocol()
    client.receive(b"INFO {}\r\n")
    with pytest.raises(ServerLineError, match="Authorization Violation") as caught:
        client.receive(b"-ERR 'Authorization Violation'\r\n")
    assert is_login_refusal(caught.value.text) and not client.ready


def test_a_peer_that_is_not_a_server_is_refused() -> None:
    with pytest.raises(ValueError, match="not INFO"):
        protocol().receive(b"SSH-2.0-x\r\n")
    with pytest.raises(ValueError, match="a line of more than"):
        protocol().receive(b"INFO " + bytes(2 << 20))


@given(
    st.lists(st.sampled_from([b"INFO {}", b'INFO {"nonce":1}', b"INFO [", b"PONG", b"-ERR", b"\r\n", b"\xff", b"{"]))
)
def test_no_bytes_of_a_server_end_in_another_error(chunks: list[bytes]) -> None:
    client = protocol()
    with suppress(ServerLineError, ValueError):
        for chunk in chunks:
            client.receive(chunk)


def test_a_later_info_changes_what_is_known() -> None:
    client = protocol()
    client.receive(b'INFO {"server_id":"A","max_payload":5}\r\n')
    assert client.handle_line(b'INFO {"max_payload":7,"ldm":true}') == b""
    assert client.info == {"server_id": "A", "max_payload": 7, "ldm": True}
    assert client.handle_line(b"PING") == b"PONG\r\n"


# Logins


@pytest.mark.parametrize(
    ("credentials", "fields"),
    [
        (ClientCredentials(), {}),
        (ANN, {"user": "ann", "pass": "s3cret"}),
        (ClientCredentials("ann"), {"user": "ann", "pass": ""}),
        (ClientCredentials(token="t"), {"auth_token": "t"}),
        (ClientCredentials(jwt="ey"), {"jwt": "ey"}),
    ],
)
def test_fields_of_logins_without_signatures(credentials: ClientCredentials, fields: dict[str, str]) -> None:
    assert credentials.fields("nonce") == fields


@pytest.mark.parametrize("jwt", ["", "ey"])
def test_seeds_sign_the_nonce(jwt: str) -> None:
    line = encode_login(ClientCredentials(jwt=jwt, seed=SEED), {"nonce": "n0nce"}, name="", version="", tls=True)
    fields = json.loads(line.removeprefix(b"CONNECT "))
    PAIR.verify(b"n0nce", base64.urlsafe_b64decode(fields["sig"] + "=="))
    assert (fields.get("jwt", ""), fields.get("nkey", "")) == (jwt, "" if jwt else PUBLIC)
    with pytest.raises(SeedError):
        ClientCredentials(seed="SU").fields("n0nce")


def test_credentials_do_not_show_their_values() -> None:
    assert repr(ClientCredentials("ann", "s3cret", jwt="ey", seed=SEED)) == "Credentials(user, password, jwt, seed)"


# Errors


@pytest.mark.parametrize(
    ("line", "refused", "login"),
    [
        (b"-ERR 'Permissions Violation for Publish to \"a.B\"'", ("publish", "a.B"), False),
        (b'-ERR \'Permissions Violation for Subscription to "a" using queue "q"\'', ("subscription", "a"), False),
        (
            b"-ERR 'Permissions Violation for Publish to \"user.authentication\"'",
            ("publish", "user.authentication"),
            False,
        ),
        (b"-ERR 'Authorization Violation'", None, True),
        (b"-ERR 'User Authentication Expired'", None, True),
        (b"-ERR 'Stale Connection'", None, False),
        (b"-ERR", None, False),
        (b"-ERR \xff'", None, False),
    ],
)
def test_errors_of_the_server(line: bytes, refused: tuple[str, str] | None, login: bool) -> None:
    error = read_error(line)
    assert (error.refused, error.refuses_login) == (refused, login)
