"""Encryption of a store: keys, conversions, and what stands in the files."""

import contextlib
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from natsctl.store import encrypted_disk
from natsctl.store.disk import PosixDisk
from natsctl.store.encrypted_disk import LOG_START, SLOTS, EncryptedDisk, LogFile
from natsctl.store.errors import StoreDamagedError, StoreError, StoreFormatError, StoreKeyError
from natsctl.store.file_commit import replace_file
from natsctl.store.filters import Filters
from natsctl.store.keys import Cipher, Keystream
from natsctl.store.layout import format_text
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from tests.store.conftest import StoreHarness, pump
from tests.support.simdisk import Crash, DiskFault, SimFile, crash_at, no_faults

CIPHERS: tuple[Cipher, ...] = ("chacha", "aes")
SECRETS = (
    b"payload-in-clear",
    b"subject-in-clear",
    b"Header-In-Clear",
    b"meta-in-clear",
    b"STREAM-IN-CLEAR",
    b"record-i",
)


class Lab(StoreHarness):
    """Stores on one disk, under one key after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.options = StoreOptions(
            segment_bytes=2048, reserve_bytes=4096, high_water_interval_ns=0, tail_index_bytes=100, block_bytes=512
        )

    def encrypted(self, key: str, prev_key: str = "", cipher: Cipher = "chacha") -> EncryptedDisk:
        return EncryptedDisk(self.disk, key, self.nonces.randbytes, cipher, prev_key, self.log.append, cost=2)

    def open(self, key: str = "", prev_key: str = "", cipher: Cipher = "chacha") -> Store:
        """Open the store as a new process would; without a key, as a plain one."""
        disk = self.encrypted(key, prev_key, cipher) if key else self.disk
        self.disk.kill()
        store = Store(disk, self.options, lambda: self.nonces.getrandbits(31) | 1, lambda: self.now, lambda text: None)
        store.open()
        return store

    def clear(self) -> list[tuple[str, bytes]]:
        """Return the files that hold something of the owner's in clear, and what."""
        return [(path, word) for path in self.disk.files() for word in SECRETS if word in self.disk.content(path)]


@pytest.fixture
def lab() -> Lab:
    return Lab()


def fill(store: Store, key: str = "$G/STREAM-IN-CLEAR", count: int = 60) -> None:
    stream = store.create(key, b'{"meta-in-clear": 1}', "file")
    pump(store)
    for number in range(count):
        header = b"NATS/1.0\r\nHeader-In-Clear: 1\r\n\r\n" if number % 3 == 0 else b""
        stream.append(b"subject-in-clear.%d" % (number % 5), header, b"payload-in-clear %d." % number, 1000 + number)
        stream.append_record(1, b"record-in-clear %d" % number)
        if number % 7 == 0:
            pump(store)
    pump(store)


def contents(store: Store) -> dict[str, list[object]]:
    return {
        key: [stream.meta, *map(tuple, stream.read_from(1, max_msgs=10_000)), *stream.records()]
        for key, stream in sorted(store.streams.items())
    }


@pytest.mark.parametrize("cipher", CIPHERS)
def test_any_piece_is_encrypted_as_it_is_in_the_whole(cipher: Cipher) -> None:
    stream, rng = Keystream(cipher, bytes(range(32))), random.Random(0)
    data = rng.randbytes(5000)
    whole = stream.over(data, 0)
    for _ in range(200):
        first = rng.randrange(len(data))
        last = rng.randrange(first, len(data) + 1)
        assert stream.over(data[first:last], first) == whole[first:last]
    assert stream.over(whole, 0) == data and whole[:64] != data[:64]
    far = (1 << 37) + 34  # 128 GiB, in the middle of a block
    assert stream.over(data[:64], far) == stream.over(data[:13], far) + stream.over(data[13:64], far + 13)


def test_the_ciphers_are_those_of_their_documents() -> None:
    """RFC 8439, A.1, test vector 1; NIST SP 800-38A, F.5.5, whose first counter block is taken as a place."""
    assert Keystream("chacha", bytes(32)).over(bytes(16), 0).hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    place = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16) * 16
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
    assert Keystream("aes", key).over(plain, place).hex() == "601ec313775789a5b7a7f504bbf3d228"


