"""A full disk: what the reserve is for, what it is not for, and how service returns."""

import errno

import pytest
from msgspec.structs import replace

from natsctl.store.disk import PosixDisk
from natsctl.store.errors import RecordsKeptError, StoreFullError
from natsctl.store.options import StoreOptions
from natsctl.store.packed import open_segment
from natsctl.store.store import RETRY_NS, Store
from natsctl.store.stream import RecordsCallback
from tests.support.simdisk import DiskFault, no_faults

RESERVE = 8192
STORES = pytest.mark.parametrize("key", ["", "secret"], ids=["plain", "encrypted"])


def opened(lab, key="", reserve=RESERVE, messages=40):
    lab.key, lab.options = key, replace(lab.options, reserve_bytes=reserve)
    store = lab.open()
    stream = store.create("A", b"", "file")
    lab.fill(store, stream, messages)
    return store, stream


def later(lab, store):
    lab.now += RETRY_NS
    store.run_timers()
    lab.pump(store)


def seqs(stream):
    return [message.seq for message in stream.read_from(1)]


@STORES
def test_messages_never_use_what_the_reserve_gives_to_records(lab, key):
    store, stream = opened(lab, key)
    lab.disk.room, refused, told = 0, [], []
    stream.refused = lambda durable, fault: refused.append((durable, type(fault)))
    for seq in range(2, 22):
        for _ in range(3):  # they would fit into the piece that the first record has opened
            stream.append(b"new", b"", b"small", 9000)
            lab.pump(store)
        stream.append(b"new", b"", b"small", 9000)
        stream.remove(seq)
        stream.append_record(1, b"an ack")
        stream.on_durable(RecordsCallback(told.append))
        lab.pump(store)
    assert told == [None] * 20 and refused == [(40, RecordsKeptError)] * 80
    assert stream.last_seq == 40 and store.healthy and not store.has_room
    refusal = []
    store.create("B", b"", "file").on_durable(refusal.append)
    lab.pump(store)
    assert isinstance(refusal[0], StoreFullError)
    lab.disk.room = RESERVE  # not enough for the reserve and for messages
    later(lab, store)
    assert not store.reserve.intact
    lab.disk.room = 3 * RESERVE
    later(lab, store)
    assert store.reserve.intact and lab.disk.size_of("RESERVE") == RESERVE
    lab.fill(store, stream, 1)
    again = lab.open().streams["A"]
    assert seqs(again) == seqs(stream) == [1, *range(22, 42)] and len(again.records()) == 20


@STORES
@pytest.mark.parametrize("change", ["remove", "erase", "purge", "front", "roll"])
def test_records_without_room_fence_nothing_and_are_written_when_space_returns(lab, key, change):
    """`front` lets a segment fall off; `roll` has no room at a seal."""
    store, stream = opened(lab, key, reserve=0)
    if change == "roll":
        while stream.log.file.size < lab.options.segment_bytes:
            lab.fill(store, stream, 1)
    changes = {"purge": lambda: stream.purge(), "front": lambda: [stream.remove(seq) for seq in range(1, 30)]}
    body = stream.get(5).payload
    lab.disk.room, told = 0, []
    if change == "roll":
        stream.append(b"new", b"", b"no room", 9000)
    changes.get(change, lambda: stream.remove(5, erase=change == "erase"))()
    stream.append_record(1, b"an ack")
    stream.on_durable(RecordsCallback(told.append))
    lab.pump(store)
    stream.append(b"new", b"", b"no room", 9000)
    lab.pump(store)
    assert [type(fault) for fault in told] == [StoreFullError] and stream.healthy and store.healthy
    kept = seqs(stream)
    later(lab, store)
    lab.disk.room = None
    later(lab, store)
    assert stream.all_durable and seqs(stream) == kept
    if change == "erase":
        assert not lab.disk.contains(body)
    lab.fill(store, stream, 3)
    again = lab.open().streams["A"]
    assert not lab.report.damaged and not lab.report.notes
    assert seqs(again) == seqs(stream) == [*kept, *range(again.last_seq - 2, again.last_seq + 1)]
    assert again.records() == [(1, b"an ack")]
    folder = {name for name in lab.disk.listdir("streams/s000001") if name.endswith(".seg")}
    assert len(folder) == len(again.log.remaining())


