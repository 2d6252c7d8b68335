"""Sealed segments of a stream that asks for compression lie compressed, and keep every promise that plain ones keep."""

import random

import pytest

from natsctl.store.errors import StoreDamagedError
from natsctl.store.packed import EXPANSION_MAX, HEAD, MAGIC, PackedFile, _joined, altered, open_segment, pack
from tests.support.simdisk import Crash

FOLDER = "streams/s000001"


def put(lab, data, path="file"):
    lab.disk.names.pop(path, None)
    lab.disk.open(path, create=True).pwrite(data, 0)
    return open_segment(lab.disk, path)


def some_bytes(size, seed=1):
    rng = random.Random(seed)
    words = [rng.randbytes(5) for _ in range(9)]
    return b"".join(rng.choice(words) for _ in range(size // 5)) + rng.randbytes(size % 5 + 100)


def made(lab, count=60, on=True):
    store = lab.open()
    stream = store.create("A", b"", "file")
    stream.compress(on)
    for n in range(count):
        stream.append(b"s.%d" % (n % 3), b"NATS/1.0\r\nK: v\r\n\r\n" * (n % 2), payload(n), n, timed=n % 7 == 0)
        if n % 5 == 4:
            lab.pump(store)
    lab.pump(store)
    return store, stream


def payload(n):
    return b'{"number": %d, "name": "name of it", "more": "more of the same, the same, the same"}' % n


def picture(stream):
    found = [(m.seq, m.ts_ns, m.subject, m.header, m.payload) for m in stream.read_from(1, max_msgs=1000)]
    return found, stream.messages, stream.bytes, stream.deleted(), list(stream.timed_seqs())


def packed_files(lab):
    paths = [path for path in sorted(lab.disk.names) if path.endswith(".seg")]
    return [path for path in paths if isinstance(open_segment(lab.disk, path), PackedFile)]


def on_disk(lab, data):
    paths = [path for path in lab.disk.names if path.endswith(".seg")]
    files = [open_segment(lab.disk, path) for path in paths]
    return lab.disk.contains(data) or any(data in file.pread(file.size(), 0) for file in files)


# -- the file


@pytest.mark.parametrize("block_bytes", [1, 7, 300, 65536])
@pytest.mark.parametrize("size", [0, 1, 299, 300, 301, 5000])
def test_any_stretch_of_a_packed_file_reads_as_what_was_packed(lab, size, block_bytes):
    data, rng = some_bytes(size)[:size], random.Random(size)
    file = put(lab, pack(data, block_bytes))
    assert isinstance(file, PackedFile) and file.size() == size and file.pread(size, 0) == data
    for _ in range(50):
        at, length = rng.randint(0, size + 10), rng.randint(0, size + 10)
        assert file.pread(length, at) == data[at : at + length]
    assert not file.damaged


def test_a_file_that_is_not_packed_is_opened_as_it_is(lab):
    for data in (b"", b"short", b"natsctl\0" + bytes(200)):
        file = put(lab, data)
        assert not isinstance(file, PackedFile) and file.pread(1000, 0) == data


def test_a_flipped_bit_is_never_read_as_something_else(lab):
    data = some_bytes(2000)
    packed = pack(data, 300)
    assert len(packed) < len(data)
    for at in range(len(packed)):
        hurt = bytearray(packed)
        hurt[at] ^= 1 << at % 8
        file = put(lab, bytes(hurt))
        if isinstance(file, PackedFile):
            found = file.pread(len(data), 0)
            wrong = [n for n in range(0, len(data), 300) if found[n : n + 300] != data[n : n + 300]]
            assert file.damaged and len(wrong) == 1 and not any(found[wrong[0] : wrong[0] + 300])


def test_a_cut_or_grown_file_is_no_packed_file(lab):
    packed = pack(some_bytes(2000), 300)
    for size in range(len(packed)):
        assert not isinstance(put(lab, packed[:size]), PackedFile)
    assert not isinstance(put(lab, packed + b"x"), PackedFile)


def test_a_block_that_claims_another_length_reads_as_zeros(lab):
    from zlib import crc32

    for claim in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x01", b"\x00", b"", b"\xff" * 20):
        block = claim + b"\x00a"
        file = put(lab, _joined([block], [crc32(block)], 40, 300))
        assert isinstance(file, PackedFile) and file.pread(1000, 0) == bytes(40) and file.damaged


@pytest.mark.parametrize("size", [EXPANSION_MAX * 1000, 1 << 40, (1 << 64) - 1])
def test_a_file_that_claims_more_than_it_can_hold_is_not_believed(lab, size):
    assert not isinstance(put(lab, _joined([b"x"], [0], size, 1024 * 1024)), PackedFile)
    assert not isinstance(put(lab, MAGIC + bytes(HEAD.size - 8)), PackedFile)
    count = 1000
    assert not isinstance(put(lab, _joined([b""] * count, [0] * count, count << 20, 1 << 20)), PackedFile)


def test_bytes_put_over_a_packed_file_are_there_and_nothing_else_changes(lab):
    data, rng = some_bytes(3000), random.Random(5)
    for _ in range(40):
        plain, writes = bytearray(data), []
        for _ in range(3):
            at = rng.randrange(len(data))
            writes.append((at, rng.randbytes(min(rng.choice((1, 50, 700)), len(data) - at))))
            plain[at : at + len(writes[-1][1])] = writes[-1][1]
        again = altered(put(lab, pack(data, 300)), writes)
        assert put(lab, again).pread(5000, 0) == plain


def test_damage_beside_what_is_put_over_stays_damage(lab):
    data = some_bytes(900)
    hurt = bytearray(pack(data, 300))
    hurt[-1] ^= 1
    file = put(lab, bytes(hurt))
    again = put(lab, altered(file, [(10, b"abc")]))
    assert again.pread(300, 0) == data[:10] + b"abc" + data[13:300] and not again.damaged
    assert altered(again, [(905, b"x")]) is None


# -- the stream


def test_sealed_segments_are_compressed_and_the_last_one_is_not(lab):
    store, stream = made(lab)
    plain = type(lab)()
    made(plain, on=False)
    paths = [path for path in sorted(lab.disk.names) if path.endswith(".seg")]
    assert packed_files(lab) == paths[:-1] != [] and not packed_files(plain)
    sizes = [sum(len(i.cache) for p, i in disk.names.items() if p.endswith(".seg")) for disk in (lab.disk, plain.disk)]
    assert sizes[0] < sizes[1] * 0.7
    before = picture(stream)
    assert [m[4] for m in before[0]] == [payload(n) for n in range(60)]
    assert [stream.get(seq).payload for seq in (1, 30, 7, 59)] == [payload(n) for n in (0, 29, 6, 58)]
    store.close()
    assert picture(lab.open().streams["A"]) == before and not lab.report.notes


@pytest.mark.parametrize("indexes", [True, False])
def test_a_start_after_a_kill_finds_everything_with_and_without_index_files(lab, indexes):
    _store, stream = made(lab)
    stream.remove(4)
    stream.remove(31)
    lab.pump(_store)
    before = picture(stream)
    for path in [path for path in lab.disk.names if path.endswith(".idx") and not indexes]:
        del lab.disk.names[path]
    assert picture(lab.open().streams["A"]) == before and not lab.report.damaged


def test_switched_off_it_stays_readable_and_what_is_written_anew_is_plain(lab):
    store, stream = made(lab)
    stream.compress(False)
    before, packed = picture(stream), packed_files(lab)
    lab.fill(store, stream, 40)
    assert packed_files(lab) == packed and picture(stream)[0][:60] == before[0]
    for seq in range(1, 55):
        if seq % 8:
            stream.remove(seq)
    lab.pump(store)
    assert not packed_files(lab) and stream.get(8).payload == payload(7)
    assert picture(lab.open().streams["A"]) == picture(stream)


def test_switched_on_late_it_takes_what_is_sealed_from_then_on(lab):
    store, stream = made(lab, on=False)
    stream.compress(True)
    old = [path for path in sorted(lab.disk.names) if path.endswith(".seg")][:-2]
    lab.fill(store, stream, 60)
    assert packed_files(lab) and set(old) <= set(lab.disk.names)


def test_a_stop_between_seal_and_compression_is_made_up_for(lab):
    store, stream = made(lab, on=False)
    store.close()
    stream = lab.open().streams["A"]
    newest = stream._index.segments[-2].base
    stream.compress(True)
    stream.append(b"s", b"", b"", 1000)
    lab.pump(stream._host)
    assert int(packed_files(lab)[0][-26:-6]) == newest


def test_what_is_erased_is_gone_from_compressed_segments_and_the_rest_is_there(lab):
    store, stream = made(lab)
    before = picture(stream)[0]
    for seq in (2, 3, 20):
        assert on_disk(lab, payload(seq - 1))
        stream.remove(seq, erase=True)
    done = []
    stream.on_durable(lambda error: done.append((error, [on_disk(lab, payload(seq - 1)) for seq in (2, 3, 20)])))
    lab.pump(store)
    assert done == [(None, [False] * 3)]
    after = [m for m in before if m[0] not in (2, 3, 20)]
    assert picture(stream)[0] == after and packed_files(lab)
    assert picture(lab.open().streams["A"])[0] == after and not lab.report.damaged


def test_a_reader_does_not_hold_the_file_that_an_erasure_replaced(lab):
    store, stream = made(lab)
    stream.remove(2, erase=True)
    commit = stream.begin_commit()
    assert stream.get(3).payload == payload(2)  # opens the file before it is replaced
    commit.run()
    stream.finish_commit(commit)
    segment, position = stream._index.locate(3)
    assert payload(1) not in stream.log._cache.reader(segment.body).pread(1 << 20, 0)
    assert stream.log._reader.message_at(segment, position).payload == payload(2)
    store.close()


@pytest.mark.parametrize("power", [False, True])
def test_an_erasure_that_a_crash_cut_short_is_finished(lab, power):
    step, ended = 0, False
    while not ended:
        lab = type(lab)()
        store, stream = made(lab)
        stream.remove(2, erase=True)
        lab.disk.steps_left = step
        try:
            lab.pump(store)
            ended = True
        except Crash:
            pass
        if power:
            lab.disk.power(random.Random(step))
        store = lab.open()
        again = store.streams["A"]
        assert not lab.report.damaged and [again.get(seq).payload for seq in (1, 3)] == [payload(0), payload(2)]
        lab.pump(store)
        assert again.get(2) is None or not ended
        assert again.get(2) is not None or not on_disk(lab, payload(1))
        step += 1
    assert step > 5


def test_a_damaged_block_is_refused_by_its_readers_alone_and_never_written_anew(lab):
    store, stream = made(lab)
    path = packed_files(lab)[0]
    inode = lab.disk.names[path]
    count = HEAD.unpack(bytes(inode.cache[: HEAD.size]))[4]
    inode.cache[HEAD.size + 8 * count + 100] ^= 4  # in the first block of several
    stream.log._cache.close()
    with pytest.raises(StoreDamagedError):
        stream.get(1)
    assert stream.get(stream.last_seq) and not store.healthy
    for seq in range(2, 50):
        stream.remove(seq)
    lab.pump(store)
    assert path in lab.disk.names


def test_an_erasure_in_a_damaged_block_is_refused_and_the_stream_goes_on(lab):
    store, stream = made(lab)
    inode = lab.disk.names[packed_files(lab)[0]]
    inode.cache[HEAD.size + 8 * HEAD.unpack(bytes(inode.cache[: HEAD.size]))[4] + 100] ^= 4
    answers = []
    stream.remove(1, erase=True)
    stream.on_durable(answers.append)
    lab.pump(store)
    assert isinstance(answers[0], StoreDamagedError) and not store.healthy
    stream.append(b"s", b"", b"more", 1000)
    stream.on_durable(answers.append)
    lab.pump(store)
    assert answers[1:] == [None] and stream.get(61).payload == b"more"
    store.close()


def test_compressed_segments_without_the_one_after_them_are_damage(lab):
    made(lab)
    last = [path for path in sorted(lab.disk.names) if path.endswith(".seg")][-1]
    del lab.disk.names[last], lab.disk.names["WITNESS"]
    lab.open()
    assert "the segment after it is missing" in str(lab.report.damaged)
