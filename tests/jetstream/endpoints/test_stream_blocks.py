"""STREAM.BLOCKS: stored messages as they lie in the log."""

import struct
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import msgspec
import pytest

from natsctl.api import headers
from natsctl.broker.broker_options import BrokerOptions, Limits
from natsctl.jetstream.endpoints import stream_api
from natsctl.store import file_log, frame
from natsctl.store.message import StoredMessage
from tests.support.jet import Jet, ok
from tests.support.machine import Machine, Message


def asked(jet: Jet, name: str = "S", **wish: Any) -> Message:
    sid = jet.listen("blocks.in")
    jet.wire.publish(f"$JS.API.STREAM.BLOCKS.{name}", msgspec.json.encode(wish), "blocks.in")
    (answer,) = jet.heard(sid)
    jet.wire.unsubscribe(sid)
    return answer


def held(answer: Message) -> list[StoredMessage]:
    (count,) = struct.unpack_from("<I", answer.payload)
    sizes = struct.unpack_from(f"<{count}I", answer.payload, 4)
    frames = answer.payload[4 + 4 * count :]
    *begins, end = accumulate((size + frame.FRAME_OVER_SIZE for size in sizes), initial=0)
    assert end == len(frames)
    return [frame.parse_message(frames, at) for at in begins]


def covered(answer: Message) -> tuple[int, int]:
    first, last = (headers.get(answer.header, name) for name in (headers.SEQUENCE, headers.LAST_SEQUENCE))
    return int(first or 0), int(last or 0)


def seqs(jet: Jet, name: str = "S", **wish: Any) -> list[int]:
    return [message.seq for message in held(asked(jet, name, **wish))]


def fill(jet: Jet, number: int = 6, **config: Any) -> None:
    jet.stream(**config)
    for at in range(number):
        jet.publish(f"m{at + 1}", subject=f"s.{at % 3}")


def test_an_answer_holds_messages_whole_and_says_what_it_covers(jet: Jet) -> None:
    jet.stream()
    jet.wire.publish("s.a", b"hello", "", b"NATS/1.0\r\nA: b\r\n\r\n")
    jet.wire.publish("s.b", b"")
    answer = asked(jet, seq=1)
    when_ns = 1_767_225_600_000_000_000
    assert held(answer) == [
        StoredMessage(1, when_ns, b"s.a", b"NATS/1.0\r\nA: b\r\n\r\n", b"hello"),
        StoredMessage(2, when_ns, b"s.b", b"", b""),
    ]
    assert covered(answer) == (1, 2)
    assert headers.get(answer.header, headers.STREAM_BLOCKS) == b"1"
    assert headers.get(answer.header, headers.STREAM) == b"S"


