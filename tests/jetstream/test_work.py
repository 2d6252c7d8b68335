"""No request and no event holds the loop: long work goes in slices, which nobody can tell from work done at once."""

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import pytest

from natsctl.jetstream import work
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.consumer_set import ENDED_COST
from natsctl.jetstream.engine import Engine
from natsctl.jetstream.streams.stream import Stream
from natsctl.store import steps
from natsctl.store.filters import Filters
from natsctl.store.index import StreamIndex
from natsctl.store.subject_table import SubjectTable
from natsctl.wire.client import encode_pub
from tests.support import tiers
from tests.support.engine_simulation import small_steps
from tests.support.jet import SECOND, Jet, ok
from tests.support.machine import Machine, Message, Wire

MANY: Final = 12_000
"""Messages that are worked on one by one,"""
VERY_MANY: Final = 60_000
"""and those that are worked on by whole columns."""
SUBJECTS: Final = 4000
MAX_ONE_BY_ONE: Final = work.SLICE + steps.STEP
"""Messages that one turn may look at; four times as many subjects, or oldest messages, which cost less."""
MAX_TOGETHER: Final = MAX_ONE_BY_ONE // steps.STEP * steps.BULK_STEP


READS: Final = ("stream_info_response", "stream_msg_get_response")


class Meter:
    """Counts what is looked at between two moments at which the loop would do something else."""

    def __init__(self) -> None:
        self.looks = 0
        self.removed = 0
        self.most_looks = 0
        self.most_removed = 0

    def lap(self) -> None:
        self.most_looks, self.most_removed = max(self.most_looks, self.looks), max(self.most_removed, self.removed)
        self.looks = self.removed = 0


class Metered(Machine):
    """A machine whose turns are counted one by one."""

    meter: Meter | None = None

    def turn(self) -> bool:
        if self.meter is not None:
            self.meter.lap()
        more = self.engine.run_ready(2048)
        if self.meter is not None:
            self.meter.lap()
        return (not self.hold_commits and self.commit()) or self._drained() or more

    def _drained(self) -> bool:
        self._drain()
        return False


@contextmanager
def metered(jet: Jet) -> Iterator[Meter]:
    """Count the messages that go, and those and the subjects that are looked at, in each turn."""
    machine, meter = jet.machine, Meter()
    assert isinstance(machine, Metered)
    removed, matches = SubjectTable.removed, Filters.matches_wildcard
    look = StreamIndex.next_place

    def counting_removed(self: SubjectTable, sid: int, seq: int) -> None:
        meter.removed += 1
        removed(self, sid, seq)

    def counting_matches(self: Filters, subject: bytes) -> bool:
        meter.looks += 1
        return matches(self, subject)

    def counting_looks(self: StreamIndex, filters: Filters, from_seq: int) -> Any:
        meter.looks += 4
        return look(self, filters, from_seq)

    before = {stream: stream.store.messages for stream in machine.streams.values()}

    def lap() -> None:
        for stream, messages in before.items():
            meter.removed = max(meter.removed, messages - stream.store.messages)
            before[stream] = stream.store.messages
        Meter.lap(meter)

    with (
        mock.patch.object(SubjectTable, "removed", counting_removed),
        mock.patch.object(Filters, "matches_wildcard", counting_matches),
        mock.patch.object(StreamIndex, "next_place", counting_looks),
    ):
        meter.lap = lap  # type: ignore[method-assign]
        machine.meter = meter
        yield meter
        machine.meter = None


def filled(count: int, subjects: int = SUBJECTS, **config: Any) -> Jet:
    jet = Jet(Metered())
    jet.stream("S", "s.>", allow_direct=True, allow_rollup_hdrs=True, **config)
    store, now_ns = stream_of(jet).store, jet.machine.clock.now_ns()
    store.append_copies(
        [(seq, now_ns, b"s.%d.x" % (seq * 7 % subjects), b"", b"%d" % seq) for seq in range(1, count + 1)]
    )
    jet.machine.settle()
    return jet


def stream_of(jet: Jet, name: str = "S") -> Stream:
    return jet.machine.streams[name]


