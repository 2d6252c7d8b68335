"""What a message that asks to be traced tells, in the form of nats-server."""

import json
from typing import Any

import pytest

from natsctl.broker.auth.permissions import Permissions, SubjectRules
from natsctl.broker.imports.account_config import AccountConfig, Destination, SubjectMap
from tests.broker.conftest import BrokerHarness, SessionClient

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


def test_the_message_and_who_it_went_to_are_told(harness: BrokerHarness) -> None:
    listener, recipient, publisher = listening(harness), harness.client(), harness.client()
    recipient.say(b"SUB foo 1\r\nSUB foo q 2\r\n")
    traced(publisher, b"foo", DEST + b"A: b\r\nA: c\r\n")
    assert recipient.heard().count(b"HMSG foo ") == 2
    found = told(listener)
    assert list(found) == ["server", "request", "events"]
    assert found["request"] == {"header": {"A": ["b", "c"], "Nats-Trace-Dest": ["traces"]}, "msgsize": 51}
    assert [{key: event[key] for key in event if key != "ts"} for event in found["events"]] == [
        {"type": "in", "kind": 0, "cid": publisher.session.cid, "acc": "$G", "subj": "foo"},
        {"type": "eg", "kind": 0, "cid": recipient.session.cid, "sub": "foo"},
        {"type": "eg", "kind": 0, "cid": recipient.session.cid, "sub": "foo", "queue": "q"},
    ]


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


def test_a_mapped_subject_is_told(harness: BrokerHarness) -> None:
    listener, recipient, publisher = listening(harness), harness.client(), harness.client()
    harness.broker.configure([AccountConfig("$G", mappings=(SubjectMap("a", (Destination("b", 100),)),))])
    recipient.say(b"SUB b 1\r\n")
    traced(publisher, b"a")
    assert recipient.heard().startswith(b"HMSG b 1 ")
    assert [event.get("to") or event.get("subj") for event in events(listener)[:2]] == ["a", "b"]


def test_why_a_client_was_not_given_the_message_is_told(harness: BrokerHarness) -> None:
    listener, recipient = listening(harness), harness.client()
    publisher = harness.client(b'CONNECT {"verbose":false,"headers":true,"echo":false}\r\n')
    publisher.say(b"SUB foo 1\r\n")
    recipient.session.apply_permissions(
        recipient.session.login.grant.__class__(
            "", "$G", permissions=Permissions(subscribe=SubjectRules(deny=("foo",)))
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
        "", "$G", permissions=Permissions(publish=SubjectRules(allow=("foo",)))
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
