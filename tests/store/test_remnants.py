"""What can still be read of removed messages, and the repairs that leave it there until the first commit."""

from natsctl.store.filters import Filters


def made(lab, count, size=10):
    store = lab.open()
    stream = store.create("$G/A", b"meta")
    for n in range(count):
        stream.append(b"s.%d" % (n % 3), b"", b"p%0*d" % (size, n), 1000 + n)
        if n % 10 == 9:
            lab.pump(store)
    return store, stream


def seqs(stream, from_seq=1, from_ts_ns=0):
    return [message.seq for message in stream.remnants(from_seq, from_ts_ns)]


def without_unlinks_and_erasures(stream):
    """Run the log's part of the next commit only, as if the machine stopped there."""
    commit = stream.begin_commit()
    commit.plan.journal = None
    commit.plan.unlinks.clear()
    commit.plan.erasures.clear()
    commit.plan.rewrite = None
    commit.run()


def test_removed_messages_can_be_read_until_their_segment_is_rewritten(lab):
    store, stream = made(lab, 20)
    stream.remove(3)
    stream.drop_first()
    lab.pump(store)
    assert seqs(stream) == [*range(1, 21)]
    assert seqs(stream, 18) == [18, 19, 20] and seqs(stream, 1, 1015) == [16, 17, 18, 19, 20]
    again = lab.open().streams["$G/A"]
    assert seqs(again) == [*range(1, 21)]


def test_messages_without_headers_are_left_out_where_the_scan_found_no_header(lab):
    store, stream = made(lab, 10)
    lab.pump(store)
    store, header = lab.open(), b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
    stream = store.streams["$G/A"]
    assert [*stream.remnants(1, headed=True)] == []
    stream.append(b"s.1", header, b"x", 2000)
    lab.pump(store)
    assert [message.seq for message in stream.remnants(1, headed=True)][-1] == 11
    again = lab.open().streams["$G/A"]
    assert [(message.seq, message.header) for message in again.remnants(11, headed=True)] == [(11, header)]


def test_headers_in_sealed_segments_are_found_and_other_messages_not_kept(lab):
    store, stream = made(lab, 100)
    stream.append(b"s.1", b"NATS/1.0\r\n\r\n", b"x", 2000)
    for n in range(100):
        stream.append(b"s.0", b"", b"p%010d" % n, 3000)
        lab.pump(store)
    again = lab.open()
    stream = again.streams["$G/A"]
    assert len([name for name in lab.disk.listdir("streams/s000001") if name.endswith(".idx")]) > 1
    assert [*stream.remnants(102, headed=True)] == [] and again._cache.bytes == 0
    assert [message.seq for message in stream.remnants(1, headed=True)] == [101]


def test_an_index_file_does_not_hide_removed_messages(lab):
    store, stream = made(lab, 100)
    stream.purge(Filters((b"s.1",)), below_seq=20)
    lab.pump(store)
    again = lab.open()
    assert any(name.endswith(".idx") for name in lab.disk.listdir("streams/s000001"))
    assert seqs(again.streams["$G/A"]) == [*range(1, 101)]


def test_segments_below_the_floor_are_there_until_the_first_commit(lab):
    _store, stream = made(lab, 100)
    stream.purge()
    without_unlinks_and_erasures(stream)
    store = lab.open()
    again = store.streams["$G/A"]
    assert seqs(again) == [*range(1, 101)] and again.messages == 0
    files = len(lab.disk.listdir("streams/s000001"))
    lab.pump(store)
    assert len(lab.disk.listdir("streams/s000001")) < files
    assert seqs(again) == seqs(lab.open().streams["$G/A"]) == [*range(81, 101)]  # the segment that takes appends


def test_an_erasure_that_had_not_begun_waits_for_the_first_commit(lab):
    _store, stream = made(lab, 100, size=20)
    stream.remove(7, erase=True)
    stream.remove(100, erase=True)
    without_unlinks_and_erasures(stream)
    for _ in range(2):  # a start that is killed changes nothing of that
        store = lab.open()
        again = store.streams["$G/A"]
        assert {7, 100} <= set(seqs(again)) and again.get(7) is None
    lab.pump(store)
    for payload in (b"p%020d" % 6, b"p%020d" % 99):
        assert not lab.disk.contains(payload)
    assert not {7, 100} & set(seqs(again)) and not lab.report.notes
    assert not {7, 100} & set(seqs(lab.open().streams["$G/A"]))


def test_times_are_found_beside_erased_messages(lab):
    store, stream = made(lab, 30)
    for seq in range(10, 21):
        stream.remove(seq, erase=True)
    lab.pump(store)
    for held in (stream, lab.open().streams["$G/A"]):
        assert [held.first_seq_at(1000 + n) for n in (0, 5, 12, 25)] == [1, 6, 21, 26]
        assert seqs(held, 1, 1012) == [*range(21, 31)]
