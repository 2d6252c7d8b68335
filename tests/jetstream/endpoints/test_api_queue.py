"""Requests with long answers take their turns."""

from __future__ import annotations

import msgspec
import pytest

from natsctl.jetstream.endpoints import api_queue
from natsctl.testing.jet import Jet
from natsctl.testing.machine import TURN_BUDGET


@pytest.fixture
def busy(jet: Jet) -> Jet:
    """A client that has sent five lists in one chunk, of which none has been served."""
    jet.stream()
    jet.wire.subscribe("inbox")
    session = next(iter(jet.machine.broker.sessions.values()))
    session.take_output()
    session.receive(b"PUB $JS.API.STREAM.LIST inbox 0\r\n\r\n" * 5 + b"PUB $JS.API.CONSUMER.LIST.S inbox 0\r\n\r\n")
    return jet


def answered(jet: Jet) -> int:
    session = next(iter(jet.machine.broker.sessions.values()))
    return b"".join(session.take_output()).count(b"_list_response")


def test_lists_are_served_one_a_turn_in_order(busy: Jet) -> None:
    assert answered(busy) == 0
    more = []
    for _ in range(6):
        more.append(busy.machine.engine.run_ready(TURN_BUDGET))
        assert answered(busy) == 1
    assert more == [True] * 5 + [False]


def test_short_answers_do_not_wait_for_long_ones(busy: Jet) -> None:
    session = next(iter(busy.machine.broker.sessions.values()))
    session.receive(b"PUB $JS.API.STREAM.INFO.S inbox 0\r\n\r\n")
    assert b"stream_info_response" in b"".join(session.take_output())


def test_nothing_is_made_for_a_client_that_has_gone(busy: Jet) -> None:
    next(iter(busy.machine.broker.sessions.values())).closed()
    assert not busy.machine.engine.run_ready(TURN_BUDGET)


def test_a_queue_that_grows_too_long_is_dropped_and_the_system_account_told(
    busy: Jet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_queue, "MOST_WAITING", 8)
    heard: list[bytes] = []
    system = busy.machine.broker.system_account
    system.subscribe(b"$JS.EVENT.>", lambda subject, reply, header, payload, origin: heard.append(payload))
    session = next(iter(busy.machine.broker.sessions.values()))
    session.receive(b"PUB $JS.API.STREAM.LIST inbox 0\r\n\r\n" * 12)
    while busy.machine.engine.run_ready(TURN_BUDGET):
        pass
    assert answered(busy) == 2
    events = [msgspec.json.decode(body) for body in heard]
    assert [event["dropped"] for event in events] == [8, 8]
    assert list(events[0]) == ["type", "id", "timestamp", "server", "dropped"]
    assert events[0]["type"] == "io.nats.jetstream.advisory.v1.api_limit_reached"
