"""Backup and restore of the streams of an account.

Streams are saved side by side into one folder, with one directory for each stream as the `nats` tool lays it out, and
nothing else, as that tool accepts nothing else. The folder gets its name once all streams are saved, except the ones
reported as failed.

Streams are restored side by side, in the order that mirrors and sources need: an origin before its copies.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from natsctl.api.errors import ConflictError, NatsctlError, StorageError, UsageError
from natsctl.api.subjects import is_valid_name
from natsctl.api.units import format_size, plural
from natsctl.client.backup.manifest import META_NAME, Document, checked_name
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.restore import OnExisting, Restored, RestoreOptions, restore_stream
from natsctl.client.backup.save import SaveOptions, save_stream
from natsctl.client.backup.transfer import RetryingManager, TransferProgress
from natsctl.client.backup.writer import part_of, rename_folder
from natsctl.client.buckets import kind_of
from natsctl.client.message import DryRunError, Planned
from natsctl.client.received import UNUSABLE
from natsctl.client.requests import side_by_side


def origins_of(config: Mapping[str, Any]) -> set[str]:
    """Return the streams of the same account that a stream mirrors or sources."""
    sources = [config.get("mirror") or {}, *(config.get("sources") or ())]
    return {str(source["name"]) for source in sources if source.get("name") and not source.get("external")}


def in_order(configs: Mapping[str, Mapping[str, Any]]) -> tuple[list[list[str]], list[str]]:
    """Return groups of streams, each needing only those before it, and the names of those in a cycle.

    The latter are in no group, as no order is right for them.
    """
    needs = {name: (origins_of(config) & configs.keys()) - {name} for name, config in configs.items()}
    groups: list[list[str]] = []
    done: set[str] = set()
    while ready := sorted(name for name, needed in needs.items() if name not in done and needed <= done):
        groups.append(ready)
        done.update(ready)
    return groups, sorted(configs.keys() - done)


PARALLEL = 4
"""Streams under way at once, unless the command says otherwise."""


class StreamOutcome(Document):
    """Outcome of one stream: `action` is "saved", "restored", "replaced", "skipped" or "failed"."""

    stream: str
    action: str
    messages: int = 0
    bytes: int = 0
    archive_bytes: int = 0
    error: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)


class AccountOutcome(Document):
    """Outcome of an account's streams; `elapsed` in ns, `warnings` do not concern a single stream."""

    folder: str
    streams: list[StreamOutcome] = msgspec.field(default_factory=list)
    elapsed: int = 0
    warnings: list[str] = msgspec.field(default_factory=list)

    @property
    def failed(self) -> list[StreamOutcome]:
        """Return the streams that were neither saved nor restored."""
        return [stream for stream in self.streams if stream.action == "failed"]

    @property
    def warned(self) -> bool:
        return bool(self.warnings) or any(stream.warnings for stream in self.streams)


@dataclass(slots=True)
class Overall:
    """Progress of all streams together: the share of each stream's archive is weighted by its bytes."""

    totals: dict[str, int]
    on_change: Callable[[float, float], None]
    done: dict[str, float] = field(default_factory=dict)

    def step(self, name: str) -> Callable[[TransferProgress], None]:
        def at(progress: TransferProgress) -> None:
            total = self.totals.get(name, 0)
            whole = max(progress.total_bytes, progress.archive_bytes, 1)
            self._at(name, total * progress.archive_bytes / whole)

        return at

    def finished(self, name: str) -> None:
        """Count the stream as done, whatever its outcome."""
        self._at(name, self.totals.get(name, 0))

    def _at(self, name: str, done: float) -> None:
        self.done[name] = done
        self.on_change(sum(self.done.values()), sum(self.totals.values()))


def ignore_overall(done: float, total: float) -> None:
    """Show nothing."""


def failed(name: str, why: str) -> StreamOutcome:
    return StreamOutcome(stream=name, action="failed", error=why)


async def outcomes(
    names: Iterable[str], work: Callable[[str], Awaitable[StreamOutcome]], parallel: int, overall: Overall
) -> list[StreamOutcome]:
    """Return the outcome of each stream in the order of the names; at most `parallel` run at once."""

    async def outcome(name: str) -> StreamOutcome:
        try:
            return await work(name)
        except NatsctlError as failure:
            return failed(name, failure.text + (f" ({failure.hint})" if failure.hint else ""))
        except UNUSABLE as failure:
            return failed(name, f"the server's answer is not understood: {failure!r}")
        finally:
            overall.finished(name)

    return await side_by_side(outcome, names, parallel)