@pytest.mark.parametrize("cipher", CIPHERS)
def test_nothing_of_the_owners_is_in_any_file_whatever_is_done(lab: Lab, cipher: Cipher) -> None:
    store = lab.open("k", cipher=cipher)
    fill(store)
    fill(store, "$G/STREAM-IN-CLEAR-2")
    stream = store.streams["$G/STREAM-IN-CLEAR"]
    stream.compress(True)
    steps: tuple[Callable[[], object], ...] = (
        lambda: [stream.remove(seq, erase=True) for seq in (3, 4, 58)],
        lambda: [stream.remove(seq) for seq in range(5, 40)],
        lambda: stream.append(b"subject-in-clear.9", b"", b"payload-in-clear, again", 9000),
        lambda: stream.purge(Filters((b"subject-in-clear.1",)), 0, 0),
        lambda: stream.rewrite([(1, b"record-in-clear, rewritten")]),
        lambda: stream.set_meta(b"meta-in-clear, changed"),
        lambda: stream.purge(None, 0, 2),
        lambda: store.delete("$G/STREAM-IN-CLEAR-2"),
        store.close,
    )
    for step in steps:
        step()
        pump(store)
        assert not lab.clear()
    kept = contents(lab.open("k", cipher=cipher))
    assert len(kept) == 1 and not lab.clear() and any(path.endswith(".idx") for path in lab.disk.files())
    names = {path.rpartition("/")[2] for path in lab.disk.files()}
    assert {"KEYS", "FORMAT", "WITNESS", "meta"} <= names


def test_the_same_work_without_a_key_stands_in_clear(lab: Lab) -> None:
    fill(lab.open())
    assert {word for _, word in lab.clear()} == set(SECRETS)


def test_without_its_keys_a_store_is_refused_with_the_reason(lab: Lab) -> None:
    lab.open("k").close()
    keys = lab.disk.content("KEYS")
    lab.disk.lose("KEYS")
    lab.disk.lose("KEYS.copy")
    with pytest.raises(StoreDamagedError, match="KEYS is missing"):
        lab.open("k")
    for altered in (
        b"",
        b"{}",
        keys.replace(b'"cost": 2', b'"cost": 1099511627776'),
        keys.replace(b"scrypt", b"argon2"),
    ):
        lab.disk.put("KEYS", altered)
        with pytest.raises(StoreDamagedError, match="KEYS is damaged"):
            lab.open("k")
        lab.disk.lose("KEYS")
    for at in range(0, len(keys), 7):  # any altered byte: damaged, or under another key
        lab.disk.put("KEYS", keys[:at] + bytes([keys[at] ^ 1]) + keys[at + 1 :])
        with pytest.raises(StoreError):
            lab.open("k")
        lab.disk.lose("KEYS")
    lab.disk.put("KEYS", keys)
    lab.open("k")


@pytest.mark.parametrize("path", ["KEYS", "KEYS.copy"])
@pytest.mark.parametrize("change", [lambda keys: None, lambda keys: b"", lambda keys: keys[:-9] + b"0" + keys[-8:]])
def test_a_damaged_file_of_keys_is_restored_from_its_copy(
    lab: Lab, path: str, change: Callable[[bytes], bytes | None]
) -> None:
    store = lab.open("k")
    fill(store)
    kept, keys = contents(store), lab.disk.content("KEYS")
    store.close()
    assert lab.disk.content("KEYS.copy") == keys
    lab.disk.lose(path)
    if (altered := change(keys)) is not None:
        lab.disk.put(path, altered)
    assert contents(lab.open("k")) == kept
    assert lab.disk.content("KEYS") == lab.disk.content("KEYS.copy") == keys
    assert ("KEYS is damaged or missing, and is restored from KEYS.copy" in lab.log) is (path == "KEYS")


