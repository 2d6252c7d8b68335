"""Pull delivery as a client sees it on the wire."""

import pytest

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
