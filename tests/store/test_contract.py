"""What the file log and its memory twin promise alike."""

import random

import pytest

from natsctl.store.errors import StorePoisonedError
from natsctl.store.file_commit import SMALL_BYTES
from natsctl.store.filters import ALL, Filters
from natsctl.store.options import StoreOptions
from natsctl.store.steps import finish
from natsctl.store.store import Store
from natsctl.store.stream import StreamStore
from tests.support.store_batches import append_together, run_of


@pytest.fixture(params=["file", "memory", "file, as if very long", "memory, as if very long", "file, encrypted"])
def stream(request: pytest.FixtureRequest, lab, as_if_very_long) -> StreamStore:
    if "long" in request.param:
        as_if_very_long()
    lab.key = "secret" if "encrypted" in request.param else ""
    store = lab.store = lab.open()
    made = store.create("$G/ORDERS", b"{}", request.param.partition(",")[0])
    lab.pump(store)
    return made


def test_nothing_is_shown_before_its_commit_ends(lab, stream):
    seen = []
    stream.listener = seen.append
    assert stream.append(b"a", b"", b"1", 5) == 1
    assert (stream.last_seq, stream.durable_seq) == (1, 0)
    assert stream.get(1) is None and stream.read_from(1) == [] and stream.next_match(ALL, 1) is None
    commit = stream.begin_commit()
    assert stream.append(b"a", b"", b"2", 6) == 2
    assert stream.begin_commit() is None, "one commit in flight"
    commit.run()
    stream.finish_commit(commit)
    assert stream.has(1) and not stream.has(2) and not stream.has(0)
    assert seen == [1] and stream.get(1).payload == b"1" and stream.get(2) is None
    lab.pump(lab.store)
    assert seen == [1, 2]


def test_listener_runs_before_callbacks_and_callbacks_in_order(lab, stream):
    order = []
    stream.listener = lambda seq: order.append(("listener", seq))
    stream.append(b"a", b"", b"", 1)
    stream.on_durable(lambda error: order.append(("first", error)))
    stream.on_durable(lambda error: order.append(("second", error)))
    lab.pump(lab.store)
    assert order == [("listener", 1), ("first", None), ("second", None)]


def test_a_run_equals_its_messages_one_by_one(lab, stream):
    payloads = [b"", b"x", b"y" * 300, b"z"]
    run = run_of([(b"a", payload) for payload in [*payloads, b"more"]])
    stream.append(b"b", b"", b"before", 7)
    assert stream.append_run(run.part(0, 4), b"a", 5) == 2
    assert stream.append_run(run.part(4, 5), b"a", 9) == 6
    lab.pump(lab.store)
    assert [(m.seq, m.ts_ns, m.subject, m.payload) for m in stream.read_from(2)] == [
        *((2 + at, 7, b"a", payload) for at, payload in enumerate(payloads)),
        (6, 9, b"a", b"more"),
    ]
    assert (stream.messages, stream.count_of(b"a"), stream.first_seq_of(b"a"), stream.last_seq_of(b"a")) == (6, 5, 2, 6)
    alone = lab.store.create("$G/ALONE", b"{}", stream.storage)
    for subject, payload in [(b"b", b"before"), *((b"a", payload) for payload in payloads), (b"a", b"more")]:
        alone.append(subject, b"", payload, 7)
    assert (alone.bytes, alone.count(Filters((b"a",)), 3)) == (stream.bytes, stream.count(Filters((b"a",)), 3))


def test_a_run_after_a_gap_keeps_its_sequences(lab, stream):
    stream.append_copies([(5, 1, b"a", b"", b"five")])
    stream.skip_to(8)
    assert stream.append_run(run_of([(b"a", b"nine"), (b"a", b"ten")]), b"a", 2) == 9
    lab.pump(lab.store)
    assert [(m.seq, m.payload) for m in stream.read_from(1)] == [(5, b"five"), (9, b"nine"), (10, b"ten")]


def test_a_batch_becomes_durable_in_one_step(lab, stream):
    stream.append(b"before", b"", b"", 1)
    messages = [(b"a", b"", b"1", False), (b"b", b"NATS/1.0\r\nK: v\r\n\r\n", b"2", True), (b"a", b"", b"3", False)]
    seen = []
    stream.listener = seen.append
    assert append_together(stream, messages, 7) == 2
    lab.pump(lab.store)
    assert seen == [4]
    found = stream.read_from(2)
    assert [tuple(m)[2:] for m in found] == [m[:3] for m in messages] and {m.ts_ns for m in found} == {7}
    assert list(stream.timed_seqs()) == [3] and stream.count_of(b"a") == 2


COPIES = [
    (3, 500, b"a", b"", b"one"),
    (4, 400, b"b", b"", b""),
    (9, 600, b"a", b"NATS/1.0\r\nA: 1\r\n\r\n", b"two"),
    (10, 600, b"c", b"", b"x" * 3000),
    (11, 700, b"a", b"", b"three"),
]