def update(jet: Jet, **change: Any) -> Any:
    config = ok(jet.api("STREAM.INFO.S"))["config"]
    return ok(jet.api("STREAM.UPDATE.S", {**config, **change}))


def last_interest_goes(jet: Jet) -> None:
    ok(jet.api("CONSUMER.DELETE.S.C"))
    assert stream_of(jet).store.messages == 0


def everything_expires(jet: Jet) -> None:
    jet.advance(3601)


def roll_up(jet: Jet) -> None:
    jet.wire.publish("s.1.x", b"r", header=b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")


ACTS: Final[dict[str, Callable[[Jet], object]]] = {
    "max_msgs": lambda jet: update(jet, max_msgs=10),
    "max_bytes": lambda jet: update(jet, max_bytes=1000),
    "max_msgs_per_subject": lambda jet: update(jet, max_msgs_per_subject=1),
    "both_limits": lambda jet: update(jet, max_msgs=5000, max_msgs_per_subject=1),
    "last_interest": last_interest_goes,
    "retention": lambda jet: update(jet, retention="interest"),
    "purge": lambda jet: ok(jet.api("STREAM.PURGE.S")),
    "purge_of_a_filter": lambda jet: ok(jet.api("STREAM.PURGE.S", {"filter": "s.*.x"})),
    "purge_below": lambda jet: ok(jet.api("STREAM.PURGE.S", {"seq": MANY - 5})),
    "purge_keep": lambda jet: ok(jet.api("STREAM.PURGE.S", {"keep": 3})),
    "rollup": roll_up,
    "expiry": everything_expires,
    "info": lambda jet: ok(jet.api("STREAM.INFO.S", {"subjects_filter": "s.*.x"})),
    "get": lambda jet: jet.api("STREAM.MSG.GET.S", {"next_by_subj": "*.*.y", "seq": 1}),
    "consumer": lambda jet: jet.consumer("W", filter_subjects=[f"s.{n}.*" for n in range(300)]),
    "direct_get": lambda jet: jet.wire.publish("$JS.API.DIRECT.GET.S", b'{"multi_last":["s.*.*"]}', "r"),
}


@pytest.mark.parametrize("count", [MANY, VERY_MANY])
@pytest.mark.parametrize("act", sorted(ACTS))
def test_no_turn_is_long(act: str, count: int) -> None:
    jet = filled(count)
    if act == "expiry":
        update(jet, max_age=3600 * SECOND)
    if act == "last_interest":
        jet.consumer("C")
        update(jet, retention="interest")
    with metered(jet) as meter:
        ACTS[act](jet)
    most = MAX_TOGETHER if count == VERY_MANY else 4 * MAX_ONE_BY_ONE
    assert meter.most_removed <= most
    assert meter.most_looks <= 4 * MAX_ONE_BY_ONE


@pytest.mark.parametrize("consumed", [False, True])
def test_messages_of_many_streams_that_expire_together_are_removed_in_turns(consumed: bool) -> None:
    jet, held, most = Jet(Metered()), list[int](), 0
    for number in range(40):
        jet.stream(f"S{number}", f"s{number}", storage="memory", max_age=SECOND)
        if consumed:
            jet.consumer("C", f"S{number}")
        jet.publish_many(work.FIRST_SLICE, f"s{number}")

    def lap() -> None:
        nonlocal most
        held.append(sum(stream.store.messages > 0 for stream in jet.machine.streams.values()))
        most = max(most, held[-2] - held[-1] if held[1:] else 0)

    assert isinstance(jet.machine, Metered)
    jet.machine.meter = Meter()
    jet.machine.meter.lap = lap  # type: ignore[method-assign]
    jet.advance(2)
    assert (held[0], held[-1]) == (40, 0)
    assert most <= 2048 // work.FIRST_SLICE + 1


def test_what_waits_for_acks_is_dropped_in_slices() -> None:
    jet = filled(MANY)
    jet.consumer("C", max_ack_pending=-1)
    jet.pull({"batch": MANY, "no_wait": True})
    with metered(jet) as meter:
        ok(jet.api("STREAM.PURGE.S", {"filter": "s.7.x"}))
    assert jet.counts()["ack_pending"] == MANY - MANY // SUBJECTS
    assert meter.most_looks <= 4 * (MAX_ONE_BY_ONE + steps.STEP)


def test_messages_that_have_waited_together_open_the_stream_once_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    jet, turned = filled(MANY), list[bool]()
    hold_back = Stream.hold_back

    def counting(stream: Stream, closed: bool) -> None:
        turned.append(closed)
        hold_back(stream, closed)

    monkeypatch.setattr(Stream, "hold_back", counting)
    session, engine, stream = jet.wire.session, jet.machine.engine, stream_of(jet)
    session.receive(b"PUB $JS.API.STREAM.PURGE.S p 18\r\n" + b'{"filter":"*.*.x"}' + b"\r\n")
    assert stream.work.closed
    session.receive(b"PUB s.1.x 1\r\nx\r\n" * 2 * work.SLICE)
    while engine.run_ready(2048):
        turned, before = list[bool](), turned
        assert len(before) <= 2
    assert not stream.work.closed and stream.store.messages == 2 * work.SLICE


# Pending acks

MAX_LINES: Final = 40_000
"""Lines of the server's code that one turn, or one call, may run: about 5 ms. Each of these took ten times as many."""


def most_lines(machine: Metered, act: Callable[[], object]) -> int:
    """Return how many lines of the server's code ran at most between two moments at which the loop would go on."""
    lines = [0]
    most = 0

    def count(frame: Any, event: str, _: object) -> Any:
        if event == "line":
            lines[0] += 1
        return count

    class Lap(Meter):
        def lap(self) -> None:
            nonlocal most
            most, lines[0] = max(most, lines[0]), 0

    def begin(frame: Any, event: str, _: object) -> Any:
        path = frame.f_code.co_filename
        own = "/natsctl/" in path and "/natsctl/testing/" not in path
        return count if own and "/natsctl/wire/" not in path else None  # the client's parser is there, too

    machine.meter = Lap()
    before = sys.gettrace()
    sys.settrace(begin)
    try:
        act()
    finally:
        sys.settrace(before)
        machine.meter = None
    return most


@pytest.mark.parametrize(("up_to", "found"), [(500, 500), (5_000, 0), (VERY_MANY, 0)])
def test_the_last_messages_of_many_subjects_are_looked_for_in_slices(up_to: int, found: int) -> None:
    jet = filled(VERY_MANY, VERY_MANY)
    jet.api("STREAM.INFO.S", {"subjects_filter": "s.*.x"})  # the subjects are known to the filter
    machine, sid = jet.machine, jet.listen("r")
    assert isinstance(machine, Metered)
    body = json.dumps({"multi_last": ["s.*.x"], "up_to_seq": up_to}).encode()
    assert most_lines(machine, lambda: jet.wire.publish("$JS.API.DIRECT.GET.S", body, "r")) <= MAX_LINES
    *answers, end = jet.heard(sid)
    assert [message.payload for message in answers] == [b"%d" % seq for seq in range(1, found + 1)]
    assert end.status == (b"204 EOB" if found else b"413 Too Many Results")


def with_pending(count: int = MANY, **config: Any) -> tuple[Jet, Metered, Message]:
    jet = filled(count)
    jet.consumer("C", max_ack_pending=-1, ack_wait=60 * SECOND, **config)
    if config.get("deliver_subject"):
        sid = jet.listen(config["deliver_subject"])
        jet.machine.settle()
        messages = jet.heard(sid)
    else:
        messages = [message for message in jet.pull({"batch": count, "no_wait": True}) if message.reply]
    assert len(messages) == count and isinstance(jet.machine, Metered)
    return jet, jet.machine, messages[-1]


def change(jet: Jet, **config: Any) -> None:
    body = {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": -1, "ack_wait": 60 * SECOND, **config}
    ok(jet.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": body}))


def test_an_ack_of_everything_goes_in_slices_and_is_answered_at_its_end() -> None:
    jet, machine, last = with_pending(ack_policy="all")
    answers: list[Message] = []
    assert most_lines(machine, lambda: answers.extend(jet.double_ack(last))) <= MAX_LINES
    assert len(answers) == 1
    counts = jet.counts()
    assert (counts["ack_pending"], counts["floor"]) == (0, (MANY, MANY))
    assert Jet(machine.restarted()).counts() == counts


@pytest.mark.parametrize("payload", [b"", b"+TERM", b"+NXT 1"])
def test_an_ack_of_much_while_a_request_is_served_is_answered_when_it_is_durable(payload: bytes) -> None:
    jet, machine, last = with_pending(ack_policy="all")
    sid = jet.listen("_INBOX.>")
    middle = last.reply.replace(b".%d." % MANY, b".%d." % (MANY - 5))
    chunk = encode_pub(b"$JS.API.STREAM.PURGE.S", b"_INBOX.1", b"", b'{"filter":"s.5.x"}')
    machine.hold_commits = True
    jet.wire.session.receive(chunk + encode_pub(middle, b"_INBOX.2", b"", payload))
    for _ in range(3):
        machine.turn()
    assert jet.heard(sid) == [], "nothing is on the disk"
    machine.release_commits()
    assert {message.subject for message in jet.heard(sid)} >= ({b"_INBOX.1"} if payload else {b"_INBOX.1", b"_INBOX.2"})
    counts = jet.counts()
    assert 0 < counts["ack_pending"] <= 6
    assert Jet(machine.restarted()).counts() == counts | {"waiting": 0}


@pytest.mark.parametrize("turns", [1, 4])
def test_a_crash_within_an_ack_of_everything_leaves_some_of_it(turns: int) -> None:
    jet, machine, last = with_pending(ack_policy="all")
    jet.wire.session.receive(encode_pub(last.reply, b"r", b"", b""))
    for _ in range(turns):
        Machine.turn(machine)
    assert stream_of(jet).work.busy
    counts = Jet(machine.restarted()).counts()
    assert counts["ack_pending"] == MANY - counts["floor"][1] > 0
    assert counts["delivered"] == (MANY, MANY)


def test_another_ack_wait_is_taken_in_slices() -> None:
    jet, machine, _ = with_pending()
    assert most_lines(machine, lambda: change(jet, ack_wait=90 * SECOND)) <= MAX_LINES
    jet.advance(80)
    assert jet.pull({"batch": 5, "no_wait": True})[0].status.startswith(b"404")
    jet.advance(11)
    assert len(jet.pull({"batch": 5, "no_wait": True})) == 5


def test_another_deliver_subject_has_everything_again_in_slices() -> None:
    jet, machine, last = with_pending(deliver_subject="to")
    jet.wire.unsubscribe(last.sid)
    sid = jet.listen("there")
    assert most_lines(machine, lambda: change(jet, deliver_subject="there")) <= MAX_LINES
    again = jet.heard(sid)
    assert [message.payload for message in again] == [b"%d" % number for number in range(1, MANY + 1)]
    assert Jet(machine.restarted()).counts()["redelivered"] == jet.counts()["redelivered"] == MANY


@pytest.mark.parametrize("max_deliver", [-1, 1])
def test_waits_that_end_all_at_once_are_looked_at_in_slices(max_deliver: int) -> None:
    jet, machine, _ = with_pending(max_deliver=max_deliver)
    assert most_lines(machine, lambda: jet.advance(61)) <= MAX_LINES
    counts = jet.counts()
    assert counts["ack_pending"] == (0 if max_deliver == 1 else MANY)


def test_stale_deadlines_are_dropped_in_slices_where_they_prevail() -> None:
    jet, machine, last = with_pending()
    consumer = stream_of(jet).consumers["C"]
    assert consumer.redelivery.watch(range(1, 6 * MANY), consumer.now_ns() + SECOND)
    assert most_lines(machine, lambda: jet.ack(last, b"+WPI")) <= MAX_LINES
    assert sum(len(entry[2]) for entry in consumer.redelivery.due) == MANY
    jet.advance(61)
    assert len(jet.pull({"batch": MANY, "no_wait": True})) == MANY


@pytest.mark.parametrize("version", [1, 2])
def test_a_snapshot_with_much_that_is_pending_goes_in_slices(version: int) -> None:
    jet, machine, _ = with_pending()
    jet.backup()  # what that needs is imported
    machine.engine.options.archive_version = version
    saved: list[Any] = []
    assert most_lines(machine, lambda: saved.append(jet.backup())) <= MAX_LINES


def test_the_last_of_very_many_subjects_are_found_kept_and_counted_in_slices() -> None:
    jet = filled(VERY_MANY, subjects=VERY_MANY)
    machine = jet.machine
    assert isinstance(machine, Metered)
    config = {"deliver_policy": "last_per_subject", "filter_subject": "s.*.x"}
    assert most_lines(machine, lambda: jet.consumer("C", **config)) <= MAX_LINES
    assert len(jet.pull({"batch": 10, "no_wait": True})) == 10
    assert most_lines(machine, lambda: ok(jet.api("STREAM.PURGE.S", {"filter": "s.777.x"}))) <= MAX_LINES
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 12}))
    assert jet.counts()["pending"] == VERY_MANY - 12
    again = Jet(machine.restarted())
    assert again.counts()["pending"] == VERY_MANY - 12
    sequences = [int(message.payload) for message in again.pull({"batch": 100, "no_wait": True})]
    assert sequences == sorted({*range(11, 114)} - set(stream_of(jet).store.deleted()))[:100]


