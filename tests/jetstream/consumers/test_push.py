"""Push delivery as a subscriber sees it on the wire."""

from typing import Any

import msgspec
import pytest

from tests.support.jet import SECOND, Jet, texts


def push(jet: Jet, **config: object) -> None:
    jet.consumer(**{"deliver_subject": "d.x", **config})


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
    jet.machine.release_commits()
    assert [m.subject for m in jet.wire.take() if m.subject in (b"in.answer", b"s.a")] == [b"in.answer", b"s.a", b"s.a"]


def test_a_vanished_connection_ends_interest(jet: Jet) -> None:
    push(jet)
    other = jet.machine.connect()
    other.subscribe("d.x")
    assert jet.info()["push_bound"] is True
    other.close()
    assert "push_bound" not in jet.info()


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


def test_a_subscriber_that_comes_back_in_time_keeps_the_ephemeral(jet: Jet) -> None:
    name = jet.ephemeral(deliver_subject="d.x")["name"]
    sid = jet.listen("d.x")
    jet.wire.unsubscribe(sid)
    jet.advance(4)
    jet.listen("d.x")
    jet.advance(60)
    jet.info(name)


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
    jet.consumer(deliver_subject="d.x", ack_policy="flow_control", **config)
    return jet.listen("d.x")


def test_flow_acked_messages_are_not_delivered_again_and_take_no_single_acks(jet: Jet) -> None:
    sid = flow_acked(jet)
    jet.publish("1")
    (message,) = jet.heard(sid)
    assert texts(jet.double_ack(message)) == ["<503>"]
    jet.advance(3600)
    assert "1" not in texts(jet.heard(sid))


@pytest.mark.parametrize("kind", ["push", "pull"])
def test_a_turn_is_short_however_many_receive_each_message(jet: Jet, kind: str) -> None:
    """One deliver subject, or one reply, has a hundred subscriptions."""
    jet.publish(*"0123456789")
    for _ in range(100):
        jet.listen("d.x")
    turns = list[int]()
    run = jet.machine.engine.run_ready

    def counted(budget: int) -> bool:
        before = jet.wire.session.out_msgs
        try:
            return run(200)
        finally:
            turns.append(jet.wire.session.out_msgs - before)

    jet.machine.engine.run_ready = counted  # type: ignore[method-assign]
    if kind == "push":
        push(jet, ack_policy="none")
    else:
        jet.consumer(ack_policy="none")
        jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"10", "d.x")
    heard = [message.payload for message in jet.wire.take() if message.subject == b"s.a"]
    assert sorted(heard) == sorted(b"%d" % number for number in range(10) for _ in range(100))
    assert max(turns) <= 300 and len([turn for turn in turns if turn]) >= 4
    assert not jet.machine.broker.account("$G").postponed.any
