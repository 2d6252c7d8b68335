"""A secure delete beside everything else that a commit does: rewriting, unlinking, a full disk, a crash."""

import errno
import random

import pytest

from natsctl.store import frame
from natsctl.store.errors import StoreFullError, StorePoisonedError

FOLDER = "streams/s000001"


def body(n):
    return b"%05d" % n + random.Random(n).randbytes(100)


def made(lab, count=60, compress=False):
    store = lab.open()
    stream = store.create("A", b"", "file")
    for n in range(1, count + 1):
        stream.append(b"s.%d" % n, b"", body(n), n)
        lab.pump(store)
    stream.compress(compress)
    return store, stream


def begun(stream):
    commit = stream.begin_commit()
    commit.run()
    return commit


def rewriting(store, stream):
    for seq in range(2, stream._index.bases[1] - 2):
        stream.remove(seq)
    commit = begun(stream)
    assert commit.plan.rewrite is not None and commit.rewritten
    return commit


def test_an_erasure_beside_a_rewrite_leaves_the_stream_healthy(lab):
    store, stream = made(lab)
    commit = rewriting(store, stream)
    stream.remove(1, erase=True)
    stream.finish_commit(commit)
    lab.pump(store)
    assert store.healthy and stream.healthy and not lab.disk.contains(body(1))
    assert lab.open().streams["A"].get(1) is None and not lab.report.damaged


def test_an_erasure_while_old_files_wait_for_the_commit_that_seals(lab):
    store, stream = made(lab)
    stream.append(b"long", b"", bytes(lab.options.segment_bytes), 99)
    stream.finish_commit(begun(stream))
    commit = rewriting(store, stream)
    stream.append(b"more", b"", body(1000), 99)  # begins a segment: old files wait for the commit after the seal
    stream.remove(1, erase=True)
    stream.finish_commit(commit)
    commit = begun(stream)
    assert commit.plan.sealed is not None and commit.plan.erasures
    stream.finish_commit(commit)
    lab.pump(store)
    assert store.healthy and not lab.disk.contains(body(1))


def test_what_the_new_file_took_over_is_erased_there_and_in_the_old_one(lab):
    store, stream = made(lab)
    commit = rewriting(store, stream)  # with message 1 in it
    stream.remove(1, erase=True)
    stream.finish_commit(commit)
    commit = begun(stream)
    assert {erasure.file.head.generation for erasure in commit.plan.erasures} == {0, 1}
    stream.finish_commit(commit)
    lab.disk.power(random.Random(1))
    assert not lab.disk.contains(body(1))


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_file_that_comes_back_after_a_power_loss_holds_nothing_erased(lab, compress, seed):
    store, stream = made(lab, compress=compress)
    lab.pump(store)
    for seq in range(1, stream._index.bases[1]):
        stream.remove(seq, erase=seq % 2 == 0)  # the last of them lets the segment fall off the front
    lab.pump(store)
    erased = [n for n in range(2, 60, 2) if stream.get(n) is None]
    assert erased
    lab.disk.power(random.Random(seed))
    assert not [n for n in erased if lab.disk.contains(body(n))]


def test_an_old_file_that_was_unlinked_before_does_not_bring_an_erased_message_back(lab):
    store, stream = made(lab)
    stream.finish_commit(rewriting(store, stream))
    lab.pump(store)  # unlinks the old file
    stream.remove(1, erase=True)
    lab.pump(store)
    assert not lab.disk.contains(body(1))


def test_a_refused_message_that_was_erased_leaves_no_trace(lab):
    store, stream = made(lab, 3)
    told = []
    lab.disk.room = 40
    seq = stream.append(b"s", b"", body(77), 9)
    stream.remove(seq, erase=True)
    stream.on_durable(told.append)
    size = stream.log.file.settled
    lab.pump(store)
    assert isinstance(told[0], StoreFullError) and store.healthy
    assert lab.disk.open(stream.log.file.path).size() <= size + 40


def test_a_refused_message_that_was_erased_in_a_new_segment_does_not_fence_the_stream(lab):
    store, stream = made(lab, 3)
    stream.append(b"fill", b"", bytes(lab.options.segment_bytes), 9)
    lab.pump(store)
    lab.disk.room = 120
    seq = stream.append(b"s", b"", body(77), 9)
    stream.remove(seq, erase=True)
    lab.pump(store)
    assert store.healthy and stream.last_seq == seq - 1
    lab.disk.room = None
    assert stream.append(b"s", b"", b"again", 9) == seq
    lab.pump(store)
    assert lab.open().streams["A"].get(seq).payload == b"again"


@pytest.mark.parametrize("erase", [False, True])
def test_the_removal_of_a_refused_message_does_not_meet_the_one_that_gets_its_sequence(lab, erase):
    store, stream = made(lab, 3)
    lab.disk.room = 40
    seq = stream.append(b"s", b"", body(77), 9)
    stream.remove(seq, erase)
    lab.pump(store)
    lab.disk.room = None
    assert stream.append(b"s", b"", b"again", 9) == seq
    lab.pump(store)
    for n in range(40):
        stream.append(b"more", b"", body(n), 10)
        lab.pump(store)
    assert stream._index.segments[0].body.indexed
    again = lab.open().streams["A"]
    assert again.get(seq) is not None and again.get(seq).payload == b"again"


