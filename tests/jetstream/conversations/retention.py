"""Interest and workqueue retention: the same conversations with natsctl's engine and with the reference."""

import time
from typing import Any, Final

from tests.support.differential import Scenario, Scenarios, Talk

SECOND: Final = 1_000_000_000
PATIENCE_S: Final = 10.0


def nothing(t: Talk) -> None:
    """Leave it to the conversation to make the stream."""


scenario = Scenarios(nothing)


def with_interest(function: Scenario) -> Scenario:
    """Begin with an interest stream."""
    return scenario(function, lambda t: t.jet.stream(retention="interest"))


TIMES: Final = ("first_ts", "last_ts")


def state(answer: Any) -> Any:
    found = answer.get("state", answer.get("error"))
    return [pair for pair in found.items() if pair[0] not in TIMES]


def left(t: Talk) -> None:
    """Note which messages are there; the reference may need a moment to say the same."""
    place, deadline = len(t.notes), time.monotonic() + PATIENCE_S
    while True:
        note = state(t.jet.api("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True}))
        if place >= len(t.expected) or t.expected[place] == note or time.monotonic() > deadline:
            break
    t.notes.append(note)


def update(t: Talk, **config: Any) -> None:
    t.notes.append(state(t.jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **config})))


@with_interest
def interest_with_filters(t: Talk) -> None:
    t.create("A", filter_subject="s.a")
    t.create("W", filter_subjects=["s.b", "s.c.*"])
    for key in ("a", "b", "c", "c.d", "d"):
        t.jet.publish(key, subject=f"s.{key}")
    left(t)
    t.consume("W")
    left(t)
    t.ask("CONSUMER.DELETE.S.A")
    left(t)


@with_interest
def interest_of_a_paused_consumer(t: Talk) -> None:
    t.create("A")
    t.create("P", pause_until="2099-01-01T00:00:00Z")
    t.jet.publish("1", "2")
    t.consume("A")
    left(t)
    t.ask("CONSUMER.DELETE.S.P")
    left(t)


@with_interest
def interest_after_a_filter_changed(t: Talk) -> None:
    t.create("A", filter_subject="s.a")
    t.create("B", filter_subject="s.b")
    t.jet.publish("1", subject="s.a")
    t.jet.publish("2", subject="s.b")
    t.create("A", filter_subject="s.c", form="CREATE.S.{name}.s.c", action="update")
    left(t)
    t.jet.publish("3", subject="s.a")
    t.jet.publish("4", subject="s.c")
    left(t)


@with_interest
def interest_begins_where_a_consumer_begins(t: Talk) -> None:
    t.create("A")
    t.jet.publish("1", "2")
    t.create("N", deliver_policy="new")
    t.create("L", deliver_policy="last")
    t.jet.publish("3")
    for name in "ANL":
        t.consume(name)
        left(t)


@with_interest
def interest_with_ack_all_and_ack_none(t: Talk) -> None:
    t.create("A", ack_policy="all")
    t.create("N", ack_policy="none")
    t.jet.publish("1", "2", "3")
    messages = t.pull({"batch": 3, "no_wait": True}, "A")
    t.note(t.jet.double_ack(messages[1]))
    left(t)
    t.pull({"batch": 2, "no_wait": True}, "N")
    left(t)
    t.pull({"batch": 2, "no_wait": True}, "N")
    t.note(t.jet.double_ack(messages[2]))
    left(t)


@with_interest
def interest_and_term_and_nak(t: Talk) -> None:
    t.create("A")
    t.create("B")
    t.jet.publish("1", "2")
    one, two = t.pull({"batch": 2, "no_wait": True}, "A")
    t.note(t.jet.double_ack(one, b"+TERM why"))
    t.note(t.jet.double_ack(two, b"-NAK"))
    one, two = t.pull({"batch": 2, "no_wait": True}, "B")
    t.note(t.jet.double_ack(one))
    t.note(t.jet.double_ack(two))
    left(t)


