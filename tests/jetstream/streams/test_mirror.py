"""Mirrors on a server in memory: what is copied, how, and what happens when the origin changes."""

from typing import Any

import msgspec
import pytest

from natsctl.api.account import UNLIMITED
from natsctl.api.headers import get as header_of
from natsctl.jetstream.engine_options import JetStreamOptions
from tests.support.jet import SECOND, Jet, ok
from tests.support.machine import Machine, Message
from tests.support.stored_messages import stored_rows

PATIENCE_S = 25
"""Longer than it takes to notice that an origin is gone and to try again."""


def mirror(jet: Jet, name: str = "M", of: str = "S", **more: Any) -> Any:
    config = {key: more.pop(key) for key in tuple(more) if key not in SOURCE_KEYS}
    return ok(jet.api(f"STREAM.CREATE.{name}", {"name": name, "mirror": {"name": of, **more}, **config}))


SOURCE_KEYS = {"opt_start_seq", "opt_start_time", "filter_subject", "subject_transforms", "external"}


def info(jet: Jet, name: str = "M") -> Any:
    return ok(jet.api(f"STREAM.INFO.{name}", {"deleted_details": True}))


@pytest.mark.parametrize(
    ("start", "expected"),
    [({"opt_start_seq": 4}, [4, 5, 6]), ({"opt_start_time": "2026-01-01T00:00:05Z"}, [5, 6])],
)
def test_a_mirror_begins_where_its_configuration_says(jet: Jet, start: dict[str, Any], expected: list[int]) -> None:
    jet.stream("S")
    for text in "abcdef":
        jet.advance(1)
        jet.publish(text)
    mirror(jet, **start)
    assert [m[0] for m in stored_rows(jet, "M")] == expected
    assert info(jet)["state"]["first_seq"] == expected[0]


def test_a_missing_origin_is_shown_and_tried_again(jet: Jet) -> None:
    answer = mirror(jet)
    assert answer["mirror"] == {"name": "S", "lag": 0, "active": -1}
    told = info(jet)["mirror"]
    assert (told["active"], told["error"]["err_code"]) == (-1, 10059)
    jet.stream("S")
    jet.publish("a", "b")
    jet.advance(PATIENCE_S)
    assert [m[4] for m in stored_rows(jet, "M")] == [b"a", b"b"]
    assert "error" not in info(jet)["mirror"]


def test_an_origin_made_anew_with_lower_sequences_is_an_error_until_it_has_passed_them(jet: Jet) -> None:
    jet.stream("S")
    jet.publish("a", "b", "c")
    mirror(jet)
    ok(jet.api("STREAM.DELETE.S"))
    jet.advance(PATIENCE_S)
    assert info(jet)["mirror"]["error"]["err_code"] == 10059
    jet.stream("S")
    jet.publish("x")
    jet.advance(PATIENCE_S)
    told = info(jet)["mirror"]
    assert told["error"]["err_code"] == 10029
    assert "ends at sequence 1, the mirror at 3" in told["error"]["description"]
    jet.publish("x", "x", "new")
    assert "error" not in info(jet)["mirror"]
    assert [m[4] for m in stored_rows(jet, "M")] == [b"a", b"b", b"c", b"new"]


def test_ids_are_not_compared(jet: Jet) -> None:
    jet.stream("S", duplicate_window=SECOND)
    mirror(jet)
    for _ in range(2):
        jet.wire.publish("s.a", b"x", header=b"NATS/1.0\r\nNats-Msg-Id: same\r\n\r\n")
        jet.advance(2)
    assert [m[0] for m in stored_rows(jet, "M")] == [1, 2]


def test_its_consumer_at_the_origin_counts_for_the_account_is_not_shown_and_goes_with_it(jet: Jet) -> None:
    jet.stream("S")
    mirror(jet)
    assert ok(jet.api("CONSUMER.NAMES.S"))["total"] == 0
    assert ok(jet.api("STREAM.INFO.S"))["state"]["consumer_count"] == 0
    assert ok(jet.api("INFO"))["consumers"] == 1
    origin = jet.machine.streams["S"]
    assert len(origin.consumers) == 1
    ok(jet.api("STREAM.DELETE.M"))
    jet.advance(PATIENCE_S)
    assert not origin.consumers


def test_a_lost_delivery_is_noticed_and_taken_again(jet: Jet) -> None:
    jet.stream("S")
    mirror(jet)
    jet.publish("a")
    connection = jet.machine.streams["M"].upstreams._mirror  # type: ignore[union-attr]  # there is one
    connection.dseq += 1  # as if one more had been delivered and not arrived
    jet.advance(3)
    jet.publish("b")
    assert [m[4] for m in stored_rows(jet, "M")] == [b"a", b"b"]


