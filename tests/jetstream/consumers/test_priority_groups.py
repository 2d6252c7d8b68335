"""Priority groups as a client sees them on the wire."""

from typing import Any
from unittest import mock

import msgspec

from natsctl.jetstream.consumers import pull
from natsctl.jetstream.consumers.priority_groups import Priority
from tests.support.jet import SECOND, Jet, texts

GROUP: dict[str, Any] = {"group": "A", "expires": 3600 * SECOND}


def consumer(jet: Jet, policy: str, **config: Any) -> None:
    jet.consumer(priority_groups=["A"], priority_policy=policy, **config)


def ask(jet: Jet, inbox: str, **body: Any) -> bytes:
    sid = jet.listen(inbox)
    jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", msgspec.json.encode({**GROUP, **body}), inbox)
    return sid


def pin(jet: Jet) -> str:
    return str(jet.info()["priority_groups"][0].get("pinned_client_id", ""))


def test_a_pinned_client_that_vanished_does_not_keep_messages(jet: Jet) -> None:
    consumer(jet, "pinned_client")
    gone = ask(jet, "in.1", batch=1)
    here = ask(jet, "in.2", batch=1)
    jet.wire.unsubscribe(gone)
    jet.publish("1")
    assert texts(jet.heard(here)) == ["1"]


def test_a_restart_forgets_the_pin(jet: Jet) -> None:
    consumer(jet, "pinned_client")
    jet.publish("1")
    ask(jet, "in.1", batch=1)
    assert pin(jet)
    again = Jet(jet.machine.restarted())
    assert pin(again) == ""


def test_another_id_is_refused_when_its_turn_comes(jet: Jet) -> None:
    consumer(jet, "pinned_client")
    jet.publish("1", "2", "3")
    ask(jet, "in.1", batch=1)
    held = ask(jet, "in.2", batch=5, id=pin(jet))
    assert len(jet.heard(held)) == 2
    jet.api("CONSUMER.UNPIN.S.C", {"group": "A"})
    jet.publish("4")
    (end,) = jet.heard(held)
    assert end.header == (
        b"NATS/1.0 423 Nats-Wrong-Pin-Id\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 0\r\n\r\n"
    )


def test_very_many_requests_are_passed_over_in_parts(jet: Jet) -> None:
    consumer(jet, "pinned_client", max_waiting=1000, priority_timeout=3600 * SECOND)
    pinned = ask(jet, "in.pinned", batch=2)
    jet.publish("1")
    for number in range(300):
        jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", msgspec.json.encode(GROUP), f"other.{number}")
    decided, decide, engine = [0], Priority.decide, jet.machine.engine
    run_ready = engine.run_ready

    def counted(*args: Any) -> Any:
        decided[-1] += 1
        return decide(*args)

    def turn(budget: int) -> bool:
        decided.append(0)
        return run_ready(budget)

    with (
        mock.patch.object(pull, "LOOKS", 64),
        mock.patch.object(Priority, "decide", counted),
        mock.patch.object(engine, "run_ready", turn),
    ):
        jet.publish("2")
        assert texts(jet.heard(pinned)) == ["1", "2"]
        jet.publish("3")
    assert max(decided) <= 64
    assert sum(decided) <= 2 * 301
    assert jet.info()["num_pending"] == 1
