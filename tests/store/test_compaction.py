"""Space and files come back from streams that keep little of what they were given."""

import random

import pytest

from natsctl.store.errors import StoreDamagedError
from natsctl.store.frame import FileHead
from natsctl.store.segment_file import SegmentCache, SegmentFile
from tests.store.conftest import commit
from tests.support.store_batches import append_together

FOLDER = "streams/s000001"


def segments(lab):
    return [n for n in lab.disk.listdir(FOLDER) if n.endswith(".seg")]


def churned(lab, rounds=60):
    """Return a stream where each round leaves one message behind for good and drops its others."""
    store = lab.open()
    stream = store.create("A", b"", "file")
    for n in range(rounds):
        stream.append(b"kept.%d" % n, b"", b"stays", n, timed=n % 7 == 0)
        first = append_together(stream, [(b"churn.%d" % k, b"", b"x" * 150, False) for k in range(12)], n)
        lab.pump(store)
        for seq in range(first, first + 12):
            stream.remove(seq)
        lab.pump(store)
    return store, stream


def test_the_number_of_files_follows_what_is_kept(lab):
    _store, stream = churned(lab)
    kept_bytes = stream.bytes + 10 * stream.messages
    assert stream.messages == 60 and len(segments(lab)) <= 2 * kept_bytes // (lab.options.segment_bytes // 2) + 3
    assert [m.subject for m in stream.read_from(1)] == [b"kept.%d" % n for n in range(60)]
    assert list(stream.timed_seqs()) == [stream.last_seq_of(b"kept.%d" % n) for n in range(0, 60, 7)]
    before = (stream.messages, stream.bytes, stream.last_seq, stream.deleted(), list(stream.timed_seqs()))
    again = lab.open().streams["A"]
    assert before == (again.messages, again.bytes, again.last_seq, again.deleted(), list(again.timed_seqs()))
    assert [m.payload for m in again.read_from(1)] == [b"stays"] * 60 and not lab.report.notes


@pytest.mark.parametrize("seed", range(8))
def test_old_files_that_came_back_are_left_out(lab, seed):
    rng = random.Random(seed)
    disk_unlink, kept = lab.disk.unlink, {}

    def unlink(path):
        if path.startswith(FOLDER):
            kept[path] = lab.disk.names[path]
        disk_unlink(path)

    lab.disk.unlink = unlink
    _store, stream = churned(lab, 20)
    lab.disk.unlink = disk_unlink
    expected = (stream.messages, stream.last_seq, stream.deleted())
    newest = {name[:20]: int(name[21:-4]) for name in segments(lab)}
    for path, inode in kept.items():  # unlinked after the newest files were there: any of them may come back
        name = path.rpartition("/")[2]
        if newest.get(name[:20], 1 << 30) > int(name[21:-4]) and path not in lab.disk.names and rng.random() < 0.5:
            lab.disk.names[path] = inode
    again = lab.open().streams["A"]
    assert (again.messages, again.last_seq, again.deleted()) == expected and not lab.report.damaged
    assert {name[:20]: int(name[21:-4]) for name in segments(lab)} == newest


def test_a_damaged_message_is_not_given_a_new_checksum(lab):
    store, stream = churned(lab, 3)
    place = stream._index.locate(stream.last_seq_of(b"kept.1"))
    offset = place[0].offsets[place[1]]
    lab.disk.open(place[0].body.path).pwrite(b"\xff", offset + 45)
    for n in range(3, 40):
        stream.append(b"kept.%d" % n, b"", b"stays", n)
        first = append_together(stream, [(b"churn", b"", b"x" * 150, False) for _ in range(12)], n)
        lab.pump(store)
        for seq in range(first, first + 12):
            stream.remove(seq)
        lab.pump(store)
    store._cache.close()
    with pytest.raises(StoreDamagedError):
        stream.get(stream.last_seq_of(b"kept.1"))
    assert stream.get(stream.last_seq_of(b"kept.2")).payload == b"stays"


def test_segments_are_rewritten_while_messages_come(lab):
    store = lab.open()
    stream = store.create("A", b"", "file")
    for n in range(200):
        stream.append(b"s", b"", b"x" * 100, n)
        lab.pump(store)
    before = len(segments(lab))
    for seq in range(1, 190):
        if seq % 20:
            stream.remove(seq)
    for n in range(4 * before):
        stream.append(b"s", b"", b"", n)
        commit(stream)
    assert not stream.backing.has_work and len(segments(lab)) < before


def test_the_cache_keeps_what_was_used_since_its_last_look(lab):
    cache = SegmentCache(lab.disk, 100)
    files = [SegmentFile("f", FileHead(1, number, 0, 0, 0)) for number in range(4)]
    for file in files[:3]:
        file.keep(0, b"x" * 40, 40)
        cache.touch(file)
    assert [file.kept for file in files] == [0, 40, 40, 0], "no room for the oldest"
    cache.touch(files[1])
    files[3].keep(0, b"x" * 40, 40)
    cache.touch(files[3])
    assert [file.kept for file in files] == [0, 40, 0, 40] and cache.bytes == 80
