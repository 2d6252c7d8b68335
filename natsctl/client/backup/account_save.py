"""Every stream of an account, saved side by side into one folder.

The folder has one directory for each stream, as the `nats` tool lays it out, and nothing else, as that tool takes
nothing else. It appears under its name when all streams are saved, or all but those that are told to have failed.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from natsctl.api.errors import StorageError, UsageError
from natsctl.api.units import format_size
from natsctl.client.backup.attempts import Lifeline
from natsctl.client.backup.layout import META_NAME, PART_PREFIX, checked_name
from natsctl.client.backup.outcome import (
    PARALLEL,
    AccountOutcome,
    Overall,
    StreamOutcome,
    failed,
    side_by_side,
    unwatched,
)
from natsctl.client.backup.save import SaveOptions, save_stream
from natsctl.client.backup.target import rename_folder
from natsctl.client.preview import DryRunError


async def save_account_data(
    lifeline: Lifeline,
    folder: Path,
    options: SaveOptions,
    *,
    parallel: int = PARALLEL,
    on_change: Callable[[float, float], None] = unwatched,
) -> AccountOutcome:
    """Save every stream, internal ones too. Raises UsageError for a folder in use unless `options.force`.

    A stream that fails is told of in the answer; the others are saved. Nothing is left where all failed, or after
    Ctrl-C.
    """
    listing = await lifeline.manager.stream_list()
    states = {str(one.raw["config"]["name"]): one.raw.get("state") or {} for one in listing}
    unseen = [*(listing.raw.get("missing") or ()), *(listing.raw.get("offline") or {})]
    outcome = AccountOutcome(folder=str(folder))
    _check_folder(folder, options.force)
    overall = Overall({name: int(state.get("bytes") or 0) for name, state in states.items()}, on_change)
    if lifeline.manager.connection.dry_run:
        effect = {"target": str(folder), "streams": len(states), "bytes": sum(overall.totals.values())}
        raise DryRunError(effect=effect)
    one_of_many = replace(options, force=False, account=tuple(sorted({*states, *unseen})))
    begun = time.monotonic()
    part = _part_of(folder)
    try:

        async def save(name: str) -> StreamOutcome:
            target = part / checked_name("stream", name)
            lifeline.say(f'Starting backup of Stream "{name}" with {format_size(overall.totals[name])}')
            saved = await save_stream(lifeline, name, target, one_of_many, overall.step(name))
            warnings = [_REPLAYED] if saved.method == "replay" and not options.replay else []
            return StreamOutcome(
                stream=name,
                action="saved",
                messages=saved.messages,
                bytes=saved.bytes,
                archive_bytes=saved.archive_bytes,
                warnings=warnings,
            )

        outcome.streams = await side_by_side(sorted(states), save, parallel, overall)
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
    """Raise UsageError where a backup may not be put."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    strange = [entry.name for entry in folder.iterdir() if not (entry / META_NAME).is_file()]
    if strange:
        raise UsageError(f"{folder} exists and is not an account backup: it holds {min(strange)}")
    if any(folder.iterdir()) and not replace:
        raise UsageError(f"{folder} exists", hint="name another folder, or give --force to replace it")


def _part_of(folder: Path) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=PART_PREFIX, suffix=".part", dir=folder.parent))
    except OSError as failure:
        raise UsageError(f"cannot write a backup to {folder}: {failure.strerror}") from failure