@with_interest
def interest_and_messages_given_up(t: Talk) -> None:
    t.create("A", max_deliver=1, ack_wait=SECOND // 2)
    t.create("B")
    t.jet.publish("1", "2")
    t.pull({"batch": 2, "no_wait": True}, "A")
    t.jet.advance(1.2)
    for message in t.pull({"batch": 2, "no_wait": True}, "B"):
        t.note(t.jet.double_ack(message))
    left(t)


@scenario
def interest_with_limits_on_top(t: Talk) -> None:
    t.jet.stream(retention="interest", max_msgs=2)
    t.create("A")
    t.jet.publish("1", "2", "3")
    left(t)
    t.info("A")
    t.pull({"batch": 5, "no_wait": True}, "A")


@scenario
def limits_push_out_what_is_pending(t: Talk) -> None:
    t.jet.stream(max_msgs=3)
    t.create("A")
    events = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.A")
    t.jet.publish("1", "2", "3")
    t.pull({"batch": 1, "no_wait": True}, "A")
    t.jet.publish("4", "5")
    t.event(events)
    t.info("A")
    update(t, max_msgs=1)
    left(t)


@scenario
def a_subject_pushes_out_what_is_pending(t: Talk) -> None:
    t.jet.stream(max_msgs_per_subject=1)
    t.create("A")
    events = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.A")
    t.jet.publish("1")
    t.pull({"batch": 1, "no_wait": True}, "A")
    t.jet.publish("2")
    t.event(events)
    t.info("A")


@scenario
def interest_that_discards_new(t: Talk) -> None:
    t.jet.stream(retention="interest", max_msgs=2, discard="new")
    t.notes.append(t.jet.wire.request("s.a", b"nobody"))
    t.create("A")
    for _ in range(3):
        t.notes.append(t.jet.wire.request("s.a", b"x"))
    (one,) = t.pull(b"1", "A")
    t.note(t.jet.double_ack(one))
    t.notes.append(t.jet.wire.request("s.a", b"x"))
    left(t)


@scenario
def a_workqueue_that_discards_new_per_subject(t: Talk) -> None:
    config: dict[str, Any] = {"max_msgs_per_subject": 1, "discard_new_per_subject": True, "allow_rollup_hdrs": True}
    t.jet.stream(retention="workqueue", discard="new", **config)
    t.create("A")
    for header in (b"", b"", b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"):
        t.notes.append(t.jet.wire.request("s.a", b"x", header))
    t.notes.append(t.jet.wire.request("s.b", b"x"))
    left(t)
    t.consume("A")
    t.notes.append(t.jet.wire.request("s.a", b"x"))
    left(t)


@scenario
def discard_new_by_bytes_replaces_per_subject(t: Talk) -> None:
    t.jet.stream(discard="new", max_msgs_per_subject=1, max_bytes=200)
    for size in (60, 60, 50, 70):
        t.notes.append(t.jet.wire.request("s.a", b"x" * size))
        t.notes.append(t.jet.wire.request("s.b", b"x" * size))
    left(t)


@scenario
def a_workqueue_with_two_consumers(t: Talk) -> None:
    t.jet.stream(retention="workqueue")
    t.create("A", filter_subject="s.a")
    t.create("B", filter_subject="s.b.>")
    for key in ("a", "b.c", "d"):
        t.jet.publish(key, subject=f"s.{key}")
    for name in "AB":
        t.consume(name)
    left(t)
    t.ask("CONSUMER.DELETE.S.A")
    t.ask("CONSUMER.DELETE.S.B")
    left(t)


@scenario
def a_stream_becomes_an_interest_stream(t: Talk) -> None:
    t.jet.stream()
    t.create("A", filter_subject="s.a")
    for key in "abab":
        t.jet.publish(key, subject=f"s.{key}")
    (one,) = t.pull({"batch": 1, "no_wait": True}, "A")
    t.note(t.jet.double_ack(one))
    left(t)
    update(t, retention="interest")
    t.jet.advance(0.3)
    left(t)
    t.jet.publish("b", subject="s.b")
    left(t)


@scenario
def a_stream_without_consumers_becomes_an_interest_stream(t: Talk) -> None:
    t.jet.stream()
    t.jet.publish("1", "2")
    update(t, retention="interest")
    left(t)


@with_interest
def an_interest_stream_becomes_a_stream_of_limits(t: Talk) -> None:
    t.create("A")
    t.jet.publish("1")
    update(t, retention="limits")
    t.jet.publish("2")
    t.consume("A")
    left(t)


@with_interest
def the_last_consumer_goes(t: Talk) -> None:
    t.create("A")
    t.create("B")
    t.jet.publish("1", "2", "3")
    t.ask("CONSUMER.DELETE.S.A")
    left(t)
    t.ask("CONSUMER.DELETE.S.B")
    left(t)
    t.notes.append(t.jet.wire.request("s.a", b"x"))
    left(t)


@with_interest
def a_consumer_is_reset(t: Talk) -> None:
    t.create("A")
    t.create("B")
    t.jet.publish("1", "2", "3")
    t.consume("A")
    t.ask("CONSUMER.RESET.S.A", {"seq": 2})
    t.consume("B")
    left(t)
