"""Archives are read and written in C as in Python, whatever the bytes."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.archive import archive_v1, archive_v2, s2
from natsctl.api.archive.archive import ArchivedMessage, ArchivedStream, ArchiveError, ArchiveFeed, CountedRecords, Gone
from natsctl.api.archive.tar import TarFile
from natsctl.api.stream import StreamState
from natsctl.client.backup.archives import ArchiveSummary
from natsctl.native import lib
from tests.support import tiers

pytestmark = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")

sequences = st.integers(0, 2**64 - 1)
times = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(0, 80) | st.sampled_from([127, 128, 300, 4096, 17_000])
blobs = st.builds(lambda seed, size: Random(seed).randbytes(size), st.integers(0, 1 << 20), sizes)
subjects = st.sampled_from([b"", b"a", b"a.b", b"b" * 40, b"c" * 200])
messages = st.lists(st.builds(ArchivedMessage, sequences, times, subjects, st.just(b"") | blobs, blobs), max_size=4)


def without(module: Any, work: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "lib", None)
        return outcome(work)


def outcome(work: Any) -> Any:
    try:
        return work()
    except (ArchiveError, s2.S2FrameError) as fault:
        return str(fault)


def read_block(data: bytes) -> list[Any]:
    feed, found = ArchiveFeed(), list[Any]()
    feed.add(data)
    for item in archive_v1.read_block(TarFile("1.blk", len(data)), feed, archive_v1.hasher_of("S-1")):
        found += [] if item is None else item if isinstance(item, (list, tuple)) else [item]
    return found


def block(chosen: list[ArchivedMessage]) -> bytes:
    writer = archive_v1.BlockWriter("S")
    writer.add(chosen)
    steps: Iterator[None] = writer.close()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("highway", (b"short", b"")),
        ("highway", (bytes(32), "x")),
        ("unframe", ("x", 0, 1)),
        ("count_v1", (b"", bytes(31), 0)),
        ("count_v1", ("", bytes(32), 0)),
        ("count_v2", ("",)),
        ("read_v1", (b"", bytes(31), ArchivedMessage, Gone)),
        ("read_v1", (b"", bytes(32), list, Gone)),
        ("read_v2", (b"", 7)),
        ("write_v1", ([(1, 2, b"", b"")], bytes(32))),
        ("write_v1", ([(1, 2, b"x" * 65536, b"", b"")], bytes(32))),
        ("write_v2", ([(-1, 2, b"", b"", b"")],)),
        ("write_v2", ([[1, 2, b"", b"", b""]],)),
        ("write_v2", ([(1, 2, "", b"", b"")],)),
        ("write_v2", (7,)),
    ],
)
def test_wrong_arguments_raise(name: str, words: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        getattr(lib, name)(*words)


def summed(items: Iterable[Any]) -> tuple[Any, ...]:
    """Return what items of messages come to, counted or not, and the sequences that are gone."""
    found, gone = ArchiveSummary(), list[int]()
    for item in items:
        if isinstance(item, CountedRecords):
            found.add_counted(item)
        elif isinstance(item, Gone):
            gone.append(item.seq)
        elif item:
            found.add(item)
    return found, gone


@tiers.examples(100)
@given(messages, st.booleans(), st.integers(0, 3), st.integers(1, 400))
def test_messages_of_an_archive_are_counted(chosen: list[Any], erased: bool, first_seq: int, step: int) -> None:
    chosen = [one._replace(seq=seq) for seq, one in enumerate(chosen, 1)]
    writer = archive_v1.BlockWriter("S")
    writer.add(chosen[:1])
    if erased:
        writer.add_erased(9, 1)
    writer.add(chosen[1:])
    block = b"".join(writer._parts)
    records = b"".join(archive_v2.WriterV2().beginning(ArchivedStream(state=StreamState()), ()))
    records = records[len(archive_v2.MAGIC) :]
    records += b"".join(archive_v2.WriterV2().messages(chosen)) + bytes(5)

    def fed(data: bytes, feed: ArchiveFeed, items: Iterator[Any]) -> Iterator[Any]:
        for at in range(0, len(data), step):
            feed.add(data[at : at + step])
            yield from iter(lambda: next(items, None), None)

    def version_1(count_from: int | None) -> list[Any]:
        feed, file = ArchiveFeed(), TarFile("1.blk", len(block))
        return [*fed(block, feed, archive_v1.read_block(file, feed, archive_v1.hasher_of("S-1"), count_from))]

    def version_2(counting: bool) -> list[Any]:
        feed = ArchiveFeed()
        return [*fed(records, feed, archive_v2.read_v2(feed, counting))][1:]

    whole = summed(version_1(None))
    assert whole == summed(version_1(first_seq)) == without(archive_v1, lambda: summed(version_1(first_seq)))
    assert (whole[0], []) == summed(version_2(True)) == without(archive_v2, lambda: summed(version_2(True)))
    assert any(isinstance(item, CountedRecords) for item in version_1(0)) or erased or not chosen
