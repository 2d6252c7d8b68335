"""Push consumers: the same conversations with natsctl's engine and with the reference server."""

from typing import Any

from tests.support.differential import Scenarios, Talk, is_heartbeat
from tests.support.jet import SECOND
from tests.support.machine import Message

scenario = Scenarios()


PLAIN: dict[str, Any] = {"durable_name": "C", "ack_policy": "explicit"}


@scenario
def interest_is_a_subscription_to_the_very_subject(t: Talk) -> None:
    t.create(deliver_subject="d.x")
    t.jet.publish("1", "2")
    wild = t.jet.listen("d.*")
    all_ = t.jet.listen("d.>")
    t.note(t.jet.heard(wild))
    t.info()
    exact = t.jet.listen("d.x")
    t.hear(wild, all_, exact)
    t.info()
    t.jet.wire.unsubscribe(exact)
    t.info()
    t.jet.publish("3")
    t.note(t.jet.heard(wild))
    t.info()


@scenario
def queue_members_without_a_deliver_group(t: Talk) -> None:
    t.create(deliver_subject="d.x")
    t.jet.publish("1", "2")
    member = t.jet.wire.subscribe("d.x", "q")
    t.note(t.jet.heard(member))
    t.info()
    plain = t.jet.listen("d.x")
    t.hear(member, plain)
    t.info()


@scenario
def queue_members_of_a_deliver_group(t: Talk) -> None:
    t.create(deliver_subject="d.x", deliver_group="q")
    t.jet.publish("1", "2")
    plain = t.jet.listen("d.x")
    other = t.jet.wire.subscribe("d.x", "r")
    wild = t.jet.wire.subscribe("d.*", "q")
    t.info()
    t.hear(plain, other, wild)
    t.jet.wire.unsubscribe(wild)
    t.jet.wire.unsubscribe(other)
    member = t.jet.wire.subscribe("d.x", "q")
    t.hear(plain, member)
    t.info()
    t.jet.wire.unsubscribe(member)
    t.jet.publish("3")
    t.note(t.jet.heard(plain))
    t.info()


@scenario
def another_deliver_subject(t: Talk) -> None:
    t.create(deliver_subject="d.x")
    sid = t.jet.listen("d.x")
    t.jet.publish("1", "2", "3")
    messages = t.jet.heard(sid)
    t.note(messages)
    t.jet.ack(messages[1])
    t.create(deliver_subject="d.y")
    t.jet.wire.unsubscribe(sid)
    wild = t.jet.listen("d.*")
    t.create(deliver_subject="d.y")
    t.jet.wire.unsubscribe(wild)
    t.jet.wire.subscribe("d.x", "q")
    t.create(deliver_subject="d.y")
    t.info()


@scenario
def what_was_pending_goes_to_the_new_deliver_subject(t: Talk) -> None:
    t.create(deliver_subject="d.x")
    sid = t.jet.listen("d.x")
    t.jet.publish("1", "2", "3")
    messages = t.jet.heard(sid)
    t.jet.ack(messages[1])
    t.jet.wire.unsubscribe(sid)
    new = t.jet.listen("d.y")
    t.jet.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": {**PLAIN, "deliver_subject": "d.y"}})
    t.note(t.jet.heard(new))
    t.info()
    t.create(deliver_subject="s.y")
    t.create(deliver_subject="d.*")
    t.create(deliver_subject="")
    t.info()


def heard_but_heartbeats(t: Talk, sid: bytes) -> list[Message]:
    """Return what was heard; heartbeats come each second, however many seconds the conversation takes."""
    return [m for m in t.jet.heard(sid) if not is_heartbeat(m)]


@scenario
def acks_by_flow_control(t: Talk) -> None:
    t.create(deliver_subject="d.x", ack_policy="flow_control", max_ack_pending=3, max_deliver=-1)
    t.create("E", deliver_subject="d.e", ack_policy="flow_control", ack_wait=SECOND)
    t.create("F", ack_policy="flow_control")
    t.jet.publish("1", "2", "3", "4", "5")
    sid = t.jet.listen("d.x")
    messages = heard_but_heartbeats(t, sid)
    t.note(messages)
    t.info()
    t.note(t.jet.double_ack(messages[0]))
    t.info()
    request = next(m for m in messages if b"FlowControl" in m.header)
    header = b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    t.jet.wire.publish(request.reply.decode(), b"", "", header)
    messages = heard_but_heartbeats(t, sid)
    t.note(messages)
    t.info()
    t.jet.wire.publish(request.reply.decode(), b"", "", header)
    t.note(heard_but_heartbeats(t, sid))
    t.info()
    request = next(m for m in messages if b"FlowControl" in m.header)
    t.jet.wire.publish(request.reply.decode())
    t.info()
    t.jet.advance(1.3)
    messages = t.jet.heard(sid)
    t.notes.append(any(map(is_heartbeat, messages)))
    t.note([m for m in messages if not is_heartbeat(m)])
    t.info()


@scenario
def heartbeats_go_on_in_a_pause(t: Talk) -> None:
    t.create(deliver_subject="d.x", idle_heartbeat=8 * SECOND, pause_until="2099-01-01T00:00:00Z")
    sid = t.jet.listen("d.x")
    t.jet.publish("1")
    t.jet.advance(8.5)
    t.note(t.jet.heard(sid))
    t.info()
    t.ask("CONSUMER.PAUSE.S.C", {"pause_until": "2020-01-01T00:00:00Z"})
    t.jet.publish("2")  # resuming by the verb alone wakes nobody at the reference before its next occasion
    t.notes.append([m.payload for m in t.jet.heard(sid)])
    t.info()


@scenario
def redeliveries_of_a_push_consumer(t: Talk) -> None:
    t.create(deliver_subject="d.x", ack_wait=8 * SECOND, max_deliver=2, max_ack_pending=2)
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    sid = t.jet.listen("d.x")
    t.jet.publish("1", "2", "3")
    t.note(t.jet.heard(sid))
    t.info()
    t.jet.advance(8.5)
    t.note(t.jet.heard(sid))
    t.info()
    t.jet.advance(8.5)
    t.note(t.jet.heard(sid))
    t.info()
    t.event(heard)


@scenario
def pushes_of_all_policies(t: Talk) -> None:
    t.jet.wire.send(b"".join(b"PUB s.%d 1\r\n%d\r\n" % (number % 3, number) for number in range(6)))
    policies: tuple[dict[str, Any], ...] = (
        {"replay_policy": "original"},  # first, while no pause of the machine lies between messages
        {"ack_policy": "none"},
        {"ack_policy": "all", "deliver_policy": "last_per_subject", "filter_subject": "s.*"},
        {"ack_policy": "none", "deliver_policy": "last_per_subject", "filter_subjects": ["s.1", "s.2"]},
        {"deliver_policy": "last", "headers_only": True},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 4, "filter_subject": "s.0"},
        {"deliver_policy": "new", "rate_limit_bps": 1_000_000},
    )
    for index, config in enumerate(policies):
        sid = t.jet.listen(f"d.{index}")
        t.create(f"C{index}", deliver_subject=f"d.{index}", **config)
        t.note(t.jet.heard(sid))
        t.info(f"C{index}")
        t.jet.publish("new", subject="s.1")
        t.note(t.jet.heard(sid))
        t.info(f"C{index}")