def test_copies_are_stored_as_one_by_one(lab, stream):
    single = lab.store.create("$G/ALONE", b"", stream.storage)
    for part in (COPIES[:2], COPIES[2:]):
        stream.append_copies(part)
        for seq, ts_ns, subject, header, payload in part:
            single.append_copies([(seq, ts_ns, subject, header, payload)], together=True)
        assert (stream.last_seq, stream.last_ts_ns, stream.bytes) == (single.last_seq, single.last_ts_ns, single.bytes)
    lab.pump(lab.store)
    assert stream.read_from(1) == single.read_from(1)
    assert (stream.messages, stream.deleted(), stream.count_of(b"a")) == (5, [5, 6, 7, 8], 3)
    with pytest.raises(ValueError, match="not above"):
        stream.append_copies([(11, 1, b"a", b"", b"")])
    stream.fault = "broken"
    with pytest.raises(StorePoisonedError):
        stream.append_copies([(12, 1, b"a", b"", b"")])
    assert stream.messages == 5
    if stream.storage == "file":
        lab.store.close()
        again = lab.open().streams
        assert again["$G/ORDERS"].read_from(1) == again["$G/ALONE"].read_from(1)


def test_timed_messages_are_listed_while_they_live(lab, stream):
    for seq in range(1, 301):
        stream.append(b"s", b"", b"x" * 30, seq, timed=seq % 50 == 0)
        if seq % 10 == 0:
            lab.pump(lab.store)
    stream.append_copies([(400, 400, b"s", b"", b"")], [400])
    assert list(stream.timed_seqs()) == [50, 100, 150, 200, 250, 300, 400]
    stream.remove(100)
    stream.purge(below_seq=60)
    assert list(stream.timed_seqs()) == [150, 200, 250, 300, 400]


def test_time_never_runs_backwards(lab, stream):
    stream.append(b"a", b"", b"", 100)
    stream.append(b"a", b"", b"", 50)
    lab.pump(lab.store)
    assert [m.ts_ns for m in stream.read_from(1)] == [100, 100]


@pytest.mark.parametrize("emptied", ["purged", "removed", "dropped", "purged before"])
@pytest.mark.parametrize("form", ["one", "run", "batch", "copies"])
def test_an_empty_stream_takes_the_time_of_the_clock(lab, stream, emptied, form):
    for n in range(3):
        stream.append(b"a", b"", b"", 9000 + n)
    lab.pump(lab.store)
    if emptied.startswith("purged"):
        stream.purge()
    elif emptied == "removed":
        assert [stream.remove(seq) for seq in (2, 3, 1)]
    else:
        assert [stream.drop_first() for _ in range(3)]
    if "before" in emptied:
        lab.pump(lab.store)
    assert stream.last_ts_ns == 9002
    if form == "one":
        stream.append(b"a", b"", b"", 50)
    elif form == "run":
        stream.append_run(run_of([(b"a", b"")] * 2), b"a", 50)
    elif form == "batch":
        append_together(stream, [(b"a", b"", b"", False)] * 2, 50)
    else:
        stream.append_copies([(4, 50, b"a", b"", b""), (5, 49, b"a", b"", b"")])
    stream.append(b"a", b"", b"", 40)
    lab.pump(lab.store)
    times = [m.ts_ns for m in stream.read_from(1)]
    assert set(times) == {50} and len(times) == (2 if form == "one" else 3)
    assert (stream.first_ts_ns, stream.last_ts_ns, stream.first_seq_at(50), stream.first_seq_at(9000)) == (
        50, 50, 4, stream.last_seq + 1,
    )  # fmt: skip


def test_bytes_follow_the_reference_accounting(lab, stream):
    stream.append(b"abc", b"NATS/1.0\r\n\r\n", b"12345", 1)
    stream.append(b"abc", b"", b"12345", 1)
    sizes = {"file": (22 + 3 + 4 + 12 + 5 + 8) + (22 + 3 + 5 + 8), "memory": (3 + 12 + 5 + 16) + (3 + 5 + 16)}
    expected = sizes[stream.storage]
    assert stream.bytes == expected


