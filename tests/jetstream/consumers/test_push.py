"""Push delivery as a subscriber sees it on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from natsctl.testing.jet import SECOND, Jet, numbers, texts
from natsctl.testing.machine import Message


@pytest.fixture
def jet() -> Jet:
    jet = Jet()
    jet.stream()
    return jet


def push(jet: Jet, **config: object) -> None:
    """Make a push consumer to `d.x`."""
    jet.consumer(**{"deliver_subject": "d.x", **config})


def test_messages_go_to_the_deliver_subject_while_somebody_listens(jet: Jet) -> None:
    push(jet)
    jet.publish("1")
    assert jet.counts() | {"delivered": (0, 0), "pending": 1} == jet.counts()
    sid = jet.listen("d.x")
    assert texts(jet.heard(sid)) == ["1"]
    jet.publish("2")
    (message,) = jet.heard(sid)
    assert (message.subject, message.payload, numbers(message)) == (b"s.a", b"2", (1, 2, 2, 0))
    jet.wire.unsubscribe(sid)
    jet.publish("3")
    assert jet.counts() | {"delivered": (2, 2), "pending": 1} == jet.counts()


def test_nothing_is_delivered_before_the_creation_is_answered(jet: Jet) -> None:
    jet.publish("1", "2")
    jet.listen("in.answer")
    jet.listen("d.x")
    jet.wire.take()
    jet.machine.hold_commits = True
    config = {"durable_name": "C", "ack_policy": "explicit", "deliver_subject": "d.x"}
    body = msgspec.json.encode({"stream_name": "S", "config": config})
    jet.wire.publish("$JS.API.CONSUMER.CREATE.S.C", body, "in.answer")
    assert [m.subject for m in jet.wire.take() if m.subject in (b"in.answer", b"s.a")] == []
    jet.machine.hold_commits = False
    jet.machine.settle()
    assert [m.subject for m in jet.wire.take() if m.subject in (b"in.answer", b"s.a")] == [b"in.answer", b"s.a", b"s.a"]


def test_push_bound_follows_the_subscriber(jet: Jet) -> None:
    push(jet)
    assert "push_bound" not in jet.info()
    sid = jet.listen("d.x")
    assert jet.info()["push_bound"] is True
    jet.wire.unsubscribe(sid)
    assert "push_bound" not in jet.info()


def test_a_vanished_connection_ends_interest(jet: Jet) -> None:
    push(jet)
    other = jet.machine.connect()
    other.subscribe("d.x")
    assert jet.info()["push_bound"] is True
    other.close()
    assert "push_bound" not in jet.info()


def test_a_wildcard_subscription_listens_but_starts_nothing(jet: Jet) -> None:
    push(jet)
    wild = jet.listen("d.>")
    jet.publish("1")
    assert jet.heard(wild) == []
    assert "push_bound" not in jet.info()
    exact = jet.listen("d.x")
    assert texts(jet.heard(exact)) == ["1"]
    assert texts(jet.heard(wild)) == ["1"]


def test_a_deliver_group_needs_a_member_of_that_queue(jet: Jet) -> None:
    push(jet, deliver_group="workers")
    plain = jet.listen("d.x")
    jet.publish("1")
    assert jet.heard(plain) == []
    assert "push_bound" not in jet.info()
    sid = jet.wire.subscribe("d.x", "workers")
    assert texts(jet.heard(sid)) == ["1"]
    assert jet.info()["push_bound"] is True


def test_members_of_a_deliver_group_share_the_messages(jet: Jet) -> None:
    push(jet, deliver_group="workers", ack_policy="none")
    one, two = jet.wire.subscribe("d.x", "workers"), jet.wire.subscribe("d.x", "workers")
    jet.publish_many(100)
    counts = len(jet.heard(one)), len(jet.heard(two))
    assert sum(counts) == 100
    assert min(counts) > 10


def test_max_ack_pending_holds_back_until_an_ack(jet: Jet) -> None:
    push(jet, max_ack_pending=2)
    sid = jet.listen("d.x")
    jet.publish("1", "2", "3")
    messages = jet.heard(sid)
    assert texts(messages) == ["1", "2"]
    jet.ack(messages[1])
    assert texts(jet.heard(sid)) == ["3"]


def test_unacked_messages_come_again(jet: Jet) -> None:
    push(jet, ack_wait=SECOND)
    sid = jet.listen("d.x")
    jet.publish("1")
    jet.heard(sid)
    jet.advance(1.1)
    (message,) = jet.heard(sid)
    assert numbers(message) == (2, 1, 2, 0)


def test_pull_on_a_push_consumer_is_refused(jet: Jet) -> None:
    push(jet)
    assert texts(jet.pull()) == ["<409 Consumer is push based>"]


def test_idle_heartbeats_come_only_when_nothing_else_did(jet: Jet) -> None:
    push(jet, idle_heartbeat=SECOND, ack_policy="none")
    sid = jet.listen("d.x")
    jet.publish("1")
    jet.heard(sid)
    jet.advance(0.9)
    jet.publish("2")
    assert texts(jet.heard(sid)) == ["2"]
    jet.advance(0.9)
    assert jet.heard(sid) == []
    jet.advance(0.2)
    (beat,) = jet.heard(sid)
    assert beat.header == b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    assert (beat.subject, beat.reply) == (b"d.x", b"")
    jet.advance(3)
    assert len(jet.heard(sid)) == 3


def test_heartbeats_go_on_while_paused(jet: Jet) -> None:
    push(jet, idle_heartbeat=SECOND, ack_policy="none", pause_until="2026-01-01T01:00:00Z")
    sid = jet.listen("d.x")
    jet.publish("1")
    jet.advance(2.5)
    assert texts(jet.heard(sid)) == ["<100 Idle Heartbeat>"] * 2


def test_flow_control_asks_stalls_and_goes_on_after_the_answer(jet: Jet) -> None:
    push(jet, idle_heartbeat=SECOND, flow_control=True, ack_policy="none")
    sid = jet.listen("d.x")
    for _ in range(40):
        jet.publish("x" * 100_000)
    heard = jet.heard(sid)
    asked = [m for m in heard if m.status == b"100 FlowControl Request"]
    assert len(asked) == 1
    assert asked[0].reply.startswith(b"$JS.FC.S.C.")
    assert len(heard) - 1 == 21
    jet.advance(1.5)
    (beat,) = jet.heard(sid)
    assert b"Nats-Consumer-Stalled: " + asked[0].reply + b"\r\n" in beat.header
    jet.wire.publish(asked[0].reply.decode())
    more = jet.heard(sid)
    assert len([m for m in more if not m.status]) == 19
    assert jet.counts()["delivered"] == (40, 40)


def test_an_answer_to_an_old_flow_control_request_changes_nothing(jet: Jet) -> None:
    push(jet, idle_heartbeat=SECOND, flow_control=True, ack_policy="none")
    sid = jet.listen("d.x")
    for _ in range(40):
        jet.publish("x" * 100_000)
    jet.heard(sid)
    jet.wire.publish("$JS.FC.S.C.12345678")
    assert jet.heard(sid) == []


def test_rate_limit_spreads_messages_over_time(jet: Jet) -> None:
    jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msg_size": 1000, "storage": "file"})
    push(jet, rate_limit_bps=8_000, ack_policy="none")
    sid = jet.listen("d.x")
    for _ in range(5):
        jet.publish("x" * 900)
    assert len(jet.heard(sid)) == 1
    jet.advance(2)
    assert len(jet.heard(sid)) == 2
    jet.advance(3)
    assert len(jet.heard(sid)) == 2


def test_replay_original_keeps_the_rhythm(jet: Jet) -> None:
    jet.publish("a")
    jet.advance(2)
    jet.publish("b")
    jet.advance(1)
    push(jet, replay_policy="original", ack_policy="none")
    sid = jet.listen("d.x")
    assert texts(jet.heard(sid)) == ["a"]
    jet.advance(1.9)
    assert jet.heard(sid) == []
    jet.advance(0.2)
    assert texts(jet.heard(sid)) == ["b"]
    jet.publish("c")
    assert texts(jet.heard(sid)) == ["c"]


def test_headers_only(jet: Jet) -> None:
    push(jet, headers_only=True, ack_policy="none")
    sid = jet.listen("d.x")
    jet.publish("hello")
    assert [(m.header, m.payload) for m in jet.heard(sid)] == [(b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b"")]


def test_an_ephemeral_ends_five_seconds_after_its_subscriber_left(jet: Jet) -> None:
    name = jet.ephemeral(deliver_subject="d.x")["name"]
    sid = jet.listen("d.x")
    jet.advance(60)
    assert jet.info(name)["push_bound"]
    jet.wire.unsubscribe(sid)
    jet.advance(4.9)
    jet.info(name)
    jet.advance(0.2)
    assert jet.api(f"CONSUMER.INFO.S.{name}")["error"]["err_code"] == 10014


def test_a_subscriber_that_comes_back_in_time_keeps_the_ephemeral(jet: Jet) -> None:
    name = jet.ephemeral(deliver_subject="d.x")["name"]
    sid = jet.listen("d.x")
    jet.wire.unsubscribe(sid)
    jet.advance(4)
    jet.listen("d.x")
    jet.advance(60)
    jet.info(name)


def test_a_durable_stays_without_subscriber(jet: Jet) -> None:
    push(jet)
    jet.advance(3600)
    jet.info()


def test_an_ordered_consumer_starts_at_one_without_gaps(jet: Jet) -> None:
    jet.publish_many(10)
    sid = jet.listen("d.o")
    config = {
        "ack_policy": "none",
        "max_deliver": 1,
        "flow_control": True,
        "idle_heartbeat": 5 * SECOND,
        "mem_storage": True,
        "num_replicas": 1,
        "ack_wait": 22 * 3600 * SECOND,
        "deliver_subject": "d.o",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 4,
        "inactive_threshold": 300 * SECOND,
    }
    info = jet.ephemeral(**config)
    assert info["num_pending"] == 7
    assert [numbers(m)[:3] for m in jet.heard(sid)] == [(1, seq, seq - 3) for seq in range(4, 11)]
    assert jet.info(info["name"])["num_pending"] == 0


def test_a_client_that_does_not_read_is_not_flooded(jet: Jet) -> None:
    push(jet, ack_policy="none")
    for _ in range(30):
        jet.publish("x" * 1_000_000)
    session = jet.wire.session
    session.receive(b"SUB d.x 77\r\n")
    while jet.machine.engine.run_ready(2048):
        pass
    assert 8_000_000 < session.pending_bytes < 30_000_000
    jet.machine.settle()
    jet.advance(0.1)
    assert len(jet.heard(b"77")) == 30


def flow_acked(jet: Jet, **config: Any) -> bytes:
    """Make a consumer whose acks are the answers to flow control requests, and listen to it."""
    jet.consumer(deliver_subject="d.x", ack_policy="flow_control", **config)
    return jet.listen("d.x")


def flow_answer(jet: Jet, messages: list[Message], cseq: int, sseq: int) -> None:
    """Answer the flow control request among `messages` for everything up to these sequences."""
    (request,) = [m for m in messages if b"FlowControl" in m.header]
    header = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (cseq, sseq)
    jet.wire.publish(request.reply.decode(), b"", header=header)


def test_a_full_window_of_unacked_messages_asks_for_a_flow_answer(jet: Jet) -> None:
    sid = flow_acked(jet, max_ack_pending=2)
    jet.publish("1", "2", "3")
    messages = jet.heard(sid)
    assert texts(messages) == ["1", "2", "<100 FlowControl Request>"]
    flow_answer(jet, messages, 2, 2)
    assert texts(jet.heard(sid)) == ["3"]
    assert jet.counts() | {"floor": (2, 2), "ack_pending": 1} == jet.counts()


def test_a_flow_answer_that_names_nothing_acks_nothing(jet: Jet) -> None:
    sid = flow_acked(jet, max_ack_pending=2)
    jet.publish("1", "2")
    flow_answer(jet, jet.heard(sid), 0, 2)
    assert jet.counts()["ack_pending"] == 2


def test_a_heartbeat_asks_for_what_is_unacked(jet: Jet) -> None:
    sid = flow_acked(jet)
    jet.publish("1")
    assert texts(jet.heard(sid)) == ["1"]
    jet.advance(1.1)
    messages = jet.heard(sid)
    assert texts(messages) == ["<100 Idle Heartbeat>", "<100 FlowControl Request>"]
    flow_answer(jet, messages, 1, 1)
    assert jet.counts()["ack_pending"] == 0


def test_flow_acked_messages_are_not_delivered_again_and_take_no_single_acks(jet: Jet) -> None:
    sid = flow_acked(jet)
    jet.publish("1")
    (message,) = jet.heard(sid)
    assert texts(jet.double_ack(message)) == ["<503>"]
    jet.advance(3600)
    assert "1" not in texts(jet.heard(sid))


def test_what_is_unacked_goes_to_a_new_deliver_subject(jet: Jet) -> None:
    push(jet)
    sid = jet.listen("d.x")
    jet.publish("1", "2")
    jet.ack(jet.heard(sid)[0])
    jet.wire.unsubscribe(sid)
    new = jet.listen("d.y")
    push(jet, deliver_subject="d.y")
    assert texts(jet.heard(new)) == ["2"]
