"""Requests to the system account: who is answered, when and where, and the format of bodies."""

import gzip
import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from unittest.mock import patch

import cramjam
import msgspec
import pytest

from natsctl.api import codec
from natsctl.api.headers import COMPRESS_STEP, compressing
from natsctl.api.subject_index import finish
from natsctl.api.subjects import is_subset
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.imports.account_config import AccountConfig
from natsctl.server.monitor.connz import LOOKED_AT, ConnzOptions
from natsctl.server.monitor.healthz import HealthzOptions
from natsctl.server.system import answers
from natsctl.server.system.answers import RequestFormat, ServerFilter
from natsctl.server.system.requests import MAX_RUN, MAX_WAITING, MAX_WAITING_BYTES, RUN_NS, RequestQueue, SystemRequest
from tests.support.clock import VirtualClock

from .conftest import Net

OWN = ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.STATZ")


def test_who_is_not_in_the_system_account_finds_nobody(net: Net) -> None:
    stranger = net.client("stranger", "A")
    for subject in ("SERVER.PING", "SERVER.PING.VARZ", "SERVER.PING.IDZ", "ACCOUNT.A.CONNZ", "ACCOUNT.A.INFO"):
        message = net.ask(f"$SYS.REQ.{subject}", asker=stranger)
        assert message.status == b"503"


@pytest.mark.parametrize("subject", OWN)
def test_an_account_may_ask_about_itself_alone(net: Net, subject: str) -> None:
    net.client("other", "B")
    asker = net.client("asker", "A", "me")
    data = net.answer(subject, {"acc": "B", "accounts": ["B"], "auth": True}, asker)["data"]
    if "connections" in data:
        assert [(one["name"], one["account"]) for one in data["connections"]] == [("asker", "A")]
    else:
        assert [one["acc"] for one in data["account_statz"]] == ["A"]


def test_accounts_that_are_made_later_may_ask_too(net: Net) -> None:
    net.broker.configure([AccountConfig("LATE")])
    assert net.answer(OWN[2], asker=net.client("late", "LATE"))["data"]["account_statz"][0]["acc"] == "LATE"


def test_requests_wait_for_the_turn_and_a_turn_answers_a_bounded_number(net: Net) -> None:
    sid = net.operator.subscribe("in.box")
    for _ in range(MAX_RUN + 1):
        net.operator.publish("$SYS.REQ.SERVER.PING.IDZ", b"", "in.box")
    assert net.operator.take(sid) == []
    net.answer_waiting()
    assert len(net.operator.take(sid)) == MAX_RUN
    net.answer_waiting()
    assert len(net.operator.take(sid)) == 1