def test_filters_count_and_find_across_segments(lab, stream):
    lab.fill(lab.store, stream, 300, lambda n: b"rare" if n in (7, 250) else b"s.%d" % (n % 3))
    rare, wide, one = Filters((b"rare",)), Filters((b"s.*",)), Filters((b"s.1", b"rare"))
    assert stream.next_match(rare, 9).seq == 251 and stream.next_match(rare, 252) is None
    assert stream.count(rare) == 2 and stream.count(wide) == 298 and stream.count(rare, 9) == 1
    expected = [n + 1 for n in range(300) if n in (7, 250) or n % 3 == 1]
    assert [m.seq for m in stream.read_from(1, one, 1000)] == expected
    for start in range(1, 302, 13):
        assert stream.count(one, start) == sum(seq >= start for seq in expected)
        assert stream.count(one, 5, start) == sum(5 <= seq <= start for seq in expected)
    assert stream.last_seq_of(b"rare") == 251 and stream.last_seq_of(b"none") == 0 and stream.count_of(b"rare") == 2
    assert stream.last_match(rare) == 251 and stream.first_seq_of(b"rare") == 8
    assert stream.last_per_subject(wide) == [298, 299, 300]
    assert stream.last_per_subject(wide, 250) == [248, 249, 250]
    assert stream.subjects(rare) == {b"rare": 2} and stream.num_subjects == 4


def test_restore_keeps_gaps(lab, stream):
    for seq in (5, 6, 9, 40):
        stream.append_copies([(seq, seq, b"s", b"", b"%d" % seq)])
    stream.skip_to(50)
    lab.pump(lab.store)
    assert [m.seq for m in stream.read_from(1)] == [5, 6, 9, 40]
    assert stream.first_seq == 5 and stream.last_seq == 50 and stream.num_deleted == 42
    assert stream.append(b"s", b"", b"", 99) == 51
    with pytest.raises(ValueError, match="not above"):
        stream.append_copies([(51, 1, b"s", b"", b"")])


def test_subjects_without_messages_are_forgotten_and_the_others_found(lab, stream):
    for start in range(0, 6000, 500):
        lab.fill(
            lab.store, stream, 500, lambda n, start=start: b"one.%d" % (start + n) if n % 5 else b"kept.%d" % start
        )
    assert stream.num_subjects == 4812
    stream.purge(Filters((b"one.*",)), below_seq=5500)
    known = len(stream._index.table.names)
    for n in range(40_000):  # a memory stream rolls after 32,768 messages
        stream.append(b"new", b"", b"x" * 30, 10_000 + n)
        if n % 2000 == 0:
            lab.pump(lab.store)
    lab.pump(lab.store)
    assert len(stream._index.table.names) < known / 2
    assert stream.num_subjects == len(stream.subjects()) == 12 + 401 + 1
    for start in range(0, 6000, 500):
        assert stream.count_of(b"kept.%d" % start) == 100
        assert stream.first_seq_of(b"kept.%d" % start) == start + 1
        assert stream.last_seq_of(b"kept.%d" % start) == start + 496
        assert stream.count(Filters((b"kept.%d" % start,)), start + 6) == 99
    assert stream.next_match(Filters((b"one.*",)), 1).subject == b"one.5499"
    assert stream.last_match(Filters((b"one.*", b"kept.0"))) == 6000


def test_time_lookup(lab, stream):
    lab.fill(lab.store, stream, 150)
    assert stream.first_seq_at(0) == 1 and stream.first_seq_at(1077) == 78 and stream.first_seq_at(5000) == 151
    stream.remove(78)
    assert stream.first_seq_at(1077) == 79 and stream.first_ts_ns == 1000 and stream.last_ts_ns == 1149


def test_journal_keeps_order_and_rewrites(lab, stream):
    stream.append_record(1, b"a")
    stream.append_record(2, b"b")
    assert stream.records() == [(1, b"a"), (2, b"b")]
    lab.pump(lab.store)
    stream.append_record(3, b"c")
    assert stream.records() == [(1, b"a"), (2, b"b"), (3, b"c")]
    stream.rewrite([(9, b"all")])
    stream.append_record(1, b"d")
    lab.pump(lab.store)
    assert stream.records() == [(9, b"all"), (1, b"d")]


def test_never_used_stream_has_no_sequences(stream):
    assert (stream.first_seq, stream.last_seq, stream.messages, stream.first_ts_ns) == (0, 0, 0, 0)