@pytest.mark.parametrize("late", [True, False])
def test_a_change_of_the_key_may_be_taken_back_before_its_copy_is_written_and_not_after(lab: Lab, late: bool) -> None:
    store = lab.open("old")
    fill(store)
    kept = contents(store)
    store.close()
    stop = ("rename", "KEYS.copy.tmp") if not late else ("rename", "streams/s000001/meta.tmp")
    lab.disk.plan = lambda call, path: DiskFault(crash=True) if (call, path) == stop else None
    with pytest.raises(Crash):
        lab.open("new", "old")
    lab.disk.plan = no_faults
    if late:
        with pytest.raises(StoreKeyError):
            lab.open("old")
        assert contents(lab.open("new")) == kept
    else:
        assert contents(lab.open("old")) == kept
        assert contents(lab.open("new", "old")) == kept


def test_earlier_versions_refuse_an_encrypted_store_by_its_format(lab: Lab) -> None:
    store = lab.open("k")
    assert lab.disk.content("FORMAT") == format_text(store.identity, 3) and b'"min_reader":3' in format_text(b"", 3)
    store.close()
    lab.disk.lose("FORMAT")
    lab.disk.put("FORMAT", format_text(store.identity, 4))
    with pytest.raises(StoreFormatError, match="formats 1 to 3"):
        lab.open("k")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("", "", "chacha"), ("k", "", "aes")),
        (("k", "", "chacha"), ("k", "", "aes")),
        (("a", "", "aes"), ("b", "a", "aes")),
    ],
    ids=["plain", "other cipher", "other key"],
)
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.fuzz)])
def test_a_conversion_that_is_cut_short_anywhere_is_finished(
    lab: Lab, before: tuple[str, str, Cipher], after: tuple[str, str, Cipher], step: int
) -> None:
    store = lab.open(*before)
    fill(store)
    store.streams["$G/STREAM-IN-CLEAR"].compress(True)
    fill(store, "$G/B", 5)
    kept = contents(store)
    store.close()
    start = {path: lab.disk.content(path) for path in lab.disk.files()}
    calls = 0
    while True:
        calls += step
        twin = Lab()
        twin.disk = lab.disk.synced_image(calls)
        twin.disk.plan = crash_at(calls)
        try:
            store = twin.open(*after)
        except (Crash, OSError):
            twin.disk.plan = no_faults
            twin.disk.power_loss()
            store = twin.open(*after)
            assert contents(store) == kept and not store.damaged, calls
            assert not twin.clear()
        else:
            twin.disk.plan = no_faults
            break
    assert calls > 100 and contents(store) == kept and not twin.clear()
    store.close()
    store = twin.open(after[0], cipher=after[2])  # the earlier key is not needed any more
    assert contents(store) == kept and any("Encrypted" in line for line in twin.log)
    assert before[0] == after[0] or not before[0] or isinstance(failure(twin, *before), StoreKeyError)
    assert {path: lab.disk.content(path) for path in lab.disk.files()} == start


def failure(lab: Lab, key: str, prev_key: str, cipher: Cipher) -> StoreError | None:
    try:
        lab.open(key, prev_key, cipher)
    except StoreError as error:
        return error
    return None


def test_a_plain_file_in_an_encrypted_store_is_not_accepted(lab: Lab) -> None:
    store = lab.open()
    fill(store)
    store.close()
    plain = {path: lab.disk.content(path) for path in lab.disk.files()}
    lab.open("k").close()
    for path in [path for path in plain if path.endswith((".seg", "meta"))]:
        kept = lab.disk.content(path)
        lab.disk.lose(path)
        lab.disk.put(path, plain[path])
        store = lab.open("k")
        assert "$G/STREAM-IN-CLEAR" in store.damaged, path
        lab.disk.lose(path)
        lab.disk.put(path, kept)


def test_a_store_whose_first_encrypted_start_was_cut_short_needs_the_key(lab: Lab) -> None:
    store = lab.open()
    fill(store)
    store.close()
    lab.disk.plan = lambda call, path: DiskFault(crash=True) if (call, path) == ("rename", "FORMAT.tmp") else None
    with pytest.raises(Crash):
        lab.open("k")
    lab.disk.plan = no_faults
    assert b'"format":2' in lab.disk.content("FORMAT") and "KEYS" in lab.disk.files()
    with pytest.raises(StoreKeyError, match="encrypted store encountered with no main key"):
        lab.open()
    assert lab.open("k").streams


