"""Messages with conditions that take long to check: in slices, in order, and each as if it had been checked at once."""

from typing import Any

import pytest

from natsctl.broker.deferred_work import SLICE_NS, resume_work
from natsctl.jetstream.streams.pipeline import TRIMMED_AT_ONCE, PublishPipeline
from natsctl.native import lib
from natsctl.store.filters import Filters
from natsctl.store.index import QUICK_LOOK_STEP
from natsctl.wire.client import encode_pub
from natsctl.wire.publish_run import PublishRun
from tests.jetstream.test_work import MAX_LINES, VERY_MANY, Metered, filled, most_lines, stream_of
from tests.support.jet import SECOND, Jet, ok
from tests.support.stored_messages import stored_rows

BATCH = 400
"""In plain Python the checksum of each byte takes lines of code as well: fewer digits there."""
LAST_OF_PATTERN = {"Nats-Expected-Last-Subject-Sequence": "0", "Nats-Expected-Last-Subject-Sequence-Subject": "*.*.y"}


def block(**fields: Any) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def staged(jet: Jet, subject: str, fields: dict[str, Any]) -> bytes:
    """Stage all messages of a batch but the last, and return that one."""
    for place in range(1, BATCH):
        header = block(Nats_Batch_Id="b", Nats_Batch_Sequence=place, **fields)
        jet.wire.publish(subject, b"", header=header)
    header = block(Nats_Batch_Id="b", Nats_Batch_Sequence=BATCH, Nats_Batch_Commit=1, **fields)
    return encode_pub(subject.encode(), b"ack", header, b"")


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        (LAST_OF_PATTERN, {}),
        ({}, {"subject_transform": {"src": "s.*", "dest": "s." + ".".join(["{{slicefromleft(1,2)}}"] * 100)}}),
        ({"Nats-Incr": "9" * (20_000 if lib is not None else 500)}, {"allow_msg_counter": True}),
    ],
)
def test_the_messages_of_a_batch_are_checked_in_slices(fields: dict[str, Any], config: dict[str, Any]) -> None:
    jet = filled(10, allow_atomic=True, **config)
    machine, sid = jet.machine, jet.listen("ack")
    assert isinstance(machine, Metered)
    last = staged(jet, "s.abcdef", fields)
    later = encode_pub(b"s.later", b"ack", block(Nats_Incr=1) if fields.get("Nats-Incr") else b"", b"")

    def act() -> None:
        jet.wire.session.receive(last + later)
        machine.settle()

    assert most_lines(machine, act) <= MAX_LINES
    assert [message.json()["seq"] for message in jet.heard(sid)] == [10 + BATCH, 10 + BATCH + 1]


