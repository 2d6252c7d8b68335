"""Mutations of the store, each one plausible line, that prove that its simulation can fail.

A mutation replaces one function while it is active, and breaks one promise. A simulation that does not notice it within
`SEEDS_MAX` seeds proves nothing about that promise. `Patch` and `detected_at` serve the mutations of the engine and of
leaf nodes as well.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from unittest import mock

import msgspec

from natsctl.store import compaction, frame, fsck, index_file, packed, recovery
from natsctl.store.compaction import Compaction, Rewrite
from natsctl.store.disk import Disk, File
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit, FileCommit, write_all
from natsctl.store.file_log import FileLog
from natsctl.store.fsck import StreamCheck
from natsctl.store.index import StreamIndex
from natsctl.store.index_file import IndexImage
from natsctl.store.journal import Journal
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentFile
from natsctl.store.stream import StreamStore
from natsctl.testing.simdisk import SimDisk
from tests.support.store_model import Violation
from tests.support.store_simulation import simulate

Patch: TypeAlias = contextlib.AbstractContextManager[Any]


def do_nothing(*arguments: Any, **named: Any) -> None:
    """No-op."""


def detected_at(
    mutation: Callable[[], Patch],
    simulate: Callable[[int], object],
    seeds: int,
    noticed: tuple[type[Exception], ...],
    first: int = 0,
) -> int | None:
    """Return one of `seeds` at which a simulation with the mutation raises one of `noticed`; None: at none.

    `first` is tried first, and may lie beyond them.
    """
    with mutation():
        for seed in itertools.chain([first], range(seeds)):
            try:
                simulate(seed)
            except noticed:
                return seed
    return None


SEEDS_MAX = 1000

NOTICED = (Violation, StoreError, LookupError, ValueError)
"""Errors of a simulation; a store that breaks down counts as well."""


def _ack_before_sync() -> Patch:
    return mock.patch.object(FileCommit, "_sync", do_nothing)


def _no_folder_sync() -> Patch:
    return mock.patch.object(SimDisk, "fsync_dir", do_nothing)


def _sync_retried() -> Patch:
    def sync(self: FileCommit, file: File) -> None:
        for attempt in range(3):
            try:
                file.sync()
                return
            except OSError:
                if attempt == 2:
                    raise

    return mock.patch.object(FileCommit, "_sync", sync)


def _short_write_kept() -> Patch:
    def write_all(file: File, data: bytes, offset: int) -> None:
        file.pwrite(data, offset)

    return mock.patch("natsctl.store.file_commit.write_all", write_all)


def _checksum_skipped() -> Patch:
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch("natsctl.store.frame.crc32", lambda *_: 0))
    for name, in_python in (
        ("file_log._encode_message", frame._message),
        ("frame.encode_run", frame._run),
        ("frame.encode_copies", frame._copies),
    ):
        stack.enter_context(mock.patch(f"natsctl.store.{name}", in_python))
    return stack


def _recovery_does_not_write_again() -> Patch:
    return mock.patch.object(recovery, "_rewrite_tail", do_nothing)


def _damage_cut_like_a_torn_tail() -> Patch:
    check_stream = fsck.check_stream

    def forgiving(*arguments: Any) -> StreamCheck:
        check = check_stream(*arguments)
        check.damage = [text for text in check.damage if "synced" not in text]
        return check

    return mock.patch("natsctl.store.store.check_stream", forgiving)


def _erasure_skipped() -> Patch:
    return mock.patch.object(FileCommit, "_erase", do_nothing)


def _removal_not_recorded() -> Patch:
    return mock.patch.object(FileLog, "removing", do_nothing)


def _floor_not_recorded() -> Patch:
    return mock.patch.multiple(FileLog, dropping_first=do_nothing, dropping_below=do_nothing)


def _journal_never_synced() -> Patch:
    take = Journal.take
    return mock.patch.object(Journal, "take", lambda self, sync: take(self, False))


def _acks_run_ahead_of_the_commit() -> Patch:
    finish = StreamStore.finish_commit

    def eager(self: StreamStore, commit: Commit, error: StoreError | None = None) -> None:
        commit.last_seq = self.last_seq
        finish(self, commit, error)

    return mock.patch.object(StreamStore, "finish_commit", eager)


def _metadata_not_written() -> Patch:
    return mock.patch.object(FileCommit, "_write_meta", do_nothing)


def _replaced_file_not_synced() -> Patch:
    def replace_file(disk: Disk, path: str, data: bytes) -> None:
        file = disk.open(path + ".tmp", create=True)
        write_all(file, data, 0)
        file.close()
        disk.rename(path + ".tmp", path)
        disk.fsync_dir(path.rpartition("/")[0])

    return mock.patch("natsctl.store.file_commit.replace_file", replace_file)


def _batch_half_recovered() -> Patch:
    return mock.patch.object(frame, "MORE", 0)


def _timed_flag_not_written() -> Patch:
    return mock.patch("natsctl.store.stream.TIMED", 0)


def _timed_flag_forgotten_at_start() -> Patch:
    return mock.patch.object(frame, "TIMED", 0)


def _index_without_checksum() -> Patch:
    return mock.patch("natsctl.store.index_file.crc32", lambda data: 0)


def _index_of_another_segment_believed() -> Patch:
    return mock.patch("natsctl.store.index_file._speaks_of", lambda *_: True)


def _index_without_removals() -> Patch:
    def image_of(*arguments: Any, **named: Any) -> IndexImage:
        return msgspec.structs.replace(index_file.image_of(*arguments, **named), tombs=array("Q"))

    return mock.patch("natsctl.store.file_log.image_of", image_of)


def _superseded_segment_kept() -> Patch:
    return mock.patch.object(fsck, "superseded", lambda *_: False)


def _rewritten_without_the_removals_it_holds() -> Patch:
    intact = compaction.plan_rewrite

    def plan_rewrite(*arguments: Any) -> Rewrite:
        return msgspec.structs.replace(intact(*arguments), tombs=array("Q"))

    return mock.patch("natsctl.store.compaction.plan_rewrite", plan_rewrite)


def _compressed_erasure_skipped() -> Patch:
    return mock.patch.object(FileCommit, "_erase_in_copy", do_nothing)


def _compressed_blocks_off_by_one() -> Patch:
    def stored(self: packed.PackedFile, number: int) -> tuple[bytes, int]:
        return found(self, number and number - 1)

    found = packed.PackedFile.stored
    return mock.patch.object(packed.PackedFile, "stored", stored)


def _name_of_a_refused_segment_not_synced() -> Patch:
    write = FileCommit._write_records_only

    def forgetful(self: FileCommit) -> None:
        with mock.patch.object(SimDisk, "fsync_dir", do_nothing):
            write(self)

    return mock.patch.object(FileCommit, "_write_records_only", forgetful)


def _time_of_an_emptied_stream_kept() -> Patch:
    return mock.patch.object(StreamStore, "_in_order", lambda self, ts_ns, seq: max(ts_ns, self.last_ts_ns))


def _journal_of_another_stream_accepted() -> Patch:
    stack = contextlib.ExitStack()
    reason = fsck.foreign_reason
    stack.enter_context(
        mock.patch.object(
            fsck,
            "foreign_reason",
            lambda check, head, role: "" if role == frame.JOURNAL_FILE else reason(check, head, role),
        )
    )
    stack.enter_context(mock.patch.object(fsck, "_journal_conflict", lambda *_: ""))
    return stack


def _earlier_generation_accepted() -> Patch:
    return mock.patch.object(fsck, "_judge_marks", do_nothing)


def _earlier_meta_accepted() -> Patch:
    judge = fsck._judge_meta

    def forgiving(disk: Disk, check: StreamCheck, *more: Any) -> None:
        judge(disk, check, *more)
        check.damage = [text for text in check.damage if "older" not in text]

    return mock.patch.object(fsck, "_judge_meta", forgiving)


def _index_file_removed_twice() -> Patch:
    def give_up_index(self: SegmentFile) -> list[str]:
        return [self.index_path] if self.indexed else []

    return mock.patch.object(SegmentFile, "give_up_index", give_up_index)


def _old_files_not_erased() -> Patch:
    def places(self: Compaction, index: StreamIndex, seq: int) -> list[tuple[Segment, int, SegmentFile]]:
        return [place for place in found(self, index, seq) if place[0] not in (*self._leaving, *self._retired)]

    found = Compaction.places
    return mock.patch.object(Compaction, "places", places)


def _removed_messages_repaired() -> Patch:
    return mock.patch.object(recovery, "_take_records", do_nothing)


def _journal_not_repaired() -> Patch:
    return mock.patch.object(recovery, "_records", lambda *_: [])


def _repair_loses_the_last_sequence() -> Patch:
    return mock.patch.object(StreamStore, "skip_to", do_nothing)


MUTATIONS: dict[str, Callable[[], Patch]] = {
    mutation.__name__.removeprefix("_"): mutation
    for mutation in (
        _ack_before_sync,
        _no_folder_sync,
        _sync_retried,
        _short_write_kept,
        _checksum_skipped,
        _recovery_does_not_write_again,
        _damage_cut_like_a_torn_tail,
        _erasure_skipped,
        _removal_not_recorded,
        _floor_not_recorded,
        _journal_never_synced,
        _acks_run_ahead_of_the_commit,
        _metadata_not_written,
        _replaced_file_not_synced,
        _batch_half_recovered,
        _timed_flag_not_written,
        _timed_flag_forgotten_at_start,
        _index_without_checksum,
        _index_of_another_segment_believed,
        _index_without_removals,
        _superseded_segment_kept,
        _rewritten_without_the_removals_it_holds,
        _compressed_erasure_skipped,
        _compressed_blocks_off_by_one,
        _name_of_a_refused_segment_not_synced,
        _time_of_an_emptied_stream_kept,
        _journal_of_another_stream_accepted,
        _earlier_generation_accepted,
        _earlier_meta_accepted,
        _index_file_removed_twice,
        _old_files_not_erased,
        _removed_messages_repaired,
        _journal_not_repaired,
        _repair_loses_the_last_sequence,
    )
}

_SEEDS: Final = {
    "batch_half_recovered": 62,
    "compressed_blocks_off_by_one": 5,
    "compressed_erasure_skipped": 7,
    "damage_cut_like_a_torn_tail": 1,
    "earlier_generation_accepted": 24,
    "earlier_meta_accepted": 13,
    "floor_not_recorded": 1,
    "index_without_removals": 8,
    "journal_of_another_stream_accepted": 4,
    "name_of_a_refused_segment_not_synced": 688,
    "old_files_not_erased": 7,
    "recovery_does_not_write_again": 15,
    "repair_loses_the_last_sequence": 5,
    "rewritten_without_the_removals_it_holds": 43,
    "short_write_kept": 36,
    "superseded_segment_kept": 69,
    "sync_retried": 18,
}
"""The first seed that detects a rarely detected mutation: tried first."""


def caught_at(name: str, seeds: int = SEEDS_MAX) -> int | None:
    """Return a seed at which the simulation detects the mutation, None where it never does."""
    return detected_at(MUTATIONS[name], simulate, seeds, NOTICED, _SEEDS.get(name, 0))
