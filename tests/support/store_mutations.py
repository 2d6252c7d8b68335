"""Mutations of the store, each one plausible line, that prove that its simulation can fail.

A mutation replaces one function while it is active, and breaks one promise. A simulation that does not notice it within
`SEEDS_MAX` seeds proves nothing about that promise. `Mutations` serves the mutations of the engine and of
leaf nodes as well.
"""

import contextlib
import itertools
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias
from unittest import mock

import msgspec

from natsctl.store import compaction, file_commit, file_log, frame, fsck, packed, recovery, store
from natsctl.store.compaction import Compaction, Rewrite
from natsctl.store.disk import Disk, File
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit, CommitPlan, FileCommit, write_all
from natsctl.store.file_log import FileLog
from natsctl.store.fsck import StreamCheck
from natsctl.store.index import StreamIndex
from natsctl.store.index_file import IndexImage
from natsctl.store.journal import Journal
from natsctl.store.segment_file import SegmentFile
from natsctl.store.stream import StreamStore
from tests.support.simdisk import SimDisk
from tests.support.store_model import Violation
from tests.support.store_simulation import simulate

Patch: TypeAlias = contextlib.AbstractContextManager[Any]
Replacement: TypeAlias = Callable[..., Any]


def do_nothing(*arguments: Any, **named: Any) -> None:
    """No-op."""


class Mutations(dict[str, Callable[[], Patch]]):
    """Mutations by name. `first` is the first seed that detects a rarely detected one: it is tried first."""

    def __init__(
        self,
        simulate: Callable[[int], object],
        seeds: int,
        noticed: tuple[type[Exception], ...],
        **replaced: tuple[Any, ...],
    ) -> None:
        """Take what is replaced: by name the owner or its name, the attribute, the replacement, and perhaps `first`.

        `simulate` takes a seed and is to raise one of `noticed` at one of so many seeds.
        """
        super().__init__()
        self._simulate, self._seeds, self._noticed = simulate, seeds, noticed
        self._first: dict[str, int] = {}
        for name, (owner, attribute, new, *first) in replaced.items():
            patch: Any = mock.patch if isinstance(owner, str) else mock.patch.object
            place = (f"{owner}.{attribute}",) if isinstance(owner, str) else (owner, attribute)
            self[name] = partial(patch, *place, new)
            self._first[name] = sum(first)

    def planted(self, first: int = 0) -> Callable[[Callable[[], Patch]], Callable[[], Patch]]:
        def register(mutation: Callable[[], Patch]) -> Callable[[], Patch]:
            self[mutation.__name__] = mutation
            self._first[mutation.__name__] = first
            return mutation

        return register

    def replacing(self, owner: object, attribute: str, first: int = 0) -> Callable[[Replacement], Replacement]:
        """Register a function that replaces another one, which it is given as its first argument."""

        def register(function: Replacement) -> Replacement:
            original = getattr(owner, attribute)

            def replacement(*arguments: Any, **named: Any) -> Any:
                return function(original, *arguments, **named)

            self[function.__name__] = partial(mock.patch.object, owner, attribute, replacement)
            self._first[function.__name__] = first
            return function

        return register

    def caught_at(self, name: str) -> int | None:
        """Return a seed at which the simulation detects the mutation, or None."""
        with self[name]():
            for seed in itertools.chain([self._first[name]], range(self._seeds)):
                try:
                    self._simulate(seed)
                except self._noticed:
                    return seed
        return None


SEEDS_MAX = 1000

NOTICED = (Violation, StoreError, LookupError, ValueError)
"""Errors of a simulation; a store that breaks down counts as well."""


MUTATIONS: Final = Mutations(
    simulate,
    SEEDS_MAX,
    NOTICED,
    ack_before_sync=(FileCommit, "_sync", do_nothing),
    no_folder_sync=(SimDisk, "fsync_dir", do_nothing),
    recovery_does_not_write_again=(recovery, "_rewrite_tail", do_nothing, 15),
    erasure_skipped=(FileCommit, "_erase", do_nothing),
    removal_not_recorded=(FileLog, "removing", do_nothing),
    metadata_not_written=(FileCommit, "_write_meta", do_nothing),
    batch_half_recovered=(frame, "MORE", 0, 62),
    timed_flag_not_written=("natsctl.store.stream", "TIMED", 0),
    timed_flag_forgotten_at_start=(frame, "TIMED", 0),
    index_without_checksum=("natsctl.store.index_file", "crc32", lambda data: 0),
    index_of_another_segment_believed=("natsctl.store.index_file", "_speaks_of", lambda *_: True),
    superseded_segment_kept=(fsck, "superseded", lambda *_: False, 95),
    compressed_erasure_skipped=(FileCommit, "_erase_in_copy", do_nothing, 7),
    time_of_an_emptied_stream_kept=(StreamStore, "_in_order", lambda self, ts_ns, seq: max(ts_ns, self.last_ts_ns)),
    earlier_generation_accepted=(fsck, "_judge_marks", do_nothing, 125),
    removed_messages_repaired=(recovery, "_take_records", do_nothing),
    journal_not_repaired=(recovery, "_records", lambda *_: []),
    repair_loses_the_last_sequence=(StreamStore, "skip_to", do_nothing, 5),
)