def test_a_message_given_up_does_not_end_a_request_for_new_ones() -> None:
    jet = Jet()
    jet.stream("S", "s.>")
    jet.publish("1")
    jet.consumer("C", max_deliver=1)
    (first,) = jet.pull(b"1")
    jet.ack(first, b"-NAK")
    jet.publish("2")
    answers = jet.pull({"batch": 5, "no_wait": True})
    assert answers[0].payload == b"2"


# Nobody can tell


class Pair:
    """The same stream twice: once with the smallest slices, once done at once."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.jets = [Jet(Machine(seed=1)), Jet(Machine(seed=1))]
        self.sids: list[bytes] = []
        self.asked = 0

    def both(self, act: Callable[[Jet], object]) -> None:
        """Do something on both at rest, and compare what it gives."""
        for jet in self.jets:
            jet.machine.settle()
        with small_steps():
            sliced = act(self.jets[0])
        assert sliced == act(self.jets[1])

    def send(self, chunk: bytes) -> None:
        """Send the same bytes to both; the sliced one then has a few turns, the other one rests."""
        with small_steps():
            self.jets[0].wire.session.receive(chunk)
            for _ in range(self.rng.choice((0, 0, 1, 3, 20))):
                self.jets[0].machine.turn()
        self.jets[1].wire.send(chunk)

    def ask(self, subject: str, payload: bytes, header: bytes = b"") -> bytes:
        self.asked += 1
        return encode_pub(subject.encode(), b"_INBOX.%d" % self.asked, header, payload)


def command(pair: Pair) -> bytes:
    rng, ask = pair.rng, pair.ask
    subject = f"s.{rng.randint(1, 9)}"
    kind = rng.choice(
        ("pub",) * 10 + ("id", "expect", "rollup", "update", "update", "update", "purge", "delete", "get", "info")
    )
    if kind == "pub":
        return ask(subject, b"x" * rng.choice((1, 40)))
    if kind == "id":
        return ask(subject, b"i", b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % rng.randint(1, 20))
    if kind == "expect":
        return ask(subject, b"e", b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % rng.randint(60, 130))
    if kind == "rollup":
        return ask(subject, b"r", b"NATS/1.0\r\nNats-Rollup: %b\r\n\r\n" % rng.choice((b"sub", b"sub", b"all")))
    if kind == "update":
        limits = rng.choice(
            (
                f'"max_msgs":{rng.randint(1, 80)}',
                f'"max_msgs_per_subject":{rng.randint(1, 6)}',
                f'"max_bytes":{rng.randint(200, 4000)}',
                '"max_msgs":60,"max_msgs_per_subject":3',
                '"max_msgs":40,"discard":"new"',
            )
        )
        return ask(
            "$JS.API.STREAM.UPDATE.S", b'{"name":"S","subjects":["s.>"],"allow_rollup_hdrs":true,%b}' % limits.encode()
        )
    if kind == "purge":
        body = rng.choice(
            (b'{"filter":"%b"}' % subject.encode(), b'{"filter":"s.*","keep":30}', b'{"keep":20}', b'{"seq":70}', b"")
        )
        return ask("$JS.API.STREAM.PURGE.S", body)
    if kind == "delete":
        return ask("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":%d}' % rng.randint(1, 130))
    if kind == "get":
        return ask("$JS.API.STREAM.MSG.GET.S", b'{"last_by_subj":"s.*"}')
    return ask("$JS.API.STREAM.INFO.S", b'{"subjects_filter":"s.*"}')


def heard(wire: Wire) -> dict[bytes, Any]:
    answers: dict[bytes, Any] = {}
    for message in wire.take():
        if message.subject.startswith(b"_INBOX."):
            body = message.json()
            if body.get("type", "").endswith(READS):  # newer is as good: neither waits for what is behind it
                body = body["type"]
            assert message.subject not in answers
            answers[message.subject] = body
    return answers


def contents(jet: Jet) -> list[Any]:
    stream = stream_of(jet)
    infos = [jet.counts(name) for name in sorted(stream.consumers)]
    return [stream.store.read_from(1, max_msgs=10_000), stream.state(), infos]


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("seed", tiers.seeds(4, 12))
def test_slices_can_not_be_told_from_work_done_at_once(seed: int, bulk: bool) -> None:
    pair = Pair(seed)
    with many_are(20 if bulk else 50_000):
        for jet in pair.jets:
            jet.stream("S", "s.>", allow_rollup_hdrs=True)
            for number in range(1, 101):
                jet.publish(str(number), subject=f"s.{number % 9 + 1}")
            jet.consumer("A")
            jet.consumer("B", filter_subjects=["s.1", "s.2"])
            jet.pull({"batch": 30, "no_wait": True}, "A")
            jet.pull({"batch": 5, "no_wait": True}, "B")
            jet.listen("_INBOX.>")
        for _ in range(12):
            pair.send(b"".join(command(pair) for _ in range(pair.rng.randint(1, 6))))
        with small_steps():
            pair.jets[0].machine.settle()
        sliced, whole = (heard(jet.wire) for jet in pair.jets)
        assert sliced == whole and len(sliced) == pair.asked
        assert contents(pair.jets[0]) == contents(pair.jets[1])


@contextmanager
def many_are(count: int) -> Iterator[None]:
    """Work by whole columns from `count` messages on."""
    names = [name for name, module in sys.modules.items() if name.startswith("natsctl.") and hasattr(module, "BULK")]
    patches = [mock.patch(f"{name}.BULK", count) for name in names]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def test_messages_wait_for_an_update_in_their_order() -> None:
    jet = filled(MANY)
    wire, machine = jet.wire, jet.machine
    config = ok(jet.api("STREAM.INFO.S"))["config"] | {"max_msgs": 10}
    sid = jet.listen("_INBOX.>")

    chunk = encode_pub(b"$JS.API.STREAM.UPDATE.S", b"_INBOX.1", b"", json.dumps(config).encode())
    chunk += b"".join(encode_pub(b"s.1.x", b"_INBOX.%d" % n, b"", b"new") for n in range(2, 20))
    chunk += encode_pub(b"$JS.API.STREAM.INFO.S", b"_INBOX.20", b"", b"")
    wire.session.receive(chunk)
    stream = stream_of(jet)
    assert stream.work.closed and stream.store.last_seq == MANY and stream.store.held == 18
    machine.settle()
    answers = heard_in_order(wire, sid)
    assert dict(answers)[b"_INBOX.1"]["state"]["messages"] == 10
    assert [body["seq"] for name, body in answers if "seq" in body] == list(range(MANY + 1, MANY + 19))
    assert stream.store.held == 0 and not stream.work.closed


def test_pull_requests_acks_and_gets_wait_for_an_update_and_are_served_then() -> None:
    jet = filled(MANY)
    jet.consumer("C", ack_wait=60 * SECOND)
    jet.pull({"batch": 1, "no_wait": True}, "C")
    config = ok(jet.api("STREAM.INFO.S"))["config"] | {"max_msgs": MANY - 2000, "allow_direct": True}
    sid = jet.listen("_INBOX.>")

    chunk = encode_pub(b"$JS.API.STREAM.UPDATE.S", b"_INBOX.1", b"", json.dumps(config).encode())
    chunk += encode_pub(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"_INBOX.2", b"", b'{"batch":1,"no_wait":true}')
    chunk += encode_pub(b"s.1.x", b"_INBOX.3", b"", b"new")
    jet.wire.session.receive(chunk)
    stream = stream_of(jet)
    assert stream.work.closed and stream.store.held == 2
    jet.machine.settle()
    subjects = [message.subject for message in jet.wire.take(sid)]
    assert b"_INBOX.1" in subjects and b"_INBOX.3" in subjects and len(subjects) == 3
    assert stream.store.held == 0 and not stream.work.busy and not stream.work.closed


def test_a_fault_in_a_call_that_waited_leaves_the_stream_open() -> None:
    jet = filled(MANY)
    stream = stream_of(jet)
    config = ok(jet.api("STREAM.INFO.S"))["config"] | {"max_msgs": 10}
    jet.wire.session.receive(encode_pub(b"$JS.API.STREAM.UPDATE.S", b"_INBOX.1", b"", json.dumps(config).encode()))
    assert stream.work.closed

    def fail() -> None:
        raise LookupError

    stream.work.hold(fail)
    with pytest.raises(LookupError):
        jet.machine.settle()
    jet.machine.settle()
    assert not stream.work.busy and not stream.work.closed
    assert ok(jet.api("STREAM.INFO.S"))["state"]["messages"] == 10


def test_a_fault_in_one_turn_costs_the_others_none() -> None:
    engine, ran = Machine().engine, []

    class Turn:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, budget: int) -> int:
            ran.append(self.name)
            if self.name == "broken":
                raise LookupError
            return 1

    for name in ("first", "broken", "last"):
        engine.ready(Turn(name))
    with pytest.raises(LookupError):
        engine.run_ready(2048)
    assert ran == ["first", "broken"]
    engine.run_ready(2048)
    assert ran == ["first", "broken", "last"]


def heard_in_order(wire: Wire, sid: bytes) -> list[tuple[bytes, Any]]:
    return [(message.subject, message.json()) for message in wire.take(sid)]


def test_another_stream_and_a_ping_are_served_meanwhile() -> None:
    jet = filled(MANY)
    jet.stream("T", "t.>")
    jet.wire.session.receive(encode_pub(b"$JS.API.STREAM.PURGE.S", b"r", b"", b'{"filter":"s.*.x"}'))
    assert stream_of(jet).store.messages > MANY // 2
    jet.wire.session.receive(encode_pub(b"t.x", b"", b"", b"1") + b"PING\r\n")
    assert stream_of(jet, "T").store.messages == 1
    assert b"PONG\r\n" in b"".join(jet.wire.session.take_output())
    assert stream_of(jet).store.messages > MANY // 2


def test_a_stream_goes_while_something_waits_for_its_job() -> None:
    jet = filled(MANY)
    jet.wire.session.receive(
        encode_pub(b"$JS.API.STREAM.PURGE.S", b"", b"", b'{"filter":"s.*.x"}') + encode_pub(b"s.1.x", b"", b"", b"1")
    )
    stream = stream_of(jet)
    assert stream.store.held == 1
    jet.machine.engine.remove_streams("$G")
    jet.machine.settle()
    assert stream.store.held == 0 and not jet.machine.engine.closed
    assert jet.api("STREAM.INFO.S")["error"]["err_code"] == 10059


def test_the_consumers_of_a_deleted_stream_end_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients find neither them nor the stream from the request on, and everything is reported in its order."""
    jet, ended, names = Jet(), [0], [f"C{number:03}" for number in range(300)]
    jet.stream("S", "s.>")
    for name in names:
        jet.consumer(name)
    jet.consumer("P", deliver_subject="d", idle_heartbeat=SECOND)
    session, machine = jet.wire.session, jet.machine
    everything, deliveries = jet.listen("_INBOX.>"), jet.listen("d")
    advisories = jet.listen("$JS.EVENT.ADVISORY.>")
    session.receive(encode_pub(b"$JS.API.CONSUMER.MSG.NEXT.S.C007", b"_INBOX.waits", b"", b""))
    machine.settle()
    jet.heard(advisories)
    run_ready, end = Engine.run_ready, Consumer.end

    def counting_turns(self: Engine, budget: int) -> bool:
        ended.append(0)
        return run_ready(self, budget)

    def counting(self: Consumer) -> None:
        ended[-1] += 1
        end(self)

    monkeypatch.setattr(Engine, "run_ready", counting_turns)
    monkeypatch.setattr(Consumer, "end", counting)
    config = json.dumps({"name": "S", "subjects": ["s.>"]}).encode()
    for subject, reply, body in (
        (b"$JS.API.STREAM.DELETE.S", b"_INBOX.deleted", b""),
        (b"s.a", b"_INBOX.published", b"x"),
        (b"$JS.API.CONSUMER.MSG.NEXT.S.C299", b"_INBOX.pulled", b""),
        (b"$JS.ACK.S.C299.1.1.1.1.0", b"_INBOX.acked", b""),
        (b"$JS.API.STREAM.CREATE.S", b"_INBOX.created", config),
    ):
        session.receive(encode_pub(subject, reply, b"", body))
    assert "S" not in machine.engine.accounts["$G"].streams
    machine.clock.advance(2 * SECOND)
    machine.engine.run_timers()
    machine.settle()
    assert sum(ended) == len(names) + 1
    assert max(ended) <= (work.SLICE + work.FIRST_SLICE) // ENDED_COST
    heard = [(message.subject, message.status) for message in jet.heard(everything)]
    assert [entry for entry in heard if entry[1] == b"503"] == [
        (b"_INBOX.published", b"503"),
        (b"_INBOX.pulled", b"503"),
        (b"_INBOX.acked", b"503"),
    ]
    assert [subject for subject, _ in heard[3:]] == [b"_INBOX.waits", b"_INBOX.deleted", b"_INBOX.created"]
    assert not jet.heard(deliveries)
    published = [json.loads(message.payload) for message in jet.heard(advisories)]
    reported = [event.get("consumer", event["stream"]) for event in published if event.get("action") == "delete"]
    assert reported == [*names, "P", "S"]
    jet.consumer("C000")
    jet.publish("again")
    assert [message.payload for message in jet.pull(name="C000")] == [b"again"]


def test_a_server_that_stops_ends_what_is_under_way() -> None:
    jet = filled(MANY)
    machine = jet.machine
    machine.hold_commits = True
    config = ok(jet.api("STREAM.INFO.S"))["config"] | {"max_msgs_per_subject": 1}
    jet.wire.session.receive(encode_pub(b"$JS.API.STREAM.UPDATE.S", b"", b"", json.dumps(config).encode()))
    assert stream_of(jet).store.messages > SUBJECTS
    machine.engine.shut_down()
    assert stream_of(jet).store.messages == SUBJECTS


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_crash_between_slices_leaves_the_limits_enforced(turns: int) -> None:
    jet = filled(MANY)
    config = ok(jet.api("STREAM.INFO.S"))["config"] | {"max_msgs_per_subject": 1}
    jet.wire.session.receive(encode_pub(b"$JS.API.STREAM.UPDATE.S", b"", b"", json.dumps(config).encode()))
    for _ in range(turns):
        Machine.turn(jet.machine)
    assert stream_of(jet).work.busy
    again = jet.machine.restarted()
    stream = again.streams["S"]
    assert stream.config.max_msgs_per_subject == 1
    assert stream.store.messages == stream.store.num_subjects == SUBJECTS
