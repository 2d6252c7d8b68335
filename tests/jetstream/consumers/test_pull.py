"""Pull delivery as a client sees it on the wire."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from natsctl.broker.account import Account
from natsctl.broker.session import Session
from natsctl.jetstream import work
from natsctl.jetstream.consumers import pull
from tests.support.jet import SECOND, Jet, numbers, texts


def open_request(jet: Jet, body: bytes, inbox: str, name: str = "C") -> bytes:
    sid = jet.listen(inbox)
    jet.wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, inbox)
    return sid


def test_requests_nobody_listens_to_make_room(jet: Jet) -> None:
    jet.consumer(max_waiting=1)
    sid = open_request(jet, b"1", "in.1")
    jet.wire.unsubscribe(sid)
    jet.publish("a")
    assert texts(jet.pull(b"1")) == ["a"]


def test_what_an_ended_subscription_did_not_take_is_not_delivered(jet: Jet) -> None:
    jet.consumer()
    jet.publish_many(5)
    sid = jet.listen("in.1")
    jet.wire.send(b"UNSUB %b 2\r\n" % sid)
    jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"5", "in.1")
    assert texts(jet.heard(sid)) == ["1", "2"]
    assert jet.counts() | {"delivered": (2, 2), "pending": 3, "waiting": 0} == jet.counts()


def test_a_client_without_headers_gets_the_payload(jet: Jet) -> None:
    jet.consumer()
    jet.wire.publish("s.a", b"body", header=b"NATS/1.0\r\nA: 1\r\n\r\n")
    old = Jet(jet.machine)
    old.wire = jet.machine.connect(headers=False, no_responders=False)
    (message,) = old.pull()
    assert (message.header, message.payload) == (b"", b"body")


def test_waiting_requests_are_told_when_the_server_stops(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a")
    first = open_request(jet, b'{"batch": 3, "max_bytes": 1000, "expires": 9000000000}', "in.1")
    second = open_request(jet, b"1", "in.2")
    size = sum(len(m.subject) + len(m.reply) + len(m.payload) for m in jet.heard(first))
    jet.machine.engine.shut_down()
    jet.machine.settle()
    for sid, missing, unused in ((first, 2, 1000 - size), (second, 1, 0)):
        (message,) = jet.heard(sid)
        pairs = b"\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n" % (missing, unused)
        assert message.header == b"NATS/1.0 409 Server Shutdown" + pairs + b"\r\n"
    assert jet.info()["num_waiting"] == 0


def test_one_consumer_does_not_take_the_whole_turn(jet: Jet) -> None:
    jet.consumer("A", max_ack_pending=-1)
    jet.consumer("B", max_ack_pending=-1)
    jet.publish_many(3000)
    sids = [jet.listen("in.A"), jet.listen("in.B")]
    session = jet.wire.session
    for name in "AB":
        session.receive(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.%b in.%b 4\r\n3000\r\n" % (name.encode(), name.encode()))
    jet.machine.turn()
    counts = [len(jet.heard(sid)) for sid in sids]
    assert 0 < counts[0] < 3000
    assert 0 < counts[1] < 3000
    jet.machine.settle()
    assert [counts[i] + len(jet.heard(sid)) for i, sid in enumerate(sids)] == [3000, 3000]


def test_only_durable_messages_are_delivered(jet: Jet) -> None:
    jet.consumer()
    jet.machine.hold_commits = True
    jet.publish("a")
    assert jet.pull() == []
    jet.machine.release_commits()
    assert jet.counts()["delivered"] == (1, 1)


@pytest.mark.parametrize(
    ("filter_subject", "found"), [("s.a", ["1", "2", "<404 No Messages>"]), ("s.b", ["<404 No Messages>"])]
)
def test_a_request_that_does_not_wait_sees_what_was_received_before(
    jet: Jet, filter_subject: str, found: list[str]
) -> None:
    jet.consumer(filter_subject=filter_subject)
    sid = jet.listen("in")
    jet.machine.hold_commits = True
    jet.publish("1", "2")
    jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"no_wait":true,"batch":9}', "in")
    assert jet.heard(sid) == []
    jet.machine.release_commits()
    assert texts(jet.heard(sid)) == found
    assert texts(jet.pull(b'{"no_wait":true}')) == ["<404 No Messages>"]


def test_a_delivery_counts_what_was_received_and_is_not_durable_yet(jet: Jet) -> None:
    jet.consumer(filter_subject="s.a")
    jet.publish("1", "2")
    jet.machine.hold_commits = True
    jet.publish("3", "4")
    jet.publish("x", subject="s.b")
    assert [numbers(message)[3] for message in jet.pull(b"2")] == [3, 2]


def test_paused_consumer_delivers_when_the_pause_ends(jet: Jet) -> None:
    until = "2026-01-01T00:00:10Z"
    jet.consumer(pause_until=until)
    jet.publish("a")
    assert texts(jet.pull({"no_wait": True})) == ["<404 No Messages>"]
    sid = open_request(jet, b"1", "in.1")
    info = jet.info()
    assert (info["paused"], info["pause_remaining"]) == (True, 10 * SECOND)
    jet.advance(9.9)
    assert jet.heard(sid) == []
    jet.advance(0.2)
    assert texts(jet.heard(sid)) == ["a"]
    assert "paused" not in jet.info()


def test_the_original_rhythm_holds_a_one_shot_open_until_the_end(jet: Jet) -> None:
    for number in range(3):
        jet.publish(str(number))
        jet.advance(2)
    jet.consumer(replay_policy="original")
    sid = open_request(jet, b'{"batch":5,"no_wait":true}', "in.1")
    assert texts(jet.heard(sid)) == ["0"]
    jet.advance(1.9)
    assert jet.heard(sid) == []
    jet.advance(0.2)
    assert texts(jet.heard(sid)) == ["1"]
    jet.advance(2)
    assert texts(jet.heard(sid)) == ["2", "<404 No Messages>"]


MANY = 500
BOUND = 64
"""Requests that may be looked at in one call of the loop, with the bounds of `bounded`."""


@contextmanager
def bounded(jet: Jet) -> Iterator[list[int]]:
    """Lower the bounds, and count the statuses and checks of interest in each call of the loop."""
    counts, engine = [0], jet.machine.engine

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            counts[-1] += 1
            return call(*args)

        return count

    def lap(call: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any) -> Any:
            counts.append(0)
            found = call(*args)
            counts.append(0)
            return found

        return begin

    bounds = {"LOOKS": 64, "END_COST": 4, "AT_ONCE": 16, "PRUNED_AT_ONCE": 16}
    with (
        mock.patch.multiple(pull, **bounds),
        mock.patch.multiple(work, FIRST_SLICE=16, SLICE=16),
        mock.patch("natsctl.store.steps.STEP", 16),
        mock.patch.object(Account, "has_interest", counted(Account.has_interest)),
        mock.patch.object(Account, "publish", counted(Account.publish)),
        mock.patch.object(Account, "deliver", counted(Account.deliver)),
        mock.patch.object(engine, "run_ready", lap(engine.run_ready)),
        mock.patch.object(engine, "run_timers", lap(engine.run_timers)),
        mock.patch.object(Session, "receive", lap(Session.receive)),
    ):
        yield counts


def many_requests(jet: Jet, body: bytes) -> tuple[Jet, bytes]:
    """Open many requests on a connection of their own; return it and its subscription."""
    other = Jet(jet.machine)
    sid = other.listen("in.*")
    for number in range(MANY):
        other.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, f"in.{number}")
    return other, sid


def test_very_many_requests_expire_in_parts(jet: Jet) -> None:
    jet.consumer(max_waiting=MANY)
    other, sid = many_requests(jet, b'{"batch": 2, "expires": 5000000000, "idle_heartbeat": 2000000000}')
    with bounded(jet) as counts:
        jet.advance(6)
    heard = [message.header[:12] for message in other.heard(sid)]
    assert heard == [b"NATS/1.0 100"] * 2 * MANY + [b"NATS/1.0 408"] * MANY
    assert 0 < max(counts) <= BOUND


def test_very_many_requests_end_in_parts_for_want_of_messages(jet: Jet) -> None:
    jet.consumer(max_waiting=MANY, filter_subject="s.none")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a")
    other, sid = many_requests(jet, b'{"no_wait": true}')
    with bounded(jet) as counts:
        jet.machine.release_commits()
    assert [message.header[:12] for message in other.heard(sid)] == [b"NATS/1.0 404"] * MANY
    assert 0 < max(counts) <= BOUND


def test_very_many_requests_of_a_lost_client_are_dropped_in_parts(jet: Jet) -> None:
    jet.consumer(max_waiting=MANY)
    other, _ = many_requests(jet, b'{"batch": 1, "expires": 3600000000000}')
    other.wire.close()
    here = open_request(jet, b'{"batch": 1, "expires": 3600000000000}', "in.here")
    with bounded(jet) as counts:
        jet.publish("a")
    assert texts(jet.heard(here)) == ["a"]
    assert 0 < max(counts) <= BOUND


def test_very_many_requests_of_a_lost_client_are_counted_in_parts(jet: Jet) -> None:
    jet.consumer(max_waiting=MANY)
    other, _ = many_requests(jet, b'{"batch": 1, "expires": 3600000000000}')
    other.wire.close()
    with bounded(jet) as counts:
        assert jet.info()["num_waiting"] == 0
    assert 0 < max(counts) <= BOUND


def test_very_many_requests_learn_in_parts_that_their_consumer_was_deleted(jet: Jet) -> None:
    jet.consumer(max_waiting=MANY)
    other, sid = many_requests(jet, b'{"batch": 1, "expires": 3600000000000}')
    with bounded(jet) as counts:
        jet.api("CONSUMER.DELETE.S.C")
    assert [message.header[:12] for message in other.heard(sid)] == [b"NATS/1.0 409"] * MANY
    assert 0 < max(counts) <= BOUND


def test_a_request_above_the_maximum_examines_some_of_very_many(jet: Jet) -> None:
    jet.consumer(max_waiting=MANY)
    other, _ = many_requests(jet, b'{"batch": 1, "expires": 3600000000000}')
    with bounded(jet) as counts:
        (refused,) = jet.pull(b'{"batch": 1}')
        assert refused.header[:12] == b"NATS/1.0 409"
        other.wire.close()
        jet.pull(b'{"batch": 1, "expires": 3600000000000}', inbox="in.here")
    assert 0 < max(counts) <= BOUND
    assert jet.info()["num_waiting"] <= 1