async def save_account_data(
    retrying: RetryingManager,
    folder: Path,
    options: SaveOptions,
    *,
    parallel: int = PARALLEL,
    on_change: Callable[[float, float], None] = ignore_overall,
) -> AccountOutcome:
    """Save every stream, internal ones too. Raises UsageError for a folder in use unless `options.force`.

    A stream that fails is reported in the answer; the others are saved. Nothing is left where all failed, or after
    Ctrl-C.
    """
    listing = await retrying.manager.stream_list()
    states = {str(one.raw["config"]["name"]): one.raw.get("state") or {} for one in listing}
    unseen = [*(listing.raw.get("missing") or ()), *(listing.raw.get("offline") or {})]
    outcome = AccountOutcome(folder=str(folder))
    _check_folder(folder, options.force)
    overall = Overall({name: int(state.get("bytes") or 0) for name, state in states.items()}, on_change)
    if retrying.manager.connection.dry_run:
        effect = {"target": str(folder), "streams": len(states), "bytes": sum(overall.totals.values())}
        raise DryRunError(effect=effect)
    one_of_many = replace(options, force=False, account=tuple(sorted({*states, *unseen})))
    begun = time.monotonic()
    part = part_of(folder)
    try:

        async def save(name: str) -> StreamOutcome:
            target = part / checked_name("stream", name)
            retrying.say(f'Starting backup of Stream "{name}" with {format_size(overall.totals[name])}')
            saved = await save_stream(retrying, name, target, one_of_many, overall.step(name))
            warnings = [_REPLAYED] if saved.method == "replay" and not options.replay else []
            return StreamOutcome(
                stream=name,
                action="saved",
                messages=saved.messages,
                bytes=saved.bytes,
                archive_bytes=saved.archive_bytes,
                warnings=warnings,
            )

        outcome.streams = await outcomes(sorted(states), save, parallel, overall)
        outcome.streams += [failed(name, "the servers that have it do not answer") for name in sorted(unseen)]
        if len(outcome.failed) < len(outcome.streams) or not outcome.streams:
            rename_folder(part, folder)
    except OSError as failure:
        raise StorageError(f"cannot write the backup {folder}: {failure.strerror}") from failure
    finally:
        shutil.rmtree(part, ignore_errors=True)
    outcome.elapsed = int((time.monotonic() - begun) * 1e9)
    return outcome


_REPLAYED = "read message by message, as this server makes no snapshots of streams in memory"


