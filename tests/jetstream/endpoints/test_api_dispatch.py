"""How API requests find their verb, what bodies are taken, and who is told.

Requests with long answers take their turns.
"""

from types import SimpleNamespace

import msgspec
import pytest

from natsctl.api import codec
from natsctl.jetstream.endpoints import dispatcher
from tests.support.jet import Jet, ok
from tests.support.machine import TURN_BUDGET


def answers(jet: Jet, subject: str, body: bytes = b"", header: bytes = b"") -> list[bytes]:
    sid = jet.wire.subscribe("inbox")
    jet.wire.publish(subject, body, "inbox", header)
    found = [m.payload or m.header for m in jet.wire.take(sid)]
    jet.wire.unsubscribe(sid)
    return found


@pytest.mark.parametrize("body", [b"x", b"5", b'"text"', b" ", b"{}"])
def test_bodies_that_say_nothing_are_ignored(jet: Jet, body: bytes) -> None:
    jet.stream()
    for verb in ("STREAM.INFO.S", "STREAM.NAMES", "STREAM.LIST", "STREAM.PURGE.S", "INFO"):
        ok(jet.api(verb, body))


def test_blanks_count_as_an_empty_body(jet: Jet) -> None:
    jet.stream()
    assert ok(jet.api("STREAM.DELETE.S", b" { } \n"))["success"]


def test_a_request_without_reply_is_carried_out(jet: Jet) -> None:
    jet.wire.publish("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    assert jet.api("STREAM.NAMES")["streams"] == ["S"]


def test_the_subjects_of_2020_are_served(jet: Jet) -> None:
    jet.stream()
    jet.consumer()
    jet.publish("1")
    assert jet.wire.request("$JS.STREAM.INFO.S")["config"]["name"] == "S"
    assert answers(jet, "$JS.NEXT.S.C") == [b"1"]


def test_strings_are_escaped_like_gos(jet: Jet) -> None:
    (answer,) = answers(jet, "$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s.>"],"description":"a<b&c"}')
    assert b'"description":"a\\u003cb\\u0026c","subjects":["s.\\u003e"]' in answer


def test_the_audit_is_captured_by_a_stream(jet: Jet) -> None:
    jet.stream("EVENTS", "$JS.EVENT.>")
    jet.stream()
    assert jet.api("STREAM.INFO.EVENTS", {"subjects_filter": "$JS.EVENT.ADVISORY.STREAM.>"})["state"]["subjects"] == {
        "$JS.EVENT.ADVISORY.STREAM.CREATED.EVENTS": 1,
        "$JS.EVENT.ADVISORY.STREAM.CREATED.S": 1,
    }


def asked_by_system(jet: Jet, subject: bytes) -> list[bytes]:
    heard: list[bytes] = []
    system = jet.machine.broker.system_account
    inbox = system.subscribe(b"inbox", lambda subject, reply, header, payload, origin: heard.append(payload))
    system.publish(subject, b"inbox", b"", b"")
    jet.machine.settle()
    system.unsubscribe(inbox)
    return heard


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("INFO", "account_info"), ("STREAM.NAMES", "system"), ("FOO", "system"), ("DIRECT.GET.S", "system")],
)
def test_the_system_account_has_no_jetstream(jet: Jet, verb: str, kind: str) -> None:
    refusal = '"error":{"code":503,"err_code":10039,"description":"JetStream not enabled for account"}'
    assert asked_by_system(jet, f"$JS.API.{verb}".encode()) == [
        f'{{"type":"io.nats.jetstream.api.v1.{kind}_response",{refusal}}}'.encode()
    ]


@pytest.mark.parametrize("verb", ["META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.STREAM.MOVE.A.B", "ACCOUNT.FOO"])
def test_the_system_account_is_not_answered_about_clusters(jet: Jet, verb: str) -> None:
    assert asked_by_system(jet, f"$JS.API.{verb}".encode()) == []


