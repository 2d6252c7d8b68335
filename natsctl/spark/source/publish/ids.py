"""Message ids for rows that bring none, so that what is sent again is stored once.

A write or micro-batch that is tried again has the same rows. Whether they come in the same order, or in the same tasks,
is another matter: what a shuffle brings comes in the order in which other machines answer, and a driver with another
number of cores cuts the work in another way. So by default the id is made from the row's content, and from the stream
and sequence it was read from where the frame has them, with a count for rows that are alike: `<digest>`, `<digest>.1`,
and so on. The ids of a write are then the same however its rows are cut. Two tasks that have a row alike give it the
same id; `alike.py` has what becomes of that. Numbers of rows are cheaper, and right only where the same task has the
same rows in the same order.

Ids are short, since a server searches the headers of each message a score of times and keeps the id in memory for as
long as the stream's duplicate window. An id of content is one digest of who writes (query and batch) and of what: 16
characters, 96 bits. A billion messages within one window have two ids alike, of which one message would be lost, in
one of 10^11 such windows. Source: docs/adr/0023.
"""

from __future__ import annotations

import re
from array import array
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import binary_array, int_array
from natsctl.spark.source.publish.header_blocks import constant, joined

MessageIds = Literal["content", "row"]

_DIGEST_BYTES = 12
"""A multiple of three, which base64 spells without a rest."""
_ID_BYTES: Final = _DIGEST_BYTES // 3 * 4
_OF_CONTENT: Final = re.compile(rb"[\w-]{%d}(?:\.\d+)?" % _ID_BYTES)
_WRITER_BYTES = 9
"""Of who writes, before numbers of rows: 72 bits for the millions of tasks that may write within a window."""


class RowIds:
    """Gives the rows of one partition their ids; `key` is of this batch of this query alone."""

    def __init__(self, key: str, made_from: MessageIds, partition: int = 0) -> None:
        """`partition` is of numbers alone: ids of content are the same in each."""
        self.of_content = made_from == "content"
        """Whether another task may give a row alike the same id."""
        salt = blake2b(key.encode(), digest_size=blake2b.SALT_SIZE).digest()
        self._begun = blake2b(digest_size=_DIGEST_BYTES, salt=salt)
        """To begin with a copy takes two thirds of the time."""
        self._writer = _writer(f"{key}.{partition}") + b":"
        self._rows = 0
        self._seen = set[bytes]()
        self._again = Counter[bytes]()

    def of(self, rows: int, contents: Callable[[], pa.BinaryArray]) -> pa.BinaryArray:
        """Ids of the next rows; `contents` are asked for where the ids are made from them."""
        if self.of_content:
            return self._of_contents(contents().to_pylist())
        numbers = int_array(range(self._rows, self._rows + rows))
        self._rows += rows
        return joined(self._writer, numbers.cast(pa.string()).cast(pa.binary()))

    def repeated(self) -> tuple[bytes, bytes]:
        """Return the contents that came several times: their digests as text, and their counts as 64-bit numbers."""
        times = (count + 1 for count in self._again.values())
        return urlsafe_b64encode(b"".join(self._again)), array("q", times).tobytes()

    def _of_contents(self, contents: list[bytes]) -> pa.BinaryArray:
        """Return one digest per row; a content that was there before has its count behind it."""
        digests = list[bytes]()
        for content in contents:
            digest = self._begun.copy()
            digest.update(content)
            digests.append(digest.digest())
        spelled = pa.py_buffer(urlsafe_b64encode(b"".join(digests)))
        ids = pa.Array.from_buffers(pa.binary(_ID_BYTES), len(digests), [None, spelled]).cast(pa.binary())
        times = self._times(digests)
        if times is None:
            return ids
        texts = joined(b".", int_array(times).cast(pa.string()).cast(pa.binary()))
        return joined(ids, pc.if_else(pc.equal(int_array(times), int_array([0])[0]), constant(b""), texts))

    def _times(self, digests: list[bytes]) -> list[int] | None:
        """Return how often each of them was there before; None where all are new."""
        fresh = set(digests)
        if len(fresh) == len(digests) and self._seen.isdisjoint(fresh):
            self._seen |= fresh
            return None
        return [self._time(digest) for digest in digests]

    def _time(self, digest: bytes) -> int:
        if digest not in self._seen:
            self._seen.add(digest)
            return 0
        self._again[digest] += 1
        return self._again[digest]


def digest_of(message_id: bytes) -> bytes:
    """Return the part of an id of content that rows alike have in common."""
    return message_id[:_ID_BYTES]


def digests_of(ids: pa.BinaryArray) -> pa.BinaryArray:
    """Return `digest_of` each id."""
    return pc.binary_slice(ids, 0, _ID_BYTES)


def id_of(digest: bytes, times: int) -> bytes:
    """Return the id of a row whose content came so many times before."""
    return digest + b".%d" % times if times else digest


def counted_ids(ids: pa.BinaryArray) -> pa.BinaryArray:
    """Return the ids of stored messages, those of content numbered anew in the order of storing.

    A server that has forgotten an id stores rows that are alike in several tasks under the same one.
    """
    digests = digests_of(ids)
    if pc.count_distinct(digests).as_py() == len(ids):
        return ids
    seen = Counter[bytes]()
    found = list[bytes]()
    for text, digest in zip(ids.to_pylist(), digests.to_pylist(), strict=True):
        if _OF_CONTENT.fullmatch(text):
            text = id_of(digest, seen[digest])
            seen[digest] += 1
        found.append(text)
    return binary_array(found)


def _writer(key: str) -> bytes:
    return urlsafe_b64encode(blake2b(key.encode(), digest_size=_WRITER_BYTES).digest())