def test_more_requests_than_may_wait_are_dropped(net: Net) -> None:
    net.operator.session.receive(b"PUB $SYS.REQ.SERVER.PING.IDZ in.box 0\r\n\r\n" * (MAX_WAITING + 100))
    sid = net.operator.subscribe("in.box")
    for _ in range(MAX_WAITING // MAX_RUN + 10):
        net.system.requests.run()
    net.machine.settle()
    assert len(net.operator.take(sid)) == MAX_WAITING


def test_more_than_may_be_kept_of_their_bodies_is_dropped(net: Net) -> None:
    body = b"{" + b" " * 1_000_000 + b"}"
    sid = net.operator.subscribe("in.box")
    for _ in range(20):
        net.operator.session.receive(b"PUB $SYS.REQ.SERVER.PING.IDZ in.box %d\r\n%b\r\n" % (len(body), body))
    net.answer_waiting()
    assert len(net.operator.take(sid)) == MAX_WAITING_BYTES // len(body)
    net.operator.publish("$SYS.REQ.SERVER.PING.IDZ", body, "in.box")
    net.answer_waiting()
    assert len(net.operator.take(sid)) == 1


def test_a_turn_answers_for_a_bounded_time(net: Net) -> None:
    class SlowClock:
        ns = 0

        def monotonic_ns(self) -> int:
            return self.ns

        def now_ns(self) -> int:
            return self.ns

    clock, turns, answered = SlowClock(), [0], [0]

    def take_long(request: SystemRequest) -> None:
        clock.ns += RUN_NS // 2 + 1
        answered[0] += 1

    def wake() -> None:
        turns[0] += 1

    requests = RequestQueue(wake, clock)
    account = net.broker.account("SLOW")
    requests.listen(account, "ask", take_long)
    for _ in range(5):
        account.publish(b"ask", b"r", b"", b"")
    requests.run()
    assert (answered, turns) == ([2], [6])
    requests.run()
    requests.run()
    assert answered == [5]


def test_who_left_before_the_answer_is_no_harm(net: Net) -> None:
    asker = net.client("asker", "A")
    asker.publish(OWN[0], b"", "in.box")
    asker.close()
    net.system.requests.run()


def test_statsz_without_a_reply_is_told_to_everybody(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.SERVER.*.STATSZ")
    net.operator.publish("$SYS.REQ.SERVER.PING")
    net.answer_waiting()
    (message,) = net.operator.take(sid)
    assert list(message.json()) == ["server", "statsz"]


def test_lame_duck_mode_is_told_to_one_client(net: Net) -> None:
    duck, other = net.client("duck", "A"), net.client("other", "A")
    subject = f"$SYS.REQ.SERVER.{net.broker.server_id}.LDM"
    early = net.answer(subject, {"cid": duck.session.cid})
    assert early["error"]["description"].startswith("client does not support Lame Duck Mode or is not ready")
    for wire in (duck, other):
        wire.session.receive(b"PING\r\n")
        wire.session.take_output()
    assert list(net.answer(subject, {"cid": duck.session.cid})) == ["server"]
    assert duck.session.close_reason is None


def test_a_reload_is_asked_for_and_its_fault_is_told(net: Net) -> None:
    subject = f"$SYS.REQ.SERVER.{net.broker.server_id}.RELOAD"
    assert list(net.answer(subject)) == ["server"]
    assert net.reloads == 1
    net.reload_fault = "no good"
    assert net.answer(subject)["error"] == {"code": 500, "description": "no good"}
    net.operator.publish(subject)
    net.system.requests.run()
    assert net.reloads == 1


def test_subscribers_are_counted_where_clients_are(net: Net) -> None:
    one, two = net.client("one", "A"), net.client("two", "A")
    one.subscribe("foo.a")
    two.subscribe("foo.*")
    two.subscribe("foo.a", "group")
    counts = [
        ({"acc": "A", "subject": "foo.a"}, 3),
        ({"acc": "A", "subject": "foo.b"}, 1),
        ({"acc": "A", "subject": "foo.*"}, 3),
        ({"acc": "A", "subject": ">"}, 3),
        ({"acc": "A", "subject": "bar"}, 0),
    ]
    for body, number in counts:
        assert net.answer("$SYS.REQ.ACCOUNT.NSUBS", body) == number
    assert net.ask("$SYS.REQ.ACCOUNT.NSUBS") is None
    net.operator.subscribe("debug.x", "q")
    assert net.answer("$SYS.DEBUG.SUBSCRIBERS", b"debug.x q") == 1
    assert net.answer("$SYS.DEBUG.SUBSCRIBERS", b"debug.x") == 1
    assert net.answer("$SYS.DEBUG.SUBSCRIBERS", b"debug.x other") == 0


@pytest.mark.parametrize("subject", ["foo.7", "foo.*"])
def test_many_subscribers_are_counted_in_steps(net: Net, subject: str) -> None:
    client = net.client("one", "A")
    for _ in range(3 * LOOKED_AT):
        client.subscribe("foo.7")
    steps = answers.subscribers(net.broker.accounts["A"], subject)
    with patch.object(answers, "is_subset", wraps=is_subset) as compare:
        looked = []
        while next(steps, answers) is not answers:
            looked.append(compare.call_count)
            compare.reset_mock()
    assert len(looked) >= 3 and max(looked) <= LOOKED_AT
    assert net.answer("$SYS.REQ.ACCOUNT.NSUBS", {"acc": "A", "subject": subject}) == 3 * LOOKED_AT


def test_the_end_is_told_once_and_nothing_after_it(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.SERVER.*.*")
    others = net.operator.subscribe("$SYS.ACCOUNT.>")
    net.system.lame_duck()
    net.system.shut_down()
    net.system.shut_down()
    net.client("late", "A")
    net.wait(60)
    messages = net.operator.take(sid)
    assert [m.subject.rpartition(b".")[2] for m in messages] == [b"LAMEDUCK", b"SHUTDOWN"]
    assert list(messages[0].json())[:3] == ["name", "host", "id"]
    assert net.operator.take(others) == []


@pytest.mark.parametrize("name", ["A", "nobody", "SYS"])
def test_who_asks_for_a_user_past_its_own_subject_is_nobody(net: Net, name: str) -> None:
    assert net.answer(f"$SYS.REQ.USER.{name}.INFO")["data"] == {"user": "", "account": ""}


CONNZ = RequestFormat("ConnzEventOptions", "ConnzOptions", ConnzOptions)
VARZ = RequestFormat("VarzEventOptions")


@pytest.fixture
def broker() -> Broker:
    options = BrokerOptions(server_name="nats-one", host="10.0.0.1", domain="hub", tags=["az:1", "fast"])
    return Broker(VirtualClock(), random.Random(1), options)


def test_options_and_filter_are_read_from_one_object_whatever_the_case_of_its_keys() -> None:
    wanted, options = CONNZ.read(b'{"LIMIT": 5, "state": 1, "acc": "A", "Server_Name": "n", "tags": ["x"], "new": []}')
    assert (options.limit, options.state, options.acc) == (5, 1, "A")
    assert (wanted.server_name, wanted.tags) == ("n", ["x"])


def test_keys_with_dashes_are_read() -> None:
    _, options = RequestFormat("HealthzEventOptions", "HealthzOptions", HealthzOptions).read(
        b'{"js-enabled-only": true}'
    )
    assert options.js_enabled_only


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"limit": null}'])
def test_what_says_nothing_asks_for_nothing(body: bytes) -> None:
    assert CONNZ.read(body) == (ServerFilter(), ConnzOptions())


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        (b"{}", True), (b'{"server_name": "one"}', True), (b'{"server_name": "one", "exact_match": true}', False),
        (b'{"server_name": "nats-one", "exact_match": true}', True), (b'{"server_name": "two"}', False),
        (b'{"host": "10.0"}', True), (b'{"cluster": "c"}', False), (b'{"cluster": "c", "exact_match": true}', False),
        (b'{"tags": ["FAST", "az:1"]}', True), (b'{"tags": ["fast", "slow"]}', False), (b'{"domain": "hub"}', True),
        (b'{"domain": "hu"}', False),
    ],
)  # fmt: skip
def test_a_filter_says_which_servers_are_meant(broker: Broker, body: bytes, meant: bool) -> None:
    wanted, _ = VARZ.read(body)
    assert wanted.excludes(broker) is not meant


