"""Which tables there are: streams, what each holds by subject, and buckets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from natsctl.api.errors import UsageError

TableKind = Literal["stream", "subjects", "bucket"]

SUBJECTS = "$subjects"
BUCKET_STREAM = "KV_"
STREAM_COLUMNS = ("stream", "seq", "subject", "timestamp", "headers", "value")
BUCKET_COLUMNS = {
    "bucket": ("stream",),
    "key": ("subject",),
    "revision": ("seq",),
    "operation": ("headers",),
    "timestamp": ("timestamp",),
    "value": ("value",),
}
"""The columns of a bucket, each with what of the stream it is made of."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table by the name that a query gives it."""

    name: str
    kind: TableKind
    stream: str


class Catalogue:
    """Finds tables by name, exactly as written or else without regard to case."""

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams = sorted(streams)
        self._exact: dict[str, tuple[TableKind, str]] = {}
        for stream in self.streams:
            if stream.startswith(BUCKET_STREAM):
                self._exact[stream.removeprefix(BUCKET_STREAM)] = ("bucket", stream)
        for stream in self.streams:
            self._exact[stream] = ("stream", stream)
            self._exact[stream + SUBJECTS] = ("subjects", stream)
        self._folded: dict[str, list[str]] = {}
        for name in self._exact:
            self._folded.setdefault(name.lower(), []).append(name)

    def find(self, name: str) -> Table | None:
        """The table of that name; raises UsageError where only the case of letters tells several apart."""
        if name in self._exact:
            return Table(name, *self._exact[name])
        near = self._folded.get(name.lower(), [])
        if len(near) > 1:
            raise UsageError(f"{name} may be {' or '.join(sorted(near))}", hint="write it with the same letters")
        return Table(name, *self._exact[near[0]]) if near else None

    def find_all(self, names: Iterable[str]) -> list[Table]:
        """The tables among the names, each once; others are names that a query has of its own, or mistakes.

        Raises UsageError for two that differ in the case of letters alone, which Spark takes for one.
        """
        found: dict[str, Table] = {}
        for name in names:
            table = self.find(name)
            if table is None:
                continue
            other = found.setdefault(name.lower(), table)
            if other.stream != table.stream:
                raise UsageError(
                    f"{other.stream} and {table.stream} cannot be in one query: Spark tells no case of letters apart"
                )
        return list(found.values())

    @property
    def names(self) -> list[str]:
        """Every name there is, for suggestions."""
        return list(self._exact)
