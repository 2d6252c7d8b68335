"""A stream's restore over the wire: from any backup, under any name, with nothing left behind by a failure.

Each piece is sent as a request, and an empty one ends it, which the server answers like a stream creation. JetStream
has no renaming of streams, so one that is to be replaced is saved first, after the new backup was read to its end, and
put back should the restore fail: between its removal and the end of the restore there is no stream of that name.
Source: docs/compatibility.md#snapshots-and-restores.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from natsctl.api import endpoints
from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.client.answer import Answer
from natsctl.client.backup.aside import aside
from natsctl.client.backup.attempts import Lifeline, TransferInterruptedError
from natsctl.client.backup.compare import IncompleteRestoreError, lacking, missing
from natsctl.client.backup.contents import OnRead, check_whole, summarise
from natsctl.client.backup.opened import OpenBackup, open_backup
from natsctl.client.backup.progress import OnProgress, Progress, silent
from natsctl.client.backup.rewrite import fitted, version_for
from natsctl.client.backup.save import IDLE_S, SaveOptions, save_stream
from natsctl.client.backup.send import Sending
from natsctl.client.manager import Manager
from natsctl.client.preview import DryRunError, Planned

NAME_HELD_S = 1.0
"""How long to wait before the name is tried again where no stream has it."""
HELD_WITHIN_S = 45.0
"""How long a cluster may hold the name of a restore whose server has died."""
MAX_SUBJECTS_ASKED = 64
"""Subjects whose owners are asked for before a restore; the server itself judges all of them."""


class OnExisting(StrEnum):
    """What becomes of a stream that is there already."""

    FAIL = "fail"
    SKIP = "skip"
    REPLACE = "replace"


class StreamExistsError(NatsctlError):
    """A stream of the backup exists and is neither to be replaced nor to be left alone."""

    exit_code = ExitCode.CONFLICT


class SubjectOverlapError(NatsctlError):
    """Another stream listens on subjects of the one that is to be restored."""

    exit_code = ExitCode.CONFLICT


class StreamLostError(IncompleteRestoreError):
    """A stream was removed to be replaced, and neither its successor nor itself could be restored."""

    def __init__(self, stream: str, copy: Path, why: BaseException | None) -> None:
        super().__init__(
            f"stream {stream} could not be put back: {why}", hint=f"natsctl stream restore {copy} has all of it"
        )


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What is restored as what; empty fields leave what the backup has."""

    stream: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    cluster: str = ""
    tags: tuple[str, ...] = ()
    replicas: int = 0
    on_existing: OnExisting = OnExisting.FAIL
    idle_s: float = IDLE_S

    def applied(self, saved: dict[str, Any]) -> dict[str, Any]:
        """The configuration to restore with: the one given, else the saved one, with what was said besides."""
        wanted = dict(self.config or saved)
        wanted["name"] = self.stream or str(self.config.get("name") or saved.get("name") or "")
        if self.subjects:
            wanted["subjects"] = list(self.subjects)
        placement = {**(wanted.get("placement") or {})}
        if self.cluster:
            placement["cluster"] = self.cluster
        if self.tags:
            placement["tags"] = list(self.tags)
        if placement:
            wanted["placement"] = placement
        if self.replicas:
            wanted["num_replicas"] = self.replicas
        return wanted


@dataclass(slots=True)
class Restored:
    """What came of it: `action` is "restored", "replaced" or "skipped", the answer that of the server."""

    stream: str
    action: str
    answer: Answer[Any]
    progress: Progress
    warnings: list[str] = field(default_factory=list)


async def restore_stream(
    lifeline: Lifeline,
    source: Path,
    options: RestoreOptions = RestoreOptions(),
    on_progress: OnProgress = silent,
) -> Restored:
    """Restore a backup of any form; `on_progress` also hears of a reading that has to come before.

    Raises StreamExistsError, ApiResponseError when the server refuses, UsageError or StorageError when the backup is
    none or is damaged; no stream is there then that was not before. IncompleteRestoreError says that less came back
    than was saved, without a limit that would explain it: that stream stays.
    """
    with open_backup(source) as backup:
        config = options.applied(backup.config)
        name = str(config["name"])
        there = await _existing(lifeline.manager, name)
        if there is not None and options.on_existing is OnExisting.FAIL:
            raise StreamExistsError(
                f"stream {name} exists",
                hint="give another name, --on-existing skip to leave it alone, or --on-existing replace",
            )
        if there is not None and options.on_existing is OnExisting.SKIP:
            return Restored(name, "skipped", there, Progress(name, 0))
        connection = lifeline.manager.connection
        version = version_for(backup, config, str(connection.info.get("version") or ""))
        if connection.dry_run:
            raise _preview(lifeline.manager, backup, config, there)
        await _check_subjects(lifeline.manager, config)
        read = _reading(name, backup.size, on_progress)
        await aside(lambda on_read: check_whole(backup, on_read), read)
        async with fitted(backup, config, version, read) as done:
            sending = Sending(backup, config, options.idle_s, on_progress)
            if there is None:
                answer = await _restore(lifeline, name, sending)
            else:
                await aside(lambda on_read: summarise(backup, on_read), read)
                answer = await _replace(lifeline, name, sending, options)
        action = "restored" if there is None else "replaced"
        warnings = [done] if done else []
        warnings += lacking(backup, config, answer)
        return Restored(name, action, answer, sending.progress, warnings)


