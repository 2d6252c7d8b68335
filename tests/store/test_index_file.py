"""Index files save reading, and are never believed when they do not fit."""

import random
from array import array
from itertools import pairwise

import pytest
from msgspec.structs import replace

from natsctl.native import lib
from natsctl.store import frame
from natsctl.store.errors import StoreDamagedError
from natsctl.store.filters import ALL, Filters
from natsctl.store.fsck import check_stream
from tests.support import tiers

FOLDER = "streams/s000001"


def names(lab, suffix):
    return [n for n in lab.disk.listdir(FOLDER) if n.endswith(suffix)]


def filled(lab, count=200, tail_index_bytes=1 << 30):
    lab.options = replace(lab.options, tail_index_bytes=tail_index_bytes)
    store = lab.open()
    stream = store.create("A", b"", "file")
    for start in range(0, count, 10):
        lab.fill(store, stream, 10, lambda n, start=start: b"s.%d" % ((start + n) % 7))
    return store, stream


def picture(stream):
    return (
        (stream.messages, stream.bytes, stream.first_seq, stream.last_seq, stream.num_subjects, stream.last_ts_ns),
        (stream.subjects(), stream.deleted(), list(stream.timed_seqs())),
        [stream.last_seq_of(s) for s in sorted(stream.subjects())],
        [stream.first_seq_of(s) for s in sorted(stream.subjects())],
        [stream.count(Filters((b"s.*", b"t.1")), at) for at in range(1, stream.last_seq + 2, 17)],
        [(s.base, s.live) for s in stream._index.segments if s.live],
        stream.read_from(1, ALL, 10_000),
    )


def test_sealed_segments_have_one_and_are_not_read_at_the_start(lab):
    store, _stream = filled(lab)
    assert [n[:-4] for n in names(lab, ".idx")] == [n[:-4] for n in names(lab, ".seg")[:-1]] != []
    store.close()
    file = lab.disk.open(f"{FOLDER}/{names(lab, '.seg')[1]}")
    file.pwrite(bytes([file.pread(1, 200)[0] ^ 1]), 200)
    stream = lab.open().streams["A"]
    assert not lab.report.damaged and stream.messages == 200
    with pytest.raises(StoreDamagedError):
        stream.read_from(1, ALL, 1000)
    assert check_stream(lab.disk, FOLDER, None, 1 << 20).damage == []
    assert "damaged bytes" in check_stream(lab.disk, FOLDER, None, 1 << 20, indexes=False).damage[0]


def test_damage_to_a_removed_message_hides_no_other_from_a_search_by_time(lab):
    store, stream = filled(lab)
    for seq in range(2, 200, 2):
        stream.remove(seq)
    lab.pump(store)
    times = {message.seq: message.ts_ns for message in stream.read_from(1, ALL, 1000)}
    places = [(s.body.path, s.offsets[at]) for s in stream._index.segments[:-1] for at in range(1, len(s.sids), 2)]
    store.close()
    for path, offset in places:
        file = lab.disk.open(path)
        file.pwrite(b"\xff", offset + frame.HEAD_BYTES - 9)  # the highest byte of the time
    stream = lab.open().streams["A"]
    assert not lab.report.damaged and len(places) > 50
    firsts = {ts_ns: min(seq for seq in times if times[seq] == ts_ns) for ts_ns in times.values()}
    assert {ts_ns: stream.first_seq_at(ts_ns) for ts_ns in firsts} == firsts


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("seed", tiers.seeds(3, 10))
def test_a_start_with_index_files_finds_what_a_start_without_finds(lab, seed, bulk, as_if_very_long):
    rng = random.Random(seed)
    if bulk:
        as_if_very_long()
    store, stream = filled(lab, 10, rng.choice((0, 1 << 30)))
    for step in range(400):
        draw = rng.random()
        if draw < 0.5:
            subject = rng.choice((b"s.%d" % rng.randint(0, 5), b"t.%d" % rng.randint(0, 50)))
            stream.append(subject, b"", b"p" * rng.randint(0, 60), 2000 + step, timed=rng.random() < 0.1)
        elif draw < 0.7:
            stream.remove(rng.randint(1, stream.last_seq), erase=rng.random() < 0.3)
        elif draw < 0.75 and stream.messages:
            stream.drop_first()
        elif draw < 0.76:
            stream.purge(Filters((b"s.*",)), keep=3)
        elif draw < 0.77:
            stream.skip_to(stream.last_seq + 3)
        else:
            lab.pump(store)
    lab.pump(store)
    expected = picture(stream)
    if rng.random() < 0.7:
        store.close()
    assert picture(lab.open().streams["A"]) == expected
    for name in names(lab, ".idx"):
        lab.disk.unlink(f"{FOLDER}/{name}")
    assert picture(lab.open().streams["A"]) == expected
    assert picture(lab.open().streams["A"]) == expected, "from the index files that the start before wrote"


