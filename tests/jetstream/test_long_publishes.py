"""Messages with conditions that take long to check: in slices, in order, and each as if it had been checked at once."""

from typing import Any

import pytest

from natsctl.store.filters import Filters
from natsctl.store.index import QUICK_LOOK_STEP
from natsctl.wire.client import encode_pub
from tests.jetstream.test_work import MAX_LINES, VERY_MANY, Metered, filled, most_lines, stream_of
from tests.support.jet import Jet

BATCH = 400
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
        ({"Nats-Incr": "9" * 20_000}, {"allow_msg_counter": True}),
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