@pytest.mark.parametrize("name", ["meta", "00000000000000000001-0.idx"])
def test_an_altered_byte_of_a_file_that_is_one_piece_is_noticed(lab: Lab, name: str) -> None:
    disk = lab.encrypted("k")
    disk.mkdir("streams")
    disk.unlock()
    replace_file(disk, f"streams/{name}", b"whole content")
    sealed = lab.disk.content(f"streams/{name}")
    for at in range(len(sealed)):
        lab.disk.alter(f"streams/{name}", at, bytes([sealed[at] ^ 4]))
        file = disk.open_read(f"streams/{name}")
        assert (file.size(), file.pread(100, 0)) == (0, b""), at
        lab.disk.alter(f"streams/{name}", at, sealed[at : at + 1])
    file = disk.open_read(f"streams/{name}")
    assert (file.size(), file.pread(5, 6)) == (13, b"conte")
    for change in (lambda: file.pwrite(b"x", 0), lambda: file.truncate(0)):
        with pytest.raises(OSError, match="one piece"):
            change()


class Bench:
    """A log on an encrypted disk, and everything that its bytes were laid over."""

    def __init__(self) -> None:
        self.lab = Lab()
        self.disk = self.restart()
        self.disk.mkdir("s")

    def restart(self) -> EncryptedDisk:
        self.disk = self.lab.encrypted("k")
        self.disk.unlock()
        return self.disk

    def on_disk(self) -> bytes:
        return self.lab.disk.content("s/a.seg")[LOG_START:]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_bytes_behind_a_cut_are_under_another_key(bench: Bench) -> None:
    file = bench.disk.open("s/a.seg", create=True)
    file.pwrite(b"A" * 200, 0)
    first = bench.on_disk()
    file.truncate(100)
    file.pwrite(b"B" * 100, 100)
    second = bench.on_disk()
    assert first[:100] == second[:100]
    assert bytes(a ^ b for a, b in zip(first[100:], second[100:], strict=True)) != b"\x03" * 100
    again = bench.restart().open_read("s/a.seg")
    assert again.pread(300, 0) == b"A" * 100 + b"B" * 100 and again.pread(20, 90) == b"A" * 10 + b"B" * 10


def test_what_a_new_process_appends_is_under_another_key_even_if_nothing_was_cut(bench: Bench) -> None:
    file = bench.disk.open("s/a.seg", create=True)
    file.pwrite(b"A" * 200, 0)
    first = bench.on_disk()
    bench.lab.disk.cut("s/a.seg", LOG_START + 100)  # as a power loss does, whose blocks may be elsewhere on the disk
    file = bench.restart().open("s/a.seg")
    file.pwrite(b"A" * 100, 100)
    assert bench.on_disk()[:100] == first[:100] and bench.on_disk()[100:] != first[100:]
    assert bench.restart().open_read("s/a.seg").pread(300, 0) == b"A" * 200


def test_the_same_bytes_may_be_written_again_and_others_in_the_middle_may_not(bench: Bench) -> None:
    bench.disk.open("s/a.seg", create=True).pwrite(b"A" * 200, 0)
    first = bench.on_disk()
    file = bench.restart().open("s/a.seg")
    assert file.pwrite(b"A" * 50, 20) == 50 and bench.on_disk() == first
    with pytest.raises(OSError, match="not overwritten") as refused:
        file.pwrite(b"B" * 50, 20)
    assert refused.value.errno == errno.EINVAL and bench.on_disk() == first


