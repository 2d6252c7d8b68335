"""What a store is after its process ended in some way."""

import pytest

from natsctl.store.errors import StoreDamagedError, StoreFormatError, StoreLockedError
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from tests.support.store_batches import append_together


def segments(lab, folder="streams/s000001"):
    return [f"{folder}/{n}" for n in lab.disk.listdir(folder) if n.endswith(".seg")]


def made(lab, count=0, key="$G/A"):
    store = lab.open()
    stream = store.create(key, b"meta", "file")
    lab.fill(store, stream, count)
    return store, stream


@pytest.mark.parametrize("where", ["first segment", "last segment"])
def test_damage_in_synced_data_is_refused_and_left_alone(lab, where):
    _store, _stream = made(lab, 200)
    path = segments(lab)[0 if where == "first segment" else -1]
    file = lab.disk.open(path)
    file.pwrite(bytes([file.pread(1, 120)[0] ^ 1]), 120)
    image = file.pread(10**6, 0)
    other = lab.open()
    assert "$G/A" not in other.streams and "$G/A" in lab.report.damaged
    assert not other.healthy and file.pread(10**6, 0) == image
    with pytest.raises(StoreDamagedError):
        other.create("$G/A", b"", "file")


def test_every_flipped_bit_of_an_idle_log_is_noticed(lab):
    _store, _stream = made(lab, 6)
    path = segments(lab)[-1]
    file = lab.disk.open(path)
    for at in range(file.size()):
        byte = file.pread(1, at)
        file.pwrite(bytes([byte[0] ^ 0x10]), at)
        lab.open()
        assert lab.report.damaged, f"a flip at {at} went unnoticed"
        file.pwrite(byte, at)
    assert lab.open().streams["$G/A"].messages == 6


def test_truncation_and_lost_segments_are_refused(lab):
    _store, _stream = made(lab, 200)
    paths = segments(lab)
    file = lab.disk.open(paths[-1])
    kept = file.pread(10**6, 0)
    file.truncate(len(kept) - 3)
    lab.open()
    assert lab.report.damaged
    file.pwrite(kept, 0)
    for path in paths:
        inode = lab.disk.names.pop(path)
        lab.open()
        assert lab.report.damaged, path
        lab.disk.names[path] = inode
    lab.disk.lose("streams/s000001")
    lab.open()
    assert lab.report.damaged == {"$G/A": "streams/s000001 is missing"}


def test_damaged_meta_and_journal_are_refused(lab):
    store, stream = made(lab, 3)
    stream.append_record(1, b"state")
    stream.request_sync()
    lab.pump(store)
    for name in ("meta", "journal-0.log"):
        file = lab.disk.open(f"streams/s000001/{name}")
        byte = file.pread(1, 10)
        file.pwrite(bytes([byte[0] ^ 1]), 10)
        lab.open()
        assert lab.report.damaged, name
        file.pwrite(byte, 10)


def test_deletion_is_final_and_ids_are_not_used_twice(lab):
    store, _stream = made(lab, 5)
    done = []
    store.delete("$G/A").on_durable(done.append)
    lab.pump(store)
    assert done == [None] and lab.disk.listdir("streams") == []
    again = lab.open()
    assert again.streams == {} and not lab.report.damaged
    assert again.create("$G/A", b"", "file").backing.stream_id == 2


def test_an_unfinished_batch_is_cut_whole_and_reported(lab):
    _store, stream = made(lab, 3)
    append_together(stream, [(b"s", b"", b"%d" % n, n == 1) for n in range(4)], 5)
    commit = stream.begin_commit()
    commit.data = commit.data[:-10]
    commit.run()
    again = lab.open().streams["$G/A"]
    assert (again.last_seq, again.messages, list(again.timed_seqs())) == (3, 3, [])
    assert any("(3 messages of a batch among them); cut" in note for note in lab.report.notes)
    assert any(name.endswith(".torn") for name in lab.disk.listdir("streams/s000001"))
    append_together(again, [(b"s", b"", b"%d" % n, n == 1) for n in range(4)], 5)
    lab.pump(again._host)
    again = lab.open().streams["$G/A"]
    assert (again.last_seq, list(again.timed_seqs())) == (7, [5]) and not lab.report.notes


@pytest.mark.parametrize("erased", range(4, 8))
def test_an_erased_message_does_not_make_its_batch_look_unfinished(lab, erased):
    store, stream = made(lab, 3)
    append_together(stream, [(b"s", b"", b"%d" % n, False) for n in range(4)], 5)
    lab.pump(store)
    stream.remove(erased, erase=True)
    lab.pump(store)
    again = lab.open().streams["$G/A"]
    assert (again.last_seq, again.messages) == (7, 6) and not lab.report.notes and not lab.report.damaged