BODY = b'{"a": "' + b"x" * 1000 + b'"}'


def asking(encoding: str) -> bytes:
    return f"NATS/1.0\r\nAccept-Encoding: {encoding}\r\n\r\n".encode()


@pytest.mark.parametrize("encoding", ["snappy", "s2", "gzip, s2"])
def test_snappy_goes_before_gzip(encoding: str) -> None:
    block, body = finish(compressing(BODY, asking(encoding)))
    assert block == b"NATS/1.0\r\nContent-Encoding: snappy\r\n\r\n"
    assert bytes(cramjam.snappy.decompress(body)) == BODY


@pytest.mark.parametrize("header", [b"", asking(""), b"NATS/1.0\r\nOther: gzip\r\n\r\n"])
def test_who_does_not_ask_gets_plain_json(header: bytes) -> None:
    assert finish(compressing(BODY, header)) == (b"", BODY)


@pytest.mark.parametrize(("encoding", "read"), [("gzip", gzip.decompress), ("s2", cramjam.snappy.decompress)])
def test_a_long_answer_is_encoded_and_compressed_in_steps(
    net: Net, monkeypatch: pytest.MonkeyPatch, encoding: str, read: Callable[[bytes], bytes]
) -> None:
    asker, count, sizes = net.client("asker", "A"), 20_000, list[int]()
    asker.send(b"".join(b"SUB s.%d s%d\r\n" % (number, number) for number in range(count)))

    def encode_one(value: object) -> bytes:
        text = msgspec.json.encode(value)
        sizes.append(len(text))
        return text

    monkeypatch.setattr(codec, "_encoder", SimpleNamespace(encode=encode_one))
    for verb, key in (("CONNZ", "connections"), ("SUBSZ", "subscriptions_list")):
        sizes.clear()
        sid = net.operator.subscribe("in.box")
        body = json.dumps({"subscriptions": True, "subscriptions_detail": True, "limit": count}).encode()
        net.operator.publish(f"$SYS.REQ.SERVER.PING.{verb}", body, "in.box", asking(encoding))
        net.answer_waiting()
        (message,) = net.operator.take(sid)
        net.operator.unsubscribe(sid)
        text = bytes(read(message.payload))
        found = json.loads(text)["data"][key]
        listed = next(entry for entry in found if entry.get("name") == "asker") if verb == "CONNZ" else {"": found}
        subjects = {sub["subject"] for subs in listed.values() if isinstance(subs, list) for sub in subs}
        assert len(subjects) > count - 10 and len(text) > 10 * COMPRESS_STEP
        assert max(sizes) < COMPRESS_STEP
    steps = compressing(text, asking(encoding))
    assert len(list(steps)) == -(-len(text) // COMPRESS_STEP)
