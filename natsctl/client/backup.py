"""Stream snapshot and restore over the wire.

A snapshot comes as messages on an inbox, each acknowledged by an empty message to its reply subject, which is the
server's flow control; an empty message ends it, with a status header that tells whether it is whole. A restore sends
each piece as a request and ends with an empty one, which the server answers like a stream creation. Source:
reference/cli.md part 4.3.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natsctl.api import endpoints
from natsctl.api.answers import StreamCreateAnswer
from natsctl.api.errors import ApiFailure, NatsctlError, ProtocolError, UsageError
from natsctl.client.answer import Answer, parse_object
from natsctl.client.archive import Archive, ArchiveWriter, open_archive
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.requests import api_error

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.subscription import Subscription

MIN_IDLE_S = 5.0
RESTORE_PIECE_BYTES = 64 * 1024
RESTORE_WINDOW = 8
RESTORE_END_WAIT_S = 3600.0
_WHOLE = (0, 204)


@dataclass(slots=True)
class Progress:
    """How far a backup or restore is; sizes in bytes, `archive_bytes` as they go over the wire."""

    stream: str
    total_bytes: int
    archive_bytes: int = 0
    chunks: int = 0
    started_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_s


OnProgress = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Show nothing."""


async def backup(
    manager: Manager,
    stream: str,
    target: Path,
    *,
    consumers: bool = True,
    check: bool = False,
    chunk_size: int = 0,
    window_size: int = 0,
    on_progress: OnProgress = silent,
) -> Progress:
    """Save a stream to `target` (a file or a directory, see archive.py); the answer tells how much came.

    `on_progress` is called first when the server has said what will come (`total_bytes` is the stream's size), then
    at every chunk. Raises Unreachable when no chunk comes for the connection's timeout (at least `MIN_IDLE_S`);
    nothing is left of it then.
    """
    connection = manager.connection
    inbox = connection.new_inbox()
    said = {"no_consumers": not consumers, "jsck": check, "chunk_size": chunk_size, "window_size": window_size}
    body = {"deliver_subject": inbox, **{name: value for name, value in said.items() if value}}
    writer = ArchiveWriter(target)
    try:
        subscription = await connection.subscribe(inbox)
        try:
            answer = await manager.requests.ask(endpoints.STREAM_SNAPSHOT, stream, body=body)
            config, state = answer.raw.get("config") or {}, answer.raw.get("state") or {}
            progress = Progress(stream, int(state.get("bytes") or 0))
            on_progress(progress)
            await _receive(manager, subscription, writer, progress, on_progress)
        finally:
            await subscription.stop()
        writer.finish(config, state)
    finally:
        writer.discard()
    return progress


async def _receive(
    manager: Manager, subscription: Subscription, writer: ArchiveWriter, progress: Progress, on_progress: OnProgress
) -> None:
    """Write every chunk until the end message; raises when one is missing, none comes, or the server gives up."""
    idle_s = max(MIN_IDLE_S, manager.connection.timeout_s)
    last_index = 0
    while True:
        message = await subscription.next(idle_s)
        if message is None:
            raise _broken(progress, f"nothing came for {idle_s:g}s")
        if not message.body:
            break
        last_index = _check_chunk(message, last_index, progress)
        writer.write(message.body)
        progress.archive_bytes += len(message.body)
        progress.chunks += 1
        if message.reply:
            await manager.connection.publish(message.reply)
        on_progress(progress)
    if message.status not in _WHOLE:
        raise _broken(progress, f"{message.status} {message.description}")
    if subscription.dropped:
        raise _broken(progress, f"{subscription.dropped} chunks were dropped on the way")


def _check_chunk(message: Message, last_index: int, progress: Progress) -> int:
    """The chunk's index by its reply subject (`….<length>.<index>`), 0 from a server that does not number.

    Raises on a gap.
    """
    *_, length, index = ("", "", *message.reply.split("."))
    if not (length.isdigit() and index.isdigit()):
        return 0
    if int(length) != len(message.body) or (last_index and int(index) != last_index + 1):
        raise _broken(progress, f"chunk {last_index + 1} is missing or cut")
    return int(index)


def _broken(progress: Progress, reason: str) -> NatsctlError:
    return ProtocolError(f"the backup of {progress.stream} broke off after {progress.chunks} chunks: {reason}")


async def restore(
    manager: Manager,
    source: Path,
    *,
    stream: str = "",
    config: dict[str, Any] | None = None,
    on_progress: OnProgress = silent,
) -> Answer[StreamCreateAnswer]:
    """The restored stream.

    `stream`, if given, must be the one in the backup, and so must the name in `config`, which replaces the saved one.
    Raises ApiFailure when the server refuses, UsageError or StorageError when the backup is none or is damaged.
    """
    with open_archive(source) as archive:
        chosen = archive.config if config is None else config
        for name in (stream, str(chosen.get("name") or archive.stream)):
            if name and name != archive.stream:
                raise UsageError(f"{source} holds stream {archive.stream}, not {name}", hint="a stream keeps its name")
        chosen = {**chosen, "name": archive.stream}
        body = {"config": chosen, "state": archive.state}
        answer = await manager.requests.ask(endpoints.STREAM_RESTORE, archive.stream, body=body)
        deliver = str(answer.raw.get("deliver_subject") or "")
        if not deliver:
            raise ProtocolError(f"the answer on {answer.subject} names no deliver_subject")
        progress = Progress(archive.stream, archive.size)
        on_progress(progress)
        early = await _send(manager, deliver, archive, progress, on_progress)
    if early is None:
        message = await manager.connection.request(deliver, b"", timeout_s=RESTORE_END_WAIT_S)
        early = _checked(message, deliver)
    return Answer(StreamCreateAnswer, deliver, raw=early)


async def _send(
    manager: Manager, deliver: str, archive: Archive, progress: Progress, on_progress: OnProgress
) -> dict[str, Any] | None:
    """Send the data, `RESTORE_WINDOW` pieces ahead of their answers; raises what the server refuses them with."""
    size = min(RESTORE_PIECE_BYTES, manager.connection.max_payload)
    pending: deque[asyncio.Task[Message]] = deque()
    wait_s = max(MIN_IDLE_S, manager.connection.timeout_s)
    try:
        while piece := await asyncio.to_thread(archive.data.read, size):
            pending.append(asyncio.ensure_future(manager.connection.request(deliver, piece, timeout_s=wait_s)))
            # Let the request go out before the next one is made: pieces must stay in order.
            await asyncio.sleep(0)
            progress.archive_bytes += len(piece)
            progress.chunks += 1
            if len(pending) >= RESTORE_WINDOW and (ended := _checked(await pending.popleft(), deliver)):
                return ended
            on_progress(progress)
        while pending:
            if ended := _checked(await pending.popleft(), deliver):
                return ended
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return None


def _checked(message: Message, subject: str) -> dict[str, Any] | None:
    """The JSON of an answer to a piece, None for the empty one that means "go on"; raises ApiFailure."""
    if message.status == NO_RESPONDERS:
        raise ProtocolError("the server gave the restore up: nobody takes the data any more")
    if not message.body:
        return None
    raw = parse_object(message.body, subject)
    if error := raw.get("error"):
        raise ApiFailure(api_error(error), subject)
    return raw
