"""A stream's snapshot over the wire, into a backup.

It comes as messages on an inbox, each acknowledged by an empty message to its reply subject: the server's
flow control; an empty message ends it, with a status header that says whether it is complete. No server resumes a
snapshot, so an interrupted transfer starts again. Source: docs/compatibility.md#snapshots-and-restores.

A stream without a snapshot from the server is read message by message and written as a version 2 archive. Only the
consumers are read if a snapshot lacks some of them.

Sequences, times, headers and bodies are kept to the byte, as STREAM.MSG.GET gives them. Sequences are asked for in
windows, so that many answers are in flight; if a whole window is empty the next message is requested instead. The
state comes first in an archive, so the messages wait in a separate file; its frames follow the state's.

A client cannot see which delivered messages of a consumer are not acknowledged: each consumer resumes
after its ack floor, so that such messages are delivered again rather than lost.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from natsctl.api import endpoints
from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream
from natsctl.api.archive.archive import Progress as Reached
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import ApiResponseError, ErrCode, ProtocolError
from natsctl.api.stream import StreamState
from natsctl.api.times import parse_time
from natsctl.client.backup.archives import FormatFinder, OnRead, ignore_read, rewrite, run_in_thread, summarise
from natsctl.client.backup.manifest import (
    DATA_NAME,
    Document,
    MadeOn,
    Manifest,
    configuration_in,
    is_single_file,
    new_manifest,
)
from natsctl.client.backup.reader import BackupData, Form, OpenBackup
from natsctl.client.backup.transfer import (
    OnProgress,
    RetryingManager,
    TransferInterruptedError,
    TransferProgress,
    ignore_progress,
)
from natsctl.client.backup.writer import ArchiveSpool, BackupWriter, check_free
from natsctl.client.connection import Connection, Subscription
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError, Message, Planned

IDLE_S = 30.0
"""Seconds without a chunk after which a transfer is given up; data that flows is never cut, however long it takes."""
_WHOLE = (0, 204)
_MADE_ON: Final = {"name": "server_name", "id": "server_id", "version": "version", "cluster": "cluster"}
"""Keys of the server's INFO, by fields of the manifest."""


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """Options of saving a stream; sizes of 0 leave it to the server, `replay` reads the messages one by one instead.

    `config` is the configuration of the backup if it differs from the stream's own.
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


def state_fields(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of SavedStream that a stream's state has."""
    fields = {name: int(state.get(name) or 0) for name in ("bytes", "messages", "first_seq", "last_seq")}
    return {**fields, "consumers": int(state.get("consumer_count") or 0)}


async def save_stream(
    retrying: RetryingManager,
    stream: str,
    target: Path,
    options: SaveOptions = SaveOptions(),
    on_progress: OnProgress = ignore_progress,
) -> SavedStream:
    """Save a stream to `target`, a file or a directory (`writer`).

    `on_progress` is called first when the server has said what will come (`total_bytes` is the stream's size), then
    at every chunk. A stream in memory of a server that makes no snapshots of those is read message by message. Raises
    TransferInterruptedError when no attempt was completed; nothing is left then.
    """
    if retrying.manager.connection.dry_run:
        await _preview(retrying.manager, stream, target, options)
    progress = TransferProgress(stream, 0)
    with BackupWriter(target, replace=options.force) as writer:
        state = (manifest := await _fill(retrying, stream, writer, progress, options, on_progress)).state
    return SavedStream(
        stream=stream,
        target=str(target),
        archive_bytes=progress.archive_bytes,
        chunks=progress.chunks,
        elapsed=int(progress.elapsed_s * 1e9),
        archive=manifest.archive,
        method=manifest.method,
        attempts=progress.attempt,
        **state_fields(state),
    )


async def _fill(
    retrying: RetryingManager,
    stream: str,
    writer: BackupWriter,
    progress: TransferProgress,
    options: SaveOptions,
    on_progress: OnProgress,
) -> Manifest:
    snapshot = BackupSnapshot(stream, writer, progress, options, on_progress)
    method = "replay" if options.replay else "snapshot"
    config: dict[str, Any] = {}
    state: dict[str, Any] = {}
    if not options.replay:
        try:
            config, state = await retrying.run(f"the backup of {stream}", snapshot.take)
            if options.consumers and snapshot.version == 1 and retrying.manager.connection.info.get("cluster"):
                state = await with_all_consumers(retrying, stream, writer, config, state)
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.STREAM_SNAPSHOT:
                raise
            if (await retrying.manager.stream_info(stream)).raw.get("config", {}).get("storage") != "memory":
                raise
            retrying.say(f"{failure.text}: reading the messages of {stream} one by one")
            method = "replay"
    if method == "replay":
        replay = ArchiveReplay(stream, writer, progress, options, on_progress)
        config, state = await retrying.run(f"the backup of {stream}", replay.take)
    info = retrying.manager.connection.info
    made_on = {name: str(info.get(key) or "") for name, key in _MADE_ON.items()}
    manifest = new_manifest(
        stream,
        state,
        method,
        server=MadeOn(**made_on),
        archive=2 if method == "replay" else snapshot.version,
        consumers=options.consumers,
        account=options.account,
    )
    writer.finish(options.config or config, state, manifest)
    return manifest


