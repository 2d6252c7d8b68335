"""Routing: who takes a message, and what the cache may not get wrong."""

import gc
from collections import Counter
from typing import Any

import pytest

from natsctl.broker import routes
from natsctl.broker.subscription import Subscription

Seen = list[tuple[bytes, bytes, bytes, bytes]]


def listen(account: Any, subject: bytes, queue: bytes = b"", answer: bool | None = None) -> Seen:
    seen: Seen = []

    def handler(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> bool | None:
        seen.append((subject, reply, header, payload))
        return answer

    account.subscribe(subject, handler, queue)
    return seen


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [(b"$JS.ACK.S.C.>", b"$JS.ACK.S.C.1.%d.3.4.5"), (b"_INBOX.x.*", b"_INBOX.x.%d"), (b"_INBOX.x.>", b"_INBOX.x.%d")],
)
def test_subjects_that_are_used_once_do_not_grow_the_cache(harness: Any, pattern: bytes, subject: bytes) -> None:
    seen = listen(harness.account, pattern)
    listen(harness.account, b"orders.new")
    for number in range(1000):
        assert harness.account.publish(subject % number, b"", b"", b"") == 1
    assert len(seen) == 1000 and harness.account.routes.cached <= 4


def test_the_cache_is_bounded_by_recipients(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_CACHED_RECIPIENTS", 300)
    for index in range(20):
        listen(harness.account, b"*.%d.*" % index)
    listen(harness.account, b"*.*.x")
    for index in range(2_000):
        assert harness.account.publish(b"s%d.%d.x" % (index, index % 20), b"", b"", b"") == 2
        assert harness.account.routes.cached <= 300


def test_each_queue_group_gets_one_copy_and_shares_the_work(harness: Any) -> None:
    account = harness.account
    groups = [listen(account, b"a.*", b"q"), listen(account, b"a.b", b"q"), listen(account, b">", b"q")]
    other, plain = listen(account, b"a.>", b"r"), listen(account, b"a.b")
    for _ in range(600):
        assert account.publish(b"a.b", b"", b"", b"") == 3
    assert sum(map(len, groups)) == len(other) == len(plain) == 600
    assert min(map(len, groups)) > 100


def test_a_handler_that_refuses_lets_another_member_serve(harness: Any) -> None:
    refusing, serving = listen(harness.account, b"a", b"q", answer=False), listen(harness.account, b"a", b"q")
    for _ in range(50):
        assert harness.account.publish(b"a", b"", b"", b"") == 1
    assert len(serving) == 50 and refusing


def test_send_routes_by_one_subject_and_shows_another(harness: Any) -> None:
    client, member = harness.client(), harness.client()
    client.say(b"SUB inbox.* 1\r\n")
    member.say(b"SUB inbox.x q 2\r\n")
    seen = listen(harness.account, b"inbox.x")
    recipients = harness.account.deliver(b"inbox.x", b"orders.new", b"$JS.ACK.1", b"NATS/1.0\r\n\r\n", b"hi")
    tail = b"$JS.ACK.1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    assert recipients == 3
    assert client.heard() == b"HMSG orders.new 1 " + tail and member.heard() == b"HMSG orders.new 2 " + tail
    assert seen == [(b"orders.new", b"$JS.ACK.1", b"NATS/1.0\r\n\r\n", b"hi")]
    assert harness.account.deliver(b"nobody", b"orders.new", b"", b"", b"") == 0


def test_interest_is_per_queue_where_asked(harness: Any) -> None:
    account = harness.account
    client = harness.client()
    assert not account.has_interest(b"d")
    client.say(b"SUB d q 1\r\n")
    assert account.has_interest(b"d") and account.has_interest(b"d", b"q") and not account.has_interest(b"d", b"r")
    client.say(b"UNSUB 1\r\nSUB d 2\r\n")
    assert account.has_interest(b"d") and not account.has_interest(b"d", b"q")


def test_a_watch_hears_of_every_change_that_touches_its_subject(harness: Any) -> None:
    account = harness.account
    states: list[bool] = []
    watch = account.watch_interest(b"deliver.x", lambda: states.append(account.has_interest(b"deliver.x")))
    client = harness.client()
    client.say(b"SUB other 1\r\nSUB deliver.y 2\r\n")
    assert states == []
    client.say(b"SUB deliver.* 3\r\n")
    assert states == [True]
    client.say(b"UNSUB 3 1\r\nPUB deliver.x 0\r\n\r\nSUB deliver.x q 4\r\n")
    assert states == [True, False, True]
    client.session.closed()
    assert states == [True, False, True, False]
    watch.cancel()
    watch.cancel()
    listen(account, b"deliver.x")
    assert states == [True, False, True, False]


def test_a_handler_may_change_subscriptions_and_publish(harness: Any) -> None:
    account = harness.account
    later: list[bytes] = []
    subs: list[Subscription] = []

    def first(subject: bytes, *_: object) -> None:
        account.unsubscribe(subs[1])
        account.subscribe(b"a", lambda subject, *_: later.append(b"new"))
        account.publish(b"b", b"", b"", b"")

    subs.append(account.subscribe(b"a", first))
    subs.append(account.subscribe(b"a", lambda subject, *_: later.append(b"ended")))
    account.subscribe(b"b", lambda subject, *_: later.append(subject))
    assert account.publish(b"a", b"", b"", b"") == 1
    assert later == [b"b"]


def test_many_recipients_of_one_subject_all_get_their_own_sid(harness: Any) -> None:
    clients = [harness.client() for _ in range(30)]
    for number, client in enumerate(clients):
        client.say(b"SUB a.b %d\r\n" % number)
    assert harness.account.publish(b"a.b", b"r", b"", b"hi") == 30
    assert [client.heard() for client in clients] == [b"MSG a.b %d r 2\r\nhi\r\n" % n for n in range(30)]


REPLIES = [b"in.1", b"in.2", b"in.3", b"in.1.2", b"", b"in.4", b"in.", b"other", b"in.5", b"in.1"]


@pytest.mark.parametrize(
    "patterns", [("in.*",), ("in.*", "in.1.2"), ("in.>",), ("in.*", "in.2"), ("in.1", "other"), ()]
)
@pytest.mark.parametrize("size", [1, 3, 10])
def test_gathered_acks_of_several_streams_leave_together(harness: Any, patterns: tuple[str, ...], size: int) -> None:
    broker, account, heard = harness.broker, harness.account, []
    openings = [b'{"stream":"%d", "seq":' % stream for stream in range(len(REPLIES))]
    entries = [(seq, b"s", reply) for seq, reply in enumerate(REPLIES, 1)]
    streams = [entries[at : at + size] for at in range(0, len(entries), size)]
    for gathers in (True, False):
        client = harness.client()
        for sid, pattern in enumerate(patterns):
            client.say(b"SUB %b %d\r\n" % (pattern.encode(), sid))
        if gathers:
            broker.gather_acks()
            for stored, opening in zip(streams, openings, strict=False):
                account.ack(stored, opening)
            assert client.heard() == b""
            broker.send_acks()
        else:
            for stored, opening in zip(streams, openings, strict=False):
                for seq, _, reply in stored:
                    if reply:
                        account.publish(reply, b"", b"", b"%b%d}" % (opening, seq))
        heard.append(client.heard())
        client.session.closed()
    assert heard[0] == heard[1] and bool(heard[0]) == bool(patterns)


@pytest.mark.parametrize(
    "patterns", [("in.*",), ("in.*", "in.1.2"), ("in.>",), ("in.*", "in.2"), ("in.1", "other"), ()]
)
def test_answers_reach_whom_the_same_messages_would_reach_one_by_one(harness: Any, patterns: tuple[str, ...]) -> None:
    answers = [
        (subject, b"%d" % at)
        for at, subject in enumerate(
            [b"in.1", b"in.2", b"in.3", b"in.1.2", b"in.4", b"in.", b"other", b"in.5", b"in.1"]
        )
    ]
    heard = []
    for deliver in (
        harness.account.answer_all,
        lambda found: [harness.account.publish(s, b"", b"", p) for s, p in found],
    ):
        client = harness.client()
        for sid, pattern in enumerate(patterns):
            client.say(b"SUB %b %d\r\n" % (pattern.encode(), sid))
        deliver(answers)
        deliver(answers)
        heard.append(client.heard())
        client.session.closed()
    assert heard[0] == heard[1]


def test_a_literal_subscription_is_three_objects(harness: Any) -> None:
    talker = harness.client()
    lines = b"".join(b"SUB t_%d q %d\r\n" % (n, n) for n in range(1000))
    gc.collect()
    before = len(gc.get_objects())
    talker.say(lines)
    gc.collect()
    made = len(gc.get_objects()) - before
    assert len(talker.session.subs) == 1000
    assert made <= 3_100, "subscription, node of the trie, and the tuple in it: memory and collections count by objects"


def test_a_subject_with_one_recipient_has_one_cached_route(harness: Any) -> None:
    talker = harness.client()
    talker.say(b"".join(b"SUB t.%d q %d\r\n" % (n, n) for n in range(1000)))
    said = talker.say(b"".join(b"PUB t.%d 0\r\n\r\n" % n for n in range(1000)))
    assert said.count(b"MSG ") == 1000
    assert harness.account.routes.cached == 1000


def test_a_long_route_stays_beside_many_others(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_CACHED_RECIPIENTS", 600)
    monkeypatch.setattr(routes, "MAX_ROUTE_COST", 300, raising=False)
    for _ in range(1000):
        listen(harness.account, b"work", b"q")
    listen(harness.account, b"other.*.x")
    made = Counter[bytes]()
    make = routes.Routes._make

    def counted(self: routes.Routes, nodes: Any, subject: bytes) -> Any:
        made[subject] += 1
        return make(self, nodes, subject)

    monkeypatch.setattr(routes.Routes, "_make", counted)
    for number in range(1000):
        assert harness.account.publish(b"work", b"", b"", b"") == 1
        assert harness.account.publish(b"other.%d.x" % number, b"", b"", b"") == 1
    assert made[b"work"] <= 20, "not once for each other subject"


def test_groups_of_one_and_of_several_get_one_copy_each(harness: Any) -> None:
    one, other = harness.client(), harness.client()
    one.say(b"SUB a q 1\r\n")
    assert one.say(b"PUB a 0\r\n\r\n").count(b"MSG a 1") == 1
    other.say(b"SUB a q 1\r\nSUB a r 2\r\n")
    heard = one.say(b"PUB a 0\r\n\r\n" * 100).count(b"MSG a 1"), other.heard()
    assert heard[0] + heard[1].count(b"MSG a 1") == 100 and heard[1].count(b"MSG a 2") == 100
    quiet = harness.client(
        b'CONNECT {"verbose":false,"echo":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
    )
    assert b"503" in quiet.say(b"SUB mine q 1\r\nSUB back 2\r\nPUB mine back 0\r\n\r\n"), "no echo in a group of one"


def test_no_deliveries_leave_no_output_behind(harness: Any) -> None:
    client = harness.client()
    client.say(b"SUB a 1\r\n")
    assert harness.account.send_all(b"a", []) == 0
    assert client.session.out == []  # with any, the session would never be marked for a write again
    assert harness.account.send_all(b"a", [(b"a", b"", b"", b"x")]) == 1
    assert client.session in harness.broker.dirty
