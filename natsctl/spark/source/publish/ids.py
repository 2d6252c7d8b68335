"""Message ids for rows that bring none, so that what is sent again is stored once.

A task that is tried again has the same rows; whether it has them in the same order is another matter: what a shuffle
brings comes in the order in which other machines answer. An id made from the row's number would then be that of another
row, whose message would be taken for a duplicate and lost. So by default the id is made from the row's content, with a
count for rows that are alike, and the order does not matter. Numbers are cheaper, and right where the order is fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Literal

import pyarrow as pa

from natsctl.spark.source.columns.arrays import binary_array, int_array
from natsctl.spark.source.publish.header_blocks import joined

MessageIds = Literal["content", "row"]

_DIGEST_BYTES = 10
"""Two of a hundred million rows in one partition have the same digest once in 200 million runs; both are stored then,
unless the task is tried again and has them the other way round."""


class RowIds:
    """Gives the rows of one partition their ids, `<prefix>:<what>`."""

    def __init__(self, prefix: str, made_from: MessageIds) -> None:
        self._prefix = f"{prefix}:".encode()
        self._made_from = made_from
        self._rows = 0
        self._seen: set[str] = set()
        self._alike: Counter[str] = Counter()

    def of(self, rows: int, contents: Callable[[], pa.BinaryArray]) -> pa.BinaryArray:
        """Ids of the next rows; `contents` are asked for where the ids are made from them."""
        if self._made_from == "row":
            names = int_array(range(self._rows, self._rows + rows)).cast(pa.string()).cast(pa.binary())
        else:
            names = binary_array([digest.encode() for digest in self._digests(contents().to_pylist())])
        self._rows += rows
        return joined(self._prefix, names)

    def _digests(self, contents: list[bytes]) -> list[str]:
        """One text per row; a content that was there before has its count behind it."""
        digests = [blake2b(content, digest_size=_DIGEST_BYTES).hexdigest() for content in contents]
        new = set(digests)
        if len(new) == len(digests) and self._seen.isdisjoint(new):
            self._seen |= new
            return digests
        return [self._counted(digest) for digest in digests]

    def _counted(self, digest: str) -> str:
        if digest not in self._seen:
            self._seen.add(digest)
            return digest
        self._alike[digest] += 1
        return f"{digest}.{self._alike[digest]}"