@pytest.mark.parametrize("how", ["missing", "flipped", "cut", "empty", "of another segment", "of an older life"])
def test_what_does_not_fit_is_not_believed_and_written_anew(lab, how):
    _store, stream = filled(lab)
    expected = picture(stream)
    first, second = (f"{FOLDER}/{n}" for n in names(lab, ".idx")[:2])
    right = bytes(lab.disk.names[first].cache)
    if how == "missing":
        lab.disk.unlink(first)
    elif how == "flipped":
        lab.disk.open(first).pwrite(bytes([right[-1] ^ 1]), len(right) - 1)
    elif how == "cut":
        lab.disk.open(first).truncate(len(right) - 4)
    elif how == "empty":
        lab.disk.open(first).truncate(0)
    elif how == "of another segment":
        lab.disk.names[first] = lab.disk.names[second]
    else:
        twin = type(lab)()
        next(twin.salts)
        filled(twin)
        lab.disk.names[first] = twin.disk.names[first]
    assert picture(lab.open().streams["A"]) == expected and not lab.report.damaged
    assert bytes(lab.disk.names[first].cache) == right


def test_a_cut_segment_is_refused_although_its_index_file_is_whole(lab):
    filled(lab)
    path = f"{FOLDER}/{names(lab, '.seg')[0]}"
    lab.disk.open(path).truncate(lab.disk.open(path).size() - 1)
    lab.open()
    assert "no valid seal" in lab.report.damaged["A"]


def test_an_erased_message_leaves_the_index_file_at_once(lab):
    store, stream = filled(lab, 10)
    lab.fill(store, stream, 1, lambda n: b"very.secret")
    for _ in range(10):
        lab.fill(store, stream, 10)
    assert lab.disk.contains(b"very.secret") and stream.remove(11, erase=True) is not None
    lab.pump(store)
    assert not lab.disk.contains(b"very.secret")
    again = lab.open().streams["A"]
    assert again.get(11) is None and again.messages == 110 and not lab.disk.contains(b"very.secret")
    again = lab.open().streams["A"]
    assert again.messages == 110 and lab.report.notes == [], "nothing is left to be finished"


def test_an_index_file_that_missed_an_erasure_is_not_believed(lab):
    store, stream = filled(lab)
    path = f"{FOLDER}/{names(lab, '.idx')[0]}"
    stale = lab.disk.names[path]
    stream.remove(4, erase=True)
    lab.pump(store)
    expected = picture(stream)
    lab.disk.names[path] = stale
    found = lab.open().streams["A"]
    assert picture(found) == expected and lab.disk.names[path] is not stale
    lab.pump(found._host)
    assert picture(lab.open().streams["A"]) == expected


def test_a_long_tail_has_one_after_a_clean_stop_only(lab):
    store, stream = filled(lab, 210, tail_index_bytes=100)
    expected, tail = picture(stream), names(lab, ".seg")[-1].replace(".seg", ".idx")
    store.close()
    assert tail in names(lab, ".idx")
    store = lab.open()
    assert picture(store.streams["A"]) == expected and lab.report.clean_stop
    lab.fill(store, store.streams["A"], 1)
    again = lab.open().streams["A"]
    assert (again.messages, lab.report.clean_stop, again._index.active.body.indexed) == (211, False, False)


def test_nothing_is_left_of_segments_that_are_gone(lab):
    store, stream = filled(lab)
    stream.purge()
    lab.fill(store, stream, 1)
    assert names(lab, ".idx") == [] and len(names(lab, ".seg")) == 1
    lab.disk.open(f"{FOLDER}/{5:020d}-3.idx", create=True)
    assert lab.open().streams["A"].messages == 1 and names(lab, ".idx") == []


def test_a_subject_with_the_separator_in_it_is_scanned(lab):
    store, stream = filled(lab, 10)
    lab.fill(store, stream, 10, lambda n: b"odd\nsubject")
    for _ in range(10):
        lab.fill(store, stream, 10)
    expected = picture(stream)
    assert len(names(lab, ".idx")) == len(names(lab, ".seg")) - 2
    assert picture(lab.open().streams["A"]) == expected


def test_sealed_segments_take_little_memory_after_a_start(lab):
    store, _stream = filled(lab)
    store.close()
    segments = lab.open().streams["A"]._index.segments[:-1]
    alike = [(before, after) for before, after in pairwise(segments) if before.keys == after.keys]
    assert len(alike) > 2
    assert all(before.keys is after.keys for before, after in alike)
    columns = [column for segment in segments for column in (segment.sids, segment.sizes)]
    assert all(type(column) is (array if lib is None else lib.PackedColumn) for column in columns)
