"""Pull requests and their ends: the same conversations with natsctl's engine and with the reference server."""

from typing import Any

import msgspec

from tests.support.differential import Scenario, Scenarios, Talk
from tests.support.jet import SECOND

scenario = Scenarios()

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"


def ask(t: Talk, inbox: str, body: Any) -> bytes:
    sid = t.jet.listen(inbox)
    t.jet.wire.publish(NEXT, body if isinstance(body, bytes) else msgspec.json.encode(body), inbox)
    return sid


BODIES: tuple[bytes, ...] = (
    b"2", b" 3 ", b"+1", b"0", b"-3", b"1.5", b"1e3", b"1_0", b"x", b"99999999999999999999", b"\xff", b"[1]", b'"1"',
    b"{}", b'{"batch":0,"no_wait":true}', b'{"batch":-2,"max_bytes":1000,"expires":300000000}', b'{"batch":"2"}',
    b'{"batch":1.5}', b'{"no_wait":1}', b'{"batch":null,"no_wait":true}', b'{"unknown":1,"no_wait":true}',
    b'{"expires":-5}', b'{"batch":3,"expires":-1,"max_bytes":-7}', b'{"group":5}', b'{"id":[]}',
    b'{"max_bytes":-7,"expires":3000000000,"batch":9}', b'{"idle_heartbeat":1000000000}', b'{"min_pending":"a"}',
    b'{"idle_heartbeat":1000000000,"expires":1999999999}', b'{"idle_heartbeat":-5,"no_wait":true}',
    b'{"batch":99999999999999999999}',
)  # fmt: skip


def bodies(t: Talk, part: int) -> None:
    t.create()
    for body in BODIES[part::4]:
        t.jet.publish("a", "b", "c")
        t.pull(body)
        t.jet.advance(3.5 if b'"expires":3000000000' in body else 0.35)
        t.info()
        for message in t.jet.pull({"batch": 50, "no_wait": True}):
            if message.reply:
                t.jet.ack(message)
        t.jet.api("STREAM.PURGE.S")


def part_of_bodies(part: int) -> Scenario:
    def run(t: Talk) -> None:
        bodies(t, part)

    run.__name__ = f"bodies_of_all_kinds_{part}"
    return run


for part in range(4):  # beside each other, since nats-server needs some time for each body
    scenario(part_of_bodies(part))


@scenario
def bytes_are_counted(t: Talk) -> None:
    t.create()
    t.jet.publish("1234567890")
    (one,) = t.pull()
    size = len(one.subject) + len(one.reply) + len(one.payload)
    for extra in (-1, 0, 1):
        t.jet.publish("1234567890", "1234567890", "1234567890")
        t.pull({"batch": 3, "max_bytes": size + extra, "expires": SECOND})
        t.pull({"batch": 3, "max_bytes": 2 * size + extra, "expires": SECOND})
        t.pull({"batch": 1, "max_bytes": size + extra, "no_wait": True})
        t.info()
    t.pull({"batch": 50, "max_bytes": 100_000, "no_wait": True})
    t.jet.publish("1", "2")
    t.pull({"batch": 2, "max_bytes": 100_000, "no_wait": True})
    small = ask(t, "in.small", {"batch": 2, "max_bytes": 20, "expires": 60 * SECOND})
    large = ask(t, "in.large", {"batch": 2, "max_bytes": 2000, "expires": 60 * SECOND})
    t.jet.publish("1", "2", "3")
    t.hear(small, large)
    t.info()


@scenario
def one_shots_in_every_state(t: Talk) -> None:
    t.create(max_ack_pending=2, max_waiting=3)
    oneshot = {"batch": 2, "no_wait": True}
    waiting = {"batch": 2, "no_wait": True, "expires": 7 * SECOND}
    t.pull(oneshot)
    first = ask(t, "in.1", waiting)
    second = ask(t, "in.2", {"batch": 3, "expires": 12 * SECOND})
    t.pull(oneshot)
    t.info()
    t.jet.publish("1")
    t.hear(first, second)
    t.info()
    t.jet.publish("2", "3", "4")
    t.note(t.jet.heard(second))
    t.info()
    t.pull(oneshot)
    held = ask(t, "in.3", oneshot)
    t.note(t.jet.heard(held))
    t.info()
    t.jet.advance(12.5)
    t.hear(second, held)
    t.info()


@scenario
def one_shots_of_a_paused_consumer(t: Talk) -> None:
    t.create()
    t.jet.publish("1", "2")
    t.ask("CONSUMER.PAUSE.S.C", {"pause_until": "2099-01-01T00:00:00Z"})
    t.pull({"batch": 1, "no_wait": True})
    t.pull({"batch": 5, "no_wait": True})
    waits = ask(t, "in.w", {"batch": 5, "expires": 60 * SECOND})
    t.pull({"batch": 1, "no_wait": True})
    t.info()
    t.jet.wire.publish(NEXT, b'{"no_wait":true}', "in.nobody")
    t.ask("CONSUMER.PAUSE.S.C", {})
    t.jet.publish("3")  # resuming by the verb alone wakes nobody at the reference before its next occasion
    t.notes.append([m.payload for m in t.jet.heard(waits)])
    t.info()