def test_removals_recorded_in_a_segment_that_stayed_the_last_are_kept_when_it_is_rewritten(lab):
    store, stream = made(lab)
    last = stream.log.file
    while stream.log.file.size < lab.options.segment_bytes:
        stream.append(b"more", b"", body(5), 99)
        lab.pump(store)
    last = stream.log.file
    lab.disk.room = 160
    stream.append(b"s", b"", body(78), 99)  # begins a segment, for which there is no room
    stream.remove(2)
    lab.pump(store)
    lab.disk.room = None
    assert stream.log.file is last and 2 in last.tombs


def test_an_erasure_on_record_that_was_not_done_is_not_forgotten_by_a_rewrite(lab):
    store, stream = made(lab, compress=True)
    for n in range(40):  # segments that are sealed now are compressed
        stream.append(b"more", b"", body(100 + n), 99)
        lab.pump(store)
    segment = next(segment for segment in stream._index.segments if segment.body.packed)
    seq, tail = segment.base + 1, stream._index.segments[-1]
    lab.disk.room = 200
    stream.remove(seq, erase=True)
    lab.pump(store)
    assert stream.log._unerased and store.healthy
    lab.disk.room = None
    stream.log._postponed = True  # the bytes stay as long as that takes
    while stream._index.place_of(tail) == len(stream._index.segments) - 1:
        stream.append(b"more", b"", body(5), 99)
        lab.pump(store)
        stream.log._unerased = []
    assert seq in tail.body.tombs and lab.open().streams["A"].get(seq) is None


def test_an_index_file_that_was_not_written_whole_goes(lab, monkeypatch):
    store, stream = made(lab, 3)
    file = type(lab.disk.open(stream.log.file.path))
    pwrite = file.pwrite

    def short(self, data, offset):
        return pwrite(self, data[: len(data) // 2] if data[:7] == b"natsidx" else data, offset)

    monkeypatch.setattr(file, "pwrite", short)
    for n in range(40):
        stream.append(b"more", b"", body(n), 10)
        lab.pump(store)
    assert len(stream._index.segments) > 1
    assert not [name for name in lab.disk.listdir(FOLDER) if name.endswith(".idx")]


def test_the_index_file_of_an_earlier_clean_stop_goes_with_a_start_that_does_not_use_it(lab):
    lab.options = type(lab.options)(segment_bytes=1 << 20, reserve_bytes=0, tail_index_bytes=0)
    store, _stream = made(lab, 20)
    store.close()
    store = lab.open()
    store.streams["A"].append(b"secret", b"", b"", 9)
    lab.pump(store)
    assert [name for name in lab.disk.listdir(FOLDER) if name.endswith(".idx")]
    store = lab.open()
    assert not [name for name in lab.disk.listdir(FOLDER) if name.endswith(".idx")]
    store.streams["A"].remove(3, erase=True)
    lab.pump(store)
    assert store.healthy and not lab.disk.contains(body(3))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_did_not_get_its_name_is_not_left_with_what_it_holds(lab, monkeypatch, code):
    store, stream = made(lab)
    for seq in range(2, stream._index.bases[1] - 2):
        stream.remove(seq)

    def rename(source, target):
        raise OSError(code, "no room for a name")

    monkeypatch.setattr(lab.disk, "rename", rename)
    lab.pump(store)
    assert store.healthy and not [name for name in lab.disk.listdir(FOLDER) if name.endswith(".tmp")]


def test_a_file_whose_name_was_not_synced_is_no_full_disk(lab, monkeypatch):
    store, stream = made(lab)
    for seq in range(2, stream._index.bases[1] - 2):
        stream.remove(seq)
    sync = lab.disk.fsync_dir

    def fsync_dir(path):
        if any(name.endswith("-1.seg") for name in lab.disk.listdir(FOLDER)):
            raise OSError(errno.ENOSPC, "no room for names")
        sync(path)

    monkeypatch.setattr(lab.disk, "fsync_dir", fsync_dir)
    lab.pump(store)
    with pytest.raises(StorePoisonedError):
        stream.append(b"s", b"", b"", 1)


def test_a_stream_that_is_deleted_while_its_creation_fails_is_gone(lab):
    store = lab.open()
    stream = store.create("A", b"", "file")
    commit = stream.begin_commit()
    told = []
    store.delete("A").on_durable(told.append)
    stream.finish_commit(commit, OSError(errno.ENOSPC, "the creation failed"))
    lab.pump(store)
    assert told == [None] and not lab.open().streams and not lab.report.damaged


def test_old_records_that_a_crash_leaves_behind_a_new_journal_are_not_its_own(lab):
    store, stream = made(lab, 1)
    for n in range(3):
        stream.append_record(1, b"old %d" % n)
    stream.request_sync()
    lab.pump(store)
    old = bytes(lab.disk.names[f"{FOLDER}/journal-0.log"].cache)
    stream.rewrite([(1, b"new 0")])
    lab.pump(store)
    inode = lab.disk.names[f"{FOLDER}/journal-1.log"]
    second = old.index(b"old 1") - 2 - frame.HEAD_BYTES  # the record whose number comes next
    inode.cache += old[second:]
    inode.durable = bytearray(inode.cache)
    assert lab.open().streams["A"].records() == [(1, b"new 0")] and not lab.report.damaged
