"""A stream's snapshot over the wire, into a backup.

It comes as messages on an inbox, each acknowledged by an empty message to its reply subject, which is the server's
flow control; an empty message ends it, with a status header that tells whether it is whole. No server goes on in the
middle of one, so a transfer that breaks is begun again. Source: docs/compatibility.md#snapshots-and-restores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natsctl import __version__
from natsctl.api import endpoints
from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError
from natsctl.client.backup.attempts import Lifeline, TransferInterruptedError
from natsctl.client.backup.contents import FormatFinder
from natsctl.client.backup.document import Document
from natsctl.client.backup.manifest import FORMAT, MadeOn, Manifest
from natsctl.client.backup.progress import OnProgress, Progress, silent
from natsctl.client.backup.target import BackupWriter, check_free
from natsctl.client.preview import DryRunError, Planned

if TYPE_CHECKING:
    from natsctl.client.connection import Connection
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.subscription import Subscription

IDLE_S = 30.0
"""Seconds without a chunk after which a transfer is given up; data that flows is never cut, however long it takes."""
_WHOLE = (0, 204)


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """How a stream is saved; sizes of 0 leave it to the server, `replay` reads the messages one by one instead.

    `config` is what the backup says that the stream's configuration is, where that is not the one it has.
    """

    consumers: bool = True
    check: bool = False
    chunk_size: int = 0
    window_size: int = 0
    idle_s: float = IDLE_S
    replay: bool = False
    force: bool = False
    account: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)


class SavedStream(Document):
    """A backup that was made; sizes in bytes, `elapsed` in ns."""

    stream: str
    target: str
    bytes: int
    archive_bytes: int
    chunks: int
    elapsed: int
    messages: int
    first_seq: int
    last_seq: int
    consumers: int
    archive: int
    method: str
    attempts: int


async def save_stream(
    lifeline: Lifeline,
    stream: str,
    target: Path,
    options: SaveOptions = SaveOptions(),
    on_progress: OnProgress = silent,
) -> SavedStream:
    """Save a stream to `target`, a file or a directory (target.py).

    `on_progress` is called first when the server has said what will come (`total_bytes` is the stream's size), then
    at every chunk. A stream in memory of a server that makes no snapshots of those is read message by message. Raises
    TransferInterruptedError when no attempt came to an end; nothing is left then.
    """
    if lifeline.manager.connection.dry_run:
        await _preview(lifeline.manager, stream, target, options)
    writer = BackupWriter(target, replace=options.force)
    progress = Progress(stream, 0)
    try:
        manifest = await _fill(lifeline, stream, writer, progress, options, on_progress)
    finally:
        writer.discard()
    state = manifest.state
    return SavedStream(
        stream=stream,
        target=str(target),
        bytes=int(state.get("bytes") or 0),
        archive_bytes=progress.archive_bytes,
        chunks=progress.chunks,
        elapsed=int(progress.elapsed_s * 1e9),
        messages=int(state.get("messages") or 0),
        first_seq=int(state.get("first_seq") or 0),
        last_seq=int(state.get("last_seq") or 0),
        consumers=int(state.get("consumer_count") or 0),
        archive=manifest.archive,
        method=manifest.method,
        attempts=progress.attempt,
    )


async def _fill(
    lifeline: Lifeline,
    stream: str,
    writer: BackupWriter,
    progress: Progress,
    options: SaveOptions,
    on_progress: OnProgress,
) -> Manifest:
    """Write the whole backup; the answer is its manifest."""
    snapshot = _Snapshot(stream, writer, progress, options, on_progress)
    method = "replay" if options.replay else "snapshot"
    config: dict[str, Any] = {}
    state: dict[str, Any] = {}
    if not options.replay:
        try:
            config, state = await lifeline.run(f"the backup of {stream}", snapshot.take)
            if options.consumers and snapshot.version == 1 and lifeline.manager.connection.info.get("cluster"):
                from natsctl.client.backup.replay import with_all_consumers

                state = await with_all_consumers(lifeline, stream, writer, config, state)
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.STREAM_SNAPSHOT or not await _in_memory(lifeline.manager, stream):
                raise
            lifeline.say(f"{failure.text}: reading the messages of {stream} one by one")
            method = "replay"
    if method == "replay":
        from natsctl.client.backup.replay import Replay

        replay = Replay(stream, writer, progress, options, on_progress)
        config, state = await lifeline.run(f"the backup of {stream}", replay.take)
    manifest = _manifest(lifeline.manager.connection, stream, options, state)
    manifest.method, manifest.archive = method, 2 if method == "replay" else snapshot.version
    writer.finish(options.config or config, state, manifest)
    return manifest


async def _in_memory(manager: Manager, stream: str) -> bool:
    return bool((await manager.stream_info(stream)).raw.get("config", {}).get("storage") == "memory")


def _manifest(connection: Connection, stream: str, options: SaveOptions, state: dict[str, Any]) -> Manifest:
    from datetime import UTC, datetime

    info = connection.info
    server = MadeOn(
        name=str(info.get("server_name") or ""),
        id=str(info.get("server_id") or ""),
        version=str(info.get("version") or ""),
        cluster=str(info.get("cluster") or ""),
    )
    return Manifest(
        format=FORMAT,
        tool=f"natsctl {__version__}",
        created=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        stream=stream,
        server=server,
        consumers=options.consumers,
        state=state,
        account=list(options.account),
    )


class _Snapshot:
    """One attempt after the other to receive a stream's snapshot."""

    def __init__(
        self, stream: str, writer: BackupWriter, progress: Progress, options: SaveOptions, on_progress: OnProgress
    ) -> None:
        self._stream, self._writer, self._progress = stream, writer, progress
        self._options, self._on_progress = options, on_progress
        self._tried = False
        self._format = FormatFinder()

    @property
    def version(self) -> int:
        """Which format the archive has that came."""
        return self._format.version

    async def take(self, manager: Manager) -> tuple[dict[str, Any], dict[str, Any]]:
        """The stream's configuration and state, once all of its data is written."""
        if self._tried:
            self._progress.again()
            self._writer.restart()
            self._format = FormatFinder()
        self._tried = True
        connection = manager.connection
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        try:
            wait_s = max(self._options.idle_s, connection.timeout_s) if self._options.check else None
            answer = await manager.requests.ask(
                endpoints.STREAM_SNAPSHOT, self._stream, body=_request(inbox, self._options), timeout_s=wait_s
            )
            config, state = answer.raw.get("config") or {}, answer.raw.get("state") or {}
            self._progress.total_bytes = int(state.get("bytes") or 0)
            self._on_progress(self._progress)
            await self._receive(connection, subscription)
        finally:
            await subscription.stop()
        return config, state

    async def _receive(self, connection: Connection, subscription: Subscription) -> None:
        """Write every chunk until the end message; raises when one is missing, none comes, or the server gives up."""
        progress, last_index = self._progress, 0
        while True:
            message = await subscription.next(self._options.idle_s)
            if message is None:
                raise self._broken(f"nothing came for {self._options.idle_s:g}s")
            if not message.body:
                break
            last_index = self._check_chunk(message, last_index)
            self._format.add(message.body)
            self._writer.write(message.body)
            progress.archive_bytes += len(message.body)
            progress.chunks += 1
            if message.reply:
                await connection.publish(message.reply)
            self._on_progress(progress)
        if message.status not in _WHOLE:
            raise self._broken(f"{message.status} {message.description}")
        if subscription.dropped:
            raise self._broken(f"{subscription.dropped} chunks were dropped on the way")

    def _check_chunk(self, message: Message, last_index: int) -> int:
        """The chunk's index by its reply subject (`….<length>.<index>`), 0 from a server that does not number.

        Raises on a gap.
        """
        *_, length, index = ("", "", *message.reply.split("."))
        if not (length.isdigit() and index.isdigit()):
            return 0
        if int(length) != len(message.body) or (last_index and int(index) != last_index + 1):
            raise self._broken(f"chunk {last_index + 1} is missing or cut")
        return int(index)

    def _broken(self, reason: str) -> TransferInterruptedError:
        return TransferInterruptedError(
            f"the backup of {self._stream} broke off after {self._progress.chunks} chunks: {reason}"
        )


def _request(inbox: str, options: SaveOptions) -> dict[str, Any]:
    said = {
        "no_consumers": not options.consumers,
        "jsck": options.check,
        "chunk_size": options.chunk_size,
        "window_size": options.window_size,
    }
    return {"deliver_subject": inbox, **{name: value for name, value in said.items() if value}}


async def _preview(manager: Manager, stream: str, target: Path, options: SaveOptions) -> None:
    """Raise DryRunError with the request and what would be saved where."""
    from natsctl.client.backup.layout import is_single_file

    info = (await manager.stream_info(stream)).value
    check_free(target, is_single_file(target), options.force)
    subject = endpoints.STREAM_SNAPSHOT.subject(stream, prefix=manager.connection.target.api_prefix)
    effect = {"target": str(target), "messages": info.state.messages, "bytes": info.state.bytes}
    effect |= {"replaces": True} if target.exists() else {}
    raise DryRunError(Planned(subject, _request("_INBOX.>", options)), effect=effect)
