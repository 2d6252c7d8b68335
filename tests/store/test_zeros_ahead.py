"""Zeros ahead of the messages of a segment, so that a sync has no new length of the file to record."""

import errno

import msgspec
import pytest

from natsctl.store import frame
from natsctl.store.file_log import MAX_ZEROS, zeros_ahead
from tests.support.simdisk import SimFile


@pytest.fixture
def lab(lab):
    lab.options = msgspec.structs.replace(lab.options, segment_bytes=1 << 20, page_bytes=64)
    return lab


@pytest.fixture
def stream(lab):
    """A stream whose file ends with zeros, and its store as `lab.store`."""
    lab.store = lab.open()
    stream = lab.store.create("A", b"", "file")
    add(lab, stream, 60)
    assert length_of(lab, stream) > stream.log.file.settled
    return stream


def add(lab, stream, count=1):
    for _ in range(count):
        lab.fill(lab.store, stream, 1)


def length_of(lab, stream):
    return lab.disk.size_of(stream.log.file.path)


def test_few_small_commits_change_the_length_of_the_file(lab, stream):
    lengths = set()
    for _ in range(40):
        add(lab, stream)
        assert length_of(lab, stream) >= stream.log.file.settled
        lengths.add(length_of(lab, stream))
    assert len(lengths) < 10


@pytest.mark.parametrize("end", [100, 4095, 5000, 32_768, 40_000, 1_000_000, 8_000_000])
def test_zeros_are_a_share_of_the_file_up_to_whole_pages(end):
    zeros = zeros_ahead(end, 0, 4096)
    assert zeros <= min(end // 8, MAX_ZEROS)
    assert not zeros or (end + zeros) % 4096 == 0
    assert bool(zeros) == (end >= 32_768)
    assert zeros_ahead(end, end, 4096) == 0


@pytest.mark.parametrize("way", ["not synced", "encrypted"])
def test_a_segment_whose_zeros_would_not_help_gets_none(lab, way):
    lab.options = msgspec.structs.replace(lab.options, sync="never" if way == "not synced" else "always")
    lab.key = "secret" if way == "encrypted" else lab.key
    lab.store = lab.open()
    stream = lab.store.create("A", b"", "file")
    add(lab, stream, 60)
    assert lab.store._disk.open_read(stream.log.file.path).size() == stream.log.file.settled


def test_a_start_after_a_kill_cuts_off_the_zeros(lab, stream):
    settled = stream.log.file.settled
    lab.store = lab.open()
    again = lab.store.streams["A"]
    assert not lab.report.damaged and not lab.report.notes
    assert (again.last_seq, again.log.file.settled, length_of(lab, again)) == (60, settled, settled)
    add(lab, again)
    assert lab.open().streams["A"].last_seq == 61


def test_a_store_that_is_encrypted_after_a_kill_accepts_messages(lab, stream):
    lab.key = "secret"
    lab.store = lab.open()
    add(lab, lab.store.streams["A"])
    assert lab.store.healthy
    assert lab.open().streams["A"].last_seq == 61


def test_an_idle_file_and_one_of_a_stopped_store_have_no_zeros(lab, stream):
    path, settled = stream.log.file.path, stream.log.file.settled
    stream.backing.close_idle()
    assert length_of(lab, stream) == settled
    add(lab, stream, 20)
    assert length_of(lab, stream) > stream.log.file.settled
    settled = stream.log.file.settled
    lab.store.close()
    assert lab.disk.size_of(path) == settled


def test_a_sealed_segment_ends_with_its_seal(lab):
    lab.options = msgspec.structs.replace(lab.options, segment_bytes=4096)
    lab.store = lab.open()
    stream = lab.store.create("A", b"", "file")
    add(lab, stream, 200)
    sealed = [segment.body for segment in stream._index.segments[:-1]]
    assert sealed
    for file in sealed:
        assert lab.disk.size_of(file.path) == file.settled
    assert lab.open().streams["A"].last_seq == 200 and not lab.report.damaged


def test_a_message_finds_room_where_zeros_do_not(lab, stream):
    while stream.log.file.zeros_end - stream.log.file.size > 70:
        add(lab, stream)
    lab.disk.room = 300
    add(lab, stream, 3)
    assert lab.store.healthy
    assert length_of(lab, stream) == stream.log.file.settled
    lab.disk.room = None
    add(lab, stream)
    assert length_of(lab, stream) > stream.log.file.settled
    assert lab.open().streams["A"].last_seq == stream.last_seq


def test_a_refused_message_removes_the_zeros(lab, stream):
    refused = []
    lab.disk.room = 0
    stream.append(b"s", b"", bytes(5000), 9)
    stream.on_durable(refused.append)
    lab.pump(lab.store)
    assert refused and refused[0] is not None
    assert length_of(lab, stream) == stream.log.file.settled
    lab.disk.room = None
    add(lab, stream, 2)
    assert lab.open().streams["A"].last_seq == 62


def test_a_torn_message_in_the_zeros_is_cut_and_reported(lab, stream):
    file = stream.log.file
    torn = frame.encode_message(file.head.salt, 60, 61, 5000, 0, b"s", b"", bytes(range(1, 200)))[:-20]
    lab.disk.alter(file.path, file.settled, torn)
    again = lab.open().streams["A"]
    assert again.last_seq == 60
    assert [note for note in lab.report.notes if "were never synced; cut" in note]
    assert length_of(lab, again) == again.log.file.settled


def test_zeros_in_the_place_of_synced_messages_are_damage(lab, stream):
    segment = stream._index.segments[-1]
    start = segment.offsets[-2]
    lab.disk.alter(segment.body.path, start, bytes(length_of(lab, stream) - start))
    lab.open()
    assert "A" in lab.report.damaged


def test_a_disk_that_refuses_the_shorter_length_keeps_the_stream(lab, stream, monkeypatch):
    def refuse(file, size):
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(SimFile, "truncate", refuse)
    monkeypatch.setattr(type(stream.log.file.writer), "truncate", refuse)
    lab.store.close()
    monkeypatch.undo()
    assert lab.open().streams["A"].last_seq == 60 and not lab.report.damaged
