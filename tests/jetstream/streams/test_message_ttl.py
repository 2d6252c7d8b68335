"""Messages with a lifetime of their own, and delete markers.

The wheel of deadlines.
"""

import random
import tracemalloc
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from natsctl.api import headers
from natsctl.api.units import NEVER
from natsctl.jetstream.engine_options import JetStreamOptions
from natsctl.jetstream.streams import message_ttl
from natsctl.jetstream.streams.message_ttl import RUN_ENTRIES, DeadlineRun, Deadlines
from natsctl.store.file_log import FileLog
from natsctl.store.message import StoredMessage
from natsctl.store.segment import Segment
from natsctl.store.stream import StreamStore
from tests.support.call_counts import CallCounter
from tests.support.jet import SECOND, Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import SimDisk
from tests.support.stored_messages import put, stored_rows


def left(jet: Jet, name: str = "S") -> list[tuple[int, str, bytes]]:
    return [(row.seq, row.subject, row.header) for row in stored_rows(jet, name)]


def seqs(jet: Jet) -> list[int]:
    return [seq for seq, _, _ in left(jet)]


def restart(jet: Jet, crash: Any = SimDisk.kill) -> Jet:
    return Jet(jet.machine.restarted(crash))


def marker(ttl: str) -> bytes:
    return b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %b\r\nNats-Rollup: sub\r\n\r\n" % ttl.encode()


@pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss], ids=["kill", "power_loss"])
def test_deadlines_are_known_after_a_crash(jet: Jet, crash: Any) -> None:
    jet.stream(allow_msg_ttl=True, max_age=60 * SECOND)
    put(jet, "s.a", Nats_TTL="never")
    put(jet, "s.b", Nats_TTL="10s")
    put(jet, "s.c")
    put(jet, "s.d", Nats_TTL="never")
    jet = restart(jet, crash)
    assert seqs(jet) == [1, 2, 3, 4]
    jet.advance(11)
    assert seqs(jet) == [1, 3, 4]
    jet = restart(jet, crash)
    jet.advance(60)
    assert seqs(jet) == [1, 4]


def test_what_was_due_while_the_server_was_away_goes_at_once(jet: Jet) -> None:
    jet.stream(allow_msg_ttl=True, max_age=60 * SECOND)
    put(jet, "s.a", Nats_TTL="never")
    put(jet, "s.b", Nats_TTL="10s")
    put(jet, "s.c")
    jet.machine.clock.advance(3600 * SECOND)
    jet = restart(jet)
    jet.advance(0.3)
    assert seqs(jet) == [1]


