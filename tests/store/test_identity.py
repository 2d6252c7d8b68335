"""Files that are not where they belong: swapped, foreign, doubled or old, of every kind."""

import itertools
import json
import random
import re

import pytest

from natsctl.store.errors import StoreDamagedError, StoreFormatError
from natsctl.store.file_commit import write_all
from natsctl.store.filters import ALL
from natsctl.store.frame import FILE_HEAD_BYTES, parse_file_head
from natsctl.store.high_water import read_high_water
from tests.store.conftest import StoreHarness

A, B = "streams/s000001", "streams/s000002"


def contents(lab, path):
    file = lab.disk.open_read(path)
    return file.pread(10**7, 0)


def put(lab, path, data):
    if lab.disk.exists(path):
        lab.disk.unlink(path)
    file = lab.disk.open(path, create=True)
    write_all(file, data, 0)
    file.sync()
    lab.disk.fsync_dir(path.rpartition("/")[0])


def image(lab):
    return {name: contents(lab, name) for name in lab.disk.names}


def folder(found, name):
    return {path: data for path, data in found.items() if path.startswith(name + "/")}


def fill(lab, key, count=60, meta=b"meta"):
    """Make a stream with sealed segments, index files, a journal and two versions of its meta file."""
    store = lab.store
    stream = store.create(key, b"first", "file")
    for _ in range(count // 20):
        lab.fill(store, stream, 20)
    lab.fill(store, stream, count % 20)
    stream.append_record(1, b"consumer of " + key.encode())
    stream.set_meta(meta)
    stream.request_sync()
    lab.pump(store)
    return stream


def work(lab, key):
    """Go on with a stream, so that each of its files is another one than before: longer, rewritten or under a name."""
    store, stream = lab.store, lab.store.streams[key]
    for seq in range(stream.first_seq + 1, stream.first_seq + 30):
        stream.remove(seq)
    for _ in range(6):
        lab.fill(store, stream, 20)
    stream.rewrite([(1, b"a new journal")])
    stream.set_meta(b"changed again")
    stream.request_sync()
    lab.pump(store)


class Places:
    """A store with two streams, closed; another one made the same way; and what the first was before its last work."""

    def __init__(self, salts=1):
        self.lab = self.made(salts)
        self.before = image(self.lab)
        self.lab.store = self.lab.open()
        work(self.lab, "$G/A")
        work(self.lab, "$G/B")
        self.lab.store.close()
        self.now = image(self.lab)
        other = self.made(1000)
        other.store = other.open()
        work(other, "$G/A")
        work(other, "$G/B")
        other.store.close()
        self.other = image(other)

    @staticmethod
    def made(salts):
        lab = StoreHarness()
        lab.salts = itertools.count(salts)
        lab.store = lab.open()
        fill(lab, "$G/A")
        fill(lab, "$G/B")
        lab.store.close()
        return lab


KINDS = {
    "meta": r"meta",
    "first segment": r"\d{20}-\d+\.seg",
    "last segment": r"\d{20}-\d+\.seg",
    "journal": r"journal-\d+\.log",
}


def path_of(files, kind, base=A):
    found = sorted(path for path in files if re.fullmatch(re.escape(base) + "/" + KINDS[kind], path))
    return found[-1] if kind.startswith("last") else found[0]


def refused(lab):
    """Open the store and return what it refuses; whatever that is must have been left alone."""
    before = {path: data for path, data in image(lab).items() if path.startswith("streams/")}
    store = lab.open()
    after = image(lab)
    for key in store.damaged:
        held = A if key == "$G/A" else B
        assert folder(before, held) == folder(after, held), "something was touched"
    return lab.report.damaged


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["another stream", "another store", "an earlier time"])
@pytest.mark.parametrize("named", ["as it was", "as here"])
def test_a_file_from_elsewhere_is_refused_with_its_name(kind, where, named):
    places = Places()
    lab, here = places.lab, path_of(places.now, kind)
    files = {"another stream": places.now, "another store": places.other, "an earlier time": places.before}[where]
    source = path_of(files, kind, B if where == "another stream" else A)
    data = contents(lab, source) if where == "another stream" else files[source]
    assert data != places.now[here], "the test compares a file with itself"
    lab.disk.unlink(here)
    name = here if named == "as here" else f"{A}/{source.rpartition('/')[2]}"
    put(lab, name, data)
    found = refused(lab)
    assert list(found) == ["$G/A"], found
    assert name in found["$G/A"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_is_known_after_an_unclean_stop(kind):
    places = Places()
    for source, files in (("another stream", places.now), ("another store", places.other)):
        lab = Places().lab
        lab.open()  # a run that is killed: the mark of the clean stop is gone
        here = path_of(image(lab), kind)
        data = files[path_of(files, kind, B if source == "another stream" else A)]
        put(lab, here, data)
        found = refused(lab)
        assert list(found) == ["$G/A"] and here in found["$G/A"], (source, found)


def test_files_of_another_store_are_known_without_the_high_water_file():
    places = Places()
    for kind in KINDS:
        lab = Places().lab
        lab.disk.unlink("WITNESS")
        here = path_of(image(lab), kind)
        put(lab, here, places.other[path_of(places.other, kind)])
        assert list(refused(lab)) == ["$G/A"], kind
        assert any("WITNESS is missing" in note for note in lab.report.notes)


def test_a_journal_is_no_segment_and_a_segment_no_journal():
    for with_file in (True, False):
        lab = StoreHarness()
        lab.store = lab.open()
        fill(lab, "$G/A", count=5)
        lab.store.close()
        segment, journal = path_of(image(lab), "last segment"), path_of(image(lab), "journal")
        for target, source in ((segment, journal), (journal, segment)):
            kept, data = contents(lab, target), contents(lab, source)
            if not with_file:
                lab.disk.unlink("WITNESS")
            put(lab, target, data)
            found = refused(lab)
            assert target in found["$G/A"], (with_file, target)
            put(lab, target, kept)


def test_an_index_file_of_another_segment_is_reported_and_not_used():
    places = Places()
    lab = places.lab
    indexes = sorted(path for path in places.now if path.endswith(".idx") and path.startswith(A))
    assert len(indexes) > 1
    for source, data in (
        ("stream", places.now[next(p for p in sorted(places.now) if p.startswith(B) and p.endswith(".idx"))]),
        ("store", places.other[indexes[0]]),
        ("segment", places.now[indexes[1]]),
    ):
        put(lab, indexes[0], data)
        whole = [m.payload for m in lab.open().streams["$G/A"].read_from(1, ALL, 1000)]
        assert any(indexes[0] in note and "another segment" in note for note in lab.report.notes), source
        put(lab, indexes[0], places.now[indexes[0]])
        assert whole == [m.payload for m in lab.open().streams["$G/A"].read_from(1, ALL, 1000)]


def test_a_folder_under_two_names_is_served_once():
    places = Places()
    lab = places.lab
    lab.disk.mkdir("streams/s000009")
    for path, data in folder(places.now, A).items():
        put(lab, path.replace(A, "streams/s000009"), data)
    for _ in range(2):  # it is no less strange at the second start
        store = lab.open()
        assert sorted(store.streams) == ["$G/A", "$G/B"] and list(store.damaged) == ["s000009"]
        assert "belongs to no stream of this store" in store.damaged["s000009"]
        assert store.streams["$G/A"].records() == [(1, b"a new journal")]
    store.discard("s000009")
    lab.pump(store)
    assert not lab.disk.exists("streams/s000009") and sorted(store.streams) == ["$G/A", "$G/B"]
    lab.open()
    assert not lab.report.damaged


def test_a_folder_that_lost_its_own_name_is_not_served_under_another():
    lab = Places().lab
    lab.disk.rename(A, "streams/s000009")
    store = lab.open()
    assert list(store.streams) == ["$G/B"] and sorted(store.damaged) == ["$G/A", "s000009"]


def test_two_folders_that_were_swapped_are_both_refused():
    lab = Places().lab
    lab.disk.rename(A, "streams/x")
    lab.disk.rename(B, A)
    lab.disk.rename("streams/x", B)
    store = lab.open()
    assert not store.streams and sorted(store.damaged) == ["$G/A", "$G/B"]


@pytest.mark.parametrize("where", ["an earlier time", "another store"])
def test_a_whole_folder_from_elsewhere_is_refused(where):
    places = Places()
    lab = places.lab
    for path in folder(places.now, A):
        lab.disk.unlink(path)
    for path, data in folder(places.before if where == "an earlier time" else places.other, A).items():
        put(lab, path, data)
    assert list(refused(lab)) == ["$G/A"]


@pytest.mark.parametrize("clean", [True, False])
def test_the_folder_of_a_deleted_stream_that_was_put_back_is_refused(clean):
    places = Places()
    lab = places.lab
    store = lab.open()
    store.delete("$G/A")
    lab.pump(store)
    if clean:
        store.close()
    lab.disk.mkdir(A)
    for path, data in folder(places.now, A).items():
        put(lab, path, data)
    for _ in range(2):
        store = lab.open()
        assert list(store.streams) == ["$G/B"] and list(store.damaged) == ["$G/A"]
        assert "it was put there later" in store.damaged["$G/A"]


@pytest.mark.parametrize("kind", ["first segment", "last segment", "journal"])
def test_a_doubled_file_is_never_taken_for_a_newer_one(kind):
    lab = Places().lab
    path = path_of(image(lab), kind)
    stem, generation, suffix = re.fullmatch(r"(.*-)(\d+)(\..*)", path).groups()
    put(lab, f"{stem}{int(generation) + 1}{suffix}", contents(lab, path))
    assert list(refused(lab)) == ["$G/A"]


def test_an_earlier_generation_beside_the_newer_one_is_reported():
    places = Places()
    lab = places.lab
    old = {path for path in folder(places.before, A) if path.endswith((".seg", ".log"))} - set(places.now)
    journal = next(path for path in old if path.endswith(".log"))
    put(lab, journal, places.before[journal])
    store = lab.open()
    assert store.streams["$G/A"].records() == [(1, b"a new journal")]
    assert any(journal in note and "superseded" in note for note in lab.report.notes)


def test_a_foreign_file_that_the_stream_has_no_use_for_is_left_alone():
    places = Places()
    lab = places.lab
    journal = path_of(places.other, "journal")
    assert journal == path_of(places.now, "journal") == f"{A}/journal-1.log"
    put(lab, f"{A}/journal-0.log", places.other[journal])
    purged = lab.open()
    purged.streams["$G/A"].purge()
    lab.pump(purged)
    lab.fill(purged, purged.streams["$G/A"], 3)
    purged.close()
    below = path_of(places.other, "first segment")
    put(lab, below, places.other[below])
    for _ in range(2):
        store = lab.open()
        assert store.streams["$G/A"].messages == 3 and not lab.report.damaged
        assert min(message.seq for message in store.streams["$G/A"].remnants(1)) > 100  # the foreign ones begin with 1
        for path, data in ((f"{A}/journal-0.log", places.other[journal]), (below, places.other[below])):
            assert contents(lab, path) == data
            assert any(path in note and "not changed" in note for note in lab.report.notes), path
        lab.pump(store)


def test_an_older_high_water_file_is_known_and_its_clean_stop_is_not_believed():
    places = Places()
    lab = places.lab
    put(lab, "WITNESS", places.before["WITNESS"])
    store = lab.open()
    assert sorted(store.streams) == ["$G/A", "$G/B"] and not store.damaged and not lab.report.clean_stop
    assert any("WITNESS is older than the store's last run" in note for note in lab.report.notes)


def test_the_high_water_file_of_another_store_ends_the_start_and_is_left_alone():
    places = Places()
    lab = places.lab
    put(lab, "WITNESS", places.other["WITNESS"])
    with pytest.raises(StoreDamagedError, match="WITNESS belongs to store"):
        lab.open()
    assert contents(lab, "WITNESS") == places.other["WITNESS"]
    lab.disk.unlink("WITNESS")
    assert sorted(lab.open().streams) == ["$G/A", "$G/B"]
    lab = Places().lab
    put(lab, "FORMAT", places.other["FORMAT"])
    with pytest.raises(StoreDamagedError, match="FORMAT says store"):
        lab.open()
    put(lab, "FORMAT", contents(lab, "FORMAT")[:-1])
    with pytest.raises(StoreFormatError):
        lab.open()


def test_a_stream_whose_creation_is_known_is_not_removed_under_another_name():
    lab = Places().lab
    lab.disk.rename(A, f"{A}.new")
    files = folder(image(lab), f"{A}.new")
    store = lab.open()
    assert store.damaged == {"$G/A": f"{A} is missing"} and folder(image(lab), f"{A}.new") == files


def test_a_whole_store_from_a_backup_opens_as_it_was():
    places = Places()
    lab = StoreHarness()
    lab.disk.mkdir("streams")
    lab.disk.mkdir(A)
    lab.disk.mkdir(B)
    for path, data in places.before.items():
        put(lab, path, data)
    store = lab.open()
    assert sorted(store.streams) == ["$G/A", "$G/B"] and lab.report.clean_stop and not lab.report.notes
    assert store.streams["$G/A"].messages == 60 and store.streams["$G/A"].meta == b"meta"


def test_names_of_streams_without_a_folder_or_a_readable_meta_stay_taken():
    for loss in ("folder", "meta", "no meta"):
        lab = Places().lab
        if loss == "folder":
            for path in folder(image(lab), A):
                lab.disk.unlink(path)
            lab.disk.rmdir(A)
        elif loss == "meta":
            lab.disk.open(f"{A}/meta").pwrite(b"x", 3)
        else:
            lab.disk.unlink(f"{A}/meta")
        for _ in range(2):  # also where the run before could not read it either
            store = lab.open()
            assert list(store.damaged) == ["$G/A"], loss
            with pytest.raises(StoreDamagedError, match="s000001"):
                store.create("$G/A", b"", "file")
            store.close()


def test_a_refused_stream_is_served_again_when_its_file_is_put_back():
    places = Places()
    lab = places.lab
    for kind in KINDS:
        path = path_of(places.now, kind)
        kept = contents(lab, path)
        lab.disk.unlink(path)
        for _ in range(2):
            store = lab.open()
            assert list(store.damaged) == ["$G/A"]
            lab.fill(store, store.streams["$G/B"], 3)
            store.close()
        put(lab, path, kept)
        store = lab.open()
        assert store.streams["$G/A"].records() == [(1, b"a new journal")] and not lab.report.damaged, kind
        store.close()


def test_every_file_says_whose_it_is():
    places = Places()
    identities = {}
    for path, data in places.now.items():
        if path.endswith("/meta"):
            identities[path[: len(A)]] = json.loads(data.partition(b"\n")[0])["identity"]
    assert len(set(identities.values())) == 2
    store = json.loads(places.now["FORMAT"])["store"]
    for path, data in places.now.items():
        mine = bytes.fromhex(identities.get(path[: len(A)], store))
        if path.endswith((".seg", ".log")):
            assert parse_file_head(data[:FILE_HEAD_BYTES]).identity == mine
        elif path.endswith((".idx", "WITNESS")):
            assert mine in data[:100]
    entries = read_high_water(places.lab.disk, bytes.fromhex(store)).entries
    assert [entry.key for entry in entries.values()] == ["$G/A", "$G/B"]


def test_removals_alone_are_synced_by_a_stop_under_a_relaxed_policy():
    lab = StoreHarness()
    lab.options = lab.options.__class__(segment_bytes=2048, reserve_bytes=0, sync=10**12, high_water_interval_ns=0)
    store = lab.open()
    stream = store.create("$G/A", b"meta")
    lab.fill(store, stream, 5)
    stream.flush()
    lab.pump(store)
    stream.drop_first()
    lab.pump(store)
    assert stream.backing.unsynced
    store.close()
    lab.disk.power(random.Random(0))
    assert lab.open().streams["$G/A"].first_seq == 2


@pytest.mark.parametrize("loss", ["a flipped bit", "a lost segment", "another stream's journal", "an older meta"])
def test_what_can_be_read_of_a_refused_stream_becomes_a_stream_again(loss):
    places = Places()
    lab = places.lab
    last = path_of(places.now, "last segment")
    if loss == "a flipped bit":
        file = lab.disk.open(last)
        file.pwrite(bytes([file.pread(1, 200)[0] ^ 1]), 200)
    elif loss == "a lost segment":
        lab.disk.unlink(last)
    elif loss == "another stream's journal":
        put(lab, path_of(places.now, "journal"), places.now[path_of(places.now, "journal", B)])
    else:
        put(lab, f"{A}/meta", places.before[f"{A}/meta"])
    twin = StoreHarness()
    for name in ("streams", A, B):
        twin.disk.mkdir(name)
    for path, data in places.now.items():
        put(twin, path, data)
    before = {m.seq: m for m in twin.open().streams["$G/A"].read_from(1, ALL, 1000)}
    remains = folder(image(lab), A)
    store = lab.open()
    assert list(store.damaged) == ["$G/A"]
    store.salvage("$G/A")
    store.close()
    store = lab.open()
    stream = store.streams["$G/A"]
    after = {m.seq: m for m in stream.read_from(1, ALL, 1000)}
    assert not store.damaged and after.items() <= before.items() and len(after) > len(before) / 2
    assert stream.last_seq == 180 and stream.meta == (b"meta" if loss == "an older meta" else b"changed again")
    assert stream.records() == ([] if "journal" in loss else [(1, b"a new journal")])
    if loss in ("another stream's journal", "an older meta"):
        assert after == before
    assert {
        path.replace("refused", "streams"): data for path, data in folder(image(lab), "refused/s000001").items()
    } == remains


def test_a_lost_configuration_has_to_be_given():
    lab = Places().lab
    lab.disk.unlink(f"{A}/meta")
    store = lab.open()
    with pytest.raises(StoreDamagedError, match="configuration"):
        store.salvage("$G/A")
    store.salvage("$G/A", b"given")
    assert store.streams["$G/A"].meta == b"given" and store.streams["$G/A"].records() == [(1, b"a new journal")]
    assert store.streams["$G/A"].messages > 100


def test_the_floor_of_a_foreign_segment_hides_no_messages():
    lab = StoreHarness()
    lab.store = lab.open()
    for key in ("$G/A", "$G/B"):
        stream = lab.store.create(key, b"", "file")
        for number in range(12):
            if key == "$G/B" and number == 4:
                stream.purge()
            lab.fill(lab.store, stream, 20)
    lab.store.close()
    files = image(lab)
    heads = {path: parse_file_head(data[:64]) for path, data in files.items() if path.endswith(".seg")}
    foreign = next(path for path, head in heads.items() if path.startswith(B) and head.floor > 1 and head.base < 200)
    own = max(path for path in heads if path.startswith(A) and path <= foreign.replace(B, A))
    lab.disk.unlink(own)
    put(lab, own, files[foreign])
    assert own in refused(lab)["$G/A"]


def test_segments_that_are_about_to_go_are_named_until_they_have_gone(lab):
    store = lab.store = lab.open()
    stream = fill(lab, "$G/A")
    bases = [mark.base for mark in stream.backing.high_water_entry(whole=True).segments]
    assert len(bases) >= 2
    for seq in range(stream.first_seq, bases[1]):
        stream.remove(seq)
    commit = stream.begin_commit()  # in flight: nothing on the disk says yet that the first segment goes
    assert [mark.base for mark in stream.backing.high_water_entry(whole=True).segments] == bases
    commit.run()
    stream.finish_commit(commit)
    lab.pump(store)
    assert [mark.base for mark in stream.backing.high_water_entry(whole=True).segments] == bases[1:]