class Sink(Protocol):
    """The destination of a snapshot's data."""

    def write(self, chunk: bytes) -> None:
        """Accept the next piece."""

    def restart(self) -> None:
        """Forget the pieces before: another attempt begins."""


W = TypeVar("W", bound=Sink)


class _SaveAttempts(Generic[W]):
    def __init__(
        self, stream: str, writer: W, progress: TransferProgress, options: SaveOptions, on_progress: OnProgress
    ) -> None:
        self._stream, self._writer, self._progress = stream, writer, progress
        self._options, self._on_progress = options, on_progress
        self._tried = False

    def _begin(self) -> None:
        if self._tried:
            self._progress.again()
            self._writer.restart()
        self._tried = True


class BackupSnapshot(_SaveAttempts[Sink]):
    _format = FormatFinder()

    @property
    def version(self) -> int:
        return self._format.version

    async def take(self, manager: Manager) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the stream's configuration and state, once all of its data is written."""
        self._begin()
        self._format = FormatFinder()
        connection = manager.connection
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        try:
            wait_s = max(self._options.idle_s, connection.timeout_s) if self._options.check else None
            answer = await manager.requests.ask(
                endpoints.STREAM_SNAPSHOT, self._stream, body=_request(inbox, self._options), timeout_s=wait_s
            )
            config, state = configuration_in(answer.raw, self._stream), answer.raw.get("state") or {}
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
        """Return the chunk's index by its reply subject (`….<length>.<index>`), 0 from a server that does not number.

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
    """Raise DryRunError with the request, and the stream and the target of the backup."""
    info = (await manager.stream_info(stream)).value
    check_free(target, is_single_file(target), options.force)
    subject = endpoints.STREAM_SNAPSHOT.subject(stream, prefix=manager.connection.target.api_prefix)
    effect = {"target": str(target), "messages": info.state.messages, "bytes": info.state.bytes}
    effect |= {"replaces": True} if target.exists() else {}
    raise DryRunError(Planned(subject, _request("_INBOX.>", options)), effect=effect)


WINDOW: Final = 128
"""Requests under way at once; an answer may have the largest payload."""
_ALL: Final = ">"


async def listed_consumers(manager: Manager, stream: str) -> list[ArchivedConsumer]:
    """Return a stream's consumers as described by their leaders, each reset to its ack floor."""
    consumers = []
    for answer in await manager.consumer_list(stream):
        info = answer.value
        floor = info.ack_floor
        config = msgspec.convert(configuration_in(answer.raw, f"consumer {info.name}"), ConsumerConfig)
        acked = config.ack_policy != "none"
        reached = floor if acked else info.delivered
        progress = Reached(reached.consumer_seq, reached.stream_seq, floor.consumer_seq, floor.stream_seq)
        consumers.append(ArchivedConsumer(info.name, config, progress, max(parse_time(info.created), 0)))
    return consumers


class ArchiveReplay(_SaveAttempts[BackupWriter]):
    """Reader of a stream message by message, with repeated attempts."""

    async def take(self, manager: Manager) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the stream's configuration and state, once all of its data is written."""
        self._begin()
        info = (await manager.stream_info(self._stream)).raw
        config, said = configuration_in(info, self._stream), msgspec.convert(info.get("state") or {}, StreamState)
        self._progress.total_bytes = said.bytes
        self._on_progress(self._progress)
        consumers = await listed_consumers(manager, self._stream) if self._options.consumers else []
        with closing(ArchiveSpool(self._writer.target.parent)) as spool:
            state = await self._spool(manager, said, spool)
            state.consumer_count = len(consumers)
            spool.write_to(self._writer, ArchivedStream(state=state), consumers)
        self._progress.archive_bytes = self._writer.data_bytes
        return config, msgspec.to_builtins(state)

    async def _spool(self, manager: Manager, said: StreamState, spool: ArchiveSpool) -> StreamState:
        """Write the messages up to the last one at the start; return the state of the existing ones."""
        state = StreamState(
            first_seq=said.last_seq + 1, last_seq=said.last_seq, first_ts=said.first_ts, last_ts=said.last_ts
        )
        at = said.first_seq
        while at <= said.last_seq:
            messages, at = await read_window(manager, self._stream, at, said.last_seq)
            if not messages:
                continue
            if not state.messages:
                state.first_seq = messages[0].seq
            state.messages += len(messages)
            plain, packed = spool.add(messages)
            state.bytes += plain
            self._progress.archive_bytes += packed
            self._progress.chunks += 1
            self._on_progress(self._progress)
        return state


