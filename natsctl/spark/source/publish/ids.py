"""Message ids for rows that bring none, so that what is sent again is stored once.

A task that is tried again has the same rows; whether it has them in the same order is another matter: what a shuffle
brings comes in the order in which other machines answer. An id made from the row's number would then be that of another
row, whose message would be taken for a duplicate and lost. So by default the id is made from the row's content, with a
count for rows that are alike, and the order does not matter. Numbers are cheaper, and right where the order is fixed.

Ids are short, since a server searches the headers of each message a score of times and keeps the id in memory for as
long as the stream's duplicate window. An id of content is one digest of who writes (query, batch and partition) and of
what: 16 characters, 96 bits. A billion messages within one window have two ids alike, of which one message would be
lost, in one of 10^11 such windows.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.publish.header_blocks import constant, joined

MessageIds = Literal["content", "row"]

_DIGEST_BYTES = 12
"""A multiple of three, which base64 spells without a rest."""
_ID_BYTES = _DIGEST_BYTES // 3 * 4
_WRITER_BYTES = 9
"""Of who writes, before numbers of rows: 72 bits for the millions of tasks that may write within a window."""


class RowIds:
    """Gives the rows of one partition their ids; `key` is of this partition of this batch of this query alone."""

    def __init__(self, key: str, made_from: MessageIds) -> None:
        self._made_from = made_from
        salt = blake2b(key.encode(), digest_size=blake2b.SALT_SIZE).digest()
        self._begun = blake2b(digest_size=_DIGEST_BYTES, salt=salt)
        """To begin with a copy takes two thirds of the time."""
        self._writer = urlsafe_b64encode(blake2b(key.encode(), digest_size=_WRITER_BYTES).digest()) + b":"
        self._rows = 0
        self._seen = set[bytes]()
        self._again = Counter[bytes]()

    def of(self, rows: int, contents: Callable[[], pa.BinaryArray]) -> pa.BinaryArray:
        """Ids of the next rows; `contents` are asked for where the ids are made from them."""
        if self._made_from == "content":
            return self._of_contents(contents().to_pylist())
        numbers = int_array(range(self._rows, self._rows + rows))
        self._rows += rows
        return joined(self._writer, numbers.cast(pa.string()).cast(pa.binary()))

    def _of_contents(self, contents: list[bytes]) -> pa.BinaryArray:
        """One digest per row; a content that was there before has its count behind it."""
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
        """How often each of them was there before; None where all are new."""
        fresh = set(digests)
        if len(fresh) == len(digests) and self._seen.isdisjoint(fresh):
            self._seen |= fresh
            return None
        return [self._time(digest) for digest in digests]

    def _time(self, digest: bytes) -> int:
        if digest in self._seen:
            self._again[digest] += 1
        else:
            self._seen.add(digest)
        return self._again[digest]
