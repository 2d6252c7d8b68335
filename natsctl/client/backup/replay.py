"""A stream read message by message, for servers that make no snapshot of it: written as a version 2 archive.

Its consumers alone are read where a snapshot lacks some of them.

Sequences, times, headers and bodies are kept to the byte, as STREAM.MSG.GET gives them. Sequences are asked for in
windows, so that many answers are under way; where a whole window is empty the next message is looked for instead. The
state stands first in an archive, so the messages wait in a file of their own, whose frames follow those of the state.

What a client can not see is which messages a consumer has delivered and not had acknowledged: each consumer goes on
behind its ack floor, so that such messages are delivered again rather than lost.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import tempfile
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream
from natsctl.api.archive.archive import Progress as Reached
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, ProtocolError
from natsctl.api.stream import StreamState
from natsctl.api.times import parse_time
from natsctl.client.backup.aside import aside
from natsctl.client.backup.contents import OnRead, summarise, unseen
from natsctl.client.backup.data import BackupData
from natsctl.client.backup.layout import DATA_NAME
from natsctl.client.backup.opened import Form, OpenBackup
from natsctl.client.backup.progress import OnProgress, Progress
from natsctl.client.backup.rewrite import rewrite

if TYPE_CHECKING:
    from natsctl.client.backup.attempts import Lifeline
    from natsctl.client.backup.save import SaveOptions
    from natsctl.client.backup.target import BackupWriter
    from natsctl.client.manager import Manager

WINDOW: Final = 128
"""Requests under way at once; an answer may have the largest payload."""
_COPY_BYTES: Final = 1 << 20
_ALL: Final = ">"


async def listed_consumers(manager: Manager, stream: str) -> list[ArchivedConsumer]:
    """Return a stream's consumers as their leaders describe them, each behind its ack floor."""
    found = []
    for answer in await manager.consumer_list(stream):
        info = answer.value
        floor = info.ack_floor
        config = msgspec.convert(answer.raw.get("config") or {}, ConsumerConfig)
        acked = config.ack_policy != "none"
        reached = floor if acked else info.delivered
        progress = Reached(reached.consumer_seq, reached.stream_seq, floor.consumer_seq, floor.stream_seq)
        found.append(ArchivedConsumer(info.name, config, progress, max(parse_time(info.created), 0)))
    return found


class Replay:
    """One attempt after the other to read a stream as its messages."""

    def __init__(
        self, stream: str, writer: BackupWriter, progress: Progress, options: SaveOptions, on_progress: OnProgress
    ) -> None:
        self._stream, self._writer, self._progress = stream, writer, progress
        self._options, self._on_progress = options, on_progress
        self._tried = False

    async def take(self, manager: Manager) -> tuple[dict[str, Any], dict[str, Any]]:
        """The stream's configuration and state, once all of its data is written."""
        if self._tried:
            self._progress.again()
            self._writer.restart()
        self._tried = True
        info = (await manager.stream_info(self._stream)).raw
        config, said = dict(info.get("config") or {}), msgspec.convert(info.get("state") or {}, StreamState)
        self._progress.total_bytes = said.bytes
        self._on_progress(self._progress)
        consumers = await listed_consumers(manager, self._stream) if self._options.consumers else []
        with tempfile.TemporaryFile(dir=self._writer.target.parent) as spool:
            state = await self._spool(manager, said, spool)
            state.consumer_count = len(consumers)
            self._write(ArchivedStream(state=state), consumers, spool)
        return config, msgspec.to_builtins(state)

    async def _spool(self, manager: Manager, said: StreamState, spool: IO[bytes]) -> StreamState:
        """Write the messages up to what was the last one, compressed; the answer is the state of what was found."""
        frames, writer = FrameWriter(), WriterV2()
        state = StreamState(
            first_seq=said.last_seq + 1, last_seq=said.last_seq, first_ts=said.first_ts, last_ts=said.last_ts
        )
        at = said.first_seq
        while at <= said.last_seq:
            messages, at = await self._window(manager, at, said.last_seq)
            if not messages:
                continue
            if not state.messages:
                state.first_seq = messages[0].seq
            state.messages += len(messages)
            for record in writer.messages(messages):
                state.bytes += len(record)
                piece = frames.write(record)
                spool.write(piece)
                self._progress.archive_bytes += len(piece)
            self._progress.chunks += 1
            self._on_progress(self._progress)
        for record in writer.end(said.last_seq, 0):
            spool.write(frames.write(record))
        spool.write(frames.finish())
        return state

    async def _window(self, manager: Manager, first: int, last: int) -> tuple[list[ArchivedMessage], int]:
        """The messages of the next sequences, and the sequence to go on at."""
        end = min(first + WINDOW, last + 1)
        answers = await asyncio.gather(*(self._message(manager, seq=seq) for seq in range(first, end)))
        found = [message for message in answers if message is not None]
        if found or end > last:
            return found, end
        ahead = await self._message(manager, seq=end, next_by_subj=_ALL)
        return [], last + 1 if ahead is None else max(end, min(ahead.seq, last + 1))

    async def _message(self, manager: Manager, *, seq: int, next_by_subj: str = "") -> ArchivedMessage | None:
        """One message, None where there is none."""
        try:
            raw = (await manager.message_get(self._stream, seq=seq, next_by_subj=next_by_subj)).raw["message"]
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.NO_MESSAGE_FOUND:
                raise
            return None
        try:
            header, payload = (base64.b64decode(raw.get(name) or "", validate=True) for name in ("hdrs", "data"))
            return ArchivedMessage(raw["seq"], parse_time(raw["time"]), raw["subject"].encode(), header, payload)
        except (KeyError, ValueError, binascii.Error) as failure:
            raise ProtocolError(f"message {seq} of {self._stream} is not understood: {failure}") from failure

    def _write(self, head: ArchivedStream, consumers: list[ArchivedConsumer], spool: IO[bytes]) -> None:
        """Write the whole archive: what stands first, then what was spooled."""
        frames = FrameWriter()
        begin = frames.write(WriterV2().begin(head, consumers)) + frames.finish()
        self._writer.write(begin)
        self._progress.archive_bytes += len(begin)
        spool.seek(0)
        while piece := spool.read(_COPY_BYTES):
            self._writer.write(piece)


