"""Pull delivery as a client sees it on the wire.

How the body of a pull request reads; test_pull_status_reference.py compares what becomes of each.
"""

from __future__ import annotations

import pytest

from natsctl.api.consumer import ConsumerConfig, PriorityPolicy
from natsctl.api.requests import PullRequest
from natsctl.jetstream.consumers.pull import OpenRequest, PullRequestError, parse_request, refuse_request
from natsctl.testing.jet import SECOND, Jet, numbers, texts


@pytest.fixture
def jet() -> Jet:
    jet = Jet()
    jet.stream()
    return jet


def open_request(jet: Jet, body: bytes, inbox: str, name: str = "C") -> bytes:
    """Subscribe to `inbox`, send a pull request, and return the sid."""
    sid = jet.listen(inbox)
    jet.wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, inbox)
    return sid


def test_a_message_arrives_under_its_own_subject_with_an_ack_subject(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a", subject="s.orders.1")
    (message,) = jet.pull()
    assert message.subject == b"s.orders.1"
    assert message.payload == b"a"
    ts = jet.machine.streams["S"].store.last_ts_ns
    assert message.reply == b"$JS.ACK.S.C.1.1.1.%d.0" % ts


def test_an_empty_body_asks_for_one_message_and_waits_for_it(jet: Jet) -> None:
    jet.consumer()
    sid = open_request(jet, b"", "in.1")
    assert jet.heard(sid) == []
    jet.publish("a", "b")
    assert texts(jet.heard(sid)) == ["a"]


@pytest.mark.parametrize("body", [b"3", b'{"batch":3}', b' {"batch": 3, "unknown": true}'])
def test_batch_is_a_number_or_json(jet: Jet, body: bytes) -> None:
    jet.consumer()
    jet.publish("a", "b", "c", "d")
    assert texts(jet.pull(body)) == ["a", "b", "c"]


def test_batch_below_one_is_one(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a", "b")
    assert texts(jet.pull(b'{"batch":-4}')) == ["a"]


def test_pending_token_counts_down_to_zero(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a", "b", "c")
    assert [numbers(m)[3] for m in jet.pull(b"3")] == [2, 1, 0]


def test_requests_are_served_in_turn_one_message_each(jet: Jet) -> None:
    jet.consumer()
    sids = [open_request(jet, b"2", f"in.{i}") for i in range(3)]
    jet.publish_many(6)
    assert [texts(jet.heard(sid)) for sid in sids] == [["1", "4"], ["2", "5"], ["3", "6"]]


def test_headers_are_delivered_as_stored(jet: Jet) -> None:
    jet.consumer()
    header = b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"
    jet.wire.publish("s.a", b"body", header=header)
    (message,) = jet.pull()
    assert (message.header, message.payload) == (header, b"body")


def test_headers_only_replaces_the_payload_by_its_size(jet: Jet) -> None:
    jet.consumer(headers_only=True)
    jet.publish("hello")
    jet.wire.publish("s.a", b"12", header=b"NATS/1.0\r\nA: 1\r\n\r\n")
    first, second = jet.pull(b"2")
    assert (first.header, first.payload) == (b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b"")
    assert (second.header, second.payload) == (b"NATS/1.0\r\nA: 1\r\nNats-Msg-Size: 2\r\n\r\n", b"")


def test_no_wait_without_messages_is_404(jet: Jet) -> None:
    jet.consumer()
    assert texts(jet.pull({"batch": 2, "no_wait": True})) == ["<404 No Messages>"]
    assert jet.counts()["waiting"] == 0


def test_a_partly_served_no_wait_ends_with_404(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a")
    assert texts(jet.pull({"batch": 5, "no_wait": True})) == ["a", "<404 No Messages>"]


def test_no_wait_with_expires_waits(jet: Jet) -> None:
    jet.consumer()
    sid = open_request(jet, b'{"batch":2,"no_wait":true,"expires":1000000000}', "in.1")
    assert jet.heard(sid) == []
    jet.advance(1.1)
    assert texts(jet.heard(sid)) == ["<408 Request Timeout>"]


def test_no_wait_waits_silently_at_max_ack_pending(jet: Jet) -> None:
    jet.consumer(max_ack_pending=1)
    jet.publish("a", "b")
    (first,) = jet.pull()
    sid = open_request(jet, b'{"batch":1,"no_wait":true}', "in.1")
    assert jet.heard(sid) == []
    jet.ack(first)
    assert texts(jet.heard(sid)) == ["b"]


def test_no_wait_behind_requests_that_want_more_than_there_is_gets_408(jet: Jet) -> None:
    jet.consumer(max_ack_pending=1)
    jet.publish("a", "b")
    jet.pull()
    open_request(jet, b"5", "in.1")
    assert texts(jet.pull({"no_wait": True})) == ["<408 Requests Pending>"]


def test_expired_request_tells_what_was_missing(jet: Jet) -> None:
    jet.consumer()
    jet.publish("abc")
    sid = open_request(jet, b'{"batch":3,"expires":2000000000,"max_bytes":1000}', "in.1")
    (message,) = jet.heard(sid)
    left = 1000 - len(message.subject) - len(message.reply) - len(message.payload)
    jet.advance(1.9)
    assert jet.heard(sid) == []
    jet.advance(0.2)
    (end,) = jet.heard(sid)
    assert end.header == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2\r\nNats-Pending-Bytes: %d\r\n\r\n" % left
    )
    assert end.subject == b"in.1"


def test_message_that_exceeds_max_bytes_ends_the_request_and_is_kept(jet: Jet) -> None:
    jet.consumer()
    jet.publish("x" * 300, "y")
    assert texts(jet.pull({"batch": 2, "max_bytes": 100})) == ["<409 Message Size Exceeds MaxBytes>"]
    assert texts(jet.pull(b"1")) == ["x" * 300]


def test_batch_completed_is_told_where_bytes_remained(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a")
    messages = jet.pull({"batch": 1, "max_bytes": 500})
    assert texts(messages) == ["a", "<409 Batch Completed>"]
    size = len(messages[0].subject) + len(messages[0].reply) + 1
    assert messages[1].header.endswith(b"Nats-Pending-Messages: 0\r\nNats-Pending-Bytes: %d\r\n\r\n" % (500 - size))


def test_idle_heartbeats_carry_the_last_sequences_and_stop_with_the_request(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a", "b")
    jet.ack(jet.pull()[0])
    sid = open_request(jet, b'{"batch":5,"expires":1000000000,"idle_heartbeat":400000000}', "in.1")
    assert texts(jet.heard(sid)) == ["b"]
    jet.advance(0.9)
    beats = jet.heard(sid)
    assert [m.header for m in beats] == [
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    ] * 2
    jet.advance(10)
    assert texts(jet.heard(sid)) == ["<408 Request Timeout>"]


@pytest.mark.parametrize(
    ("config", "body", "status"),
    [
        ({"max_batch": 5}, {"batch": 6}, "409 Exceeded MaxRequestBatch of 5"),
        ({"max_expires": SECOND}, {"expires": 2 * SECOND}, "409 Exceeded MaxRequestExpires of 1s"),
        ({"max_bytes": 1024}, {"max_bytes": 2048}, "409 Exceeded MaxRequestMaxBytes of 1024"),
        ({}, {"expires": SECOND, "idle_heartbeat": 600_000_000}, "400 Bad Request - heartbeat value too large"),
    ],
)
def test_requests_above_the_consumers_limits_are_refused(
    jet: Jet, config: dict[str, object], body: dict[str, object], status: str
) -> None:
    jet.consumer(**config)
    jet.publish("a")
    assert texts(jet.pull(body)) == [f"<{status}>"]


def test_bad_json_is_a_bad_request(jet: Jet) -> None:
    jet.consumer()
    (answer,) = jet.pull(b'{"batch": "many"}')
    assert answer.status.startswith(b"400 Bad Request - ")


def test_a_required_api_level_above_ours_is_refused(jet: Jet) -> None:
    jet.consumer()
    sid = jet.listen("in.1")
    header = b"NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n"
    jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", "in.1", header)
    assert texts(jet.heard(sid)) == ["<412 Required Api Level>"]


def test_more_requests_than_max_waiting_are_refused(jet: Jet) -> None:
    jet.consumer(max_waiting=2)
    open_request(jet, b"1", "in.1")
    open_request(jet, b"1", "in.2")
    assert texts(jet.pull(b"1")) == ["<409 Exceeded MaxWaiting>"]
    assert texts(jet.pull({"expires": 10 * SECOND, "idle_heartbeat": SECOND})) == []
    assert jet.counts()["waiting"] == 2


def test_requests_nobody_listens_to_make_room(jet: Jet) -> None:
    jet.consumer(max_waiting=1)
    sid = open_request(jet, b"1", "in.1")
    jet.wire.unsubscribe(sid)
    jet.publish("a")
    assert texts(jet.pull(b"1")) == ["a"]


def test_a_request_without_interest_is_dropped_and_its_message_goes_to_the_next(jet: Jet) -> None:
    jet.consumer()
    gone = open_request(jet, b"1", "in.1")
    kept = open_request(jet, b"1", "in.2")
    jet.wire.unsubscribe(gone)
    jet.publish("a")
    assert texts(jet.heard(kept)) == ["a"]
    assert jet.counts()["delivered"] == (1, 1)


def test_a_message_is_not_lost_when_its_only_requester_vanished(jet: Jet) -> None:
    jet.consumer(ack_policy="none")
    sid = open_request(jet, b"1", "in.1")
    jet.wire.unsubscribe(sid)
    jet.publish("a")
    assert jet.counts() | {"pending": 1, "delivered": (0, 0)} == jet.counts()
    assert texts(jet.pull()) == ["a"]


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


def test_waiting_requests_are_told_when_the_consumer_is_deleted(jet: Jet) -> None:
    jet.consumer()
    sid = open_request(jet, b"1", "in.1")
    jet.api("CONSUMER.DELETE.S.C")
    assert texts(jet.heard(sid)) == ["<409 Consumer Deleted>"]


def test_waiting_requests_are_told_when_the_stream_is_deleted(jet: Jet) -> None:
    jet.consumer()
    sid = open_request(jet, b"1", "in.1")
    jet.api("STREAM.DELETE.S")
    assert texts(jet.heard(sid)) == ["<409 Consumer Deleted>"]


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


def test_pull_on_a_missing_consumer_has_no_responders(jet: Jet) -> None:
    assert texts(jet.pull(name="X")) == ["<503>"]


def test_pull_on_a_deleted_consumer_has_no_responders(jet: Jet) -> None:
    jet.consumer()
    jet.api("CONSUMER.DELETE.S.C")
    assert texts(jet.pull()) == ["<503>"]


def test_the_2020_subject_of_next_works(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a")
    sid = jet.listen("in.1")
    jet.wire.publish("$JS.NEXT.S.C", b"", "in.1")
    assert texts(jet.heard(sid)) == ["a"]


def test_filtered_messages_only(jet: Jet) -> None:
    jet.consumer(filter_subjects=["s.a", "s.b.*"])
    jet.publish("1", subject="s.a")
    jet.publish("2", subject="s.c")
    jet.publish("3", subject="s.b.x")
    assert jet.counts()["pending"] == 2
    assert texts(jet.pull(b"5")) == ["1", "3"]
    assert jet.counts()["delivered"] == (2, 3)


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
    jet.machine.hold_commits = False
    jet.machine.settle()
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
    jet.machine.hold_commits = False
    jet.machine.settle()
    assert texts(jet.heard(sid)) == found
    assert texts(jet.pull(b'{"no_wait":true}')) == ["<404 No Messages>"]


def test_a_delivery_counts_what_was_received_and_is_not_durable_yet(jet: Jet) -> None:
    jet.consumer(filter_subject="s.a")
    jet.publish("1", "2")
    jet.machine.hold_commits = True
    jet.publish("3", "4")
    jet.publish("x", subject="s.b")
    assert [numbers(message)[3] for message in jet.pull(b"2")] == [3, 2]


def test_replay_original_keeps_the_rhythm(jet: Jet) -> None:
    jet.publish("a")
    jet.advance(2)
    jet.publish("b")
    jet.advance(3)
    jet.publish("c")
    jet.consumer(replay_policy="original", ack_policy="none")
    sid = open_request(jet, b"3", "in.1")
    assert texts(jet.heard(sid)) == ["a"]
    jet.advance(1.9)
    assert jet.heard(sid) == []
    jet.advance(0.2)
    assert texts(jet.heard(sid)) == ["b"]
    jet.advance(3)
    assert texts(jet.heard(sid)) == ["c"]


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


def test_a_request_without_time_to_wait_is_told_so_at_once(jet: Jet) -> None:
    jet.consumer()
    jet.publish("1")
    assert texts(jet.pull(b'{"batch":2,"expires":-1}')) == ["<408 Request Timeout>"]
    assert jet.counts()["waiting"] == 0


def test_max_bytes_that_fit_exactly_end_a_request_in_silence(jet: Jet) -> None:
    jet.consumer()
    jet.publish("12345", "12345")
    (message,) = jet.pull()
    size = len(message.subject) + len(message.reply) + len(message.payload)
    assert texts(jet.pull({"batch": 9, "max_bytes": size, "expires": SECOND})) == ["12345"]
    assert jet.counts()["waiting"] == 0


@pytest.mark.parametrize(
    ("body", "wish", "formal"),
    [
        (b"", PullRequest(batch=1), False),
        (b"  ", PullRequest(batch=1), False),
        (b"10", PullRequest(batch=10), False),
        (b" +3 ", PullRequest(batch=3), False),
        (b"0", PullRequest(batch=0), False),
        (b"-3", PullRequest(batch=-3), False),
        (b"1_0", PullRequest(batch=1), False),
        (b"1.5", PullRequest(batch=1), False),
        (b"\xd9\xa3", PullRequest(batch=1), False),
        (b"9" * 30, PullRequest(batch=1), False),
        (b"x", PullRequest(batch=1), False),
        (b"{}", PullRequest(), True),
        (b' {"batch":3,"no_wait":true,"new_key":1}', PullRequest(batch=3, no_wait=True), True),
        (b'{"batch":null,"expires":5}', PullRequest(expires=5), True),
        (b'{"expires":5,"idle_heartbeat":2}', PullRequest(expires=5, idle_heartbeat=2), True),
    ],
)
def test_a_body_in_each_form(body: bytes, wish: PullRequest, formal: bool) -> None:
    assert parse_request(body) == (wish, formal)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", b"syntax error at character 2: "),
        (b'{"batch":"x"}', b"json: cannot unmarshal string into Go struct field JSApiConsumerGetNextRequest.batch of"),
        (
            b'{"id":1}',
            b"json: cannot unmarshal number into Go struct field JSApiConsumerGetNextRequest.PriorityGroup.id",
        ),
        (b'{"idle_heartbeat":1}', b"heartbeat value too large"),
        (b'{"batch":99999999999999999999}', b"json: cannot unmarshal number 99999999999999999999 into"),
    ],
)
def test_a_body_that_can_not_be_read_is_refused(body: bytes, reason: bytes) -> None:
    with pytest.raises(PullRequestError) as refused:
        parse_request(body)
    assert refused.value.block.startswith(b"NATS/1.0 400 Bad Request - " + reason)


@pytest.mark.parametrize(("batch", "left"), [(3, 3), (1, 1), (0, 0), (-2, -2)])
def test_an_end_tells_what_was_asked_for_and_not_served(batch: int, left: int) -> None:
    request = OpenRequest(b"in", PullRequest(batch=batch, max_bytes=7), 0, True, 0)
    assert request.left >= 1
    expected = b"NATS/1.0 408 X\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: 7\r\n\r\n" % left
    assert request.ended(b"408 X") == expected


def test_the_first_thing_wrong_is_told() -> None:
    config = ConsumerConfig(max_batch=2, max_bytes=10, priority_policy=PriorityPolicy.OVERFLOW, priority_groups=["A"])
    wish = PullRequest(batch=3, max_bytes=11, priority=10, id="x")
    assert b"MaxRequestBatch of 2" in refuse_request(config, wish, True)
    wish.batch = 2
    assert b"MaxRequestMaxBytes of 10" in refuse_request(config, wish, True)
    wish.max_bytes = 1
    assert b"Not a Pinned Client Priority consumer" in refuse_request(config, wish, True)
    wish.id = ""
    assert b"Priority must be between 0 and 9" in refuse_request(config, wish, True)
    wish.priority = 0
    assert b"Priority Group missing" in refuse_request(config, wish, True)
    wish.group = "B"
    assert b"Invalid Priority Group" in refuse_request(config, wish, True)
    wish.group = "A"
    assert refuse_request(config, wish, True) == b""
    assert refuse_request(config, PullRequest(batch=2), False) == b""