@pytest.mark.parametrize(
    ("wish", "expected", "last"),
    [
        ({"seq": 1}, [1, 3, 5, 6], 6),
        ({"seq": 2, "last_seq": 5}, [3, 5], 5),
        ({"seq": 2, "last_seq": 2}, [], 2),
        ({"seq": 4, "last_seq": 99}, [5, 6], 6),
        ({"seq": 7}, [], 6),
        ({"seq": 1, "filters": ["s.2"]}, [3, 6], 6),
        ({"seq": 1, "filters": ["s.1", "s.2"]}, [3, 5, 6], 6),
        ({"seq": 1, "filters": ["s.*"]}, [1, 3, 5, 6], 6),
        ({"seq": 1, "filters": ["none.>"]}, [], 6),
        ({"seq": 1, "last_seq": 4, "filters": ["s.0", ">"]}, [1, 3], 4),
    ],
)
def test_ranges_and_filters(jet: Jet, wish: dict[str, Any], expected: list[int], last: int) -> None:
    fill(jet)
    for seq in (2, 4):
        ok(jet.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": seq == 2}))
    answer = asked(jet, **wish)
    assert [message.seq for message in held(answer)] == expected
    assert covered(answer)[1] == last
    assert b"m2" not in answer.payload and b"m4" not in answer.payload, "what was deleted is not sent"


def test_answers_are_bounded_and_go_on_where_they_ended(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(jet, 50)
    ok(jet.api("STREAM.PURGE.S", {"seq": 4}))
    for step in (1, 3, 2048):
        monkeypatch.setattr(file_log, "FRAMES_STEP", step)
        for max_bytes in (1, 60, 500, 1 << 20):
            found, seq, answers = list[int](), 1, 0
            while seq <= 50:
                answer = asked(jet, seq=seq, last_seq=50, max_bytes=max_bytes)
                first, last = covered(answer)
                assert first == seq <= last
                assert len(answer.payload) <= max(max_bytes, 62) + 4
                found += [message.seq for message in held(answer)]
                seq, answers = last + 1, answers + 1
            assert found == list(range(4, 51))
            assert answers == {1: 47, 60: 47, 500: 5, 1 << 20: 1}[max_bytes]


def test_no_answer_is_larger_than_the_server_lets_through() -> None:
    jet = Jet(Machine(broker_options=BrokerOptions(limits=Limits(max_payload=3000))))
    fill(jet, 100)
    answer = asked(jet, seq=1, max_bytes=1 << 22)
    assert 20 < len(held(answer)) < 100
    assert len(answer.header) + len(answer.payload) <= 3000
    jet.wire.publish("s.large", bytes(3000))
    assert seqs(jet, seq=101) == [101], "one message comes, whatever its size"


def test_a_request_waits_for_what_was_published_before_it(jet: Jet) -> None:
    jet.stream()
    sid = jet.listen("blocks.in")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"x")
    jet.wire.publish("$JS.API.STREAM.BLOCKS.S", b'{"seq":1}', "blocks.in")
    jet.wire.publish("s.a", b"later")
    assert jet.heard(sid) == []
    jet.machine.release_commits()
    (answer,) = jet.heard(sid)
    assert held(answer)[0].payload == b"x"


def test_a_request_waits_for_long_work(jet: Jet) -> None:
    fill(jet, 600)
    sid = jet.listen("blocks.in")
    purge = b"PUB $JS.API.STREAM.PURGE.S 16\r\n" + b'{"filter":"s.0"}' + b"\r\n"
    jet.wire.send(purge + b'PUB $JS.API.STREAM.BLOCKS.S blocks.in 9\r\n{"seq":1}\r\n')
    (answer,) = jet.heard(sid)
    assert {message.subject for message in held(answer)} == {b"s.1", b"s.2"}


def refusal(jet: Jet, name: str, body: bytes) -> int:
    return int(jet.api(f"STREAM.BLOCKS.{name}", body)["error"]["err_code"])


def test_what_is_refused(jet: Jet) -> None:
    fill(jet)
    jet.stream("M", "m.>", storage="memory")
    assert refusal(jet, "NONE", b'{"seq":1}') == 10059
    assert refusal(jet, "M", b'{"seq":1}') == 10003
    assert refusal(jet, "S", b"") == 10003
    assert refusal(jet, "S", b'{"seq":0}') == 10003
    assert refusal(jet, "S", b'{"seq":1,"filters":["a..b"]}') == 10003
    assert refusal(jet, "S", b'{"seq":1,"filters":["a"%s]}' % (b',"a"' * stream_api.MAX_FILTERS)) == 10003
    assert refusal(jet, "S", b'{"seq":"x"}') == 10025


def test_an_info_says_whether_there_are_blocks_if_it_is_asked(jet: Jet) -> None:
    jet.stream()
    jet.stream("M", "m.>", storage="memory")

    def said(name: str, header: bytes) -> list[bytes | None]:
        sid = jet.listen("info.in")
        jet.wire.publish(f"$JS.API.STREAM.INFO.{name}", b"", "info.in", header)
        (answer,) = jet.heard(sid)
        jet.wire.unsubscribe(sid)
        return [headers.get(answer.header, each) for each in (headers.STREAM_BLOCKS, headers.STREAM_IDENTITY)]

    asks = headers.encode([(headers.STREAM_BLOCKS, b"1")])
    first = said("S", asks)
    assert first[0] == b"1" and first[1]
    assert said("S", b"") == said("M", asks) == [None, None]
    ok(jet.api("STREAM.DELETE.S"))
    jet.advance(1)
    jet.stream()
    assert said("S", asks) != first
    assert headers.get(asked(jet, seq=1).header, headers.STREAM_IDENTITY) == said("S", asks)[1]


def _purged(jet: Jet) -> None:
    ok(jet.api("STREAM.PURGE.S", {"filter": "s.1", "keep": 1}))


def _rolled_up(jet: Jet) -> None:
    jet.wire.publish("s.2", b"all", "", b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")


def _expired(jet: Jet) -> None:
    jet.wire.publish("s.ttl", b"short", "", b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n")
    jet.publish("after")
    jet.advance(5)


def _erased(jet: Jet) -> None:
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 30}))


def _thinned(jet: Jet) -> None:
    config = ok(jet.api("STREAM.INFO.S"))["config"]
    ok(jet.api("STREAM.UPDATE.S", {**config, "max_msgs_per_subject": 4, "max_msgs": 11}))


@pytest.mark.parametrize("compression", ["none", "s2"])
@pytest.mark.parametrize("change", [_purged, _rolled_up, _expired, _erased, _thinned])
def test_blocks_hold_what_gets_find(jet: Jet, change: Callable[[Jet], None], compression: str) -> None:
    fill(jet, 60, compression=compression, allow_rollup_hdrs=True, allow_msg_ttl=True)
    change(jet)
    jet.publish("new", subject="s.0")
    stream = jet.machine.streams["S"].store
    last = stream.last_seq
    for filters in ([], ["s.1"], ["s.0", "s.2"]):
        found = held(asked(jet, seq=1, filters=filters))
        there = [stream.get(seq) for seq in range(1, last + 1)]
        assert found == [one for one in there if one and (not filters or one.subject.decode() in filters)]