async def replaced_by(manager: Manager, source: Path, options: RestoreOptions) -> Answer[Any] | None:
    """The stream that a restore would replace, None where there is none or it is not to be replaced."""
    if options.on_existing is not OnExisting.REPLACE:
        return None
    with open_backup(source) as backup:
        name = str(options.applied(backup.config)["name"])
    return await _existing(manager, name)


async def _existing(manager: Manager, name: str) -> Answer[Any] | None:
    try:
        return await manager.stream_info(name)
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.STREAM_NOT_FOUND:
            raise
        return None


def _reading(name: str, size: int, on_progress: OnProgress) -> OnRead:
    """What is to be told how much of an archive was read; it looks like a transfer of the archive."""
    progress = Progress(name, size)

    def read(done: int) -> None:
        progress.archive_bytes = done
        on_progress(progress)

    return read


async def _check_subjects(manager: Manager, config: dict[str, Any]) -> None:
    """Raise SubjectOverlapError before anything is sent, where the server would refuse it at the end."""
    subjects = list(config.get("subjects") or ())[:MAX_SUBJECTS_ASKED]
    listings = await asyncio.gather(*(manager.stream_names(subject=subject) for subject in subjects))
    for subject, names in zip(subjects, listings, strict=True):
        if others := [name for name in names if name != config["name"]]:
            raise SubjectOverlapError(
                f"stream {others[0]} listens on {subject}",
                hint="give --subjects, or --config with other subjects; or remove that stream",
            )


async def _restore(lifeline: Lifeline, name: str, sending: Sending) -> Answer[Any]:
    """Restore a stream that is not there; after a failure it is not there either, unless somebody else has made it."""

    again: dict[int, int] = {
        ErrCode.STREAM_RESTORE: min(lifeline.retries, 1),
        ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED: lifeline.retries,
    }
    until_s = time.monotonic() + HELD_WITHIN_S

    async def send(manager: Manager) -> Answer[Any]:
        """Send it; a name that a cluster holds for a server that has died is waited for."""
        while True:
            try:
                return await sending.send(manager)
            except ApiResponseError as failure:
                held = (
                    failure.err_code == ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED
                    and sending.begun
                    and manager.connection.several
                )
                if not held or time.monotonic() >= until_s:
                    raise
            await asyncio.sleep(NAME_HELD_S)
            if (there := await _left(manager, sending)) is not None:
                return there
            await give_free(manager, name)

    async def attempt(manager: Manager) -> Answer[Any]:
        # The attempt before may have come to its end unheard, or have left a part behind.
        if (there := await _left(manager, sending)) is not None:
            return there
        try:
            return await send(manager)
        except ApiResponseError as failure:
            if not again.get(failure.err_code, 0) or await _existing(manager, name) is not None:
                if failure.err_code == ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED and await is_held(manager, name):
                    failure.hint = f"a restore of it goes on or was cut off: natsctl stream rm {name} --force ends that"
                raise
            # nats-server 2.15 may remove the folder of all streams after the last one, while a new one comes in: only
            # where there is no other stream. And a server of a cluster may hold a stream's name for a moment after the
            # others have removed it.
            if failure.err_code == ErrCode.STREAM_RESTORE and await manager.stream_names():
                raise
            again[failure.err_code] -= 1
            if failure.err_code == ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED:
                await asyncio.sleep(NAME_HELD_S)
            raise TransferInterruptedError(failure.text) from failure

    try:
        return await lifeline.run(f"the restore of {name}", attempt)
    except BaseException:
        if sending.begun:
            await _clear(lifeline, sending)
        raise


async def is_held(manager: Manager, name: str) -> bool:
    """Return whether a cluster holds the name of a stream that is not there: for a restore, which may be cut off."""
    listed = name in await manager.stream_names() if manager.connection.info.get("cluster") else False
    return listed and await _existing(manager, name) is None


async def give_free(manager: Manager, name: str) -> None:
    """End a restore of this process, or of one that is gone, whose name a cluster holds without an end."""
    if await is_held(manager, name):
        with contextlib.suppress(ApiResponseError):
            await manager.stream_delete(name)


