"""Which messages a read of several filters takes, where a server takes only one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.columns.rows import Rows

EVERYTHING = ">"


class Subjects:
    """Filters of a read: `pattern` is what a server is asked for, `of` takes what is wanted of that."""

    def __init__(self, filters: Sequence[str]) -> None:
        self.pattern = filters[0] if len(filters) == 1 else EVERYTHING
        self._several = len(filters) > 1
        self._wanted = re.compile(b"|".join(map(_expression, filters or (EVERYTHING,))), re.DOTALL)

    def has(self, subject: bytes) -> bool:
        """Return whether a subject fits one of the filters."""
        return self._wanted.fullmatch(subject) is not None

    def of(self, rows: Rows) -> Rows:
        """Return the rows that are wanted of those that fit `pattern`, perhaps none."""
        if not self._several:
            return rows
        subjects = rows.subjects.to_pylist() if isinstance(rows.subjects, pa.Array) else rows.subjects
        keep = [at for at, subject in enumerate(subjects) if self.has(subject)]
        return rows if len(keep) == len(rows.seqs) else _taken(rows, keep)


def _expression(pattern: str) -> bytes:
    """Return a subject pattern as a regular expression of whole subjects."""
    words = {"*": rb"[^.]+", ">": rb".+"}
    return rb"\.".join(words.get(word) or re.escape(word.encode()) for word in pattern.split("."))


def _taken(rows: Rows, keep: list[int]) -> Rows:
    """Return some of the rows."""
    places = int_array(keep)
    return Rows(
        rows.seqs.take(places),
        rows.times_ns.take(places) if rows.times_ns is not None else None,
        *(_some(column, places, keep) for column in (rows.subjects, rows.headers, rows.values)),
    )


def _some(column: Sequence[bytes] | pa.Array, places: pa.Int64Array, keep: list[int]) -> Sequence[bytes] | pa.Array:
    """Return some values of a column, which may be empty as a whole."""
    if isinstance(column, pa.Array):
        return column.take(places) if len(column) else column
    return [column[at] for at in keep] if column else ()
