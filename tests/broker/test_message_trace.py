"""What a message that asks to be traced tells, in the form of nats-server."""

import gzip
import json
from typing import Any

import msgspec
import pytest

from natsctl.api.headers import COMPRESS_STEP
from natsctl.api.jwt_claims import AccountClaims, Import
from natsctl.api.subject_index import finish
from natsctl.broker import message_trace
from natsctl.broker.auth.permissions import SubjectPermissions, SubjectRules
from natsctl.broker.imports.account_config import AccountConfig
from natsctl.broker.jwt.account_setup import account_config
from natsctl.broker.message_trace import LINES_STEP, MAX_EVENTS
from tests.broker.conftest import BrokerHarness, SessionClient
from tests.support.call_counts import calls_of

DEST = b"Nats-Trace-Dest: traces\r\n"
ONLY = b"Nats-Trace-Only: true\r\n"


def traced(talker: SessionClient, subject: bytes, lines: bytes = DEST, reply: bytes = b"") -> bytes:
    block = b"NATS/1.0\r\n" + lines + b"\r\n"
    return talker.say(b"HPUB %s %s %d %d\r\n%sxy\r\n" % (subject, reply, len(block), len(block) + 2, block))


def told(listener: SessionClient) -> dict[str, Any]:
    line, _, rest = listener.heard().partition(b"\r\n")
    assert line.startswith(b"MSG traces 1 ")
    found: dict[str, Any] = json.loads(rest)
    return found


def events(listener: SessionClient) -> list[dict[str, Any]]:
    found = told(listener)["events"]
    assert all(event.pop("ts") for event in found)
    return list(found)


def listening(harness: BrokerHarness) -> SessionClient:
    listener = harness.client()
    listener.say(b"SUB traces 1\r\n")
    return listener


def test_a_message_that_is_only_traced_reaches_nobody(harness: BrokerHarness) -> None:
    listener, recipient, publisher = listening(harness), harness.client(), harness.client()
    taken: list[bytes] = []
    harness.account.subscribe(b"foo", lambda subject, *rest: taken.append(subject)).stream = "S"
    recipient.say(b"SUB foo 1\r\n")
    assert traced(publisher, b"foo", DEST + ONLY, b"r") == b""
    assert (recipient.heard(), taken) == (b"", [])
    assert [event["type"] for event in events(listener)] == ["in", "eg", "js"]


def test_a_stream_is_told_and_stores_that_the_trace_is_over(harness: BrokerHarness) -> None:
    listener, publisher = listening(harness), harness.client()
    headers: list[bytes] = []
    harness.account.subscribe(b"foo", lambda subject, reply, header, *rest: headers.append(header)).stream = "S"
    traced(publisher, b"foo")
    assert events(listener)[1:] == [{"type": "js", "stream": "S", "subject": "foo"}]
    assert headers == [b"NATS/1.0\r\nNats-Trace-Dest: trace disabled\r\n\r\n"]


def test_why_a_client_was_not_given_the_message_is_told(harness: BrokerHarness) -> None:
    listener, recipient = listening(harness), harness.client()
    publisher = harness.client(b'CONNECT {"verbose":false,"headers":true,"echo":false}\r\n')
    publisher.say(b"SUB foo 1\r\n")
    recipient.session.apply_permissions(
        recipient.session.login.grant.__class__(
            "", "$G", permissions=SubjectPermissions(subscribe=SubjectRules(deny=("foo",)))
        ),
        harness.account,
    )
    recipient.say(b"SUB > 2\r\n")
    traced(publisher, b"foo")
    errors = {event["cid"]: event["error"] for event in events(listener) if "error" in event}
    assert errors == {
        publisher.session.cid: "Not delivered because of no echo",
        recipient.session.cid: "Not delivered because subscription denies this subject",
    }


def test_a_client_can_not_have_a_trace_sent_where_it_may_not_publish(harness: BrokerHarness) -> None:
    listener, recipient, publisher = listening(harness), harness.client(), harness.client()
    recipient.say(b"SUB foo 1\r\n")
    grant = publisher.session.login.grant.__class__(
        "", "$G", permissions=SubjectPermissions(publish=SubjectRules(allow=("foo",)))
    )
    publisher.session.apply_permissions(grant, harness.account)
    assert traced(publisher, b"foo") == b"-ERR 'Permissions Violation for Publish to \"traces\"'\r\n"
    assert (recipient.heard(), listener.heard()) == (b"", b"")


@pytest.mark.parametrize(
    ("lines", "delivered"),
    [
        (b"Nats-Trace-Dest: a.*\r\n", True),
        (b"Nats-Trace-Dest: a.*\r\n" + ONLY, False),
        (DEST + b"Nats-Trace-Origin-Account: A\r\n" + ONLY, False),
        (ONLY, True),
        (b"Nats-Trace-Dest: \r\n", True),
        (b"Nats-Trace-Dest: trace disabled\r\n" + ONLY, True),
        (b"nats-trace-dest: traces\r\n", True),
    ],
)
def test_what_asks_for_no_trace_gets_none(harness: BrokerHarness, lines: bytes, delivered: bool) -> None:
    listener, recipient, publisher = listening(harness), harness.client(), harness.client()
    recipient.say(b"SUB foo 1\r\n")
    traced(publisher, b"foo", lines)
    assert (bool(recipient.heard()), listener.heard()) == (delivered, b"")