async def read_window(manager: Manager, stream: str, first: int, last: int) -> tuple[list[ArchivedMessage], int]:
    """Return the messages of the next sequences up to `last`, and the sequence to go on at."""
    end = min(first + WINDOW, last + 1)
    answers = await asyncio.gather(*(_message(manager, stream, seq=seq) for seq in range(first, end)))
    found = [message for message in answers if message is not None]
    if found or end > last:
        return found, end
    ahead = await _message(manager, stream, seq=end, next_by_subj=_ALL)
    return [], last + 1 if ahead is None else max(end, min(ahead.seq, last + 1))


async def _message(manager: Manager, stream: str, *, seq: int, next_by_subj: str = "") -> ArchivedMessage | None:
    answer = await manager.find_message(stream, seq=seq, next_by_subj=next_by_subj)
    if answer is None:
        return None
    raw = answer.raw["message"]
    try:
        header, payload = (base64.b64decode(raw.get(name) or "", validate=True) for name in ("hdrs", "data"))
        return ArchivedMessage(raw["seq"], parse_time(raw["time"]), raw["subject"].encode(), header, payload)
    except (KeyError, ValueError, binascii.Error) as failure:
        raise ProtocolError(f"message {seq} of {stream} is not understood: {failure}") from failure


async def with_all_consumers(
    retrying: RetryingManager, stream: str, writer: BackupWriter, config: dict[str, Any], state: dict[str, Any]
) -> dict[str, Any]:
    """Complete the consumers of a cluster's snapshot from their leaders, and return the matching state.

    Before 2.15 the stream's leader saves its copies of consumers in their present state, and counts
    no others. A leader reports its ack floor; acknowledged messages after that are
    delivered again.
    """
    listed = [consumer for consumer in await listed_consumers(retrying.manager, stream) if consumer.config.durable_name]
    if not listed:
        return state
    with writer.written() as raw, tempfile.TemporaryFile() as data:
        source = OpenBackup(
            writer.target, Form.DIRECTORY, config, state, BackupData(writer.target, DATA_NAME, raw), writer.data_bytes
        )

        def complete(on_read: OnRead) -> tuple[dict[str, Any], list[str], list[str]]:
            saved = {consumer.name: consumer for consumer in summarise(source, on_read).consumers}
            led = [_within(one, int(state.get("last_seq") or 0)) for one in listed]
            absent = [one for one in led if one.name not in saved]
            raised = [_raised(saved[one.name], one) for one in led if one.name in saved and _lags(saved[one.name], one)]
            if not absent and not raised:
                return state, [], []
            done = rewrite(source, data, config, 1, more=[*absent, *raised], on_read=on_read)
            return done, [one.name for one in absent], [one.name for one in raised]

        state, added, raised = await run_in_thread(complete, ignore_read)
        if not added and not raised:
            return state
        writer.restart()
        writer.copy(data)
    if added:
        retrying.say(f"{stream}: added what only other servers of the cluster have: {', '.join(added)}")
    if raised:
        retrying.say(f"{stream}: brought up to their leaders' acknowledgements: {', '.join(raised)}")
    return state


def _lags(saved: ArchivedConsumer, led: ArchivedConsumer) -> bool:
    if saved.config.ack_policy == "none":
        return saved.progress.delivered_sseq < led.progress.delivered_sseq
    return saved.progress.floor_sseq < led.progress.floor_sseq


def _raised(saved: ArchivedConsumer, led: ArchivedConsumer) -> ArchivedConsumer:
    """Return a copy of a consumer advanced to its leader: nothing up to the leader's ack floor is pending."""
    old, new = saved.progress, led.progress
    progress = Reached(
        max(old.delivered_cseq, new.delivered_cseq),
        max(old.delivered_sseq, new.delivered_sseq),
        new.floor_cseq,
        new.floor_sseq,
        {seq: entry for seq, entry in old.pending.items() if seq > new.floor_sseq},
        {seq: count for seq, count in old.redelivered.items() if seq > new.floor_sseq},
    )
    return replace(saved, progress=progress)


def _within(consumer: ArchivedConsumer, last_seq: int) -> ArchivedConsumer:
    """Return a consumer limited to the messages saved before its state was requested."""
    reached = consumer.progress
    bounded = replace(
        reached,
        delivered_sseq=min(reached.delivered_sseq, last_seq),
        floor_sseq=min(reached.floor_sseq, last_seq),
    )
    return replace(consumer, progress=bounded)
