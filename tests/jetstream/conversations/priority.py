"""Priority groups: the same conversations with natsctl's engine and with the reference server."""

from typing import Any

import msgspec

from tests.support.differential import Scenarios, Talk
from tests.support.jet import SECOND
from tests.support.machine import Message

scenario = Scenarios()

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"
GROUP: dict[str, Any] = {"group": "A"}


def ask(t: Talk, inbox: str, **body: Any) -> bytes:
    sid = t.jet.listen(inbox)
    t.jet.wire.publish(NEXT, msgspec.json.encode(body), inbox)
    return sid


def pin_of(messages: list[Message]) -> str:
    """Return the pin that a message carries, and hide it, for it is random."""
    for message in messages:
        for line in message.header.split(b"\r\n"):
            if line.startswith(b"Nats-Pin-Id: "):
                return line[13:].decode()
    return ""


def hidden(messages: list[Message]) -> list[Message]:
    """Return messages with a fixed text for the pin."""
    pin = pin_of(messages).encode()
    return [m._replace(header=m.header.replace(pin, b"PIN")) if pin else m for m in messages]


@scenario
def overflow_waits_for_a_backlog(t: Talk) -> None:
    t.create(priority_groups=["A"], priority_policy="overflow")
    t.jet.publish("1", "2")
    backlog = ask(t, "in.backlog", batch=10, expires=60 * SECOND, min_pending=4, **GROUP)
    unacked = ask(t, "in.unacked", batch=10, expires=60 * SECOND, min_ack_pending=3, **GROUP)
    t.info()
    t.pull({"batch": 1, "no_wait": True, **GROUP})
    t.pull({"batch": 1, "no_wait": True, "min_pending": 5, **GROUP})
    t.jet.publish("3", "4", "5", "6", "7", "8")
    t.hear(backlog, unacked)
    t.info()
    t.pull({"batch": 2, "expires": SECOND, **GROUP})
    t.info()
    t.hear(backlog, unacked)
    t.info()


@scenario
def overflow_counts_redeliveries(t: Talk) -> None:
    t.create(priority_groups=["A"], priority_policy="overflow")
    t.jet.publish("1", "2", "3")
    one, two = t.pull({"batch": 2, "expires": SECOND, **GROUP})
    both = ask(t, "in.both", batch=5, expires=60 * SECOND, min_pending=2, min_ack_pending=2, **GROUP)
    t.note(t.jet.heard(both))
    t.jet.ack(one, b"-NAK")
    t.note(t.jet.heard(both))
    t.jet.ack(two)
    t.info()
    last = ask(t, "in.last", batch=5, expires=60 * SECOND, min_pending=1, **GROUP)
    t.hear(last, both)
    t.info()


