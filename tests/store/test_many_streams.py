"""What a start costs with many streams after a kill."""

import errno

from msgspec.structs import replace

from natsctl.store import journal
from natsctl.store.file_stream import FileStream
from natsctl.store.store import LOOKED_AT


def made(lab, count):
    store = lab.open()
    for number in range(count):
        stream = store.create(f"$G/S{number}", b"meta")
        stream.append(b"s", b"", b"payload", 1)
        stream.append_record(1, b"record")
        stream.request_sync()
    lab.pump(store)
    return store


def syncs(lab, since):
    return lab.disk.calls[since:].count("sync")


def test_a_start_after_a_kill_syncs_no_stream_that_the_high_water_file_proves_whole(lab):
    made(lab, 20)
    since = len(lab.disk.calls)
    again = lab.open()
    assert syncs(lab, since) == 1  # the high-water file of this run
    assert [again.streams[f"$G/S{number}"].messages for number in range(20)] == [1] * 20


def test_what_was_written_after_the_high_water_file_is_synced_again(lab):
    store = made(lab, 20)
    stream = store.streams["$G/S7"]
    stream.append(b"s", b"", b"more", 2)
    stream.begin_commit().run()
    since = len(lab.disk.calls)
    lab.open()
    assert syncs(lab, since) == 3  # segment and journal of that stream, and the high-water file


def test_a_journal_that_is_longer_than_the_high_water_file_says_is_synced_again(lab):
    store = made(lab, 2)
    stream = store.streams["$G/S1"]
    stream.append_record(1, b"more")
    stream.begin_commit().run()
    since = len(lab.disk.calls)
    assert len(lab.open().streams["$G/S1"].records()) == 2
    assert syncs(lab, since) == 3


def test_a_folder_whose_names_can_not_be_synced_keeps_its_stream_closed(lab, monkeypatch):
    made(lab, 2)
    broken = {"streams/s000001": OSError(errno.EIO, "broken")}
    monkeypatch.setattr(lab.disk, "fsync_dirs", lambda paths: {p: broken[p] for p in paths if p in broken})
    store = lab.open()
    assert "can not be synced" in store.damaged["$G/S0"] and list(store.streams) == ["$G/S1"]


def test_records_that_the_check_has_read_are_not_read_again(lab, monkeypatch):
    made(lab, 1)
    stream = lab.open().streams["$G/S0"]
    calls = []
    scan = journal.frame.scan
    monkeypatch.setattr(journal.frame, "scan", lambda *arguments: calls.append(1) or scan(*arguments))
    assert stream.records() == [(1, b"record")] and not calls
    assert stream.records() == [(1, b"record")] and calls


def test_records_of_a_start_give_way_to_what_is_written_after_it(lab):
    made(lab, 1)
    store = lab.open()
    stream = store.streams["$G/S0"]
    stream.append_record(2, b"new")
    lab.pump(store)
    assert stream.records() == [(1, b"record"), (2, b"new")]


def test_a_commit_looks_at_a_few_of_the_streams_that_are_open(lab, monkeypatch):
    lab.options = replace(lab.options, max_open_streams=8)
    store = made(lab, 100)
    looks, looked = [], FileStream.unsynced
    monkeypatch.setattr(FileStream, "unsynced", property(lambda files: looks.append(1) or looked.fget(files)))
    most: dict[str, int] = {}
    for turn in ("opened", "open", "synced"):
        most[turn] = 0
        for stream in store.streams.values():
            stream.lazy = turn != "synced"
            stream.append(b"s", b"", b"more", 2)
            before = len(looks)
            commit = stream.begin_commit()
            commit.run()
            stream.finish_commit(commit)
            most[turn] = max(most[turn], len(looks) - before)
        assert len(store._open) == 100 if stream.lazy else len(store._open) <= 8  # lazy ones wait for a sync
    assert most["open"] <= 2 < most["opened"] <= LOOKED_AT + 2 and most["synced"] <= LOOKED_AT + 2