async def with_all_consumers(
    lifeline: Lifeline, stream: str, writer: BackupWriter, config: dict[str, Any], state: dict[str, Any]
) -> dict[str, Any]:
    """Complete the consumers of a cluster's snapshot by what their leaders say, and return the state that goes with it.

    Before 2.15 the stream's leader saves the consumers that it has a copy of, as far as that copy has come, and counts
    no others. A leader tells up to where all is acknowledged; messages behind that which are acknowledged too are
    delivered again.
    """
    listed = [one for one in await listed_consumers(lifeline.manager, stream) if one.config.durable_name]
    if not listed:
        return state
    with writer.written() as raw, tempfile.TemporaryFile() as data:
        source = OpenBackup(
            writer.target, Form.DIRECTORY, config, state, BackupData(writer.target, DATA_NAME, raw), writer.data_bytes
        )

        def complete(on_read: OnRead) -> tuple[dict[str, Any], list[str], list[str]]:
            saved = {one.name: one for one in summarise(source, on_read).consumers}
            led = [_within(one, int(state.get("last_seq") or 0)) for one in listed]
            absent = [one for one in led if one.name not in saved]
            raised = [_raised(saved[one.name], one) for one in led if one.name in saved and _lags(saved[one.name], one)]
            if not absent and not raised:
                return state, [], []
            done = rewrite(source, data, config, 1, more=[*absent, *raised], on_read=on_read)
            return done, [one.name for one in absent], [one.name for one in raised]

        state, added, raised = await aside(complete, unseen)
        if not added and not raised:
            return state
        writer.restart()
        data.seek(0)
        while piece := data.read(_COPY_BYTES):
            writer.write(piece)
    if added:
        lifeline.say(f"{stream}: added what only other servers of the cluster have: {', '.join(added)}")
    if raised:
        lifeline.say(f"{stream}: brought up to their leaders' acknowledgements: {', '.join(raised)}")
    return state


def _lags(saved: ArchivedConsumer, led: ArchivedConsumer) -> bool:
    """Return whether a copy of a consumer is behind its leader."""
    if saved.config.ack_policy == "none":
        return saved.progress.delivered_sseq < led.progress.delivered_sseq
    return saved.progress.floor_sseq < led.progress.floor_sseq


def _raised(saved: ArchivedConsumer, led: ArchivedConsumer) -> ArchivedConsumer:
    """Return a copy of a consumer as far as its leader: nothing up to the leader's ack floor is pending."""
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
    """Return a consumer that has not gone beyond the messages that were saved before it was asked about."""
    reached = consumer.progress
    bounded = replace(
        reached,
        delivered_sseq=min(reached.delivered_sseq, last_seq),
        floor_sseq=min(reached.floor_sseq, last_seq),
    )
    return replace(consumer, progress=bounded)
