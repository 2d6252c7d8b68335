"""The judge of the engine's simulation allows what the server may do, and nothing else."""

import pytest

from natsctl.api import headers
from natsctl.store.message import StoredMessage
from tests.support.engine_model import StreamModel
from tests.support.engine_requests import Attempt, Snapshot
from tests.support.store_model import Violation

NOW_NS = 1_000_000_000


def count(token: bytes, subject: bytes, incr: int, seq: int, total: int) -> Attempt:
    """Return an increment that was acknowledged."""
    header = headers.encode([(headers.INCR, b"%d" % incr), (b"X-Token", token)])
    return Attempt(token, subject, header, b"", incr=incr, answer={"seq": seq, "val": str(total)}, ts_ns=NOW_NS)


def counted(attempt: Attempt, total: int) -> StoredMessage:
    """Return the message that an increment left."""
    body = b'{"val":"%d"}' % total
    return StoredMessage(attempt.acked_seq, NOW_NS, attempt.subject, attempt.header, body)


def counters(most: int) -> StreamModel:
    """Return a stream of counters in which n.b was 36, and then others were counted."""
    first, others = count(b"t0", b"n.b", 36, 1, 36), [count(b"t%d" % n, b"n.a", 1, n + 1, n) for n in (1, 2, 3, 4)]
    config = {"subjects": ["n.>"], "allow_msg_counter": True, "max_msgs": most}
    model = StreamModel("N", config)
    model.before = Snapshot({1: counted(first, 36)}, 1)
    model.history = dict(model.before.messages)
    model.step.attempts = [*others, count(b"t9", b"n.b", 72, 6, 72)]
    return model


def after_counting(model: StreamModel, most: int) -> Snapshot:
    kept = [counted(a, int((a.answer or {})["val"])) for a in model.step.attempts][-most:]
    return Snapshot({message.seq: message for message in kept}, 6)


def test_a_counter_starts_over_where_a_limit_dropped_its_last_message() -> None:
    model = counters(most=4)
    model.judge(after_counting(model, 4), NOW_NS)


def test_a_counter_that_starts_over_for_no_reason_is_noticed() -> None:
    model = counters(most=5)
    with pytest.raises(Violation, match="it should be"):
        model.judge(after_counting(model, 5), NOW_NS)


def sourcing(rollup: bytes) -> StreamModel:
    """Return a stream that sources a.x, while its origin is sent one more message, which nobody sees in it."""
    origin = StreamModel("A", {"subjects": ["a.>"], "allow_rollup_hdrs": True})
    header = headers.encode([(headers.ROLLUP, rollup)]) if rollup else b""
    origin.attempted = {b"t2": Attempt(b"t2", b"a.x", header, b"t2", answer={"seq": 2}, seq=2)}
    model = StreamModel("X", {"sources": [{"name": "A"}], "allow_rollup_hdrs": True}, origin)
    mark = headers.encode([(headers.STREAM_SOURCE, b"A 1 > > a.x 12345678")])
    model.before = Snapshot({1: StoredMessage(1, NOW_NS, b"a.x", mark, b"t1")}, 1)
    return model


@pytest.mark.parametrize("rollup", [b"sub", b"all"])
def test_a_sourced_rollup_that_came_and_went_takes_messages_with_it(rollup: bytes) -> None:
    sourcing(rollup).judge(Snapshot({}, 2), NOW_NS)


def test_a_sourced_message_that_goes_without_a_rollup_is_noticed() -> None:
    with pytest.raises(Violation, match="gone without a reason"):
        sourcing(b"").judge(Snapshot({}, 2), NOW_NS)


def mirror(last_seq: int) -> StreamModel:
    """Return a mirror that ends somewhere, of a stream whose message 3 is gone and which ends with it."""
    origin = StreamModel("A", {"subjects": ["a.>"]})
    origin.before = Snapshot({seq: StoredMessage(seq, NOW_NS, b"a.x", b"", b"") for seq in (1, 2)}, 3)
    model = StreamModel("M", {"mirror": {"name": "A"}}, origin)
    model.before = Snapshot(dict(origin.before.messages), last_seq)
    return model


@pytest.mark.parametrize("last_seq", [2, 3])
def test_a_mirror_need_not_know_what_left_the_end_of_its_origin(last_seq: int) -> None:
    mirror(last_seq).check_end()


@pytest.mark.parametrize("last_seq", [1, 4])
def test_a_mirror_that_ends_too_early_or_too_late_is_noticed(last_seq: int) -> None:
    with pytest.raises(Violation, match="its origin at 3"):
        mirror(last_seq).check_end()


def full(earlier: list[dict[str, int]]) -> StreamModel:
    """Return a stream that refuses what is new and has a message more than it may, with the configurations before."""
    limits = {"subjects": ["o.>"], "discard": "new", "max_msgs": 1}
    model = StreamModel("O", limits)
    model.before = Snapshot({1: StoredMessage(1, NOW_NS, b"o.x", b"", b"t1")}, 1)
    model.step.attempts = [Attempt(b"t2", b"o.x", b"", b"t2", answer={"seq": 2}, ts_ns=NOW_NS)]
    model.step.configs = [{**limits, **config} for config in earlier]
    return model


def test_a_limit_that_came_after_a_message_does_not_concern_it() -> None:
    both = {1: StoredMessage(1, NOW_NS, b"o.x", b"", b"t1"), 2: StoredMessage(2, NOW_NS, b"o.x", b"", b"t2")}
    full([{"max_msgs": -1}]).judge(Snapshot(both, 2), NOW_NS)
    with pytest.raises(Violation, match="more than the limits allow"):
        full([]).judge(Snapshot(both, 2), NOW_NS)


def test_a_message_in_the_place_of_another_is_let_in_above_the_limit() -> None:
    model = full([])
    model.before.messages[3] = StoredMessage(3, NOW_NS, b"o.y", b"", b"t3")
    model.before.last_seq = 3
    model.config["max_msgs_per_subject"] = 1
    model.step.attempts[0].answer = {"seq": 4}
    model.judge(Snapshot({3: model.before.messages[3], 4: StoredMessage(4, NOW_NS, b"o.x", b"", b"t2")}, 4), NOW_NS)
