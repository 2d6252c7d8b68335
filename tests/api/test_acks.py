"""Ack subjects and payloads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api import acks
from natsctl.api.acks import AckKind, AckPayload, AckSubject, parse_ack_payload

NAME = st.text("abcXYZ019-_=", min_size=1, max_size=8).map(str.encode)
NUMBER = st.integers(0, 2**63 - 1)


@given(NAME, NAME, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER)
def test_a_v1_subject_reads_back_as_itself(
    stream: bytes, consumer: bytes, delivered: int, sseq: int, cseq: int, ts: int, pending: int
) -> None:
    subject = acks.encode(stream, consumer, delivered, sseq, cseq, ts, pending)
    assert subject.startswith(acks.prefix(stream, consumer))
    assert acks.parse(subject) == AckSubject(stream, consumer, delivered, sseq, cseq, ts, pending)


@pytest.mark.parametrize(
    ("subject", "parsed"),
    [
        (b"$JS.ACK.S.C.1.2.3", AckSubject(b"S", b"C", 1, 2, 3, 0, 0)),
        (b"$JS.ACK.S.C.1.2.3.4", AckSubject(b"S", b"C", 1, 2, 3, 4, 0)),
        (b"$JS.ACK._.hash.S.C.1.2.3.4.5", AckSubject(b"S", b"C", 1, 2, 3, 4, 5, b"", b"hash")),
        (b"$JS.ACK.hub.hash.S.C.1.2.3.4.5.tok", AckSubject(b"S", b"C", 1, 2, 3, 4, 5, b"hub", b"hash")),
    ],
)
def test_the_forms_of_2020_and_of_version_two_are_read(subject: bytes, parsed: AckSubject) -> None:
    assert acks.parse(subject) == parsed


@pytest.mark.parametrize(
    "subject",
    [
        b"",
        b"$JS.ACK",
        b"$JS.ACK.S.C.1.2",
        b"$JS.ACK.S.C.1.2.3.4.5.6",
        b"$JS.ACK.S.C.1.2.x.4.5",
        b"$JS.ACK.S.C.1.2.-3.4.5",
        b"$JS.ACK.S.C.1..3.4.5",
        b"$JS.ACK..C.1.2.3.4.5",
        b"$JS.NAK.S.C.1.2.3.4.5",
        b"$JS.ACK.S.C.1.2.3.4." + b"9" * 5000,
    ],
)
def test_what_is_no_ack_subject_reads_as_none(subject: bytes) -> None:
    assert acks.parse(subject) is None


@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+OK"])
def test_an_ack(payload: bytes) -> None:
    assert parse_ack_payload(payload) == AckPayload(AckKind.ACK)


@pytest.mark.parametrize(
    ("payload", "delay_ns"),
    [
        (b"-NAK", 0),
        (b'-NAK {"delay": 1500}', 1500),
        (b'-NAK {"delay":1500,"x":1}', 1500),
        (b"-NAK 5s", 5_000_000_000),
        (b"-NAK {}", 0),
        (b"-NAK nonsense", 0),
        (b'-NAK {"delay": -5}', 0),
        (b"-NAK \xff", 0),
    ],
)
def test_a_nak_has_a_delay_or_none(payload: bytes, delay_ns: int) -> None:
    assert parse_ack_payload(payload) == AckPayload(AckKind.NAK, delay_ns=delay_ns)


@given(st.integers(0, 2**62))
def test_a_nak_with_delay_reads_back_as_itself(delay_ns: int) -> None:
    assert parse_ack_payload(b'-NAK {"delay": %d}' % delay_ns) == AckPayload(AckKind.NAK, delay_ns=delay_ns)


@pytest.mark.parametrize(
    ("payload", "request_"),
    [(b"+NXT", b""), (b"+NXT 5", b"5"), (b'+NXT {"batch":7}', b'{"batch":7}'), (b"+NXTx", b"x")],
)
def test_next_carries_the_body_of_a_pull_request(payload: bytes, request_: bytes) -> None:
    assert parse_ack_payload(payload) == AckPayload(AckKind.NEXT, request=request_)


def test_term_carries_its_reason() -> None:
    assert parse_ack_payload(b"+TERM") == AckPayload(AckKind.TERM)
    assert parse_ack_payload(b"+TERM poisoned \xff") == AckPayload(AckKind.TERM, reason="poisoned �")


@pytest.mark.parametrize("payload", [b"x", b"+WPIx", b"ACK", b"+ack", b"\x00"])
def test_anything_else_is_ignored(payload: bytes) -> None:
    assert parse_ack_payload(payload).kind is AckKind.IGNORED
    assert parse_ack_payload(b"+WPI").kind is AckKind.PROGRESS