def test_a_header_without_room_refuses_and_a_start_copies_the_file(bench: Bench) -> None:
    bench.disk.open("s/a.seg", create=True).pwrite(b"A", 0)
    for number in range(1, SLOTS + 1):
        file = bench.restart().open("s/a.seg")
        file.pwrite(b"%c" % (65 + number % 26), number)
        file.close()
    whole = bench.restart().open_read("s/a.seg").pread(1000, 0)
    assert len(whole) == SLOTS + 1
    file = bench.restart().open("s/a.seg")
    with pytest.raises(OSError, match="no room") as refused:
        file.pwrite(b"!", SLOTS + 1)
    assert refused.value.errno == errno.ENOSPC and bench.restart().open_read("s/a.seg").pread(1000, 0) == whole
    before = bench.on_disk()
    bench.disk.renew("s/a.seg")
    assert bench.on_disk() != before
    file = bench.restart().open("s/a.seg")
    file.pwrite(b"!", SLOTS + 1)
    assert bench.restart().open_read("s/a.seg").pread(1000, 0) == whole + b"!"
    after = bench.on_disk()
    bench.disk.renew("s/a.seg")
    assert bench.on_disk() == after, "it is not worn any more"


def test_many_restarts_of_a_store_wear_no_file_out(lab: Lab) -> None:
    lab.options = StoreOptions(segment_bytes=1 << 20, reserve_bytes=0)
    fill(lab.open("k"), count=3)
    for number in range(SLOTS + 5):
        store = lab.open("k")
        stream = store.streams["$G/STREAM-IN-CLEAR"]
        stream.append(b"s", b"", b"%d" % number, 2000)
        stream.append_record(1, b"%d" % number)
        pump(store)
        assert stream.fault is None
    store = lab.open("k")
    kept = [message.payload for message in store.streams["$G/STREAM-IN-CLEAR"].read_from(4, max_msgs=1000)]
    assert kept == [b"%d" % number for number in range(SLOTS + 5)]
    assert len(store.streams["$G/STREAM-IN-CLEAR"].records()) == 3 + SLOTS + 5
    assert len([path for path in lab.disk.files() if path.endswith(".seg")]) == 1


def test_a_file_without_a_valid_header_reads_as_noise_and_is_only_emptied(bench: Bench) -> None:
    bench.disk.open("s/a.seg", create=True).pwrite(b"A" * 100, 0)
    bench.lab.disk.alter("s/a.seg", 20, b"\xff\xff")
    file = bench.restart().open("s/a.seg")
    assert file.size() == 100 and b"AAAA" not in file.pread(100, 0)
    with pytest.raises(OSError, match="damaged"):
        file.pwrite(b"B", 100)
    file.truncate(0)
    file.pwrite(b"new", 0)
    assert bench.restart().open_read("s/a.seg").pread(10, 0) == b"new"


def test_a_failed_creation_for_lack_of_room_leaves_no_file(bench: Bench) -> None:
    bench.lab.disk.plan = lambda call, path: full_disk(call)
    with pytest.raises(OSError, match="ENOSPC"):
        bench.disk.open("s/a.seg", create=True)
    assert "s/a.seg" not in bench.lab.disk.files()


def full_disk(call: str) -> DiskFault | None:
    return DiskFault(errno.ENOSPC) if call == "pwrite" else None


def test_a_file_that_was_replaced_while_it_was_opened_reads_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(bench.disk, "s/a.seg", b"as it was")
    disk = bench.restart()
    opened = bench.lab.disk.open_read

    def open_slowly(path: str) -> SimFile:
        file = opened(path)
        monkeypatch.undo()
        replace_file(disk, "s/a.seg", b"as it is now")  # as a commit does in another thread
        return file

    monkeypatch.setattr(bench.lab.disk, "open_read", open_slowly)
    assert disk.open_read("s/a.seg").pread(100, 0) == b"as it was"
    assert disk.open_read("s/a.seg").pread(100, 0) == b"as it is now"


def test_native_threads_are_given_encrypted_bytes_and_their_place(tmp_path: Path) -> None:
    disk = EncryptedDisk(PosixDisk(tmp_path), "k", random.Random(0).randbytes, cost=2)
    disk.unlock()
    disk.mkdir("s")
    file = disk.open("s/a.seg", create=True)
    assert isinstance(file, LogFile) and file.fileno() == -1
    fd, data, offset = file.placed(b"secret" * 10, 0)
    assert fd >= 0 and b"secret" not in data and (len(data), offset) == (60, LOG_START)
    PosixDisk(tmp_path).open("s/a.seg").pwrite(data, offset)
    assert file.pread(100, 0) == b"secret" * 10
    assert file.placed(b"x", 10) == (-1, b"", 0), "written before: Python looks closer"
    assert disk.open_read("s/a.seg").pread(6, 6) == b"secret"