def test_flow_control_is_answered_when_the_messages_are_durable(jet: Jet) -> None:
    jet.stream("S", max_msg_size=-1)
    for _ in range(80):
        jet.wire.publish("s.a", bytes(64 << 10))
    mirror(jet)
    assert info(jet)["state"]["messages"] == 80
    ok(jet.api("STREAM.DELETE.M"))
    answered = jet.listen("$JS.FC.>")
    jet.machine.hold_commits = True
    jet.wire.publish("$JS.API.STREAM.CREATE.M", b'{"name":"M","mirror":{"name":"S"}}', "x")
    stream = jet.machine.streams["M"]
    assert not jet.heard(answered)
    assert 0 < stream.store.bytes < 3 << 20, "the origin waits for the disk of the mirror"
    jet.machine.release_commits()
    assert jet.heard(answered)
    assert stream.store.messages == 80


def test_a_mirror_answers_direct_gets_where_its_origin_does_not(jet: Jet) -> None:
    jet.stream("S", allow_direct=True)
    mirror(jet, mirror_direct=True)
    jet.publish("a")
    for _ in range(20):
        jet.publish("newer")
        (answer,) = direct(jet, "S.s.a")
        assert (answer.payload, header_of(answer.header, b"Nats-Stream")) == (b"newer", b"S")
    ok(jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]}))
    (answer,) = direct(jet, "S.s.a")
    assert (answer.payload, header_of(answer.header, b"Nats-Stream")) == (b"newer", b"M")
    ok(jet.api("STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "S"}}))
    assert [m.status for m in direct(jet, "S.s.a")] == [b"503"]


def direct(jet: Jet, of: str) -> list[Message]:
    sid = jet.listen("_INBOX.direct")
    jet.wire.publish(f"$JS.API.DIRECT.GET.{of}", b"", "_INBOX.direct")
    answers = jet.heard(sid)
    jet.wire.unsubscribe(sid)
    return answers


def test_a_mirror_that_was_restored_goes_on(jet: Jet) -> None:
    jet.stream("S")
    mirror(jet)
    jet.publish("a", "b", "c")
    ok(jet.api("STREAM.MSG.DELETE.M", {"seq": 2}))
    kept, archive = jet.backup("M")
    ok(jet.api("STREAM.DELETE.M"))
    to = ok(jet.api("STREAM.RESTORE.M", kept))["deliver_subject"]
    jet.publish("d")
    jet.wire.request(to, archive)
    ok(jet.wire.request(to, b""))
    assert [(m[0], m[4]) for m in stored_rows(jet, "M")] == [(1, b"a"), (3, b"c"), (4, b"d")]


def test_a_purge_beyond_what_is_there_leaves_out_what_lies_before(jet: Jet) -> None:
    jet.stream("S")
    mirror(jet)
    jet.publish("a", "b")
    ok(jet.api("STREAM.PURGE.M", {"seq": 5}))
    jet.publish("c", "d", "e")
    assert [(m[0], m[4]) for m in stored_rows(jet, "M")] == [(5, b"e")]


def test_a_mirror_waits_where_its_limits_or_its_account_have_no_room(jet: Jet) -> None:
    jet.stream("S")
    mirror(jet, max_msgs=2, discard="new", subject_transform={"src": "s.>", "dest": "m.>"})
    jet.publish("a", "b", "c", "d")
    jet.advance(PATIENCE_S)
    assert [(m[0], m[2]) for m in stored_rows(jet, "M")] == [(1, "m.a"), (2, "m.a")]
    assert info(jet)["mirror"]["lag"] == 2
    ok(jet.api("STREAM.PURGE.M"))
    jet.advance(PATIENCE_S)
    assert [m[0] for m in stored_rows(jet, "M")] == [3, 4]


def test_a_mirror_waits_where_its_account_has_no_room() -> None:
    limits = msgspec.structs.replace(UNLIMITED, max_storage=400)
    jet = Jet(Machine(options=JetStreamOptions(accounts={"$G": limits})))
    jet.stream("S", storage="memory")
    mirror(jet)
    jet.publish(*["x" * 100] * 5)
    jet.advance(PATIENCE_S)
    assert [m[0] for m in stored_rows(jet, "M")] == [1, 2, 3]
    ok(jet.api("STREAM.PURGE.M"))
    jet.advance(PATIENCE_S)
    assert [m[0] for m in stored_rows(jet, "M")] == [4, 5]