def test_a_start_on_a_full_disk_leaves_publishers_no_reserve_to_fill(lab):
    store, stream = opened(lab)
    lab.disk.room = 0
    for _ in range(3):  # starts as after kills, and each writes its high-water file
        store = lab.open()
        stream = store.streams["A"]
        assert store.healthy and not store.reserve.intact and lab.disk.exists("RESERVE")
        stream.append(b"new", b"", b"small", 9000)
        stream.remove(stream.first_seq)
        lab.pump(store)
        assert stream.last_seq == 40 and stream.healthy
    store.close()
    lab.disk.room = 3 * RESERVE
    store = lab.open()
    assert lab.report.clean_stop and seqs(store.streams["A"]) == [*range(4, 41)]
    lab.fill(store, store.streams["A"], 1)
    assert store.streams["A"].last_seq == 41


@pytest.mark.parametrize("publishing", [False, True])
def test_a_purge_frees_the_last_segment_and_a_deletion_the_folder_of_a_full_disk(lab, publishing):
    lab.options = replace(lab.options, segment_bytes=1 << 17)
    store, stream = opened(lab, messages=1000)
    other = store.create("B", b"", "file")
    lab.fill(store, other, 1000)
    size = stream.log.file.size
    lab.disk.room = 0
    if publishing:
        stream.append(b"new", b"", b"before the purge", 9000)
    stream.purge()
    lab.pump(store)
    if publishing:
        stream.append(b"new", b"", b"after the purge", 9000)
        lab.pump(store)
    assert lab.disk.room > size // 2 and stream.last_seq == 1000 and stream.healthy
    lab.disk.room = 0
    store.delete("B")
    lab.pump(store)
    later(lab, store)
    assert lab.disk.room > size // 2 and lab.disk.listdir("streams") == ["s000001"]
    lab.disk.room = None
    lab.fill(store, stream, 2)
    assert seqs(lab.open().streams["A"]) == [1001, 1002] and not lab.report.notes and not lab.report.damaged


@pytest.mark.parametrize(("key", "compress"), [("", False), ("", True), ("secret", False)])
def test_an_erasure_that_overwrites_nothing_in_place_waits_for_room(lab, key, compress):
    """Plain: on a file system that writes elsewhere what is overwritten; the others are copied."""
    store, stream = opened(lab, key, messages=60)
    stream.compress(compress)
    lab.fill(store, stream, 1)  # into the next segment
    segment, told, full = stream._index.segments[0], [], DiskFault(error=errno.ENOSPC)

    def content():
        return open_segment(store._disk, segment.body.path).pread(1 << 20, 0)

    body = content()[segment.offsets[2] : segment.offsets[3]]
    lab.disk.plan = lambda call, path: full if call == "pwrite" and path.startswith(segment.body.path) else None
    stream.remove(3, erase=True)
    stream.on_durable(RecordsCallback(told.append))
    lab.pump(store)
    later(lab, store)
    assert told == [None] and stream.get(3) is None and store.healthy and body in content()
    assert segment.body.packed is compress
    lab.disk.plan = no_faults
    later(lab, store)
    assert body not in content() and len(content()) > 1000
    assert seqs(lab.open().streams["A"]) == seqs(stream) and not lab.report.damaged


def test_threads_without_the_interpreter_get_no_messages_while_the_reserve_is_used(tmp_path):
    store = Store(PosixDisk(tmp_path), StoreOptions(), lambda: 99, lambda: 0, lambda text: None)
    store.open()
    stream, shapes = store.create("A", b"", "file"), []
    store._commit_all()
    for used in (False, True):
        assert not used or store.reserve.release()
        stream.append(b"s", b"", b"x", 1)
        commit = stream.begin_commit()
        shapes.append((len(commit.take_appends()), commit.is_small))
        commit.run()
        stream.finish_commit(commit)
    assert shapes == [(1, True), (0, False)]
    assert stream.durable_seq == 2 and store.reserve.intact, "there is room: the commit has restored it"
    store.close()
