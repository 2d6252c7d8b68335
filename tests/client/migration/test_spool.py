"""The copied messages of a migration: what survives a kill, what an archive leaves out, what counts as different."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.archive.archive import ArchivedMessage
from natsctl.api.errors import StorageError
from natsctl.client.migration.destination import differences
from natsctl.client.migration.spool import Digest, Kept, Spool


def messages(*seqs: int, header: bytes = b"") -> list[ArchivedMessage]:
    return [ArchivedMessage(seq, 1000 + seq, b"s.%d" % (seq % 3), header, b"body %d" % seq) for seq in seqs]


Open = Callable[[Path], Spool]


@pytest.fixture
def opened() -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(closing(Spool(folder)))


def filled(spool: Spool) -> Spool:
    """A spool of two segments: 1 to 4, and 6 to 9."""
    spool.add(messages(1, 2, 3, 4))
    spool.commit(5)
    spool.add(messages(4, 6, 7, 8, 9))
    spool.commit(9)
    return spool


def seqs(spool: Spool, kept: Kept) -> list[int]:
    return [one.seq for batch in spool.batches(kept) for one in batch]


def test_messages_are_added_once_and_found_again(opened: Open, tmp_path: Path) -> None:
    filled(Spool(tmp_path)).close()
    spool = opened(tmp_path)
    assert (spool.reached, spool.messages, spool.last_seq) == (9, 8, 9)
    assert [one for batch in spool.batches(Kept(1, 9)) for one in batch] == messages(1, 2, 3, 4, 6, 7, 8, 9)


def test_removed_messages_are_left_out(opened: Open, tmp_path: Path) -> None:
    spool = filled(opened(tmp_path))
    assert seqs(spool, Kept(3, 8, [7])) == [3, 4, 6, 8]
    assert seqs(spool, Kept(1, 9).within(2, 6)) == [2, 3, 4, 6]
    assert seqs(spool, Kept(10, 9)) == []


@pytest.mark.parametrize("name", ["messages", "index"])
def test_a_cut_at_any_byte_leaves_whole_segments(name: str, opened: Open, tmp_path: Path) -> None:
    filled(Spool(tmp_path / "whole")).close()
    content = {one.name: one.read_bytes() for one in (tmp_path / "whole").iterdir()}
    for size in range(0, len(content[name]), 7):
        folder = tmp_path / f"cut-{size}"
        folder.mkdir()
        for file, data in content.items():
            (folder / file).write_bytes(data[:size] if file == name else data)
        spool = opened(folder)
        assert spool.reached in (0, 5)
        assert seqs(spool, Kept(1, 9)) == [1, 2, 3, 4][: spool.reached]
        spool.add(messages(*range(spool.reached + 1, 10)))
        spool.commit(9)
        assert seqs(spool, Kept(1, 9))[-1] == 9


def test_uncommitted_messages_are_copied_again(opened: Open, tmp_path: Path) -> None:
    spool = filled(opened(tmp_path))
    spool.add(messages(10, 11))
    spool.close()
    assert opened(tmp_path).reached == 9


def test_damage_is_found(opened: Open, tmp_path: Path) -> None:
    filled(Spool(tmp_path)).close()
    data = bytearray((tmp_path / "messages").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "messages").write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        seqs(opened(tmp_path), Kept(1, 9))


def test_a_cleared_spool_is_empty(opened: Open, tmp_path: Path) -> None:
    spool = filled(opened(tmp_path))
    spool.clear()
    assert (spool.reached, seqs(spool, Kept(1, 9))) == (0, [])
    spool.start_at(5)
    spool.add(messages(3, 4, 5))
    spool.commit(5)
    assert seqs(spool, Kept(1, 9)) == [5]


def test_a_digest_covers_every_field() -> None:
    (one,) = messages(1, header=b"NATS/1.0\r\nA: b\r\n\r\n")
    changes: list[dict[str, Any]] = [{"seq": 2}, {"ts_ns": 1}, {"subject": b"t"}, {"header": b""}, {"payload": b""}]
    sums = set()
    for change in [{}, *changes]:
        digest = Digest()
        digest.add([one._replace(**change)])
        sums.add(digest.sha256)
    assert len(sums) == len(changes) + 1


DAY = 86_400_000_000_000


SCHEDULER = b"Nats-Scheduler"


def block(name: bytes, value: bytes) -> bytes:
    return b"NATS/1.0\r\n%b: %b\r\n\r\n" % (name, value)


@pytest.mark.parametrize(
    ("wanted", "found", "config", "faults"),
    [
        (messages(1, 2), messages(1, 2), {}, []),
        (messages(1, 2, 3), messages(1, 3), {}, ["message 2 is missing"]),
        (messages(1, 3), messages(1, 2, 3), {}, ["message 2 is too much"]),
        (messages(1, 2), messages(1, 2, header=b"x"), {}, ["message 1 differs", "message 2 differs"]),
        (messages(1, 2), messages(1, 2, 3), {}, ["message 3 is too much"]),
        (messages(1, 2), messages(1, 2, 3), {"mirror": {"name": "O"}}, []),
        (messages(1, 2), messages(2), {"max_age": DAY}, []),
        (messages(1, header=block(b"Nats-TTL", b"1s")), [], {}, []),
        (messages(1, header=block(b"Nats-TTL", b"never")), [], {}, ["message 1 is missing"]),
        (messages(1, header=block(b"Nats-TTL", b"2000000h")), [], {}, ["message 1 is missing"]),
        (messages(1), messages(1) + messages(2, header=block(b"Nats-Marker-Reason", b"MaxAge")), {}, []),
        (messages(1, 2), messages(2) + messages(5, header=block(SCHEDULER, b"s.1")), {}, []),
        (messages(1, 2), messages(1) + messages(6, header=block(SCHEDULER, b"x")), {}, ["message 2 is missing"]),
    ],
)  # fmt: skip
def test_differences_are_those_that_nothing_explains(
    wanted: list[ArchivedMessage], found: list[ArchivedMessage], config: dict[str, Any], faults: list[str]
) -> None:
    assert differences([wanted], [found], config) == faults