def _check_folder(folder: Path, replace: bool) -> None:
    """Raise UsageError if no backup may be written."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    strange = [entry.name for entry in folder.iterdir() if not (entry / META_NAME).is_file()]
    if strange:
        raise UsageError(f"{folder} exists and is not an account backup: it holds {min(strange)}")
    if any(folder.iterdir()) and not replace:
        raise UsageError(f"{folder} exists", hint="name another folder, or give --force to replace it")


def saved_in(folder: Path) -> dict[str, Path]:
    """Return the stream backups of an account backup, by stream. Raises UsageError without any."""
    found: dict[str, Path] = {}
    if folder.is_dir():
        for entry in sorted(folder.iterdir()):
            if (entry / META_NAME).is_file() or (entry.is_file() and entry.name.lower().endswith((".tgz", ".tar.gz"))):
                with open_backup(entry) as backup:
                    if backup.stream in found:
                        raise UsageError(f"{entry} and {found[backup.stream]} both hold stream {backup.stream}")
                    found[backup.stream] = entry
    if not found:
        raise UsageError(
            f"{folder} is not an account backup: there is no backup of a stream in it",
            hint="natsctl backup ls shows the backups below a folder",
        )
    return found


def missing_in(folder: Path, found: dict[str, Path]) -> list[str]:
    """Return the missing streams that were saved together with those, according to their manifests."""
    expected: set[str] = set()
    for path in found.values():
        with open_backup(path) as backup:
            expected.update(backup.manifest.account if backup.manifest is not None else ())
    return sorted(expected - found.keys())


async def restore_account_data(
    retrying: RetryingManager,
    folder: Path,
    options: RestoreOptions,
    *,
    parallel: int = PARALLEL,
    on_change: Callable[[float, float], None] = ignore_overall,
) -> AccountOutcome:
    """Restore every stream of an account backup, copied streams before their copies.

    Raises ConflictError before anything is changed where streams exist and none may be skipped or replaced.
    """
    paths = saved_in(folder)
    outcome = AccountOutcome(folder=str(folder))
    if absent := missing_in(folder, paths):
        outcome.warnings.append(f"these streams were saved too and are not there: {', '.join(absent)}")
    for name, path in paths.items():
        if path.is_dir() and path.name != name and is_valid_name(path.name):
            _check_folder_name(name, path)
            outcome.warnings.append(f"{path} has stream {name}: it is restored under its own name")
    configs, totals = _configs_and_sizes(paths)
    await _check_existing(retrying, paths, options)
    groups, circle = in_order(configs)
    if circle:
        outcome.warnings.append(f"these streams copy each other in a circle: {', '.join(circle)}")
        groups.append(circle)
    if retrying.manager.connection.dry_run:
        raise await _preview(retrying, paths, groups, options)
    overall, begun = Overall(totals, on_change), time.monotonic()
    retrying.say(f'Restoring backup of all {plural(len(paths), "stream")} in directory "{folder}"')

    async def restore(name: str) -> StreamOutcome:
        retrying.say(f'Starting restore of Stream "{name}" from file "{paths[name]}"')
        done = await restore_stream(retrying, paths[name], options, overall.step(name))
        return _outcome(name, done)

    for group in groups:
        outcome.streams += await outcomes(group, restore, parallel, overall)
    outcome.elapsed = int((time.monotonic() - begun) * 1e9)
    return outcome


def _check_folder_name(stream: str, path: Path) -> None:
    """Raise UsageError for a folder that was renamed to another bucket: nobody would find its keys there."""
    if (kind := kind_of(path.name)) is not None and kind is kind_of(stream):
        raise UsageError(
            f"{path} is a backup of {stream}, and has the name of another bucket; nothing was restored",
            hint=f"natsctl stream restore {path.name} {path} restores it as the {kind.noun} "
            f"{kind.bucket_of(path.name)}; name the folder {stream} to restore it as it was",
        )


def _configs_and_sizes(paths: dict[str, Path]) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    configs: dict[str, dict[str, Any]] = {}
    sizes: dict[str, int] = {}
    for name, path in paths.items():
        with open_backup(path) as backup:
            configs[name], sizes[name] = backup.config, backup.size
    return configs, sizes


async def _check_existing(retrying: RetryingManager, paths: dict[str, Path], options: RestoreOptions) -> None:
    if options.on_existing is not OnExisting.FAIL:
        return
    if there := sorted(paths.keys() & set(await retrying.manager.stream_names())):
        raise ConflictError(
            f"{len(there)} of {len(paths)} streams exist: {', '.join(there)}",
            hint="give --on-existing skip to leave them alone, or --on-existing replace; nothing was restored",
        )


async def _preview(
    retrying: RetryingManager, paths: dict[str, Path], groups: list[list[str]], options: RestoreOptions
) -> DryRunError:
    """Return every stream's requests in the order of the restore."""
    existing = set(await retrying.manager.stream_names())
    names = [name for group in groups for name in group]
    skipped = [name for name in names if name in existing and options.on_existing is OnExisting.SKIP]
    planned: list[Planned] = []
    for name in names:
        if name not in skipped:
            try:
                await restore_stream(retrying, paths[name], options)
            except DryRunError as preview:
                planned += preview.planned
    replaced = [name for name in names if name in existing and name not in skipped]
    effect: dict[str, Any] = {"streams": len(names) - len(skipped), "order": groups}
    effect |= {key: value for key, value in (("skips", skipped), ("replaces", replaced)) if value}
    return DryRunError(*planned, effect=effect)


def _outcome(name: str, done: Restored) -> StreamOutcome:
    state = done.answer.raw.get("state") or {}
    return StreamOutcome(
        stream=name,
        action=done.action,
        messages=int(state.get("messages") or 0),
        bytes=int(state.get("bytes") or 0),
        archive_bytes=done.progress.archive_bytes,
        warnings=done.warnings,
    )
