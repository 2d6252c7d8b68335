"""Restore of a stream: from any backup, under any name; a failure leaves nothing.

Each piece of the data is sent as a request, several before they are answered, and an empty one ends the transfer; its
answer is a stream creation's. JetStream cannot rename streams: a stream to be replaced is saved, once the backup has
been read to its end, then removed, and put back if the restore fails. Between its removal and the end of the restore
there is no stream of that name. Source: docs/compatibility.md#snapshots-and-restores.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from natsctl.api import endpoints
from natsctl.api.answers import StreamCreateAnswer
from natsctl.api.errors import (
    ApiResponseError,
    ConflictError,
    ErrCode,
    NatsctlError,
    ProtocolError,
    UnreachableError,
)
from natsctl.api.units import plural
from natsctl.client.backup.archives import OnRead, check_whole, fitted, run_in_thread, summarise, version_for
from natsctl.client.backup.reader import OpenBackup, open_backup
from natsctl.client.backup.renaming import (
    BucketRenaming,
    as_bucket,
    check_bucket_subjects,
    has_bucket_subjects,
    renamed,
    renaming_of,
)
from natsctl.client.backup.save import IDLE_S, SaveOptions, save_stream
from natsctl.client.backup.transfer import (
    OnProgress,
    RetryingManager,
    TransferInterruptedError,
    TransferProgress,
    TransferTimeoutError,
    ignore_progress,
)
from natsctl.client.buckets import kind_of
from natsctl.client.manager import Manager
from natsctl.client.message import NO_RESPONDERS, DryRunError, Message, Planned
from natsctl.client.requests import Answer, api_error, end_tasks, parse_object

_LIMITS = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_consumers")
"""Limits (above 0) that may reduce a restored stream compared with its backup."""


class IncompleteRestoreError(NatsctlError):
    """The restored stream has less than its backup."""


def missing(backup: OpenBackup, answer: Answer[Any]) -> list[str]:
    """Return descriptions of the saved state that a restored stream lacks; it may have more, from publishers."""
    said, found = backup.state, answer.raw.get("state") or {}
    losses = [
        f"{word} {int(found.get(key) or 0):,} instead of {int(said.get(key) or 0):,}"
        for key, word in (("messages", "messages"), ("last_seq", "last sequence"))
        if int(found.get(key) or 0) < int(said.get(key) or 0)
    ]
    first, was = int(found.get("first_seq") or 0), int(said.get("first_seq") or 0)
    if said.get("messages") and first > was:
        losses.append(f"first sequence {first:,} instead of {was:,}")
    return losses


def lacking(backup: OpenBackup, config: dict[str, Any], answer: Answer[Any]) -> list[str]:
    """Return warnings about losses that limits explain. Raises IncompleteRestoreError for others."""
    losses = missing(backup, answer)
    consumers = int((answer.raw.get("state") or {}).get("consumer_count") or 0)
    manifest = backup.manifest
    if manifest is not None and manifest.consumers and consumers < int(backup.state.get("consumer_count") or 0):
        losses.append(f"{plural(consumers, 'consumer')} instead of {backup.state.get('consumer_count')}")
    if not losses:
        return []
    text = f"the restored stream differs from its backup: {', '.join(losses)}"
    limited = any(int(config.get(limit) or 0) > 0 for limit in _LIMITS) or config.get("allow_msg_ttl")
    if limited or config.get("retention", "limits") != "limits":
        return [f"{text}; its limits or its retention may have removed messages"]
    raise IncompleteRestoreError(
        text, hint=f"natsctl backup verify {backup.path} checks whether the backup is complete"
    )


PIECE_BYTES = 64 * 1024
"""Size of the pieces, as in the `nats` tool; every server accepts it."""
WINDOW = 8
"""Pieces that are sent before the first of them is answered."""
ABANDON_WAIT_S = 10.0
END_WAIT_S = 3600.0
"""Maximum time for a server to create the stream after the last piece, as in the `nats` tool."""


class RestoreTransfer:
    """Repeatable transfer of a backup's data to a server."""

    def __init__(self, backup: OpenBackup, config: dict[str, Any], idle_s: float, on_progress: OnProgress) -> None:
        self.backup = backup
        self._config = config
        self._idle_s = idle_s
        self._on_progress = on_progress
        self.progress = TransferProgress(str(config["name"]), backup.size)
        self.begun = False
        self.unheard = False
        """The end of the data was sent, and its answer has not arrived."""
        self.left_part = False
        """The server made a stream of the data that it had when the transfer was abandoned."""
        self._deliver = ""

    async def send(self, manager: Manager) -> Answer[StreamCreateAnswer]:
        """Return the server's answer once the stream is there.

        Raises ApiResponseError, TransferInterruptedError, TransferTimeoutError or UnreachableError.
        """
        name = self.progress.stream
        if self.begun:
            self.progress.again()
        body = {"config": self._config, "state": self.backup.state}
        try:
            answer = await manager.requests.ask(endpoints.STREAM_RESTORE, name, body=body)
        except UnreachableError:
            self.begun = True  # the server may have died after it began, and its cluster then reserves the name
            raise
        self.begun, self.unheard = True, False
        deliver = str(answer.raw.get("deliver_subject") or "")
        if not deliver:
            raise ProtocolError(f"the answer on {answer.subject} names no deliver_subject")
        self._deliver = deliver
        self.backup.data.rewind()
        self._on_progress(self.progress)
        raw = await self._pieces(manager, deliver)
        if raw is None:
            self.unheard = True
            said = await manager.connection.request(deliver, b"", timeout_s=END_WAIT_S)
            self.unheard = False
            raw = self._checked(said, deliver)
        self._deliver = ""
        return Answer(StreamCreateAnswer, deliver, raw=raw)

    async def abandon(self, manager: Manager) -> None:
        """End an unfinished restore, also one of an earlier connection, so that its name is free at once.

        Otherwise the server waits some seconds for the next piece. At the end of the data it discards the pieces, or
        makes the stream if they look complete.
        """
        deliver, self._deliver = self._deliver, ""
        if deliver:
            with contextlib.suppress(NatsctlError):
                said = await manager.connection.request(deliver, b"", timeout_s=ABANDON_WAIT_S)
                self.left_part = self._checked(said, deliver) is not None

    async def _pieces(self, manager: Manager, deliver: str) -> dict[str, Any] | None:
        """Send the data; return the server's answer if it ends the transfer early, else None. Raises its refusal."""
        connection, progress = manager.connection, self.progress
        size = min(PIECE_BYTES, connection.max_payload)
        pending: deque[asyncio.Task[Message]] = deque()
        try:
            while piece := await asyncio.to_thread(self.backup.data.read, size):
                pending.append(asyncio.ensure_future(connection.request(deliver, piece, timeout_s=self._idle_s)))
                # Each task sends its request before the next one is made: pieces must stay in order.
                await asyncio.sleep(0)
                progress.archive_bytes += len(piece)
                progress.chunks += 1
                if len(pending) >= WINDOW and (ended := await self._answered(pending.popleft(), deliver)):
                    return ended
                self._on_progress(progress)
            while pending:
                if ended := await self._answered(pending.popleft(), deliver):
                    return ended
        finally:
            await end_tasks(pending)
        return None

    async def _answered(self, piece: asyncio.Task[Message], deliver: str) -> dict[str, Any] | None:
        """Return the server's answer to a piece as `_checked` does; raises TransferTimeoutError without one."""
        try:
            return self._checked(await piece, deliver)
        except UnreachableError as failure:
            raise TransferTimeoutError(failure.text, hint=failure.hint) from failure

    def _checked(self, message: Message, subject: str) -> dict[str, Any] | None:
        """Return the JSON of an answer to a piece, None if it is empty and the server waits for the next piece.

        Raises ApiResponseError, or TransferInterruptedError if the server has ended the restore.
        """
        if message.status == NO_RESPONDERS:
            raise TransferInterruptedError(
                f"the server ended the restore of {self.progress.stream}: its delivery subject has no responder"
            )
        if not message.body:
            return None
        raw = parse_object(message.body, subject)
        if error := raw.get("error"):
            raise ApiResponseError(api_error(error), subject)
        return raw