def test_a_rewritten_segment_keeps_timed_messages_and_batches_without_an_end(lab):
    store, stream = made(lab, 4)
    first_seq = append_together(stream, [(b"s", b"", b"y" * 300, n % 3 == 0) for n in range(12)], 5)
    lab.pump(store)
    lab.fill(store, stream, 10)
    generations = {path.rpartition("-")[2] for path in segments(lab)}
    assert generations == {"0.seg"} and len(segments(lab)) > 1
    for seq in [*range(2, 5), *range(first_seq + 5, first_seq + 12)]:
        stream.remove(seq)
    lab.pump(store)
    assert {path.rpartition("-")[2] for path in segments(lab)} == {"0.seg", "1.seg"}
    assert list(stream.timed_seqs()) == [first_seq, first_seq + 3]
    again = lab.open().streams["$G/A"]
    assert list(again.timed_seqs()) == [first_seq, first_seq + 3] and not lab.report.notes
    assert (again.messages, again.last_seq) == (16, 26)


def test_discarding_a_damaged_stream_is_final(lab):
    store, _stream = made(lab, 5)
    store.close()
    lab.disk.open("streams/s000001/meta").pwrite(b"x", 3)
    store = lab.open()
    assert list(store.damaged) == ["$G/A"] and not store.healthy
    told = []
    store.discard("$G/A").on_durable(told.append)
    lab.pump(store)
    lab.now += 1
    store.run_timers()
    lab.pump(store)
    assert told == [None] and store.healthy and not store.damaged and lab.disk.listdir("streams") == []
    store = lab.open()
    assert not lab.report.damaged and store.create("A", b"", "file").backing.stream_id == 2


def test_a_missing_stream_can_be_discarded_and_its_key_used_again(lab):
    store, _stream = made(lab, 5)
    store.close()
    lab.disk.lose("streams/s000001")
    store = lab.open()
    told = []
    store.discard("$G/A").on_durable(told.append)
    lab.pump(store, only=next(iter(store.dirty)))
    assert told == [None]
    lab.disk.kill()
    lab.fill(store := lab.open(), store.create("$G/A", b"", "file"), 1)
    assert lab.open().streams["$G/A"].messages == 1 and not lab.report.damaged


def test_store_is_held_by_one_process_and_format_is_respected(lab):
    made(lab)
    with pytest.raises(StoreLockedError):
        Store(lab.disk, StoreOptions(), lambda: 1, lambda: 0, print).open()
    lab.disk.open("FORMAT").pwrite(b'{"format":3', 0)
    with pytest.raises(StoreFormatError):
        lab.open()


def test_a_torn_erasure_is_finished(lab):
    _store, stream = made(lab, 30)
    stream.remove(7, erase=True)
    commit = stream.begin_commit()
    path, (_, offset, data) = segments(lab)[0], commit.plan.erasures[0]
    commit.plan.erasures.clear()
    commit.run()
    lab.disk.open(path).pwrite(data[:50], offset)
    again = lab.open().streams["$G/A"]
    assert again.get(7) is None and again.messages == 29 and not lab.disk.contains(b"payload 6")
    assert any("erasure" in note for note in lab.report.notes)


def test_no_crash_brings_messages_of_later_times_back_in_front_of_others(lab):
    for cut in range(400):
        lab.disk = type(lab.disk)()
        _store, stream = made(lab)
        for n in range(3):
            stream.append(b"s", b"", b"%d" % n, 9000)
        lab.pump(_store)
        stream.purge()
        for n in range(3):
            stream.append(b"s", b"", b"later %d" % n, 50)
        commit = stream.begin_commit()
        whole = commit.plan.data
        commit.plan.data = whole[:cut]
        commit.run()
        again = lab.open().streams["$G/A"]
        times = [message.ts_ns for message in again.read_from(1)]
        assert times == sorted(times) and (again.messages == 3 or times in ([], [50], [50, 50])), cut
        assert again.last_ts_ns == (9000 if 50 not in times else 50)
        if cut >= len(whole):
            assert times == [50, 50, 50]
            return
    raise AssertionError("the commit is longer than this test looks")


def test_a_stream_that_was_empty_at_the_start_takes_the_time_of_the_clock(lab):
    store, stream = made(lab)
    stream.append(b"s", b"", b"", 9000)
    stream.purge()
    lab.pump(store)
    store.close()
    store = lab.open()
    again = store.streams["$G/A"]
    assert again.last_ts_ns == 9000
    again.append(b"s", b"", b"", 50)
    lab.pump(store)
    again = lab.open().streams["$G/A"]
    assert (again.first_ts_ns, again.last_ts_ns) == (50, 50)


def test_a_cut_tail_leaves_no_time_behind(lab):
    for batch in (False, True):
        _store, stream = made(lab, 0, key=f"$G/{batch}")
        stream.append(b"s", b"", b"", 50)
        lab.pump(_store)
        append_together(stream, [(b"s", b"", b"x" * 99, False)] * 3, 9000)
        commit = stream.begin_commit()
        commit.data = commit.data[: -10 if batch else 10]
        commit.run()
        again = lab.open().streams[f"$G/{batch}"]
        assert (again.messages, again.last_ts_ns) == (1, 50)
