"""Snapshots and restores on both servers: the same refusals, advisories and states."""

from typing import Any

from tests.support.differential import Scenarios, Talk

scenario = Scenarios()

EVENTS = [
    "$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_CREATE.S",
    "$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S",
    "$JS.EVENT.ADVISORY.STREAM.RESTORE_CREATE.S",
    "$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE.S",
    "$JS.EVENT.ADVISORY.STREAM.CREATED.S",
]


VARYING = {
    *("time", "timestamp", "start", "end", "created", "ts", "first_ts", "last_ts", "last_active"),
    *("id", "server", "bytes", "cluster", "metadata", "client", "deleted_details"),
}


def plain(value: Any) -> Any:
    """Return JSON with its keys in order, without what differs from run to run."""
    if isinstance(value, dict):
        return [(key, "varies" if key in VARYING else plain(item)) for key, item in value.items()]
    return [plain(item) for item in value] if isinstance(value, list) else value


def ask(t: Talk, verb: str, body: object = b"") -> None:
    t.notes.append((verb, plain(t.jet.api(verb, body))))


def send(t: Talk, document: dict[str, Any], archive: bytes) -> Any:
    to = t.jet.api("STREAM.RESTORE.S", document)["deliver_subject"]
    sid = t.jet.listen("answers")
    for at in range(0, len(archive), 60_000):
        t.jet.wire.publish(to, archive[at : at + 60_000], "answers")
        assert [message.payload for message in t.jet.heard(sid)] == [b""]
    t.jet.wire.publish(to, b"", "answers")
    (answer,) = t.jet.heard(sid)
    return answer.json()


@scenario
def snapshots_that_can_not_be(t: Talk) -> None:
    for body in (b"", b"{", {}, {"deliver_subject": "a.*"}, {"deliver_subject": "a b"}, {"deliver_subject": "a..b"}):
        t.ask("STREAM.SNAPSHOT.S", body)
    t.ask("STREAM.SNAPSHOT.S", {"deliver_subject": "x", "unknown": 1})
    t.ask("STREAM.SNAPSHOT.NONE", {"deliver_subject": "x"})


@scenario
def restores_that_can_not_be(t: Talk) -> None:
    for body in (
        b"",
        b"{",
        {"config": {"name": "S", "subjects": ["s.>"]}, "state": {}},
        {"config": {"name": "T"}, "state": {}},
        {"config": {"name": "S", "subjects": ["a..b"]}, "state": {}},
        {"config": {"name": "S", "retention": "none"}, "state": {}},
    ):
        t.ask("STREAM.RESTORE.S", body)
    t.ask("STREAM.RESTORE.Q", {"config": {"name": "Q", "num_replicas": 9}, "state": {}})
    t.ask("STREAM.RESTORE.Q", {"config": {"name": "Q", "mirror": {"name": "Q"}}, "state": {}})


@scenario
def a_stream_leaves_and_comes_back(t: Talk) -> None:
    t.jet.publish("1", "2", "3", "4", "5")
    t.jet.wire.publish("s.h", b"6", header=b"NATS/1.0\r\nA: b\r\n\r\n")
    t.jet.api("STREAM.MSG.DELETE.S", {"seq": 3})
    t.jet.api("STREAM.PURGE.S", {"seq": 2})
    t.create(ack_wait=3600 * 10**9)
    for message in t.pull({"batch": 3, "no_wait": True})[:1]:
        t.note(t.jet.double_ack(message))
    sids = [t.jet.listen(subject) for subject in EVENTS]
    document, archive = t.jet.backup()
    t.notes.append(sorted(document["state"]))
    t.jet.api("STREAM.DELETE.S")
    assert "error" not in send(t, document, archive)
    for sid in sids:
        t.notes += [(event.subject, plain(event.json())) for event in t.jet.heard(sid)]
    ask(t, "STREAM.INFO.S", {"deleted_details": True})
    ask(t, "CONSUMER.INFO.S.C")
    ask(t, "STREAM.MSG.GET.S", {"seq": 6})
    t.pull({"batch": 5, "no_wait": True})


@scenario
def a_stream_in_memory_leaves_and_comes_back(t: Talk) -> None:
    t.jet.api("STREAM.DELETE.S")
    t.jet.stream(storage="memory")
    t.jet.publish("1", "2", "3")
    document, archive = t.jet.backup()
    t.jet.api("STREAM.DELETE.S")
    assert "error" not in send(t, document, archive)
    ask(t, "STREAM.INFO.S")
    ask(t, "STREAM.MSG.GET.S", {"seq": 2})
