"""Fast batches: what a publisher is told, and when: nothing before it is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from natsctl.jetstream.engine_options import BatchLimits, JetStreamOptions
from natsctl.jetstream.streams.fast_batch import ACKS_AT_ONCE, MAX_PARTS, FastBatch, FastBatches
from tests.jetstream.test_work import Meter, Metered
from tests.support.jet import Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import DiskFault

if TYPE_CHECKING:
    from natsctl.wire.publish_run import PublishRun

START, APPEND, COMMIT, END, PING = range(5)


class Publisher:
    def __init__(self, jet: Jet, name: str = "f", flow: int = 2, gap: str = "fail", subject: str = "s.a") -> None:
        self.jet, self.name, self.flow, self.gap, self.subject = jet, name, flow, gap, subject
        self.sid = jet.listen(f"in.{name}.>")

    def send(self, place: int, op: int = APPEND) -> list[Any]:
        self.jet.wire.publish(self.subject, b"x", f"in.{self.name}.{self.flow}.{self.gap}.{place}.{op}.$FI")
        return self.heard()

    def heard(self) -> list[Any]:
        return [answer for _, answer in self.heard_where()]

    def heard_where(self) -> list[tuple[str, Any]]:
        told = self.jet.heard(self.sid)
        return [(".".join(m.subject.decode().split(".")[-3:-1]), m.json()) for m in told]


def test_flow_acks_and_the_batchs_ack_wait_for_the_commit(jet: Jet) -> None:
    jet.stream(allow_batched=True)
    fast = Publisher(jet)
    jet.machine.hold_commits = True
    assert fast.send(1, START) == [{"type": "ack", "seq": 0, "msgs": 2}]
    assert fast.send(2) == fast.send(3) == fast.send(4) == fast.send(5, COMMIT) == []
    jet.machine.release_commits()
    assert fast.heard() == [
        {"type": "ack", "seq": 2, "msgs": 2},
        {"type": "ack", "seq": 4, "msgs": 2},
        {"stream": "S", "seq": 5, "batch": "f", "count": 5},
    ]


def test_a_commit_without_a_message_waits_for_what_is_under_way(jet: Jet) -> None:
    jet.stream(allow_batched=True)
    fast = Publisher(jet, flow=10)
    jet.machine.hold_commits = True
    fast.send(1, START)
    assert fast.send(2) == fast.send(3, END) == []
    jet.machine.release_commits()
    assert fast.heard_where() == [("3.3", {"stream": "S", "seq": 2, "batch": "f", "count": 2})]


def test_a_gap_is_told_and_ends_the_batch_once_it_is_durable(jet: Jet) -> None:
    jet.stream(allow_batched=True)
    fast = Publisher(jet, flow=10)
    jet.machine.hold_commits = True
    fast.send(1, START)
    assert fast.send(3) == [{"type": "gap", "last_seq": 2, "seq": 3}]
    assert fast.send(4) == []
    jet.machine.release_commits()
    assert fast.heard() == [{"stream": "S", "seq": 1, "batch": "f", "count": 1}]


def test_messages_that_no_disk_takes_are_refused_and_end_the_batch(jet: Jet) -> None:
    jet.stream(allow_batched=True)
    fast = Publisher(jet)
    fast.send(1, START)
    jet.machine.disk.plan = lambda call, path: DiskFault(error=5) if call == "sync" else None
    (answer,) = fast.send(2)
    assert answer["error"]["err_code"] == 10077
    assert jet.machine.engine.open_batches.fast == 0


def test_a_silent_batch_is_forgotten(jet: Jet) -> None:
    jet.stream(allow_batched=True)
    fast = Publisher(jet)
    fast.send(1, START)
    jet.advance(9)
    fast.send(2)
    jet.advance(9)
    assert fast.send(3) == []
    jet.advance(11)
    assert fast.send(4)[0]["error"]["err_code"] == 10208
    assert jet.machine.engine.open_batches.fast == 0


def test_batches_of_all_streams_together_are_limited() -> None:
    jet = Jet(Machine(options=JetStreamOptions(batches=BatchLimits(fast_of_server=2, fast_of_stream=1))))
    jet.stream(allow_batched=True)
    jet.stream("T", "t.>", allow_batched=True)
    Publisher(jet, "a").send(1, START)
    assert Publisher(jet, "b").send(1, START)[0]["error"]["err_code"] == 10211
    second = Publisher(jet, "c", subject="t.a")
    second.send(1, START)
    second.send(2, COMMIT)
    assert Publisher(jet, "d", subject="t.a").send(1, START)[0]["type"] == "ack"
    ok(jet.api("STREAM.DELETE.T"))
    assert jet.machine.engine.open_batches.fast == 1


def test_a_run_is_told_the_same_as_its_messages_one_by_one() -> None:
    told = []
    for together in (True, False):
        jet = Jet()
        jet.stream(allow_batched=True)
        sid = jet.listen("in.>")
        lines = []
        for name, flow, number in (("a", 3, 40), ("b", 7, 25), ("a", 3, 41)):
            first = 1 if name == "b" or not lines else 41
            for place in range(first, first + number):
                op = COMMIT if (name, place) in (("a", 81), ("b", 25)) else START if place == 1 else APPEND
                subject = b"s.c" if place % 11 == 0 else b"s.a"
                reply = b"in.%b.%d.fail.%d.%d.$FI" % (name.encode(), flow, place, op)
                lines.append(b"PUB %b %b 1\r\nx\r\n" % (subject, reply))
        for chunk in [b"".join(lines)] if together else lines:
            jet.wire.send(chunk)
        told.append(sorted((m.subject, m.payload) for m in jet.heard(sid)))
    assert told[0] == told[1]
    assert sum(b'"batch"' in payload for _, payload in told[0]) == 2


def control(name: str, place: int, op: int = APPEND) -> bytes:
    return b"in.%b.1.ok.%d.%d.$FI" % (name.encode(), place, op)


MANY_PARTS = MAX_PARTS * 2
RUNS_OF_PARTS = {
    "opened": [control(f"b{number}", 1, START) for number in range(MANY_PARTS)],
    "never opened": [control("b", place) for place in range(2, MANY_PARTS + 2)],
    "taking turns": [
        control(f"b{number}", place, APPEND if place > 1 else START)
        for place in range(1, MANY_PARTS // 4 + 1)
        for number in range(4)
    ],
}


def publishes(replies: list[bytes]) -> bytes:
    return b"".join(b"PUB s.a %b 1\r\nx\r\n" % reply for reply in replies)


@pytest.fixture
def left_over(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many messages of each run were handled together, None for all."""
    handled, take_run = list[int | None](), FastBatches.take_run

    def recording(self: FastBatches, subject: bytes, run: PublishRun) -> int | None:
        handled.append(take_run(self, subject, run))
        return handled[-1]

    monkeypatch.setattr(FastBatches, "take_run", recording)
    return handled