def test_only_flagged_messages_are_read_at_the_start(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    jet.stream(allow_msg_ttl=True)
    jet.publish_many(3000)
    for at in range(600):
        put(jet, f"s.{at}", Nats_TTL="10s")
    read: list[int] = []
    one, many = FileLog.message_at, FileLog.messages_at

    def read_one(self: FileLog, segment: Segment, position: int) -> StoredMessage:
        read.append(1)
        return one(self, segment, position)

    def read_many(self: FileLog, segment: Segment, positions: Sequence[int], keep: bool) -> list[StoredMessage]:
        read.append(len(positions))
        return many(self, segment, positions, keep)

    monkeypatch.setattr(FileLog, "message_at", read_one)
    monkeypatch.setattr(FileLog, "messages_at", read_many)
    jet = restart(jet)
    assert 600 <= sum(read) < 1300
    jet.advance(11)
    assert jet.api("STREAM.INFO.S")["state"]["messages"] == 3000


def test_a_ttl_counts_once_an_update_allows_it(jet: Jet) -> None:
    jet.stream("O", "o.>", allow_msg_ttl=True)
    ok(jet.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O"}}))
    put(jet, "o.a", Nats_TTL="5s")
    put(jet, "o.b")
    jet.advance(10)
    assert [seq for seq, _, _ in left(jet, "O")] == [2]
    assert [seq for seq, _, _ in left(jet, "M")] == [1, 2]
    ok(jet.api("STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "O"}, "allow_msg_ttl": True}))
    jet.advance(1)
    assert [seq for seq, _, _ in left(jet, "M")] == [2]


@pytest.mark.parametrize("version", [1, 2])
def test_a_restored_stream_knows_its_deadlines(version: int) -> None:
    jet = Jet(Machine(options=JetStreamOptions(archive_version=version)))
    jet.stream(allow_msg_ttl=True, allow_msg_schedules=True, max_age=50 * SECOND)
    put(jet, "s.a", Nats_TTL="20s")
    put(jet, "s.b", Nats_TTL="never")
    put(jet, "s.c", b"job", Nats_Schedule="@at 2026-01-01T00:00:30Z", Nats_Schedule_Target="s.out")
    document, archive = jet.backup()
    ok(jet.api("STREAM.DELETE.S"))
    to = ok(jet.api("STREAM.RESTORE.S", document))["deliver_subject"]
    jet.wire.request(to, archive)
    ok(jet.wire.request(to))
    assert seqs(jet) == [1, 2, 3]
    jet.advance(25)
    assert seqs(jet) == [2, 3]
    jet.advance(10)
    assert seqs(jet) == [2, 4]
    jet.advance(60)
    assert seqs(jet) == [2]


def test_markers_are_left_by_age_after_a_restart_too(jet: Jet) -> None:
    jet.stream(subject_delete_marker_ttl=3600 * SECOND, max_age=10 * SECOND, duplicate_window=10 * SECOND)
    for at in range(700):
        put(jet, f"s.{at % 350}")
    jet.machine.clock.advance(60 * SECOND)
    jet = restart(jet)
    jet.advance(0.3)
    found = left(jet)
    assert len(found) == 350
    assert {header for _, _, header in found} == {marker("1h0m0s")}
    jet = restart(jet)
    jet.advance(0.3)
    assert left(jet) == found


def test_a_full_stream_that_discards_new_leaves_its_marker(jet: Jet) -> None:
    jet.stream(subject_delete_marker_ttl=5 * SECOND, max_msgs=2, discard="new")
    put(jet, "s.a", Nats_TTL="6s")
    put(jet, "s.b")
    jet.advance(6.3)
    assert [(seq, subject) for seq, subject, _ in left(jet)] == [(2, "s.b"), (3, "s.a")]


def test_a_consumer_sees_markers_and_counts_right(jet: Jet) -> None:
    jet.stream(subject_delete_marker_ttl=5 * SECOND)
    jet.consumer()
    put(jet, "s.a", Nats_TTL="6s")
    put(jet, "s.b", Nats_TTL="6s")
    jet.pull(b"1")
    jet.advance(6.3)
    counts = jet.counts()
    assert (counts["pending"], counts["ack_pending"]) == (2, 0)
    assert [m.subject for m in jet.pull({"batch": 5, "no_wait": True}) if not m.status] == [b"s.a", b"s.b"]


def test_a_clock_that_jumps_expires_nothing_for_a_minute(jet: Jet) -> None:
    jet.stream(allow_msg_ttl=True)
    put(jet, "s.a", Nats_TTL="1h")
    put(jet, "s.b", Nats_TTL="2s")
    clock = jet.machine.clock
    clock.set_wall(clock.now_ns() + 7200 * SECOND)
    jet.advance(3)
    assert seqs(jet) == [1, 2]
    jet.advance(62)
    assert seqs(jet) == []


@pytest.mark.parametrize("restart", [False, True])
def test_a_lifetime_counts_from_when_the_message_came_after_a_clock_was_ahead(jet: Jet, restart: bool) -> None:
    jet.stream(allow_msg_ttl=True)
    clock = jet.machine.clock
    clock.set_wall(clock.now_ns() + 86_400 * SECOND)
    put(jet, "s.a")
    clock.set_wall(clock.now_ns() - 86_400 * SECOND)
    put(jet, "s.b", Nats_TTL="1h")
    jet.advance(120)
    if restart:
        jet.machine = jet.machine.restarted()
        jet = Jet(jet.machine)
    jet.advance(3400)
    assert seqs(jet) == [1, 2]
    jet.advance(210)
    assert seqs(jet) == [1]


def test_deadlines_do_not_outnumber_messages(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_ttl, "STALE_SLACK", 1000)
    jet.stream(allow_msg_ttl=True, max_msgs_per_subject=1)
    stream = jet.machine.streams["S"]
    block = headers.encode([(b"Nats-TTL", b"10000s")])
    line = b"HPUB s.a %d %d\r\n%b\r\n" % (len(block), len(block), block)
    for _ in range(50):
        jet.wire.send(line * 100)
    assert len(stream.timed.ttl._deadlines) < 1500
    jet.advance(10_001)
    assert seqs(jet) == []


NOW = 1_767_225_600 * SECOND


def drained(deadlines: Deadlines, now_ns: int, limit: int = 100) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []
    while found := deadlines.take_due(now_ns, limit):
        taken += found
    return taken


def test_what_is_due_comes_up_and_nothing_else() -> None:
    rng = random.Random(1)
    deadlines = Deadlines()
    entered = {seq: NOW + rng.choice((1, SECOND, 3600 * SECOND, 86_400 * 365 * SECOND)) * rng.randrange(1, 50)
               for seq in range(1, 3000)}  # fmt: skip
    for seq, due_ns in entered.items():
        deadlines.add(due_ns, seq)
    for now_ns in sorted(rng.choices(sorted(entered.values()), k=200)):
        due = {(seq, due_ns) for seq, due_ns in entered.items() if due_ns <= now_ns}
        assert set(drained(deadlines, now_ns, rng.randrange(1, 300))) == due
        for seq, _ in due:
            del entered[seq]
        assert len(deadlines) == len(entered)
        assert deadlines.next_ns() == min(entered.values(), default=None)


def test_what_is_due_together_comes_up_by_sequence() -> None:
    deadlines = Deadlines()
    for seq in (5, 2, 9, 1):
        deadlines.add(NOW + 10 - seq, seq)
    assert [seq for seq, _ in deadlines.take_due(NOW + 20, 10)] == [1, 2, 5, 9]


def test_however_many_are_due_together_a_call_sorts_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_entries, sort = [0], DeadlineRun.sort

    def counting(run: DeadlineRun) -> None:
        sorted_entries[0] += 0 if run.in_order else len(run.seqs)
        sort(run)

    monkeypatch.setattr(DeadlineRun, "sort", counting)
    deadlines, rng, far_ns, most = Deadlines(), random.Random(3), NOW + 7200 * SECOND, 0
    deadlines.add(NOW, 1)  # with it a time begins, and with its end the next one
    for seq in range(2, 50_000):
        sorted_entries[0] = 0
        deadlines.add(far_ns + rng.randrange(SECOND), seq)
        most = max(most, sorted_entries[0])
    for now_ns in (NOW, far_ns + SECOND):
        while True:
            sorted_entries[0] = 0
            taken = deadlines.take_due(now_ns, 256)
            most = max(most, sorted_entries[0])
            if not taken:
                break
            if deadlines and len(deadlines) % 3 == 0:
                deadlines.add(far_ns + SECOND, 50_000 + len(deadlines))
    assert len(deadlines) == 0 and most <= RUN_ENTRIES


def test_an_entry_that_comes_late_is_not_lost() -> None:
    deadlines = Deadlines()
    deadlines.add(NOW + 100 * 86_400 * SECOND, 1)
    assert deadlines.next_ns() == NOW + 100 * 86_400 * SECOND
    deadlines.add(NOW, 2)
    deadlines.add(-5, 3)
    deadlines.add(1 << 80, 4)
    assert deadlines.take_due(NOW, 10) == [(2, NOW), (3, 0)]
    assert len(deadlines) == 2


def test_entries_of_messages_that_are_gone_are_swept() -> None:
    deadlines = Deadlines()
    for seq in range(1, 20_001):
        deadlines.add(NOW + seq * (SECOND if seq % 2 else 86_400 * SECOND), seq)
    while deadlines.sweep(lambda seq: seq % 10 == 0):
        pass
    assert len(deadlines) == 2000
    assert [seq for seq, _ in drained(deadlines, 1 << 62)] == list(range(10, 20_001, 10))


def test_entries_without_an_end_are_swept_in_steps(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    jet.stream(allow_msg_ttl=True)
    monkeypatch.setattr(message_ttl, "STALE_SLACK", 100)
    for _ in range(5):
        put(jet, "s.a", Nats_TTL="never")
    ttl, steps = jet.machine.streams["S"].timed.ttl, list[int]()
    for seq in range(6, 50_000):
        ttl.note(seq, 0, NEVER)
    jet.machine.streams["S"].remove(2)
    more = True
    while more:
        with CallCounter() as counter:
            more = ttl.tidy()
        steps.append(counter.calls)
    assert len(ttl._never) == 4 and [seq for seq in range(9) if ttl.spares(seq)] == [1, 3, 4, 5]
    assert len(steps) > 10 and max(steps) < 60_000  # of 450,000


@pytest.mark.parametrize("spread_s", [0, 31_000_000])
def test_a_deadline_takes_few_bytes(spread_s: int) -> None:
    rng = random.Random(2)
    dues = [NOW + (rng.randrange(spread_s) * SECOND if spread_s else at * 10_000) for at in range(100_000)]
    tracemalloc.start()
    deadlines = Deadlines()
    for seq, due_ns in enumerate(dues, 1):
        deadlines.add(due_ns, seq)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 48 * len(dues)


def test_lifetimes_of_messages_on_their_way_to_the_disk_count_once_they_are_allowed(jet: Jet) -> None:
    jet.stream(allow_msg_ttl=True)
    ok(jet.api("STREAM.CREATE.X", {"name": "X", "sources": [{"name": "S"}]}))
    jet.advance(5)
    begin = StreamStore.begin_commit
    target = jet.machine.streams["X"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamStore, "begin_commit", lambda store: None if store is target.store else begin(store))
        put(jet, "s.a", Nats_TTL="10s")
        jet.advance(5)
        assert (target.store.last_seq, target.store.durable_seq) == (1, 0)
        target.config = msgspec.structs.replace(target.config, allow_msg_ttl=True)
        target.timed.configure()
        jet.machine.settle()
    jet.advance(1)
    assert [row.seq for row in stored_rows(jet, "X")] == [1]
    jet.advance(10)
    assert not stored_rows(jet, "X")
