"""What a changed stream configuration does at once, on the engine and on the reference server."""

from __future__ import annotations

from typing import Any, Final

from tests.support.differential import Scenarios, Talk

SECOND: Final = 1_000_000_000

scenario = Scenarios()


def change(t: Talk, **config: Any) -> None:
    t.ask("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **config})
    state(t)


def state(t: Talk) -> None:
    t.ask("STREAM.INFO.S", {"subjects_filter": ">"})


def publish(t: Talk, count: int = 3, subject: str = "s.a") -> None:
    for number in range(count):
        t.notes.append(t.jet.wire.request(subject, b"%d" % number))


@scenario
def tighter_limits_trim_at_once(t: Talk) -> None:
    publish(t, 6)
    publish(t, 2, "s.b")
    change(t, max_msgs_per_subject=4)
    change(t, max_msgs_per_subject=4, max_msgs=4)
    change(t, max_bytes=70)
    change(t, max_msgs=1, discard="new")
    publish(t, 1)


@scenario
def limits_of_the_stream_drop_before_those_of_subjects(t: Talk) -> None:
    for subject in ("s.a", "s.b", "s.c", "s.a", "s.a", "s.a"):
        publish(t, 1, subject)
    change(t, max_msgs=4, max_msgs_per_subject=1)


@scenario
def limits_of_subjects_drop_with_discard_new_too(t: Talk) -> None:
    publish(t, 3)
    publish(t, 2, "s.b")
    change(t, max_msgs=2, max_bytes=40, max_msgs_per_subject=1, discard="new")
    publish(t, 1)


@scenario
def interest_without_consumers_keeps_nothing(t: Talk) -> None:
    publish(t)
    change(t, retention="interest")
    publish(t)
    state(t)


@scenario
def interest_keeps_what_consumers_have_not_acked(t: Talk) -> None:
    t.create()
    publish(t, 4)
    for message in t.pull(2):
        t.note(t.jet.double_ack(message))
    change(t, retention="interest")
    t.ask("CONSUMER.INFO.S.C")
    publish(t, 1)
    for message in t.pull(1):
        t.note(t.jet.double_ack(message))
    state(t)


@scenario
def interest_drops_what_no_filter_takes(t: Talk) -> None:
    t.create(filter_subject="s.b")
    publish(t, 3)
    publish(t, 2, "s.b")
    change(t, retention="interest")
    publish(t, 1)
    state(t)


@scenario
def interest_that_becomes_limits_keeps_everything_from_then_on(t: Talk) -> None:
    t.create()
    change(t, retention="interest")
    publish(t, 2)
    change(t)
    for message in t.pull(2):
        t.note(t.jet.double_ack(message))
    state(t)


@scenario
def a_sealed_stream_takes_and_gives_nothing(t: Talk) -> None:
    publish(t)
    change(t, sealed=True, max_age=3600 * SECOND)
    publish(t, 1)
    for verb, body in (("STREAM.PURGE.S", {}), ("STREAM.MSG.DELETE.S", {"seq": 1}), ("STREAM.MSG.GET.S", {"seq": 9})):
        t.ask(verb, body)
    change(t)
    t.ask("STREAM.DELETE.S")


@scenario
def other_subjects_are_captured_at_once(t: Talk) -> None:
    publish(t, 1)
    change(t, subjects=["t.>", "s.a"])
    publish(t, 1, "t.a")
    publish(t, 1)
    state(t)
    change(t, subjects=["t.>"])
    publish(t, 1, "t.b")
    state(t)


@scenario
def direct_gets_come_and_go(t: Talk) -> None:
    publish(t, 1)
    for allowed in (True, False, True):
        change(t, allow_direct=allowed)
        sid = t.jet.listen("in")
        t.jet.wire.publish("$JS.API.DIRECT.GET.S.s.a", b"", "in")
        t.notes.append([m.header.split(b"\r\n")[:2] for m in t.jet.heard(sid)])


@scenario
def features_are_switched_on_and_most_not_off(t: Talk) -> None:
    for features in (
        {"allow_msg_ttl": True}, {}, {"allow_msg_ttl": True, "allow_atomic": True}, {"allow_msg_ttl": True},
        {"allow_msg_ttl": True, "subject_delete_marker_ttl": SECOND}, {"allow_msg_ttl": True, "deny_purge": True},
        {"allow_msg_ttl": True, "allow_rollup_hdrs": True},
    ):  # fmt: skip
        change(t, **features)


@scenario
def a_smaller_window_forgets_ids(t: Talk) -> None:
    header = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    t.notes.append(t.jet.wire.request("s.a", b"x", header))
    change(t, duplicate_window=SECOND // 10)
    t.jet.advance(1)
    t.notes.append(t.jet.wire.request("s.a", b"x", header))