@pytest.mark.parametrize("where", ["sealed", "last"])
def test_an_erasure_replaces_the_file_and_what_follows_goes_on(lab: Lab, where: str) -> None:
    store = lab.open("k")
    fill(store)
    stream = store.streams["$G/STREAM-IN-CLEAR"]
    seq = 2 if where == "sealed" else 60
    stream.remove(seq, erase=True)
    stream.append(b"after", b"", b"the erasure", 5000)
    pump(store)
    stream.append(b"after", b"", b"once more", 5001)
    pump(store)
    assert (
        stream.get(seq) is None and stream.get(61).payload == b"the erasure" and stream.get(62).payload == b"once more"
    )
    disk = store._disk
    seen = b"".join(disk.open_read(path).pread(1 << 20, 0) for path in lab.disk.files() if path.endswith(".seg"))
    assert b"payload-in-clear %d." % (seq - 1) not in seen and b"payload-in-clear 30." in seen
    again = lab.open("k").streams["$G/STREAM-IN-CLEAR"]
    assert again.get(seq) is None and again.get(62).payload == b"once more" and again.messages == 61


def test_keys_are_never_shown(lab: Lab) -> None:
    store = lab.open("the key", cipher="aes")
    disk = store._disk
    assert isinstance(disk, EncryptedDisk)
    shown = f"{disk!r} {disk._keyring!r} {disk._keyring.newest!r} {disk._key_file!r} {lab.log}"
    assert "the key" not in shown and disk._keyring.newest.stored()[1] not in shown
    everything = b"".join(map(lab.disk.content, lab.disk.files()))
    assert b"the key" not in everything and bytes.fromhex(disk._keyring.newest.stored()[1]) not in everything


def test_only_five_files_are_plain(lab: Lab) -> None:
    fill(lab.open("k"))
    with contextlib.suppress(StoreError):
        lab.open("other")
    plain = {path for path in lab.disk.files() if not lab.disk.content(path).startswith(encrypted_disk.MAGIC)}
    assert plain == {"FORMAT", "KEYS", "KEYS.copy", "LOCK", "RESERVE"}


@pytest.mark.parametrize("kind", ["meta", "journal", ".seg", ".idx"])
def test_files_that_were_swapped_between_streams_show_nobody_the_messages_of_another(lab: Lab, kind: str) -> None:
    store = lab.open("k")
    for name, text in (("A/S", b"of A"), ("B/S", b"of B")):
        stream = store.create(name, b"{}", "file")
        pump(store)
        for number in range(60):
            stream.append(b"s", b"", text + b" %d" % number * 20, number)
            stream.append_record(1, text)
        pump(store)
    store.close()
    one, other = (
        [path for path in lab.disk.files() if path.startswith(f"streams/s00000{number}/") and kind in path]
        for number in (1, 2)
    )
    assert one and len(one) == len(other)
    for first, second in zip(one, other, strict=True):
        for source, target in ((first, "streams/x"), (second, first), ("streams/x", second)):
            lab.disk.rename(source, target)
    store = lab.open("k")
    assert (not store.streams) is (kind != ".idx")  # an index file of another stream is not used
    for name, stream in store.streams.items():
        messages = list(stream.read_from(1, max_msgs=100))
        assert len(messages) == 60 and {message.payload[:4] for message in messages} == {b"of " + name[:1].encode()}


def test_no_name_becomes_a_path(lab: Lab) -> None:
    store = lab.open("k")
    for name in ("$G/..", "$G/../../x", "/etc/x", "a\0b/c", "..", "A/" + "n" * 250, "A/\n", "A/s000001"):
        store.create(name, b"{}", "file")
    pump(store)
    folders = {path.split("/")[1] for path in lab.disk.files() if path.startswith("streams/")}
    assert folders == {f"s{number:06d}" for number in range(1, 9)}
    known = {"FORMAT", "KEYS", "KEYS.copy", "LOCK", "RESERVE", "WITNESS"}
    assert {path for path in lab.disk.files() if "/" not in path} == known