@pytest.mark.parametrize("fields", [{}, {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": 1, "Nats-Batch-Commit": 1}])
def test_the_last_sequence_of_a_pattern_is_looked_for_in_slices(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    jet = filled(VERY_MANY, VERY_MANY, allow_atomic=True)
    sid, looked, numbers_of = jet.listen("ack"), list[int](), Filters.numbers_of

    def counting(self: Filters, names: list[bytes], start: int, end: int) -> Any:
        looked.append(end - start)
        return numbers_of(self, names, start, end)

    monkeypatch.setattr(Filters, "numbers_of", counting)
    chunk = encode_pub(b"s.first", b"ack", block(**LAST_OF_PATTERN, **fields), b"")
    jet.wire.session.receive(chunk + encode_pub(b"s.second", b"ack", b"", b""))
    assert stream_of(jet).work.closed, "the second message waits for the first"
    jet.machine.settle()
    assert [message.json()["seq"] for message in jet.heard(sid)] == [VERY_MANY + 1, VERY_MANY + 2]
    assert sum(looked) >= VERY_MANY > max(looked) <= QUICK_LOOK_STEP


def test_a_batch_waits_for_a_request_under_way_and_later_messages_for_the_batch() -> None:
    jet = filled(VERY_MANY, VERY_MANY, allow_atomic=True)
    sid = jet.listen("ack")
    chunk = encode_pub(b"$JS.API.STREAM.INFO.S", b"info", b"", b'{"subjects_filter":"*.*.x"}')
    jet.wire.session.receive(chunk)
    assert stream_of(jet).work.busy and not stream_of(jet).work.closed
    header = block(Nats_Batch_Id="b", Nats_Batch_Sequence=1, Nats_Batch_Commit=1)
    jet.wire.session.receive(encode_pub(b"s.1", b"ack", header, b"") + encode_pub(b"s.2", b"ack", b"", b""))
    jet.machine.settle()
    assert [message.json()["seq"] for message in jet.heard(sid)] == [VERY_MANY + 1, VERY_MANY + 2]


def test_what_waits_for_a_stream_that_is_deleted_is_answered_in_slices() -> None:
    jet = filled(VERY_MANY, VERY_MANY)
    machine, sid, infos = jet.machine, jet.listen("answer"), 2_000
    assert isinstance(machine, Metered)
    chunk = encode_pub(b"$JS.API.STREAM.PURGE.S", b"answer", b"", b'{"filter":"*.*.x"}')
    chunk += encode_pub(b"$JS.API.STREAM.DELETE.S", b"answer", b"", b"")
    jet.wire.session.receive(chunk + encode_pub(b"$JS.API.STREAM.INFO.S", b"answer", b"", b"") * infos)
    body = b'{"name":"S","storage":"memory","subjects":["s.>"]}'
    jet.wire.session.receive(encode_pub(b"s.1", b"unheard", b"", b""))
    jet.wire.session.receive(encode_pub(b"$JS.API.STREAM.CREATE.S", b"answer", b"", body))
    most = most_lines(machine, machine.settle)
    assert most <= MAX_LINES or lib is None  # plain Python takes eight lines of code for each message of the purge
    answers = [message.json() for message in jet.heard(sid)]
    missing = [answer for answer in answers if "error" in answer]
    assert len(answers) == infos + 3 and len(missing) == infos, "the purge, the removal and the new stream succeeded"
    assert all(answer["error"]["err_code"] == 10059 for answer in missing), "the new stream came later"
    assert stream_of(jet).store.messages == 0


def test_messages_that_never_expire_are_skipped_in_slices() -> None:
    jet = filled(1, allow_msg_ttl=True)
    machine, store, many = jet.machine, stream_of(jet).store, 20_000
    assert isinstance(machine, Metered)
    for number in range(many):
        jet.wire.session.receive(encode_pub(b"s.%d" % number, b"", block(Nats_TTL="never"), b""))
    jet.wire.session.receive(encode_pub(b"s.last", b"", b"", b""))
    machine.settle()
    config = {"name": "S", "subjects": ["s.>"], "storage": "file", "allow_msg_ttl": True, "max_age": 3600 * SECOND}
    assert most_lines(machine, lambda: ok(jet.api("STREAM.UPDATE.S", config))) <= MAX_LINES
    assert most_lines(machine, lambda: jet.advance(3600 + 1)) <= MAX_LINES
    assert store.messages == many and not store.count_of(b"s.last")


@pytest.mark.parametrize("turns", [1, 2])
def test_a_run_that_replaces_messages_is_taken_in_parts(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding the message before may take long; the session looks at the clock between two parts."""
    jet, runs, count = Jet(), list[int](), 3 * TRIMMED_AT_ONCE
    jet.stream(max_msgs_per_subject=1)
    store_run = stream_of(jet).pipeline.store_run

    def storing(self: PublishPipeline, subject: bytes, run: PublishRun) -> Any:
        runs.append(len(run))
        if turns > 1:
            jet.machine.clock.advance(SLICE_NS + 1)
        return store_run(subject, run)

    monkeypatch.setattr(PublishPipeline, "store_run", storing)
    sid = jet.listen("ack")
    jet.wire.session.receive(b"".join(encode_pub(b"s.%d" % (n % 100), b"ack", b"", b"%d" % n) for n in range(count)))
    assert len(runs) == (1 if turns > 1 else 3)
    for _ in range(10):
        jet.machine.settle()
        if jet.machine.broker.unfinished:
            resume_work(jet.machine.broker.unfinished.popleft())
    jet.machine.settle()
    assert max(runs) == TRIMMED_AT_ONCE and sum(runs) == count
    assert [message.json()["seq"] for message in jet.heard(sid)] == [*range(1, count + 1)]
    assert [row.payload for row in stored_rows(jet)] == [b"%d" % n for n in range(count - 100, count)]


@pytest.mark.parametrize("consumers", [2, 3])
def test_among_many_consumers_a_run_that_removes_messages_is_handled_one_by_one(
    consumers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each removal is reported to each consumer; the session looks at the clock between two messages."""
    monkeypatch.setattr("natsctl.jetstream.streams.pipeline.FEW_CONSUMERS", 2)
    jet, runs = Jet(), list[int]()
    jet.stream(max_msgs=1)
    for number in range(consumers):
        jet.consumer(f"C{number}")
    stream = stream_of(jet)
    store_run = stream.pipeline.store_run
    monkeypatch.setattr(
        PublishPipeline, "store_run", lambda self, subject, run: (runs.append(len(run)), store_run(subject, run))[1]
    )
    jet.wire.send(encode_pub(b"s.a", b"", b"", b"x") * 100)
    assert sum(runs) == (100 if consumers == 2 else 0)
    assert jet.api("STREAM.INFO.S")["state"]["first_seq"] == 100
    assert [jet.counts(f"C{number}")["pending"] for number in range(consumers)] == [1] * consumers