PARENT = b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"


def traced_by_parent(harness: BrokerHarness, sampling: int = 100) -> None:
    config = AccountConfig("$G", trace_dest="traces", trace_sampling=sampling)
    harness.broker.configure([config])


def test_messages_that_are_not_sampled_say_so_to_the_servers_behind(harness: BrokerHarness) -> None:
    listener, recipient, publisher = listening(harness), harness.client(), harness.client()
    recipient.say(b"SUB foo 1\r\n")
    traced_by_parent(harness, sampling=30)
    reports = disabled = 0
    for _ in range(1000):
        traced(publisher, b"foo", PARENT)
        reports += listener.heard().count(b"MSG traces")
        heard = recipient.heard()
        assert PARENT in heard
        disabled += heard.count(b"\r\nNats-Trace-Dest: trace disabled\r\n")
    assert reports + disabled == 1000
    assert 250 < reports < 370


def test_messages_that_arrive_together_are_traced_one_by_one(harness: BrokerHarness) -> None:
    listener, publisher = listening(harness), harness.client()
    stored: list[bytes] = []
    stream = harness.account.subscribe(
        b"foo",
        lambda subject, reply, header, *rest: stored.append(header),
        run=lambda subject, run: stored.extend(op[3] for op in run),
    )
    stream.stream = "S"
    traced_by_parent(harness)
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    asking = b"NATS/1.0\r\nA: b\r\n%s\r\n" % PARENT
    both = [block, block, block, block, block, asking, block, block]
    publisher.say(b"".join(b"HPUB foo %d %d\r\n%sxy\r\n" % (len(one), len(one) + 2, one) for one in both))
    assert listener.heard().count(b"MSG traces") == 1
    disabled = asking[:-2] + b"Nats-Trace-Dest: trace disabled\r\n\r\n"
    assert stored == [disabled if one is asking else one for one in both]


@pytest.mark.parametrize("sampling", [0, 40, 400])
def test_a_jwt_says_where_traces_go(sampling: int) -> None:
    def config(dest: str) -> AccountConfig:
        trace = {"dest": dest, "sampling": sampling}
        export = {"subject": "q", "type": "service", "allow_trace": True}
        item = {"subject": "s", "type": "stream", "account": "B", "allow_trace": True}
        claims = msgspec.convert({"sub": "A", "nats": {"trace": trace, "exports": [export]}}, AccountClaims)
        return finish(account_config(claims, [msgspec.convert(item, Import)]))

    found = config("traces")
    assert (found.trace_dest, found.trace_sampling) == ("traces", sampling if sampling == 40 else 100)
    assert [getattr(one, "allow_trace", None) for one in (*found.exports, *found.imports)] == [True, True]
    assert config("a.*").trace_dest == config("").trace_dest == ""


def test_the_report_on_many_recipients_is_made_in_later_steps(harness: BrokerHarness) -> None:
    listener, crowd, publisher = listening(harness), harness.client(), harness.client()
    count, work = 2 * MAX_EVENTS, harness.broker.long_work
    crowd.say(b"".join(b"SUB foo s%d\r\n" % number for number in range(count)))
    assert calls_of(lambda: traced(publisher, b"foo", DEST + b"Accept-Encoding: gzip\r\n")) < 11 * count
    assert crowd.session.out_msgs == count and not listener.session.out
    steps = 0
    while work:
        work.step()
        steps += 1
    head, _, rest = listener.heard().partition(b"\r\n\r\n")
    report = gzip.decompress(rest[:-2])
    assert head.startswith(b"HMSG traces 1 ") and steps > len(report) // COMPRESS_STEP
    assert len(json.loads(report)["events"]) == MAX_EVENTS


def test_the_lines_of_a_long_header_are_read_in_later_steps(harness: BrokerHarness) -> None:
    listener, publisher = listening(harness), harness.client()
    lines = [(f"K{number % 20_000}", str(number)) for number in range(30_000)]
    header = "".join(f"{key}:  {value} \r\nEmpty:\r\n" for key, value in lines)
    lines_of_all = DEST + header.encode()
    assert calls_of(lambda: traced(publisher, b"foo", lines_of_all)) < 500
    assert not listener.session.out
    turns = []
    while harness.broker.long_work:
        turns.append(calls_of(harness.broker.long_work.step))
    assert max(turns) < 10 * LINES_STEP and len(turns) > 50
    report = told(listener)
    shown = report["request"]["header"]
    assert list(shown) == sorted(shown) and len(shown) == 20_001
    assert shown["K7"] == ["7", "20007"] and shown["K19999"] == ["19999"] and "Empty" not in shown


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (b"Nats-Trace-Dest:\r\nNats-Trace-Dest: \t \r\nNats-Trace-Dest:\t traces \t\r\n", b"traces"),
        (b"nats-trace-dest: other\r\nX-Nats-Trace-Dest: other\r\n", b""),
        (b"Nats-Trace-Dest: a\r\nNats-Trace-Dest: b\r\n", b"a"),
        (b"Nats-Trace-Dest: a\nb\r\n", b"a\nb"),
        (b"A: Nats-Trace-Dest: b\r\n", b""),
    ],
)
def test_the_first_value_of_a_key_counts_that_is_not_empty(lines: bytes, value: bytes) -> None:
    assert message_trace._first_value(b"NATS/1.0\r\n" + lines + b"\r\n", message_trace.DEST) == value