@MUTATIONS.replacing(FileLog, "take", 160)
def completed_before_its_segments_are_synced(take: Any, log: FileLog, plan: CommitPlan, *more: Any) -> None:
    take(log, plan, *more)
    plan.trailing = []


@MUTATIONS.replacing(FileCommit, "_sync", 18)
def sync_retried(_sync: Any, _commit: FileCommit, file: File) -> None:
    for attempt in range(3):
        try:
            file.sync()
            return
        except OSError:
            if attempt == 2:
                raise


@MUTATIONS.replacing(file_commit, "write_all", 36)
def short_write_kept(_write_all: Any, file: File, data: bytes, offset: int) -> None:
    file.pwrite(data, offset)


@MUTATIONS.planted()
def checksum_skipped() -> Patch:
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch("natsctl.store.frame.crc32", lambda *_: 0))
    for name, in_python in (
        ("file_log._encode_message", frame._message),
        ("frame.encode_run", frame._run),
        ("frame.encode_copies", frame._copies),
    ):
        stack.enter_context(mock.patch(f"natsctl.store.{name}", in_python))
    return stack


@MUTATIONS.replacing(store, "check_stream", 1)
def damage_cut_like_a_torn_tail(check_stream: Any, *arguments: Any) -> StreamCheck:
    check: StreamCheck = check_stream(*arguments)
    check.damage = [text for text in check.damage if "synced" not in text]
    return check


@MUTATIONS.planted(1)
def floor_not_recorded() -> Patch:
    return mock.patch.multiple(FileLog, dropping_first=do_nothing, dropping_below=do_nothing)


@MUTATIONS.replacing(Journal, "take")
def journal_never_synced(take: Any, journal: Journal, sync: bool) -> Any:
    return take(journal, False)


@MUTATIONS.replacing(StreamStore, "finish_commit")
def acks_run_ahead_of_the_commit(finish_commit: Any, stream: StreamStore, commit: Commit, error: Any = None) -> None:
    commit.last_seq = stream.last_seq
    finish_commit(stream, commit, error)


@MUTATIONS.replacing(file_commit, "replace_file")
def replaced_file_not_synced(_replace_file: Any, disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path + ".tmp", create=True)
    write_all(file, data, 0)
    file.close()
    disk.rename(path + ".tmp", path)
    disk.fsync_dir(path.rpartition("/")[0])


@MUTATIONS.replacing(file_log, "image_of", 18)
def index_without_removals(image_of: Any, *arguments: Any, **named: Any) -> IndexImage:
    image: IndexImage = image_of(*arguments, **named)
    return msgspec.structs.replace(image, tombs=array("Q"))


@MUTATIONS.replacing(compaction, "plan_rewrite", 43)
def rewritten_without_the_removals_it_holds(plan_rewrite: Any, *arguments: Any) -> Rewrite:
    rewrite: Rewrite = plan_rewrite(*arguments)
    return msgspec.structs.replace(rewrite, removals=[])


@MUTATIONS.replacing(packed.PackedFile, "stored", 5)
def compressed_blocks_off_by_one(stored: Any, file: packed.PackedFile, number: int) -> Any:
    return stored(file, number and number - 1)


@MUTATIONS.replacing(FileCommit, "_write_records_only", 416)
def name_of_a_refused_segment_not_synced(write: Any, commit: FileCommit) -> None:
    with mock.patch.object(SimDisk, "fsync_dir", do_nothing):
        write(commit)


@MUTATIONS.planted(4)
def journal_of_another_stream_accepted() -> Patch:
    reason = fsck.foreign_reason
    return mock.patch.multiple(
        fsck,
        foreign_reason=lambda check, head, role: "" if role == frame.JOURNAL_FILE else reason(check, head, role),
        _journal_conflict=lambda *_: "",
    )


@MUTATIONS.replacing(fsck, "_judge_meta", 27)
def earlier_meta_accepted(judge: Any, disk: Disk, check: StreamCheck, *more: Any) -> None:
    judge(disk, check, *more)
    check.damage = [text for text in check.damage if "older" not in text]


@MUTATIONS.replacing(SegmentFile, "give_up_index")
def index_file_removed_twice(_give_up_index: Any, file: SegmentFile) -> list[str]:
    return [file.index_path] if file.indexed else []


@MUTATIONS.replacing(Compaction, "places", 7)
def old_files_not_erased(places: Any, compaction: Compaction, index: StreamIndex, seq: int) -> list[Any]:
    left_out = (*compaction._leaving, *compaction._retired)
    return [place for place in places(compaction, index, seq) if place[0] not in left_out]