async def _left(manager: Manager, sending: Sending) -> Answer[Any] | None:
    """Return the whole stream that an attempt has left, None without one; a part of it is removed.

    Raises StreamExistsError where another one is there, which somebody else has made meanwhile.
    """
    name = sending.progress.stream
    await sending.abandon(manager)
    if not sending.begun or (there := await _existing(manager, name)) is None:
        return None
    if (sending.left_part or sending.unheard) and not missing(sending.backup, there):
        return there
    if not sending.left_part and not _is_remnant(there):
        raise StreamExistsError(
            f"stream {name} was made while it was restored", hint="check who created it; it was left alone"
        )
    await manager.stream_delete(name)
    sending.left_part = False
    return None


def _is_remnant(there: Answer[Any]) -> bool:
    """Tell whether a stream is the empty one that a cluster leaves of a restore that failed.

    A cluster gives the name away when a restore begins, so nobody else can have made it; a single server does not.
    """
    clustered = (there.raw.get("cluster") or {}).get("name")
    return bool(clustered) and not (there.raw.get("state") or {}).get("last_seq")


async def _clear(lifeline: Lifeline, sending: Sending) -> None:
    """Remove what a broken restore may have left; an error here would only hide the first one."""
    with contextlib.suppress(NatsctlError):
        manager = await lifeline.renew()
        if await _left(manager, sending) is not None:
            await manager.stream_delete(sending.progress.stream)


async def _replace(lifeline: Lifeline, name: str, sending: Sending, options: RestoreOptions) -> Answer[Any]:
    """Restore over a stream that is there; after a failure it is there again, or its copy is told of."""
    with _safety_folder(sending.backup.path) as folder:
        copy = folder / "stream"
        await save_stream(lifeline, name, copy, SaveOptions(idle_s=options.idle_s))
        lifeline.say(f"stream {name} was saved to {copy} until the restore is done")
        try:
            return await restore_over(lifeline, sending, copy, options.idle_s)
        except StreamLostError as failure:
            kept = copy.rename(folder.with_suffix(".saved"))
            raise StreamLostError(name, kept, failure.__cause__) from failure


async def restore_sent(lifeline: Lifeline, sending: Sending) -> Answer[Any]:
    """Restore a stream that is not there; after a failure it is not there either. Raises as `restore_stream`."""
    return await _restore(lifeline, sending.progress.stream, sending)


async def restore_over(lifeline: Lifeline, sending: Sending, copy: Path, idle_s: float = IDLE_S) -> Answer[Any]:
    """Remove the stream that is sent and restore it, the answer of the server.

    After a failure the stream is put back from `copy`, a whole backup of it. Raises StreamLostError where that fails
    too.
    """
    name = sending.progress.stream
    try:
        await lifeline.manager.stream_delete(name)
        return await _restore(lifeline, name, sending)
    except BaseException:
        await _put_back(lifeline, name, copy, idle_s)
        raise


async def _put_back(lifeline: Lifeline, name: str, copy: Path, idle_s: float) -> None:
    """Restore the stream that was to be replaced, unless it is there. Raises StreamLostError where that fails."""
    try:
        with open_backup(copy) as backup:
            # Its removal may not have got through, or an answer to it not back.
            there = await _existing(await lifeline.renew(), name)
            if there is not None and not missing(backup, there):
                return
            await _restore(lifeline, name, Sending(backup, backup.config, idle_s, silent))
    except BaseException as failure:
        raise StreamLostError(name, copy, failure) from failure
    lifeline.say(f"stream {name} is as it was before")


@contextlib.contextmanager
def _safety_folder(source: Path) -> Iterator[Path]:
    """A folder for the copy of a stream that is replaced: beside the backup, else where temporary files are."""
    try:
        folder = tempfile.mkdtemp(prefix=".natsctl-replaced-", dir=source.absolute().parent)
    except OSError:
        folder = tempfile.mkdtemp(prefix="natsctl-replaced-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _preview(manager: Manager, backup: OpenBackup, config: dict[str, Any], there: Answer[Any] | None) -> DryRunError:
    """What a dry run says: the requests, and what would be made and replaced."""
    name, prefix = str(config["name"]), manager.connection.target.api_prefix
    planned = [
        Planned(endpoints.STREAM_RESTORE.subject(name, prefix=prefix), {"config": config, "state": backup.state})
    ]
    effect: dict[str, Any] = {"stream": name, "messages": backup.state.get("messages", 0)}
    if there is not None:
        planned.insert(0, Planned(endpoints.STREAM_DELETE.subject(name, prefix=prefix)))
        effect["replaces_messages"] = (there.raw.get("state") or {}).get("messages", 0)
    return DryRunError(*planned, effect=effect)
