"""What a stream does when the disk fails it."""

import resource
from contextlib import suppress

import pytest
from msgspec.structs import replace

from natsctl.store.disk import PosixDisk
from natsctl.store.errors import RecordsKeptError, StoreLockedError, StorePoisonedError
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store


def test_a_failed_sync_is_never_retried_and_fences_the_stream(lab):
    store = lab.open()
    stream, other = store.create("A", b"", "file"), store.create("B", b"", "file")
    lab.fill(store, stream, 3)
    refused, told = [], []
    stream.refused = lambda durable, error: refused.append((durable, type(error)))
    stream.append(b"s", b"", b"lost", 1)
    stream.on_durable(told.append)
    lab.disk.fail_sync = 1
    syncs = lab.disk.calls.count("sync")
    lab.pump(store, only=stream)
    assert lab.disk.calls.count("sync") == syncs + 1
    assert refused == [(3, StorePoisonedError)] and isinstance(told[0], StorePoisonedError)
    assert stream.durable_seq == 3 and stream.get(4) is None and stream.get(3) is not None
    with pytest.raises(StorePoisonedError):
        stream.append(b"s", b"", b"", 1)
    with pytest.raises(StorePoisonedError):
        stream.remove(1)
    assert not store.healthy and "sync failed" in store.faults[0]
    stream.on_durable(told.append)
    lab.pump(store)
    assert isinstance(told[1], StorePoisonedError)
    lab.fill(store, other, 2)
    assert other.durable_seq == 2


@pytest.mark.parametrize("key", ["", "secret"], ids=["plain", "encrypted"])
def test_removals_work_for_as_long_as_the_disk_stays_full(lab, key):
    lab.key, lab.options = key, StoreOptions(segment_bytes=1 << 20, reserve_bytes=0)
    store, stream = lab.made(301)
    lab.disk.room = 30_000
    for seq in range(2, 302):
        stream.remove(seq)
        stream.append(b"new", b"", bytes(40_000), 9000)
        lab.pump(store)
        assert (store.healthy, stream.fault, stream.messages) == (True, None, 302 - seq), seq
    lab.disk.room = None
    assert stream.append(b"s", b"", b"again", 9000) == 302
    lab.pump(store)
    assert [message.seq for message in lab.open().streams["A"].read_from(1)] == [1, 302]


def test_messages_that_found_no_room_leave_no_time_behind(lab):
    store, stream = lab.made(20)
    lab.disk.room = 100
    for _ in range(5):
        stream.append(b"new", b"", b"y" * 90, 9000)
    lab.pump(store)
    lab.disk.room = None
    assert (stream.last_seq, stream.last_ts_ns, stream.first_seq_at(1020)) == (20, 1019, 21)
    stream.append(b"s", b"", b"again", 1020)
    lab.pump(store)
    assert [lab.open().streams["A"].get(seq).ts_ns for seq in (20, 21)] == [1019, 1020]


def test_damage_found_while_reading_is_never_served(lab):
    store, stream = lab.made(20)
    lab.disk.open(stream.log.file.path).pwrite(b"\xff", stream._index.active.offsets[4] + 45)
    store._cache.close()
    from natsctl.store.errors import StoreDamagedError

    assert stream.get(4) is not None
    with pytest.raises(StoreDamagedError):
        stream.get(5)
    with pytest.raises(StoreDamagedError):
        stream.read_from(1)
    for max_bytes in (0, 1):
        with pytest.raises(StoreDamagedError):
            stream.read_from(5, max_msgs=10, max_bytes=max_bytes, keep=False)
    assert not store.healthy


def test_an_interval_policy_syncs_when_due_only(lab):
    lab.options = replace(lab.options, sync=1000)
    store = lab.open()
    stream = store.create("A", b"", "file")
    lab.pump(store)
    syncs = lab.disk.calls.count("sync")
    stream.append(b"s", b"", b"", 1)
    lab.pump(store, only=stream)
    assert stream.durable_seq == 1 and lab.disk.calls.count("sync") == syncs and stream.log.synced_seq == 0
    assert store.next_deadline_ns() is not None
    lab.now = 1000
    store.run_timers()
    lab.pump(store, only=stream)
    assert stream.log.synced_seq == 1 and lab.disk.calls.count("sync") == syncs + 1


def test_journal_records_are_synced_within_a_second_or_on_request(lab):
    store = lab.open()
    stream = store.create("A", b"", "file")
    stream.append_record(1, b"birth")
    lab.pump(store)
    syncs = lab.disk.calls.count("sync")
    stream.append_record(1, b"later")
    lab.pump(store, only=stream)
    assert lab.disk.calls.count("sync") == syncs
    stream.append_record(1, b"now")
    stream.request_sync()
    lab.pump(store, only=stream)
    assert lab.disk.calls.count("sync") == syncs + 1
    stream.append_record(1, b"in a second")
    lab.pump(store, only=stream)
    lab.now += lab.options.journal_sync_ns
    store.run_timers()
    lab.pump(store, only=stream)
    assert lab.disk.calls.count("sync") == syncs + 2


