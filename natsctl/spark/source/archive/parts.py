"""Parts of a backup, one for each task: block files of version 1, records of version 2, or all of it for its sum."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from natsctl.spark.source.archive.backups import Backup
from natsctl.spark.source.archive.blocks import Block, blocks_in, gone_in, rows_of
from natsctl.spark.source.archive.content import Content, DataFile, Mark
from natsctl.spark.source.archive.cuts import Cut, cut_behind
from natsctl.spark.source.archive.records import MAGIC, RecordReader, first_message
from natsctl.spark.source.archive.sieve import Sieve
from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.columns.rows import Rows, RowShape
from natsctl.spark.source.errors import BackupError

LEAST_BYTES: Final = 2 << 20
"""Data that makes a task of its own worth while."""
MOST_ZIPPED_PARTS: Final = 8
"""Tasks for what is gzipped: each of them has to unpack all that stands before its part."""
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class BlocksPart(InputPartition):
    """Block files that follow each other, and which of their messages are recorded as gone."""

    stream: str
    data: DataFile
    blocks: tuple[Block, ...]
    sieve: Sieve
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True)
class RecordsPart(InputPartition):
    """Records from `at` to `stop` (None: to the end), reached from the frame at `mark`."""

    stream: str
    data: DataFile
    mark: Mark
    at: int
    stop: int | None
    sieve: Sieve


@dataclass(frozen=True)
class SumPart(InputPartition):
    """Data whose SHA-256 is to be what a manifest says; it has no rows."""

    data: DataFile
    sha256: str


ArchivePart = BlocksPart | RecordsPart | SumPart


def archive_partitions(backup: Backup, sieve: Sieve, wanted: int) -> list[ArchivePart]:
    """Return a backup in about so many parts, and one more that checks its sum; raises BackupError."""
    if backup.messages == 0:
        return []
    number = max(min(wanted, backup.data.size // LEAST_BYTES, MOST_ZIPPED_PARTS if backup.data.zipped else wanted), 1)
    content = Content(backup.data)
    try:
        second = content.read(0, len(MAGIC)) == MAGIC
    finally:
        content.close()
    parts: Sequence[ArchivePart] = (
        _records_parts(backup, sieve, number) if second else _blocks_parts(backup, sieve, number)
    )
    return [*parts, SumPart(backup.data, backup.sha256)] if parts and backup.sha256 else [*parts]


def read_archive(part: ArchivePart, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part; raises BackupError, which says where the archive is damaged."""
    if isinstance(part, SumPart):
        _check_sum(part)
        return
    pattern = part.sieve.pattern()
    gone = int_array(tuple(part.gone) if isinstance(part, BlocksPart) else ())
    content = Content(part.data, part.blocks[0].mark if isinstance(part, BlocksPart) else part.mark)
    try:
        pieces: Iterator[Rows]
        if isinstance(part, BlocksPart):
            pieces = (rows_of(content, block, shape) for block in part.blocks)
        else:
            pieces = iter(RecordReader(content, part.at, part.stop, shape).rows, None)
        for rows in pieces:
            kept = part.sieve.sifted(rows, pattern, gone)
            if len(kept.seqs):
                yield shape.batch(part.stream, kept)
            if part.sieve.ends_with(rows):
                break
    finally:
        content.close()


def _check_sum(part: SumPart) -> None:
    digest, left = hashlib.sha256(), part.data.size
    with part.data.open() as file:
        file.seek(part.data.offset)
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
    if digest.hexdigest() != part.sha256:
        raise BackupError(f"{part.data.path} is damaged: its SHA-256 is not the one in its manifest")


def _blocks_parts(backup: Backup, sieve: Sieve, number: int) -> list[BlocksPart]:
    """Version 1 by its block files; what says that messages are gone is looked for only where some are."""
    content = Content(backup.data)
    try:
        blocks = list(blocks_in(content))
    finally:
        content.close()
    gone = frozenset[int]() if backup.whole else _gone(backup, blocks)
    bounded = _from(sieve, backup.first_seq)
    ends = [*(block.first_seq for block in blocks[1:]), 0]
    kept = [
        block for block, end in zip(blocks, ends, strict=True) if not _outside(bounded, block.first_seq, end or None)
    ]
    total, groups = sum(block.size for block in kept), list[list[Block]]()
    done = 0
    for block in kept:
        if len(groups) * total <= done * number:
            groups.append([])
        groups[-1].append(block)
        done += block.size
    return [
        BlocksPart(backup.stream, backup.data, tuple(group), bounded, _among(gone, group, following))
        for group, following in zip(groups, [*groups[1:], []], strict=True)
    ]


def _among(gone: frozenset[int], group: Sequence[Block], following: Sequence[Block]) -> frozenset[int]:
    """Return those of the sequences that may lie in a group of blocks, all that a task has to know of."""
    first = group[0].first_seq
    end = following[0].first_seq if following else 0
    return frozenset(seq for seq in gone if first <= seq and (not end or seq < end))


def _from(sieve: Sieve, first_seq: int | None) -> Sieve:
    """Return the sieve without what limits had dropped already, which blocks still have."""
    first = max(sieve.first or 0, first_seq or 0) or None
    return Sieve(first, sieve.last, sieve.since_ns, sieve.until_ns, sieve.filters)


def _outside(sieve: Sieve, first: int, end: int | None) -> bool:
    """Return whether nothing from sequence `first` to before `end` is wanted; 0 and None stand for not known."""
    above = bool(first) and sieve.last is not None and first > sieve.last
    return above or (end is not None and sieve.first is not None and end <= sieve.first)


def _gone(backup: Backup, blocks: Sequence[Block]) -> frozenset[int]:
    """Return the sequences that any block says are gone; reads them all."""
    content = Content(backup.data)
    try:
        return frozenset(seq for block in blocks for seq in gone_in(content, block) if seq >= (backup.first_seq or 0))
    finally:
        content.close()


def _records_parts(backup: Backup, sieve: Sieve, number: int) -> list[RecordsPart]:
    """Version 2 by where it can be cut.

    Only what lies behind the last wanted sequence is left out: a cut is proven by reading up to it.
    """
    cuts = [Cut(Mark(), _first_message(backup.data), 0)]
    total = _content_bytes(backup.data) if number > 1 else 0
    content = Content(backup.data)
    try:
        for part in range(1, number):
            cut = cut_behind(content, max(part * total // number, content.mark.at))
            if cut is not None and cut.at > cuts[-1].at:
                cuts.append(cut)
    finally:
        content.close()
    stops = [*(cut.at for cut in cuts[1:]), None]
    return [
        RecordsPart(backup.stream, backup.data, cut.mark, cut.at, stop, sieve)
        for cut, stop in zip(cuts, stops, strict=True)
        if sieve.last is None or cut.seq < sieve.last
    ]


def _first_message(data: DataFile) -> int:
    """Return the place where the messages of version 2 begin."""
    content = Content(data)
    try:
        return first_message(content)
    finally:
        content.close()


def _content_bytes(data: DataFile) -> int:
    """Return the length of an archive when decoded, by the heads of its frames."""
    content = Content(data)
    try:
        return content.total()
    finally:
        content.close()
