"""The connection to an origin: what makes it be made anew, and what it understands."""

from typing import Any

import pytest

from natsctl.api.stream import ExternalStream, StreamConsumerSource, StreamSource, SubjectTransform
from natsctl.jetstream.streams.origin import short_hash, source_index
from natsctl.jetstream.streams.source import OriginPosition, read_origin
from natsctl.jetstream.streams.upstream import RETRY_MAX_NS, Upstream, ack_numbers
from tests.support.jet import SECOND, Jet, ok


@pytest.fixture
def copied(jet: Jet) -> Jet:
    """Return a client of a machine with the stream S and its mirror M."""
    jet.stream("S")
    ok(jet.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}}))
    return jet


def connection(jet: Jet) -> Upstream:
    mirror = jet.machine.streams["M"].upstreams._mirror
    assert mirror is not None
    return mirror


def consumers(jet: Jet) -> dict[str, Any]:
    return jet.machine.streams["S"].consumers


def stored(jet: Jet) -> int:
    return int(ok(jet.api("STREAM.INFO.M"))["state"]["messages"])


def test_a_heartbeat_that_counts_more_deliveries_has_the_consumer_made_anew(copied: Jet) -> None:
    ((name, consumer),) = consumers(copied).items()
    beat = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\nNats-Last-Stream: 7\r\n\r\n"
    copied.wire.publish(consumer.config.deliver_subject, b"", header=beat)
    assert set(consumers(copied)) > {name}
    copied.publish("a")
    assert stored(copied) == 1


def test_silence_has_the_consumer_made_anew(copied: Jet) -> None:
    (name,) = consumers(copied)
    ok(copied.api(f"CONSUMER.DELETE.S.{name}"))
    copied.advance(9)
    assert not consumers(copied)
    copied.publish("a")
    copied.advance(2)
    assert stored(copied) == 1


def test_heartbeats_keep_the_connection(copied: Jet) -> None:
    before = list(consumers(copied))
    copied.advance(60)
    assert list(consumers(copied)) == before
    assert ok(copied.api("STREAM.INFO.M"))["mirror"]["active"] <= SECOND


def test_a_prefix_that_nobody_serves_is_tried_again(jet: Jet) -> None:
    external = {"api": "$JS.FAR.API", "deliver": ""}
    ok(jet.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S", "external": external}}))
    jet.advance(60)
    told = ok(jet.api("STREAM.INFO.M"))["mirror"]
    assert (told["active"], "error" in told) == (-1, False)
    asked = jet.listen("$JS.FAR.API.CONSUMER.CREATE.S")
    jet.advance(RETRY_MAX_NS / SECOND * 1.2)
    assert len(jet.heard(asked)) == 1


def test_an_answer_that_never_comes_is_waited_for_half_a_minute(jet: Jet) -> None:
    external = {"api": "$JS.FAR.API", "deliver": ""}
    asked = jet.listen("$JS.FAR.API.CONSUMER.CREATE.S")
    ok(jet.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S", "external": external}}))
    assert len(jet.heard(asked)) == 1
    jet.advance(29)
    assert not jet.heard(asked)
    jet.advance(2)
    assert len(jet.heard(asked)) == 1


def test_a_stream_that_is_deleted_asks_nothing_more(copied: Jet) -> None:
    gone = connection(copied)
    ok(copied.api("STREAM.DELETE.M"))
    asked = copied.listen("$JS.API.CONSUMER.CREATE.S")
    copied.advance(60)
    assert gone.stopped
    assert not copied.heard(asked)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"$JS.ACK.S.C.1.2.3.4.5", [b"", b"1", b"2", b"3", b"4", b"5"]),
        (b"$JS.ACK._.hash.S.C.1.2.3.4.5", [b"", b"1", b"2", b"3", b"4", b"5"]),
        (b"$JS.ACK.D.hash.S.C.1.2.3.4.5.token", [b"", b"1", b"2", b"3", b"4", b"5"]),
        (b"$JS.ACK.S.OTHER.1.2.3.4.5", []),
        (b"$JS.ACK.S.C.1.2.3", []),
        (b"", []),
    ],
)
def test_ack_subjects_of_both_forms_are_read(reply: bytes, expected: list[bytes]) -> None:
    assert ack_numbers(reply, b"C") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"S 7 > > s.a", ("S", "S > >", OriginPosition(7, ""))),
        (b"S 7 > > s.a ident123", ("S", "S > >", OriginPosition(7, "ident123"))),
        (b"S:hash 7 a\fb c\fd s.a", ("S:hash", "S:hash a\fb c\fd", OriginPosition(7, ""))),
        (b"S 7", ("S", "", OriginPosition(7, ""))),
        (b"$JS.ACK.S.C.1.7.3.4.5", ("S", "", OriginPosition(7, ""))),
        (b"S 7 x", None),
        (b"S seven > >", None),
        (b"$JS.ACK.S.C", None),
    ],
)
def test_source_headers_of_all_ages_are_read(value: bytes, expected: Any) -> None:
    assert read_origin(b"NATS/1.0\r\nNats-Stream-Source: %b\r\n\r\n" % value) == expected


def test_an_index_tells_sources_apart_as_the_reference_does() -> None:

    assert source_index(StreamSource(name="S")) == "S > >"
    assert source_index(StreamSource(name="S", filter_subject="a")) == "S a >"
    several = [SubjectTransform(src="a", dest="b"), SubjectTransform(src="", dest="")]
    assert source_index(StreamSource(name="S", subject_transforms=several)) == "S a\f> b\f>"
    far = StreamSource(name="S", external=ExternalStream(api="$JS.D.API"), consumer=StreamConsumerSource(name="D"))
    assert source_index(far) == f"S:{short_hash('$JS.D.API')}:C={short_hash('D')} > >"
    assert short_hash("D") == "1vR9AhxX"