@pytest.mark.parametrize("replies", RUNS_OF_PARTS.values(), ids=RUNS_OF_PARTS)
def test_a_run_of_many_parts_is_accepted_in_several(
    jet: Jet, left_over: list[int | None], replies: list[bytes]
) -> None:
    jet.stream(allow_batched=True)
    sid, before = jet.listen("in.>"), jet.wire.session.in_msgs
    jet.wire.send(publishes(replies))
    assert left_over == [MAX_PARTS, None]
    assert jet.wire.session.in_msgs == before + len(replies)
    assert {message.subject for message in jet.heard(sid)} == set(replies)


def test_a_run_of_one_batch_is_one_part(jet: Jet, left_over: list[int | None]) -> None:
    jet.stream(allow_batched=True)
    jet.wire.send(publishes([control("b", place, APPEND if place > 1 else START) for place in range(1, MANY_PARTS)]))
    assert left_over == [None]


class FlowMeter(Meter):
    """The most parts or acks that were handled between two moments at which the loop would do something else."""

    def lap(self) -> None:
        self.most_looks, self.looks = max(self.most_looks, self.looks), 0


@pytest.mark.parametrize("batches", [1, 8])
def test_acks_of_much_that_becomes_durable_together_take_several_turns(
    batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jet, meter, flow, places = Jet(Metered()), FlowMeter(), FastBatches._flow, ACKS_AT_ONCE * 8 // batches
    assert isinstance(jet.machine, Metered)

    def counting(self: FastBatches, batch: FastBatch, reply: bytes) -> bool:
        meter.looks += 1
        return flow(self, batch, reply)

    monkeypatch.setattr(FastBatches, "_flow", counting)
    jet.stream(allow_batched=True)
    sid, names = jet.listen("in.>"), [f"b{number}" for number in range(batches)]
    jet.wire.send(publishes([control(name, 1, START) for name in names]))
    jet.heard(sid)
    jet.machine.hold_commits = True
    for first in range(2, places + 2, places // 4):
        for name in names:
            jet.wire.send(publishes([control(name, place) for place in range(first, first + places // 4)]))
    assert jet.heard(sid) == []
    jet.machine.meter = meter
    jet.machine.release_commits()
    assert 0 < meter.most_looks <= 2 * ACKS_AT_ONCE
    heard = jet.heard(sid)
    for name in names:
        acked = [message.json()["seq"] for message in heard if b".%b." % name.encode() in message.subject]
        assert acked == list(range(2, places + 2))
