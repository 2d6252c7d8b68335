"""Zeros that are written ahead of small commits, so that a sync need not record a new length of the file."""

import errno

import msgspec
import pytest

from natsctl.store import frame
from natsctl.store.file_log import MAX_ZEROS, zeros_ahead
from natsctl.store.store import Store


@pytest.fixture
def lab(lab):
    lab.options = msgspec.structs.replace(lab.options, segment_bytes=1 << 20, page_bytes=64)
    return lab


def begun(lab, count=60):
    """Return a store and a stream with room written ahead of its messages."""
    store = lab.open()
    stream = store.create("A", b"", "file")
    for n in range(count):
        lab.fill(store, stream, 1, lambda _, n=n: b"s.%d" % (n % 3))
    return store, stream


def length_of(lab, stream):
    return lab.disk.open_read(stream.log.file.path).size()


def test_most_small_commits_leave_the_length_of_the_file_alone(lab):
    store, stream = begun(lab)
    lengths = set()
    for _ in range(40):
        lab.fill(store, stream, 1)
        assert length_of(lab, stream) >= stream.log.file.settled
        lengths.add(length_of(lab, stream))
    assert len(lengths) < 10


@pytest.mark.parametrize("end", [100, 4095, 5000, 32_768, 40_000, 1_000_000, 8_000_000])
def test_no_more_than_a_share_of_the_file_is_written_ahead(end):
    zeros = zeros_ahead(end, 0, 4096)
    assert zeros <= min(end // 8, MAX_ZEROS)
    assert not zeros or (end + zeros) % 4096 == 0
    assert zeros_ahead(end, end + 1, 4096) == 0, "there is room"


def test_zeros_are_no_damage_after_a_kill_and_the_stream_goes_on_in_them(lab):
    _, stream = begun(lab)
    settled, length = stream.log.file.settled, length_of(lab, stream)
    assert length > settled
    store = lab.open()
    again = store.streams["A"]
    assert not lab.report.damaged and not lab.report.notes
    assert (again.last_seq, again.log.file.settled, length_of(lab, again)) == (60, settled, length)
    lab.fill(store, again, 1)
    assert length_of(lab, again) == length
    assert lab.open().streams["A"].last_seq == 61


def test_a_clean_stop_and_rest_give_the_room_back(lab):
    store, stream = begun(lab)
    path, settled = stream.log.file.path, stream.log.file.settled
    assert length_of(lab, stream) > settled
    stream.backing.close_idle()
    assert length_of(lab, stream) == settled
    lab.fill(store, stream, 1)
    settled = stream.log.file.settled
    store.close()
    assert lab.disk.open_read(path).size() == settled
    assert lab.open().streams["A"].last_seq == 61


def test_a_stop_after_a_start_without_messages_gives_the_room_back(lab):
    _, stream = begun(lab)
    path, settled = stream.log.file.path, stream.log.file.settled
    lab.open().close()
    assert lab.disk.open_read(path).size() == settled


def test_a_sealed_segment_ends_with_its_seal(lab):
    lab.options = msgspec.structs.replace(lab.options, segment_bytes=4096)
    _, stream = begun(lab, 200)
    sealed = [segment.body for segment in stream._index.segments[:-1]]
    assert sealed
    for file in sealed:
        assert lab.disk.open_read(file.path).size() == file.settled
    assert lab.open().streams["A"].last_seq == 200 and not lab.report.damaged


def test_a_message_finds_room_where_zeros_do_not(lab):
    store, stream = begun(lab)
    while stream.log.file.zeros_end - stream.log.file.size > 70:
        lab.fill(store, stream, 1)
    lab.disk.room = 300
    for _ in range(3):
        lab.fill(store, stream, 1)
    assert store.healthy
    assert length_of(lab, stream) == stream.log.file.settled
    lab.disk.room = None
    lab.fill(store, stream, 1)
    last = stream.last_seq
    assert length_of(lab, stream) > stream.log.file.settled
    assert lab.open().streams["A"].last_seq == last


def test_a_refused_message_takes_the_zeros_with_it(lab):
    store, stream = begun(lab)
    refused = []
    lab.disk.room = 0
    stream.append(b"s", b"", bytes(5000), 9)
    stream.on_durable(refused.append)
    lab.pump(store)
    assert refused and refused[0] is not None
    assert length_of(lab, stream) == stream.log.file.settled
    lab.disk.room = None
    lab.fill(store, stream, 2)
    assert lab.open().streams["A"].last_seq == 62


def test_what_stands_torn_in_the_zeros_is_cut_and_reported(lab):
    _, stream = begun(lab)
    file = stream.log.file
    torn = frame.encode_message(file.head.salt, 60, 61, 5000, 0, b"s", b"", bytes(range(1, 200)))[:-20]
    lab.disk.open(file.path).pwrite(torn, file.settled)
    again = lab.open().streams["A"]
    assert again.last_seq == 60
    assert [note for note in lab.report.notes if "were never synced; cut" in note]
    assert lab.disk.open_read(again.log.file.path).size() == again.log.file.settled


def test_zeros_in_the_place_of_synced_messages_are_damage(lab):
    store, stream = begun(lab)
    lab.fill(store, stream, 1)
    segment = stream._index.segments[-1]
    start = segment.offsets[-2]
    lab.disk.open(segment.body.path).pwrite(bytes(length_of(lab, stream) - start), start)
    lab.open()
    assert "A" in lab.report.damaged


def test_a_disk_that_refuses_the_shorter_length_keeps_the_stream(lab, monkeypatch):
    store, stream = begun(lab)

    def refuse(size):
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(stream.log.file.writer, "truncate", refuse)
    assert isinstance(store, Store)
    store.close()
    monkeypatch.undo()
    assert lab.open().streams["A"].last_seq == 60 and not lab.report.damaged
