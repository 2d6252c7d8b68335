"""Every stream of an account backup, restored side by side in the order that they need."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from natsctl.api.errors import UsageError
from natsctl.api.units import plural
from natsctl.client.backup.attempts import Lifeline
from natsctl.client.backup.layout import META_NAME
from natsctl.client.backup.opened import open_backup
from natsctl.client.backup.order import in_order
from natsctl.client.backup.outcome import PARALLEL, AccountOutcome, Overall, StreamOutcome, side_by_side, unwatched
from natsctl.client.backup.restore import OnExisting, Restored, RestoreOptions, StreamExistsError, restore_stream
from natsctl.client.preview import DryRunError, Planned


def saved_in(folder: Path) -> dict[str, Path]:
    """The stream backups of an account backup, by stream. Raises UsageError where there is none."""
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
    """The streams that were saved together with those, by what their manifests say, and are not there."""
    expected: set[str] = set()
    for path in found.values():
        with open_backup(path) as backup:
            expected.update(backup.manifest.account if backup.manifest is not None else ())
    return sorted(expected - found.keys())


async def restore_account_data(
    lifeline: Lifeline,
    folder: Path,
    options: RestoreOptions,
    *,
    parallel: int = PARALLEL,
    on_change: Callable[[float, float], None] = unwatched,
) -> AccountOutcome:
    """Restore every stream of an account backup, those that others copy first.

    Raises StreamExistsError before anything is changed where streams exist and none may be skipped or replaced.
    """
    paths = saved_in(folder)
    outcome = AccountOutcome(folder=str(folder))
    if absent := missing_in(folder, paths):
        outcome.warnings.append(f"these streams were saved too and are not there: {', '.join(absent)}")
    configs, totals = _configs_and_sizes(paths)
    await _check_existing(lifeline, paths, options)
    groups, circle = in_order(configs)
    if circle:
        outcome.warnings.append(f"these streams copy each other in a circle: {', '.join(circle)}")
        groups.append(circle)
    if lifeline.manager.connection.dry_run:
        raise await _preview(lifeline, paths, groups, options)
    overall, begun = Overall(totals, on_change), time.monotonic()
    lifeline.say(f'Restoring backup of all {plural(len(paths), "stream")} in directory "{folder}"')

    async def restore(name: str) -> StreamOutcome:
        lifeline.say(f'Starting restore of Stream "{name}" from file "{paths[name]}"')
        done = await restore_stream(lifeline, paths[name], options, overall.step(name))
        return _outcome(name, done)

    for group in groups:
        outcome.streams += await side_by_side(group, restore, parallel, overall)
    outcome.elapsed = int((time.monotonic() - begun) * 1e9)
    return outcome


def _configs_and_sizes(paths: dict[str, Path]) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    configs: dict[str, dict[str, Any]] = {}
    sizes: dict[str, int] = {}
    for name, path in paths.items():
        with open_backup(path) as backup:
            configs[name], sizes[name] = backup.config, backup.size
    return configs, sizes


async def _check_existing(lifeline: Lifeline, paths: dict[str, Path], options: RestoreOptions) -> None:
    if options.on_existing is not OnExisting.FAIL:
        return
    if there := sorted(paths.keys() & set(await lifeline.manager.stream_names())):
        raise StreamExistsError(
            f"{len(there)} of {len(paths)} streams exist: {', '.join(there)}",
            hint="give --on-existing skip to leave them alone, or --on-existing replace; nothing was restored",
        )


async def _preview(
    lifeline: Lifeline, paths: dict[str, Path], groups: list[list[str]], options: RestoreOptions
) -> DryRunError:
    """Every stream's requests in the order of the restore."""
    existing = set(await lifeline.manager.stream_names())
    names = [name for group in groups for name in group]
    skipped = [name for name in names if name in existing and options.on_existing is OnExisting.SKIP]
    planned: list[Planned] = []
    for name in names:
        if name not in skipped:
            try:
                await restore_stream(lifeline, paths[name], options)
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