def test_the_real_disk_keeps_the_same_promises(tmp_path):
    def opened():
        store = Store(
            PosixDisk(tmp_path / "store"), StoreOptions(segment_bytes=4096), lambda: 99, lambda: 0, lambda text: None
        )
        return store, store.open()

    store, _ = opened()
    with pytest.raises(StoreLockedError):
        opened()
    stream = store.create("$G/../evil", b"meta", "file")
    for n in range(300):
        stream.append(b"s.%d" % (n % 5), b"", b"payload %d" % n, n)
    stream.remove(9, erase=True)
    store.close()
    assert not list(tmp_path.rglob("*evil*"))
    again, report = opened()
    found = again.streams["$G/../evil"]
    assert report.clean_stop and found.messages == 299 and found.get(300).payload == b"payload 299"
    assert found.get(9) is None
    again.delete("$G/../evil")
    again.close()
    assert not list((tmp_path / "store" / "streams").iterdir())


@pytest.mark.parametrize("reserve_bytes", [0, 4096])
@pytest.mark.parametrize("clean", [True, False])
def test_a_store_on_a_full_disk_opens_and_serves_and_its_stop_counts_once(lab, clean, reserve_bytes):
    lab.options = replace(lab.options, reserve_bytes=reserve_bytes)
    store, _ = lab.made(3)
    if clean:
        store.close()
    lab.disk.room = 0
    store = lab.open()
    assert lab.report.clean_stop is clean and store.healthy
    assert any("no space left" in line for line in lab.log) is (not reserve_bytes)
    assert store.streams["A"].messages == 3
    store = lab.open()
    assert not lab.report.clean_stop, "the run in between did not stop cleanly"
    assert not lab.report.damaged and not any("WITNESS" in line for line in lab.log)
    lab.disk.room = None
    lab.fill(store, store.streams["A"], 1)
    assert store.streams["A"].last_seq == 4
    assert lab.open().streams["A"].messages == 4 and not lab.report.damaged


def real_store(folder):
    store = Store(PosixDisk(folder), StoreOptions(reserve_bytes=0), lambda: 99, lambda: 0, lambda text: None)
    store.open()
    return store


def test_nothing_is_acked_into_a_file_that_somebody_removed(lab, tmp_path):
    store = real_store(tmp_path)
    stream = store.create("A", b"", "file")
    lab.fill(store, stream, 3)
    for path in (tmp_path / "streams" / "s000001").glob("*.seg"):
        path.unlink()
    refused = []
    stream.refused = lambda durable, error: refused.append((durable, type(error)))
    stream.append(b"s", b"", b"would be lost", 1)
    lab.pump(store, only=stream)
    assert refused == [(3, StorePoisonedError)] and stream.durable_seq == 3 and not store.healthy
    assert "removed" in store.faults[0]
    store.close()


def test_a_limit_on_file_sizes_is_a_full_disk(lab, tmp_path):
    store = real_store(tmp_path)
    stream = store.create("A", b"", "file")
    lab.fill(store, stream, 3)
    refused = []
    stream.refused = lambda durable, error: refused.append((durable, type(error)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        stream.append(b"s", b"", b"x" * 8192, 1)
        lab.pump(store, only=stream)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert refused == [(3, RecordsKeptError)] and store.healthy
    lab.fill(store, stream, 1)
    assert stream.durable_seq == 4
    store.close()


def test_a_stream_deleted_beside_a_commit_that_fails_is_gone(lab):
    store, stream = lab.made(3)
    stream.append(b"s", b"", b"x", 1)
    commit = stream.begin_commit()
    ended = []
    store.delete("A").on_durable(ended.append)
    stream.finish_commit(commit, OSError(5, "Input/output error"))
    lab.pump(store)
    assert ended == [None]
    lab.fill(store, store.create("A", b"", "file"), 1)
    store.close()
    assert lab.open().streams["A"].messages == 1


@pytest.mark.parametrize("after", range(0, 120, 4))
def test_a_disk_that_fails_at_any_call_leaves_no_file_open(lab, after):
    store = lab.open()
    opened, calls = [], []
    plain_open, plain_step = lab.disk.open, lab.disk.step

    def open_file(path, create=False):
        opened.append((path, plain_open(path, create)))
        return opened[-1][1]

    def step(what):
        plain_step(what)
        calls.append(what)
        if len(calls) > after:
            raise OSError(5, "Input/output error")

    lab.disk.open, lab.disk.step = open_file, step
    with suppress(StorePoisonedError):
        stream, other = store.create("A", b"", "file"), store.create("B", b"", "file")
        for _ in range(3):
            lab.fill(store, stream, 30)
            stream.append_record(1, b"entry")
            lab.fill(store, other, 3)
        stream.purge()
        lab.fill(store, stream, 3)
    if "B" in store.streams:
        store.delete("B")
    lab.pump(store)
    with suppress(OSError):
        store.close()
    assert [path for path, file in opened if not file.closed] == []