def test_random_operations_agree_with_a_plain_model(lab, stream):
    rng = random.Random(7)
    model: dict[int, bytes] = {}
    last = 0
    for step in range(3000):
        draw = rng.random()
        if draw < 0.6:
            subject = b"s.%d.%d" % (rng.randint(0, 3), rng.randint(0, 30))
            last = stream.append(subject, b"", b"p", step)
            model[last] = subject
        elif draw < 0.75 and model:
            seq = rng.choice(list(model))
            assert stream.remove(seq).subject == model.pop(seq)
        elif draw < 0.8 and model:
            seq = stream.drop_first().seq
            assert seq == min(model)
            del model[seq]
        elif draw < 0.805:
            filters = Filters((b"s.%d.*" % rng.randint(0, 3),))
            below, keep = rng.choice([0, last // 2]), rng.choice([0, 0, 3])
            matching = [seq for seq in sorted(model) if filters.matches(model[seq])]
            doomed = [seq for seq in matching[: len(matching) - keep] if not below or seq < below]
            assert stream.purge(filters, below, keep) == len(doomed)
            for seq in doomed:
                del model[seq]
        elif draw < 0.9:
            filters = rng.choice([Filters((b"s.1.5",)), Filters((b"s.2.*", b"s.0.1")), ALL])
            start = rng.randint(0, last + 1)
            matching = [seq for seq in sorted(model) if filters.matches(model[seq])]
            assert stream.count(filters, start) == sum(seq >= start for seq in matching)
            assert stream.last_match(filters) == (matching[-1] if matching else 0)
            newest = {model[seq]: seq for seq in matching if seq <= stream.durable_seq}
            assert stream.last_per_subject(filters) == sorted(newest.values())
            limit = rng.choice([0, last // 2])
            older = {model[seq]: seq for seq in matching if seq <= min(limit or last, stream.durable_seq)}
            for most in range(max(len(older) - 1, 0), len(older) + 1):
                few = sorted(older.values()) if most == len(older) else None
                assert finish(stream.finding_few_last(filters, limit, most)) == few
            shown = [seq for seq in matching if start <= seq <= stream.durable_seq]
            assert [m.seq for m in stream.read_from(start, filters, 10)] == shown[:10]
            assert stream.present(range(start, last + 9)) == [
                s for s in sorted(model) if start <= s <= stream.durable_seq
            ]
        elif draw < 0.95:
            lab.pump(lab.store)
        assert stream.messages == len(model) and stream.last_seq == last
        assert stream.num_subjects == len(set(model.values()))
        if model:
            assert stream.first_seq == min(model)
    assert isinstance(lab.store, Store)


def small_commit(stream: StreamStore) -> bool:
    commit = stream.begin_commit()
    assert commit is not None
    small = commit.is_small
    commit.run()
    stream.finish_commit(commit)
    return small


def test_a_commit_is_small_if_it_appends_a_little_to_files_that_are_there(lab) -> None:
    lab.options = StoreOptions(segment_bytes=1 << 20, reserve_bytes=0)
    stream = lab.open().create("$G/S", b"{}", "file")
    stream.append(b"s", b"", b"", 1)
    assert not small_commit(stream)  # creates the stream
    stream.append(b"s", b"", b"a little", 2)
    assert small_commit(stream)
    stream.backing.close_idle()
    stream.append(b"s", b"", b"a little", 2)
    assert small_commit(stream)  # opens the segment
    stream.append(b"s", b"", bytes(SMALL_BYTES), 3)
    assert not small_commit(stream)
    stream.set_meta(b"{1}")
    assert not small_commit(stream)
    stream.remove(2)
    assert small_commit(stream)
    stream.remove(1, erase=True)
    assert not small_commit(stream)
    stream.append_record(1, b"first")
    assert not small_commit(stream)  # creates the journal
    stream.append_record(1, b"second")
    stream.flush()
    assert not small_commit(stream)  # opens it
    stream.append_record(1, b"third")
    assert small_commit(stream)


def test_a_sync_that_was_postponed_for_much_is_not_small(lab) -> None:
    lab.options = StoreOptions(segment_bytes=1 << 20, reserve_bytes=0, sync=10**12)
    stream = lab.open().create("$G/S", b"{}", "file")
    small_commit(stream)
    for number in range(10):
        stream.append(b"s", b"", bytes(SMALL_BYTES // 4), number)
        assert small_commit(stream)
    stream.request_sync()
    assert not small_commit(stream)
    stream.append(b"s", b"", b"", 11)
    stream.request_sync()
    assert small_commit(stream)
    for _ in range(10):
        stream.append_record(1, bytes(SMALL_BYTES // 4))
        small_commit(stream)
    stream.request_sync()
    assert not small_commit(stream)


@pytest.mark.parametrize(
    "change",
    [
        lambda stream: stream.remove(3),
        lambda stream: stream.remove(3, erase=True),
        lambda stream: stream.drop_first(),
        lambda stream: stream.purge(below_seq=3),
        lambda stream: stream.purge(Filters((b"a.1",))),
        lambda stream: stream.thin_out(1, 1),
    ],
)
def test_what_is_removed_among_messages_stays_removed(lab, change):
    store = lab.open()
    stream = store.create("$G/A", b"meta", "file")
    lab.pump(store)
    for number in range(9):
        stream.append(b"a.%d" % (number % 3), b"", b"%d" % number, number)
        lab.pump(store)
    change(stream)
    stream.append(b"a.9", b"", b"last", 9)
    lab.pump(store)
    kept = [message.payload for message in stream.read_from(1)]
    assert kept[-1] == b"last" and len(kept) < 10
    assert [message.payload for message in lab.open().streams["$G/A"].read_from(1)] == kept