@scenario
def too_many_wait(t: Talk) -> None:
    t.create(max_waiting=2)
    sids = [ask(t, f"in.{i}", {"batch": 1, "expires": 60 * SECOND}) for i in range(2)]
    t.pull({"batch": 1, "expires": SECOND})
    t.pull(b"1")
    t.pull({"batch": 1, "expires": SECOND, "idle_heartbeat": SECOND // 4})
    t.info()
    t.jet.publish("1", "2", "3")
    t.hear(*sids)
    t.pull(b"1")
    t.info()


@scenario
def heartbeats_of_each_request(t: Talk) -> None:
    t.create(filter_subject="s.a")
    sids = [
        ask(t, "in.slow", {"batch": 5, "expires": 60 * SECOND, "idle_heartbeat": 11 * SECOND}),
        ask(t, "in.fast", {"batch": 5, "expires": 60 * SECOND, "idle_heartbeat": 10 * SECOND}),
    ]
    t.jet.publish("other", subject="s.b")
    t.jet.advance(13.5)
    t.hear(*sids)
    t.jet.publish("1", "2")
    t.hear(*sids)
    t.info()


@scenario
def limits_of_a_consumer(t: Talk) -> None:
    t.create(max_batch=2, max_expires=30_500_000_000, max_bytes=100)
    for body in (
        {"batch": 3}, {"batch": 2, "expires": 31 * SECOND}, {"batch": 2, "max_bytes": 101},
        {"batch": 3, "expires": 39 * SECOND}, {"batch": 3, "priority": 77},
        {"batch": 2, "max_bytes": 100, "no_wait": True},
        {"batch": 1, "expires": 30_400_000_000, "idle_heartbeat": 15_800_000_000},
    ):  # fmt: skip
        t.pull(body)
    t.pull(b"3")
    t.pull(b"2")
    t.info()
    t.create(max_batch=0, max_expires=60 * SECOND)
    for body in ({"batch": 9, "expires": 61 * SECOND}, {"batch": 9, "no_wait": True}):
        t.pull(body)


@scenario
def ends_of_a_consumer(t: Talk) -> None:
    t.create()
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    sids = [ask(t, "in.1", {"batch": 5, "max_bytes": 5000, "expires": 60 * SECOND}), ask(t, "in.2", b"7")]
    t.ask("CONSUMER.DELETE.S.C")
    t.hear(*sids)
    t.pull(b"1")
    t.create("P", deliver_subject="d.p")
    t.note(t.jet.pull(b"1", "P"))
    t.event(heard)
    t.create()
    sid = ask(t, "in.3", b"7")
    t.ask("STREAM.DELETE.S")
    t.note(t.jet.heard(sid))


@scenario
def next_after_an_ack(t: Talk) -> None:
    t.create()
    t.jet.publish(*"123456789")
    (one,) = t.pull()
    for payload in (
        b"+NXT",
        b"+NXT 2",
        b'+NXT {"batch":1}',
        b'+NXT {"batch":1,"no_wait":true}',
        b"+NXT x",
        b"+NXT {",
        b'+NXT{"batch":1}',
    ):
        t.note(t.jet.double_ack(one, payload))
        t.info()
    t.jet.ack(one, b"+NXT")
    t.info()


@scenario
def vanished_clients(t: Talk) -> None:
    t.create()
    gone = ask(t, "in.gone", {"batch": 5, "expires": 60 * SECOND})
    here = ask(t, "in.here", {"batch": 5, "expires": 60 * SECOND})
    t.info()
    t.jet.wire.unsubscribe(gone)
    t.jet.publish("1", "2", "3")
    t.note(t.jet.heard(here))
    t.info()


@scenario
def ack_subjects_of_other_forms(t: Talk) -> None:
    t.create()
    t.jet.publish("1", "2", "3", "4")
    one, *_ = t.pull(b"4")
    for subject in (
        b"$JS.ACK.S.C.1.1.1.1.0.extra", b"$JS.ACK.S.D.1.1.1.1.0", b"$JS.ACK.S.C.x.1.1.1.0", b"$JS.ACK.S.C.1.0.0.0.0",
        b"$JS.ACK.S.C.1.2.2.1.0", b"$JS.ACK.S.C.1.x.1.1.0", b"$JS.ACK.S.C.9.3.77.5.5",
    ):  # fmt: skip
        t.note(t.jet.double_ack(one._replace(reply=subject)))
        t.info()