@scenario
def pinned_client_has_it_all(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    t.create(priority_groups=["A"], priority_policy="pinned_client", priority_timeout=3600 * SECOND)
    t.ask("CONSUMER.INFO.S.C")
    t.jet.publish("1", "2", "3")
    first = t.jet.pull({"batch": 1, "expires": 60 * SECOND, **GROUP})
    pin = pin_of(first)
    t.note(hidden(first))
    other = ask(t, "in.other", batch=5, expires=60 * SECOND, **GROUP)
    t.note(t.jet.heard(other))
    t.note(hidden(t.jet.pull({"batch": 1, "expires": 60 * SECOND, "id": pin, **GROUP})))
    t.note(t.jet.pull({"batch": 1, "expires": 60 * SECOND, "id": "foreign", **GROUP}))
    t.pull(b"1")
    info_pins(t)
    held = ask(t, "in.held", batch=1, expires=60 * SECOND, id=pin, **GROUP)
    t.note(hidden(t.jet.heard(held)))
    waits = ask(t, "in.waits", batch=2, expires=60 * SECOND, id=pin, **GROUP)
    t.ask("CONSUMER.UNPIN.S.C", {"group": "A"})
    t.jet.publish("4")
    t.note(hidden(t.jet.heard(other)))
    t.note(t.jet.heard(waits))
    info_pins(t)
    t.ask("CONSUMER.UNPIN.S.C", {"group": "A"})
    info_pins(t)
    events(t, heard)


@scenario
def a_pin_ends_after_its_time(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    t.create(priority_groups=["A"], priority_policy="pinned_client", priority_timeout=8 * SECOND, headers_only=True)
    t.jet.publish("1", "2")
    first = t.jet.pull({"batch": 1, "expires": 60 * SECOND, **GROUP})
    t.note(hidden(first))
    t.jet.advance(2.5)
    other = ask(t, "in.other", batch=5, expires=60 * SECOND, **GROUP)
    t.note(t.jet.heard(other))
    t.jet.advance(6.5)
    t.note(hidden(t.jet.heard(other)))
    t.note(t.jet.pull({"batch": 1, "expires": 60 * SECOND, "id": pin_of(first), **GROUP}))
    info_pins(t)
    events(t, heard)


@scenario
def lower_priorities_go_first(t: Talk) -> None:
    t.create(priority_groups=["A"], priority_policy="prioritized")
    sids = []
    for index, priority in enumerate((5, 1, 9, 1, 0, 5)):
        body = {"batch": 2, "expires": 60 * SECOND, "priority": priority, **GROUP}
        sids.append(ask(t, f"in.{index}", **body))
    plain = t.jet.listen("in.plain")
    t.jet.wire.publish(NEXT, b"1", "in.plain")
    t.info()
    for number in range(13):
        t.jet.publish(str(number))
        t.hear(*sids, plain)
    t.info()
    t.pull({"batch": 1, "no_wait": True, "priority": 3, **GROUP})


@scenario
def misuse(t: Talk) -> None:
    t.create()
    bodies: tuple[dict[str, Any], ...] = (
        {"min_pending": 1},
        {"min_ack_pending": 1},
        {"min_pending": -1},
        {"id": "x"},
        {"priority": 10},
        {"priority": -1},
        {"group": "A"},
        {"group": "A", "priority": 3},
    )
    for body in bodies:
        t.pull({"no_wait": True, **body})
    for policy in ("overflow", "pinned_client", "prioritized"):
        t.create(priority_groups=["A", "B"], priority_policy=policy)
        for body in (*bodies, {"group": "B"}, {"group": "C"}, {"group": ""}, {}):
            t.pull({"no_wait": True, **body})
        t.pull(b"")
        t.pull(b"1")
        info_pins(t)
        t.ask("CONSUMER.UNPIN.S.C", {"group": "A"})
        t.jet.api("CONSUMER.DELETE.S.C")
    t.create()
    for wish in (b"", b"{}", {"group": "A"}, {"group": "a b"}, {"group": "x" * 17}):
        t.ask("CONSUMER.UNPIN.S.C", wish)
        t.ask("CONSUMER.UNPIN.S.none", wish)
        t.ask("CONSUMER.UNPIN.none.C", wish)


def info_pins(t: Talk) -> None:
    """Note what INFO says of the groups, without the random pin and its time."""
    answer = t.jet.api("CONSUMER.INFO.S.C")
    groups = answer.get("priority_groups", [])
    for group in groups:
        group["pinned_client_id"] = bool(group.get("pinned_client_id"))
        if group["pinned_client_id"]:
            group["pinned_ts"] = "then"
    t.notes.append([list(group.items()) for group in groups])


def events(t: Talk, sid: bytes) -> None:
    for m in t.jet.heard(sid):
        event = {key: value for key, value in m.json().items() if key not in ("id", "timestamp")}
        event |= {"account": "one"} if "account" in event else {}
        if "pinned_id" in event:
            event["pinned_id"] = len(event["pinned_id"])
        t.notes.append((m.subject, list(event.items())))
