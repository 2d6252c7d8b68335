"""What a changed stream configuration does at once, on the engine and on the reference server."""

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
def a_smaller_window_forgets_ids(t: Talk) -> None:
    header = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    t.notes.append(t.jet.wire.request("s.a", b"x", header))
    change(t, duplicate_window=SECOND // 10)
    t.jet.advance(1)
    t.notes.append(t.jet.wire.request("s.a", b"x", header))
