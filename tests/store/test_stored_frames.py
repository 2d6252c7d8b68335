"""Frames of a range, copied as they lie: exactly those of the messages that can be read."""

import random
from itertools import accumulate

import pytest

from natsctl.store import file_log, frame
from natsctl.store.errors import StoreDamagedError
from natsctl.store.filters import ALL, Filters
from natsctl.store.steps import finish
from tests.support.store_batches import run_of

FILTERS = (ALL, Filters([b"s.1"]), Filters([b"s.*"]), Filters([b"s.0", b"s.2"]), Filters([b"none"]))


def frames_of(stream, first, last, filters=ALL, max_bytes=1 << 30):
    """Return the messages of one run, and the last sequence that it covers."""
    run = finish(stream.reading_frames(first, last, filters, max_bytes))
    blob = b"".join(run.pieces)
    *begins, end = accumulate((size + frame.FRAME_OVER_SIZE for size in run.sizes), initial=0)
    assert end == len(blob)
    return [frame.parse_message(blob, at) for at in begins], run.last_seq


def check(stream):
    for filters in FILTERS:
        for max_bytes in (1, 400, 5000, 1 << 30):
            found, seq, last = [], 1, stream.durable_seq
            while seq <= last:
                messages, covered = frames_of(stream, seq, last, filters, max_bytes)
                assert covered >= seq
                found += messages
                seq = covered + 1
            assert found == stream.read_from(1, filters, 10_000)
            stream.log._cache.close()
            for max_bytes in (0, 300):  # the second reads few at once
                read, seq = [], 1
                while messages := stream.read_from(seq, filters, 100, max_bytes, keep=False):
                    read += messages
                    seq = read[-1].seq + 1
                assert read == found and stream.log._cache.bytes == 0


@pytest.mark.parametrize("packed", [False, True])
def test_frames_are_those_of_the_messages_that_are_there(lab, packed, monkeypatch):
    chance = random.Random(7)
    for step in (2, 5, 2048):
        monkeypatch.setattr(file_log, "FRAMES_STEP", step)
        store = lab.open()
        stream = store.streams.get("$G/ORDERS") or store.create("$G/ORDERS", b"{}", "file")
        stream.compress(packed)
        for _ in range(60):
            kind = chance.random()
            if kind < 0.6:
                header = b"NATS/1.0\r\nA: %d\r\n\r\n" % stream.last_seq if chance.random() < 0.3 else b""
                payload = bytes(chance.choice((0, 1, 30, 300, 3000)))
                stream.append(b"s.%d" % chance.randrange(4), header, payload, stream.last_ts_ns + 1)
            elif kind < 0.7:
                stream.append_run(run_of([(b"s.3", b"x" * 9)] * 8), b"s.3", stream.last_ts_ns + 1)
            elif kind < 0.9 and stream.messages > 1:
                stream.remove(chance.randint(stream.first_seq, stream.last_seq), erase=chance.random() < 0.5)
            elif kind < 0.95:
                stream.purge(Filters([b"s.3"]), 0, 4)
            else:
                stream.skip_to(stream.last_seq + 3)
            if chance.random() < 0.3:
                lab.pump(store)
        lab.pump(store)
        check(stream)
        stream.purge(None, stream.first_seq + stream.messages // 4)
        lab.pump(store)
        check(stream)
        store.close()
        store = lab.open()
        check(store.streams["$G/ORDERS"])  # from the disk, where checksums are compared
        store.close()


def test_what_is_not_durable_is_not_there(lab):
    store = lab.open()
    stream = store.create("$G/ORDERS", b"{}", "file")
    lab.fill(store, stream, 3)
    stream.append(b"s.0", b"", b"4", 5000)
    messages, covered = frames_of(stream, 1, 99)
    assert ([message.seq for message in messages], covered) == ([1, 2, 3], 3)
    lab.pump(store)
    assert frames_of(stream, 4, 99)[0][0].payload == b"4"


def test_messages_removed_between_two_steps_are_left_out(lab, monkeypatch):
    monkeypatch.setattr(file_log, "FRAMES_STEP", 4)
    store = lab.open()
    stream = store.create("$G/ORDERS", b"{}", "file")
    lab.fill(store, stream, 200)
    steps = stream.reading_frames(1, 200, ALL, 1 << 20)
    assert next(steps) > 0
    stream.purge(None, 150)
    for _ in range(3):
        lab.pump(store)  # segments go, and what is left of one is rewritten
    while True:
        try:
            next(steps)
        except StopIteration as end:
            run = end.value
            break
    assert run.last_seq == 200
    assert len(run.sizes) == 4 + 51


def test_a_damaged_frame_is_not_handed_out(lab):
    store = lab.open()
    stream = store.create("$G/ORDERS", b"{}", "file")
    lab.fill(store, stream, 20)
    store.close()
    store = lab.open()
    stream = store.streams["$G/ORDERS"]
    path = stream._index.active.body.path
    data = lab.disk.open(path)
    data.pwrite(b"P", data.pread(data.size(), 0).index(b"payload 12"))
    assert [message.seq for message in frames_of(stream, 1, 12)[0]] == list(range(1, 13))
    with pytest.raises(StoreDamagedError, match="message 13"):
        frames_of(stream, 1, 20)
    assert lab.log
