"""What one client hears; expectations were seen on the reference server with raw sockets."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import matches
from natsctl.broker.account import Traffic
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.refusals import CloseReason
from natsctl.wire.ops import Limits

BARE = b""


def info_of(line: bytes) -> dict[str, Any]:
    assert line.startswith(b"INFO {") and line.endswith(b"} \r\n")
    return json.loads(line[5:])


def test_info_comes_first_with_the_reference_s_keys_in_order(harness: Any) -> None:
    info = info_of(harness.client(BARE).info)
    assert " ".join(info) == (
        "server_id server_name version proto go host port headers max_payload client_id client_ip api_lvl"
    )
    assert info["server_id"].startswith("N") and len(info["server_id"]) == 56
    assert info["client_id"] + 1 == info_of(harness.client(BARE).info)["client_id"]


def test_info_tells_auth_tls_and_jetstream_when_they_are_on(new_harness: Callable[..., Any]) -> None:
    options = BrokerOptions(auth=StaticAuthenticator(token="t"), tls_required=True, jetstream=True, domain="hub")
    info = info_of(new_harness(options).client(BARE).info)
    assert info["auth_required"] and info["tls_required"] and info["jetstream"] and info["domain"] == "hub"


HEADER_PUB = b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n"


REASONS = [
    (b"CONNECT {bad\r\n", "Protocol Violation"), (b'CONNECT {"protocol":2}\r\n', "Bad Client Protocol Version"),
    (b'CONNECT {"no_responders":true}\r\n', "No Responders Requires Headers"),
    (b'CONNECT {"account":"X"}\r\n', "Authentication Failure"), (b"BAD\r\n", "Protocol Violation"),
    (b'CONNECT {"headers":false,"verbose":false}\r\n' + HEADER_PUB + b"PING\r\n", "Protocol Violation"),
    (b"PUB a 1048577\r\n", "Maximum Message Payload Exceeded"), (b"PUB a\r\n", "Protocol Violation"),
    (b"SUB " + b"a" * 5000 + b" 1\r\n", "Maximum Control Line Exceeded"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "reason"), REASONS)
def test_faults_close_for_a_reason(harness: Any, said: bytes, reason: str) -> None:
    """What is said is in recorded/talks.json."""
    client = harness.client(BARE)
    client.say(said)
    assert client.session.close_reason is CloseReason(reason)


def test_nothing_is_done_after_a_close(harness: Any) -> None:
    client = harness.client()
    client.say(b"SUB a 1\r\nPUB a\r\n")
    assert client.say(b"PUB a 0\r\n\r\nPING\r\n") == b""
    assert harness.account.publish(b"a", b"", b"", b"") == 0


def test_echo_off_spares_the_publisher_only(harness: Any) -> None:
    deaf = harness.client(b'CONNECT {"verbose":false,"echo":false}\r\n')
    other = harness.client()
    deaf.say(b"SUB a 1\r\nSUB a q 2\r\n")
    other.say(b"SUB a q 9\r\n")
    assert deaf.say(b"PUB a 1\r\nx\r\n" * 20) == b""
    assert other.heard() == b"MSG a 9 1\r\nx\r\n" * 20
    other.say(b"PUB a 1\r\nx\r\n")
    assert deaf.heard().startswith(b"MSG a 1 1\r\nx\r\n")


def test_headers_are_cut_off_for_clients_without_them(harness: Any) -> None:
    old = harness.client(b'CONNECT {"verbose":false}\r\n')
    new = harness.client()
    old.say(b"SUB a 1\r\n")
    new.say(b"SUB a 2\r\n")
    heard = new.say(b"HPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert heard == b"HMSG a 2 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    assert old.heard() == b"MSG a 1 r 2\r\nhi\r\n"


def test_no_responders_are_told_on_the_reply(harness: Any) -> None:
    client = harness.client()
    answer = b"HMSG inb.x 9 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\n"
    assert client.say(b"PUB nobody inb.x 1\r\nx\r\n") == b""
    assert client.say(b"SUB inb.* 9\r\nPUB nobody inb.x 1\r\nx\r\n") == answer
    assert client.say(b"UNSUB 9\r\nSUB inb.* q 9\r\nPUB nobody inb.x 1\r\nx\r\n") == b""
    harness.account.subscribe(b"nobody", lambda *_: False)
    assert client.say(b"SUB inb.* 10\r\nPUB nobody inb.x 0\r\n\r\n") == answer.replace(b" 9 ", b" 10 ")
    harness.account.subscribe(b"nobody", lambda *_: None)
    assert client.say(b"PUB nobody inb.x 0\r\n\r\n") == b""


def test_user_info_is_answered_in_every_account(harness: Any) -> None:
    client = harness.client()
    heard = client.say(b"SUB i 1\r\nPUB $SYS.REQ.USER.INFO i 0\r\n\r\n")
    body = json.loads(heard.split(b"\r\n")[1])
    assert list(body) == ["server", "data"] and body["data"] == {"user": "", "account": "$G", "account_name": "$G"}
    assert body["server"]["id"] == harness.broker.server_id and body["server"]["time"].endswith("Z")
    names = ["name", "host", "id", "ver", "feature_flags", "jetstream", "flags", "seq", "time"]
    assert list(body["server"]) == names and body["server"]["feature_flags"]["js_raft_delete_range"]


def test_max_connections_refuses_after_info(new_harness: Callable[..., Any]) -> None:
    harness = new_harness(BrokerOptions(max_connections=1))
    first, second = harness.client(), harness.client(BARE)
    assert second.info.endswith(b"-ERR 'maximum connections exceeded'\r\n")
    assert second.session.close_reason is CloseReason.MAX_CONNECTIONS_EXCEEDED
    second.session.closed()
    first.session.closed()
    assert harness.client().session.close_reason is None


def test_a_slow_consumer_is_cut_off_by_pending_bytes(new_harness: Callable[..., Any]) -> None:
    harness = new_harness(BrokerOptions(max_pending=10_000, limits=Limits()))
    slow, fast = harness.client(), harness.client()
    slow.say(b"SUB a 1\r\n")
    harness.broker.take_dirty()
    for _ in range(12):
        fast.say(b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\n")
        assert slow.session.pending_bytes <= 10_000
    assert slow.session.close_reason is CloseReason.SLOW_CONSUMER_PENDING_BYTES
    assert slow.session in harness.broker.take_dirty()
    assert slow.heard() == b"-ERR 'Slow Consumer'\r\n"
    assert harness.broker.slow_consumers == 1 and not harness.account.has_interest(b"a")


def test_large_messages_count_and_arrive_whole(harness: Any) -> None:
    client = harness.client()
    client.say(b"SUB a 1\r\n")
    body = b"x" * 100_000
    client.session.receive(b"PUB a r 100000\r\n" + body + b"\r\n")
    expected = b"MSG a 1 r 100000\r\n" + body + b"\r\n"
    assert client.session.pending_bytes == len(expected)
    assert client.heard() == expected


def test_counters_count_messages_and_their_bytes(harness: Any) -> None:
    a, b = harness.client(), harness.client()
    b.say(b"SUB x 1\r\n")
    a.say(b"PUB x 3\r\nabc\r\nHPUB x 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert (a.session.in_msgs, a.session.in_bytes) == (2, 17)
    assert (b.session.out_msgs, b.session.out_bytes) == (2, 17)
    b.session.closed()
    broker = harness.broker
    assert broker.gone.plus(broker.sessions.values()) == Traffic(2, 17, 2, 17)
    assert broker.closed[0].close_reason is CloseReason.CLIENT_CLOSED


def test_a_silent_client_is_pinged_and_then_stale(harness: Any) -> None:
    client = harness.client()
    harness.wait(1)
    assert client.heard() == b""
    harness.wait(1)
    assert client.heard() == b"PING\r\n"
    harness.wait(120)
    assert client.heard() == b"PING\r\n"
    harness.wait(120)
    assert client.heard() == b"-ERR 'Stale Connection'\r\n"
    assert client.session.close_reason is CloseReason.STALE_CONNECTION


def test_traffic_delays_pings(harness: Any) -> None:
    client = harness.client()
    harness.wait(2)
    harness.clock.ns += 5_000
    assert client.heard() == b"PING\r\n" and client.say(b"PONG\r\n") == b""
    assert client.session.rtt_ns == 5_000
    for _ in range(10):
        harness.wait(100)
        assert client.say(b"PUB a 0\r\n\r\n") == b""
    harness.wait(119)
    assert client.heard() == b""
    harness.wait(1)
    assert client.heard() == b"PING\r\n"


USERS = StaticAuthenticator(users=[User("a", "b"), User("sys", "s", "$SYS")])


def connect(**options: object) -> bytes:
    return b"CONNECT " + json.dumps({"verbose": False, **options}).encode() + b"\r\n"


def test_users_get_in_and_land_in_their_account(new_harness: Callable[..., Any]) -> None:
    harness = new_harness(BrokerOptions(auth=USERS))
    client = harness.client(connect(user="a", **{"pass": "b"}))
    system = harness.client(connect(user="sys", protocol=1, **{"pass": "s"}))
    client.say(b"SUB > 1\r\n")
    assert system.say(b"SUB x 2\r\nPUB x 0\r\n\r\n") == b"MSG x 2 0\r\n\r\n" and client.heard() == b""
    assert b'"remote_account":"$SYS","acc_is_sys":true' in system.say(b"PING\r\n")
    assert client.session.user == "a"


@pytest.mark.parametrize("said", [b"X", b"\r\n", b"PUB a 1000000\r\n", b"CX"])
def test_others_are_refused_whatever_they_say(new_harness: Callable[..., Any], said: bytes) -> None:
    client = new_harness(BrokerOptions(auth=USERS)).client(BARE)
    assert client.say(said) == b"-ERR 'Authorization Violation'\r\n"
    assert client.session.close_reason is CloseReason.AUTHENTICATION_VIOLATION


def test_lame_duck_is_announced(harness: Any) -> None:
    client = harness.client()
    harness.broker.enter_lame_duck()
    assert info_of(client.heard())["ldm"] is True


def test_a_closed_session_leaves_nothing_behind(harness: Any) -> None:
    before = harness.account.subscriptions
    client = harness.client()
    client.say(b"SUB a 1\r\nSUB a.* q 2\r\n")
    client.session.closed()
    client.session.closed()
    assert harness.account.subscriptions == before and not harness.account.sessions and not harness.broker.sessions


def test_whatever_has_output_is_dirty(harness: Any) -> None:
    client = harness.client()
    harness.broker.take_dirty()
    client.session.receive(b"PING\r\nPING\r\n")
    assert harness.broker.take_dirty() == [client.session]
    client.session.take_output()
    client.session.receive(b"PUB a\r\n")
    assert client.session in harness.broker.take_dirty()


@pytest.mark.parametrize("reply", [b"", b" in.1"])
@pytest.mark.parametrize(
    "watch", [b"SUB a 7\r\n", b"SUB a 7\r\nUNSUB 7 3\r\n", b"SUB a g 7\r\n", b"SUB a 7\r\nSUB * 8\r\n"]
)
def test_a_run_of_messages_reads_as_each_by_itself(harness: Any, watch: bytes, reply: bytes) -> None:
    publisher, at_once, one_by_one = harness.client(), harness.client(), harness.client()
    small = b"PUB a%b 5\r\nhello\r\n" % reply
    large = b"PUB a%b 9000\r\n%b\r\n" % (reply, b"x" * 9000)
    run = [small, small, large, small, small]
    at_once.say(watch)
    publisher.say(b"".join(run))
    together = at_once.heard()
    at_once.session.closed()
    one_by_one.say(watch)
    for message in run:
        publisher.say(message)
    assert together == one_by_one.heard()
    assert b"  " not in together
    assert b"MSG a 7%b 5\r\nhello\r\n" % reply in together


def test_a_publisher_without_echo_does_not_hear_its_own_run(harness: Any) -> None:
    client = harness.client(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"echo":false}\r\n')
    client.say(b"SUB a 1\r\n")
    assert client.say(b"PUB a 1\r\nx\r\n" * 9) == b""


@pytest.mark.parametrize("watch", [b"a.>", b"a.*", b"a.*.*", b">"])
def test_a_run_on_one_route_ends_where_a_subject_may_take_another(harness: Any, watch: bytes) -> None:
    taken: list[tuple[bytes, list[bytes]]] = []
    alone: list[bytes] = []
    harness.account.subscribe(
        watch, lambda subject, *_: alone.append(subject), run=lambda subject, ops: taken.append((subject, ops))
    )
    literal = harness.client()
    literal.say(b"SUB a.b.c 1\r\n")
    subjects = [b"a.%d" % n for n in range(6)] + [b"a.b.%d" % n for n in range(6)]
    subjects += [b"a.b.c", b"a.x..y", b"a.x.", b"b.1", *(b"a.%d.%d" % (n, n) for n in range(6)), b"a"]
    publisher = harness.client()
    for _ in range(2):
        publisher.say(b"".join(b"PUB %b 1\r\nx\r\n" % subject for subject in subjects))
    runs = [subject for _, run in taken for subject in run.subjects()]
    wanted = [s for s in subjects if b"" not in s.split(b".") and matches(watch, s)]
    assert Counter(runs + alone) == Counter(2 * wanted)
    assert literal.heard().count(b"MSG a.b.c 1 1\r\nx\r\n") == 2
    assert publisher.session.in_msgs == 2 * len(subjects) == publisher.session.in_bytes


def test_subjects_below_one_stem_make_one_run(harness: Any) -> None:
    taken: list[tuple[bytes, list[bytes]]] = []
    harness.account.subscribe(b"a.>", lambda *_: None, run=lambda subject, ops: taken.append((subject, ops)))
    publisher = harness.client()
    publisher.say(b"".join(b"PUB a.%d.x 1\r\nx\r\n" % number for number in range(10)))
    publisher.say(b"PUB a.1 1\r\nx\r\n" * 5 + b"PUB a.2 1\r\nx\r\n" * 5)
    assert [(subject, len(ops)) for subject, ops in taken] == [(b"", 10), (b"a.1", 5), (b"a.2", 5)]


def test_messages_on_new_subjects_are_mapped_one_by_one(harness: Any) -> None:
    harness.account.map_subject(SubjectMapping.compile("a.*.x", "b.$1"))
    seen: list[bytes] = []
    harness.account.subscribe(b"a.>", lambda subject, *_: seen.append(subject), run=lambda *_: seen.append(b"run"))
    harness.account.subscribe(b"b.>", lambda subject, *_: seen.append(subject))
    harness.client().say(b"".join(b"PUB a.%d.x 1\r\nx\r\n" % number for number in range(5)))
    assert seen == [b"b.%d" % number for number in range(5)]
