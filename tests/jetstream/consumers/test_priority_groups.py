"""Priority groups as a client sees them on the wire; test_priority_reference.py compares the texts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from natsctl.testing.jet import SECOND, Jet, texts

GROUP: dict[str, Any] = {"group": "A", "expires": 3600 * SECOND}


@pytest.fixture
def jet() -> Jet:
    jet = Jet()
    jet.stream()
    return jet


def consumer(jet: Jet, policy: str, **config: Any) -> None:
    """Make a consumer with one group."""
    jet.consumer(priority_groups=["A"], priority_policy=policy, **config)


def ask(jet: Jet, inbox: str, **body: Any) -> bytes:
    """Open a request and return the sid of its inbox."""
    sid = jet.listen(inbox)
    jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", msgspec.json.encode({**GROUP, **body}), inbox)
    return sid


def pin(jet: Jet) -> str:
    """Return who is pinned."""
    return str(jet.info()["priority_groups"][0].get("pinned_client_id", ""))


def test_overflow_waits_until_enough_is_pending(jet: Jet) -> None:
    consumer(jet, "overflow")
    sid = ask(jet, "in.1", batch=5, min_pending=3)
    jet.publish("1", "2")
    assert jet.heard(sid) == []
    jet.publish("3")
    assert texts(jet.heard(sid)) == ["1"]  # two are left, which is below three again


def test_overflow_waits_until_enough_is_unacked(jet: Jet) -> None:
    consumer(jet, "overflow")
    sid = ask(jet, "in.1", batch=5, min_ack_pending=2)
    jet.publish("1", "2", "3")
    jet.pull({"batch": 1, **GROUP})
    assert jet.heard(sid) == []
    jet.pull({"batch": 1, **GROUP})
    assert texts(jet.heard(sid)) == ["3"]


def test_others_are_served_past_a_request_that_waits_for_overflow(jet: Jet) -> None:
    consumer(jet, "overflow")
    waits = ask(jet, "in.1", batch=5, min_pending=100)
    served = ask(jet, "in.2", batch=5)
    jet.publish("1", "2")
    assert jet.heard(waits) == []
    assert texts(jet.heard(served)) == ["1", "2"]
    assert jet.counts()["waiting"] == 2


def test_lower_priorities_are_served_first_and_in_turn(jet: Jet) -> None:
    consumer(jet, "prioritized")
    sids = [ask(jet, f"in.{i}", batch=2, priority=p) for i, p in enumerate((5, 1, 1))]
    jet.publish_many(6)
    assert [texts(jet.heard(sid)) for sid in sids] == [["5", "6"], ["1", "3"], ["2", "4"]]


def test_the_first_request_is_pinned_and_others_wait(jet: Jet) -> None:
    consumer(jet, "pinned_client")
    assert pin(jet) == ""
    assert jet.info()["priority_groups"][0]["pinned_ts"] == "0001-01-01T00:00:00Z"
    first, second = ask(jet, "in.1", batch=1), ask(jet, "in.2", batch=1)
    jet.publish("1", "2")
    (message,) = jet.heard(first)
    assert message.header == b"NATS/1.0\r\nNats-Pin-Id: %b\r\n\r\n" % pin(jet).encode()
    assert jet.heard(second) == []
    third = ask(jet, "in.3", batch=1, id=pin(jet))
    assert texts(jet.heard(third)) == ["2"]


def test_another_id_is_refused_at_once_or_when_its_turn_comes(jet: Jet) -> None:
    consumer(jet, "pinned_client")
    jet.publish("1", "2", "3")
    ask(jet, "in.1", batch=1)
    assert texts(jet.pull({**GROUP, "id": "other"})) == ["<423 Nats-Pin-Id mismatch>"]
    held = ask(jet, "in.2", batch=5, id=pin(jet))
    assert len(jet.heard(held)) == 2
    jet.api("CONSUMER.UNPIN.S.C", {"group": "A"})
    jet.publish("4")
    (end,) = jet.heard(held)
    assert end.header == (
        b"NATS/1.0 423 Nats-Wrong-Pin-Id\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 0\r\n\r\n"
    )


def test_a_pin_ends_when_its_client_stays_away(jet: Jet) -> None:
    heard = jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    consumer(jet, "pinned_client", priority_timeout=10 * SECOND)
    jet.publish("1", "2", "3")
    ask(jet, "in.1", batch=1)
    first = pin(jet)
    other = ask(jet, "in.2", batch=1)
    jet.advance(8)
    jet.pull({**GROUP, "id": first, "batch": 1})
    jet.advance(8)
    assert pin(jet) == first
    assert jet.heard(other) == []
    jet.advance(3)
    assert texts(jet.heard(other)) == ["3"]
    assert pin(jet) not in ("", first)
    events = [m.json() for m in jet.heard(heard)]
    assert [e["type"].rpartition(".")[2] for e in events] == [
        "consumer_action", "consumer_group_pinned", "consumer_group_unpinned", "consumer_group_pinned",
    ]  # fmt: skip
    assert events[2]["reason"] == "timeout"
    assert events[1]["pinned_id"] == first


def test_a_pinned_client_that_vanished_does_not_keep_messages(jet: Jet) -> None:
    consumer(jet, "pinned_client")
    gone = ask(jet, "in.1", batch=1)
    here = ask(jet, "in.2", batch=1)
    jet.wire.unsubscribe(gone)
    jet.publish("1")
    assert texts(jet.heard(here)) == ["1"]


def test_unpin_tells_whoever_listens(jet: Jet) -> None:
    consumer(jet, "pinned_client")
    heard = jet.listen("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S.C")
    jet.publish("1")
    ask(jet, "in.1", batch=1)
    answer = jet.api("CONSUMER.UNPIN.S.C", {"group": "A"})
    assert answer == {"type": "io.nats.jetstream.api.v1.consumer_unpin_response"}
    assert pin(jet) == ""
    (event,) = jet.heard(heard)
    assert event.json()["reason"] == "admin"


def test_a_restart_forgets_the_pin(jet: Jet) -> None:
    consumer(jet, "pinned_client")
    jet.publish("1")
    ask(jet, "in.1", batch=1)
    assert pin(jet)
    again = Jet(jet.machine.restarted())
    assert pin(again) == ""