NAME_HELD_S = 1.0
"""Pause before another attempt with a name that is refused although no stream has it."""
HELD_WITHIN_S = 45.0
"""Maximum time that a cluster reserves the name of a restore after its server died."""
MAX_SUBJECTS_ASKED = 64
"""Subjects that are checked for an overlap before a restore; the server itself checks all of them."""


class OnExisting(StrEnum):
    """Handling of a stream that exists already."""

    FAIL = "fail"
    SKIP = "skip"
    REPLACE = "replace"


class StreamLostError(IncompleteRestoreError):
    """A stream was removed to be replaced, and neither its successor nor itself could be restored."""

    def __init__(self, stream: str, copy: Path, why: BaseException | None) -> None:
        super().__init__(
            f"stream {stream} could not be put back: {why}", hint=f"natsctl stream restore {copy} has all of it"
        )


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """Options of a restore; empty fields keep the backup's values."""

    stream: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    cluster: str = ""
    tags: tuple[str, ...] = ()
    replicas: int = 0
    on_existing: OnExisting = OnExisting.FAIL
    idle_s: float = IDLE_S

    def applied(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration to restore with: the given or the saved one, with the other options applied."""
        name = self.stream or str(self.config.get("name") or saved.get("name") or "")
        wanted = renamed({**(self.config or saved), "name": saved.get("name")}, name)
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
    """Result of a restore: `action` is "restored", "replaced" or "skipped", the answer that of the server."""

    stream: str
    action: str
    answer: Answer[Any]
    progress: TransferProgress
    warnings: list[str] = field(default_factory=list)


async def restore_stream(
    retrying: RetryingManager,
    source: Path,
    options: RestoreOptions = RestoreOptions(),
    on_progress: OnProgress = ignore_progress,
) -> Restored:
    """Restore a backup of any form; `on_progress` is also called while the backup is read before that.

    Raises ConflictError, ApiResponseError when the server refuses, UsageError or StorageError when the file is no
    backup or is damaged; then no new stream is left. IncompleteRestoreError means that less was restored than saved,
    without a limit that would explain it: that stream stays.
    """
    with open_backup(source) as backup:
        config = options.applied(backup.config)
        name = str(config["name"])
        renaming = renaming_of(backup, config)
        config = _for_bucket(backup, config, renaming, options)
        there = await retrying.manager.find_stream(name)
        if there is not None and options.on_existing is OnExisting.FAIL:
            raise ConflictError(
                f"stream {name} exists",
                hint="give another name, --on-existing skip to keep it, or --on-existing replace",
            )
        if there is not None and options.on_existing is OnExisting.SKIP:
            return Restored(name, "skipped", there, TransferProgress(name, 0))
        connection = retrying.manager.connection
        version = version_for(backup, config, str(connection.info.get("version") or ""))
        if connection.dry_run:
            raise _preview(retrying.manager, backup, config, there)
        await _check_subjects(retrying.manager, config)
        read = _reading(name, backup.size, on_progress)
        await run_in_thread(lambda on_read: check_whole(backup, on_read), read)
        async with fitted(backup, config, version, read, renaming) as done:
            sending = RestoreTransfer(backup, config, options.idle_s, on_progress)
            if there is None:
                answer = await restore_sent(retrying, sending)
            else:
                await run_in_thread(lambda on_read: summarise(backup, on_read), read)
                answer = await _replace(retrying, name, sending, options)
        action = "restored" if there is None else "replaced"
        warnings = [text for text in (done, str(renaming or "")) if text]
        warnings += lacking(backup, config, answer)
        return Restored(name, action, answer, sending.progress, warnings)


def _for_bucket(
    backup: OpenBackup, config: dict[str, Any], renaming: BucketRenaming | None, options: RestoreOptions
) -> dict[str, Any]:
    """Return the configuration of a bucket with the subjects of its name. Raises UsageError for other subjects."""
    config = renaming.config(config) if renaming is not None else config
    is_new = renaming is not None or config["name"] != backup.stream
    given = options.subjects or options.config
    if is_new and not given:
        return as_bucket(config)
    if is_new or (given and has_bucket_subjects(backup.config)):
        check_bucket_subjects(config)
    return config


async def replaced_by(manager: Manager, source: Path, options: RestoreOptions) -> Answer[Any] | None:
    if options.on_existing is not OnExisting.REPLACE:
        return None
    with open_backup(source) as backup:
        name = str(options.applied(backup.config)["name"])
    return await manager.find_stream(name)


def _reading(name: str, size: int, on_progress: OnProgress) -> OnRead:
    """Return a read callback that reports progress as a transfer of the archive would."""
    progress = TransferProgress(name, size)

    def read(done: int) -> None:
        progress.archive_bytes = done
        on_progress(progress)

    return read


async def _check_subjects(manager: Manager, config: dict[str, Any]) -> None:
    """Raise ConflictError before anything is sent, where the server would refuse it at the end."""
    subjects = list(config.get("subjects") or ())[:MAX_SUBJECTS_ASKED]
    listings = await asyncio.gather(*(manager.stream_names(subject=subject) for subject in subjects))
    for subject, names in zip(subjects, listings, strict=True):
        if others := [name for name in names if name != config["name"]]:
            kind = kind_of(others[0])
            aside = (
                f"give the name of another bucket, {kind.prefix}NAME; or, for a stream that is no bucket,"
                if kind
                else ""
            )
            raise ConflictError(
                f"stream {others[0]} listens on {subject}",
                hint=f"{aside} give --subjects, or --config with other subjects; or remove that stream".lstrip(),
            )


async def restore_sent(retrying: RetryingManager, sending: RestoreTransfer) -> Answer[Any]:
    """Restore a stream that does not exist; after a failure it does not exist either, unless another client made it.

    Raises as `restore_stream`.
    """
    name = sending.progress.stream
    again: dict[int, int] = {
        ErrCode.STREAM_RESTORE: min(retrying.retries, 1),
        ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED: retrying.retries,
    }
    until_s = time.monotonic() + HELD_WITHIN_S

    async def send(manager: Manager) -> Answer[Any]:
        """Send the backup, again while a cluster reserves the name for a server that has died."""
        while True:
            try:
                return await sending.send(manager)
            except ApiResponseError as failure:
                held = (
                    failure.err_code == ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED
                    and sending.begun
                    and manager.connection.reconnects
                )
                if not held or time.monotonic() >= until_s:
                    raise
            await asyncio.sleep(NAME_HELD_S)
            if (there := await _left(manager, sending)) is not None:
                return there
            await release_name(manager, name)

    async def attempt(manager: Manager) -> Answer[Any]:
        # The previous attempt may have succeeded without its answer, or left a part of the stream.
        if (there := await _left(manager, sending)) is not None:
            return there
        try:
            return await send(manager)
        except ApiResponseError as failure:
            if not again.get(failure.err_code, 0) or await manager.find_stream(name) is not None:
                if failure.err_code == ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED and await is_held(manager, name):
                    failure.hint = (
                        f"a restore of it runs or was interrupted: natsctl stream rm {name} --force ends that"
                    )
                raise
            # Without any stream nats-server 2.15 may remove the folder of all streams while a new one is restored. And
            # a server of a cluster may still reserve a stream's name when the others have removed it.
            if failure.err_code == ErrCode.STREAM_RESTORE and await manager.stream_names():
                raise
            again[failure.err_code] -= 1
            if failure.err_code == ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED:
                await asyncio.sleep(NAME_HELD_S)
            raise TransferInterruptedError(failure.text) from failure

    try:
        return await retrying.run(f"the restore of {name}", attempt)
    except BaseException:
        if sending.begun:
            await _clear(retrying, sending)
        raise


async def is_held(manager: Manager, name: str) -> bool:
    """Return whether a cluster reserves the name of a missing stream for a possibly interrupted restore."""
    listed = name in await manager.stream_names() if manager.connection.info.get("cluster") else False
    return listed and await manager.find_stream(name) is None


async def release_name(manager: Manager, name: str) -> None:
    """Free a name that a cluster would reserve forever for an interrupted restore, of this or an ended process."""
    if await is_held(manager, name):
        with contextlib.suppress(ApiResponseError):
            await manager.stream_delete(name)


async def _left(manager: Manager, sending: RestoreTransfer) -> Answer[Any] | None:
    """Return the complete stream that an earlier attempt has left, else None; remove an incomplete one.

    Raises ConflictError if another client has made a stream of that name meanwhile.
    """
    name = sending.progress.stream
    await sending.abandon(manager)
    if not sending.begun or (there := await manager.find_stream(name)) is None:
        return None
    if (sending.left_part or sending.unheard) and not missing(sending.backup, there):
        return there
    if not sending.left_part and not _is_remnant(there):
        raise ConflictError(
            f"stream {name} was created during its restore", hint="check who created it; it was not changed"
        )
    await manager.stream_delete(name)
    sending.left_part = False
    return None


def _is_remnant(there: Answer[Any]) -> bool:
    """Return whether a stream is the empty one that a cluster leaves after a failed restore.

    A cluster reserves the name when a restore begins, so no other client can have made it; a single server does not.
    """
    clustered = (there.raw.get("cluster") or {}).get("name")
    return bool(clustered) and not (there.raw.get("state") or {}).get("last_seq")


async def _clear(retrying: RetryingManager, sending: RestoreTransfer) -> None:
    """Remove the remains of a failed restore; an error here is ignored, as it would hide that of the restore."""
    with contextlib.suppress(NatsctlError):
        manager = await retrying.renew()
        if await _left(manager, sending) is not None:
            await manager.stream_delete(sending.progress.stream)


async def _replace(
    retrying: RetryingManager, name: str, sending: RestoreTransfer, options: RestoreOptions
) -> Answer[Any]:
    """Restore over an existing stream; after a failure it exists again, or the path of its copy is reported."""
    with _safety_folder(sending.backup.path) as folder:
        copy = folder / "stream"
        await save_stream(retrying, name, copy, SaveOptions(idle_s=options.idle_s))
        retrying.say(f"stream {name} was saved to {copy} until the restore is done")
        try:
            return await restore_over(retrying, sending, copy, options.idle_s)
        except StreamLostError as failure:
            kept = copy.rename(folder.with_suffix(".saved"))
            raise StreamLostError(name, kept, failure.__cause__) from failure


async def restore_over(
    retrying: RetryingManager, sending: RestoreTransfer, copy: Path, idle_s: float = IDLE_S
) -> Answer[Any]:
    """Remove the stream and restore it; returns the server's answer.

    After a failure the stream is restored from `copy`, a whole backup of it. Raises StreamLostError if that fails
    too.
    """
    name = sending.progress.stream
    try:
        await retrying.manager.stream_delete(name)
        return await restore_sent(retrying, sending)
    except BaseException:
        await _put_back(retrying, name, copy, idle_s)
        raise


async def _put_back(retrying: RetryingManager, name: str, copy: Path, idle_s: float) -> None:
    """Restore the stream that was to be replaced, unless it is still there. Raises StreamLostError if that fails."""
    try:
        with open_backup(copy) as backup:
            # The server may have received no request to remove it.
            there = await (await retrying.renew()).find_stream(name)
            if there is not None and not missing(backup, there):
                return
            await restore_sent(retrying, RestoreTransfer(backup, backup.config, idle_s, ignore_progress))
    except BaseException as failure:
        raise StreamLostError(name, copy, failure) from failure
    retrying.say(f"stream {name} is as it was before")


@contextlib.contextmanager
def _safety_folder(source: Path) -> Iterator[Path]:
    """Yield a temporary folder for the copy of a replaced stream: next to the backup, else the system's default."""
    try:
        folder = tempfile.mkdtemp(prefix=".natsctl-replaced-", dir=source.absolute().parent)
    except OSError:
        folder = tempfile.mkdtemp(prefix="natsctl-replaced-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _preview(manager: Manager, backup: OpenBackup, config: dict[str, Any], there: Answer[Any] | None) -> DryRunError:
    """Return the dry run's result: the requests, and the streams that would be made and replaced."""
    name, prefix = str(config["name"]), manager.connection.target.api_prefix
    planned = [
        Planned(endpoints.STREAM_RESTORE.subject(name, prefix=prefix), {"config": config, "state": backup.state})
    ]
    effect: dict[str, Any] = {"stream": name, "messages": backup.state.get("messages", 0)}
    if there is not None:
        planned.insert(0, Planned(endpoints.STREAM_DELETE.subject(name, prefix=prefix)))
        effect["replaces_messages"] = (there.raw.get("state") or {}).get("messages", 0)
    return DryRunError(*planned, effect=effect)