def test_the_system_account_removes_the_streams_of_another(jet: Jet) -> None:
    jet.stream()
    jet.stream("M", "m", storage="memory")
    sid = jet.listen("$JS.EVENT.ADVISORY.STREAM.DELETED.*")
    kind = '{"type":"io.nats.jetstream.api.v1.account_purge_response"'
    assert asked_by_system(jet, b"$JS.API.ACCOUNT.PURGE.$G") == [f'{kind},"initiated":true}}'.encode()]
    assert asked_by_system(jet, b"$JS.API.ACCOUNT.PURGE.NONE") == [f'{kind},"initiated":true}}'.encode()]
    assert b'"err_code":10051' in asked_by_system(jet, b"$JS.API.ACCOUNT.PURGE.a/b")[0]
    assert jet.api("STREAM.NAMES")["streams"] is None
    assert [m.json()["stream"] for m in jet.heard(sid)] == ["S", "M"]
    assert Jet(jet.machine.restarted()).api("STREAM.NAMES")["total"] == 0


def test_no_request_breaks_the_server(jet: Jet) -> None:
    jet.stream(allow_direct=True)
    jet.consumer()
    bodies = [b"\xff\xfe", b'{"seq":-1}', b'{"seq":1e400}', b'{"name":"\\ud800"}', b"[" * 2000, b"null"]
    bodies.append(b'{"offset":-5}')
    verbs = ["INFO", "STREAM.CREATE.S", "STREAM.UPDATE.S", "STREAM.INFO.S", "STREAM.LIST", "STREAM.PURGE.T"]
    verbs += ["STREAM.MSG.GET.S", "STREAM.MSG.DELETE.S", "DIRECT.GET.S", "DIRECT.GET.S.\xff", "CONSUMER.CREATE.S"]
    verbs += ["CONSUMER.INFO.S.C", "CONSUMER.LIST.S", "CONSUMER.DURABLE.CREATE.S.C"]
    for verb in verbs:
        for body in bodies:
            assert len(answers(jet, f"$JS.API.{verb}", body)) <= 1
    assert jet.api("STREAM.INFO.S")["config"]["name"] == "S"


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
    monkeypatch.setattr(dispatcher, "MAX_WAITING", 8)
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


AT_ONCE_BYTES = 256 << 10
"""JSON that may be encoded in one go: an info, or a step of many of them."""


def test_long_answers_and_their_audits_are_encoded_and_copied_in_steps(
    jet: Jet, monkeypatch: pytest.MonkeyPatch
) -> None:
    jet.stream(max_msgs_per_subject=1)
    for number in range(20):
        jet.consumer(f"C{number}", metadata={"<k>": "v" * 100_000})
    subject = b"s." + b"x" * 80
    jet.wire.send(b"".join(b"PUB %b.%d 0\r\n\r\n" % (subject, number) for number in range(20_000)))
    jet.wire.send(b"".join(b"PUB %b.%d 0\r\n\r\n" % (subject, number) for number in range(0, 20_000, 2)))
    sid = jet.wire.subscribe("$JS.EVENT.ADVISORY.API")
    for name in ("S2", "S3"):
        jet.stream(name, f"{name}.>", metadata={"k": "v" * 100_000})
    jet.heard(sid)
    sizes: list[int] = []

    def encode_one(value: object) -> bytes:
        text = msgspec.json.encode(value)
        sizes.append(len(text))
        return text

    monkeypatch.setattr(codec, "_encoder", SimpleNamespace(encode=encode_one))
    details = {"subjects_filter": ">", "deleted_details": True}
    for verb, body in (("CONSUMER.LIST.S", b""), ("STREAM.LIST", b""), ("STREAM.INFO.S", details)):
        sizes.clear()
        answer = ok(jet.api(verb, body))
        (event,) = jet.heard(sid)
        if verb == "STREAM.LIST":
            names = [found["config"]["name"] for found in answer["streams"]]
            assert names == ["S", "S2", "S3"] and "missing" not in answer
        elif verb == "CONSUMER.LIST.S":
            assert [found["config"]["metadata"]["<k>"] for found in answer["consumers"]] == ["v" * 100_000] * 20
        else:
            state = answer["state"]
            assert (len(state["subjects"]), len(state["deleted"])) == (20_000, state["num_deleted"])
        assert msgspec.json.decode(event.json()["response"]) == answer
        assert max(sizes) <= AT_ONCE_BYTES, verb
