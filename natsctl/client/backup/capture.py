"""Messages of a subscription, written as a stream backup while they come.

Messages of a stream keep their sequences and times; messages as they are published are numbered from 1 and have the
time at which they came. The state stands first in an archive, so the records wait in a file of their own. The backup
appears under its name when the subscription has ended.
"""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from natsctl import __version__
from natsctl.api import acks, headers
from natsctl.api.archive.archive import ArchivedMessage, ArchivedStream
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.errors import ProtocolError, StorageError, UsageError
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.api.subjects import is_valid_name
from natsctl.api.times import format_time, parse_time
from natsctl.client.backup.contents import Summary
from natsctl.client.backup.document import Document
from natsctl.client.backup.layout import is_single_file
from natsctl.client.backup.manifest import FORMAT, MadeOn, Manifest
from natsctl.client.backup.target import BackupWriter, check_free
from natsctl.client.message import encode_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.client.message import Message

_BATCH: Final = 256
"""Messages that are compressed together."""
_COPY_BYTES: Final = 1 << 20
_DIRECT: Final = tuple(
    name.decode()
    for name in (
        headers.STREAM,
        headers.SUBJECT,
        headers.SEQUENCE,
        headers.TIME_STAMP,
        headers.NUM_PENDING,
        headers.LAST_SEQUENCE,
    )
)
"""Headers that a server adds to a stored message which it sends in answer to a direct get."""


class Captured(Document):
    """A backup of what a subscription brought; sizes in bytes."""

    stream: str
    target: str
    messages: int
    bytes: int
    dropped: int


def captured_config(target: Path, subjects: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of a stream for messages as they are published, named after the target.

    Raises UsageError where no stream can have that name.
    """
    name = target.name.partition(".")[0] if is_single_file(target) else target.name
    if not is_valid_name(name):
        raise UsageError(
            f"--backup: {name!r} is not a valid stream name", hint="the folder's name becomes the stream's"
        )
    config = StreamConfig(name=name, subjects=list(subjects), num_replicas=1)
    for limit in ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size"):
        setattr(config, limit, -1)
    return dict(msgspec.to_builtins(config))


class Capture:
    """Write messages with `add`, then `finish`, or `discard` where nothing is to stay."""

    def __init__(self, target: Path, config: dict[str, Any], subjects: Sequence[str], *, stored: bool) -> None:
        """Check the target and open the file for records; raises UsageError.

        With `stored` the messages are those of the stream that `config` configures.
        """
        self._target, self._config, self._stored = target, config, stored
        self._subjects = list(subjects)
        check_free(target, is_single_file(target), replace=False)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._spool: IO[bytes] = tempfile.TemporaryFile(dir=target.parent)  # noqa: SIM115  # `discard` closes it
        except OSError as failure:
            raise UsageError(f"--backup: cannot write to {target}: {failure.strerror}") from failure
        self._frames, self._writer = FrameWriter(), WriterV2()
        self._waiting: list[ArchivedMessage] = []
        self._found = Summary()
        self._last_seq = 0
        self._began_ns = time.time_ns()

    def add(self, message: Message) -> None:
        """Write a message; one that a stream has delivered before is left out. Raises ProtocolError, StorageError."""
        record = self._stored_record(message) if self._stored else self._record(message, time.time_ns())
        if record.seq <= self._last_seq:
            return
        self._last_seq = record.seq
        self._waiting.append(record)
        if len(self._waiting) >= _BATCH:
            self._write_waiting()

    def _record(self, message: Message, ts_ns: int, seq: int = 0) -> ArchivedMessage:
        block = encode_headers(message.headers) if message.headers else b""
        subject = message.subject.encode("utf-8", "surrogateescape")
        return ArchivedMessage(seq or self._last_seq + 1, ts_ns, subject, block, message.body)

    def _stored_record(self, message: Message) -> ArchivedMessage:
        """Return the message as the stream has it, from its ack subject or the headers of a direct get."""
        if place := acks.parse(message.reply.encode("utf-8", "surrogateescape")):
            return self._record(message, place.ts_ns, place.stream_seq)
        pairs, added = list(getattr(message.headers, "pairs", ())), {}
        for name in _DIRECT:
            # A stored header may have the same name: what the server adds stands behind it.
            at = next((at for at in reversed(range(len(pairs))) if pairs[at][0] == name), None)
            if at is not None:
                added[name] = pairs.pop(at)[1]
        seq, moment = added.get(headers.SEQUENCE.decode(), ""), added.get(headers.TIME_STAMP.decode(), "")
        if not seq.isdecimal() or not moment:
            raise ProtocolError(f"a message on {message.subject} carries no sequence of its stream")
        block = encode_headers(pairs) if pairs else b""
        subject = added.get(headers.SUBJECT.decode(), message.subject)
        try:
            ts_ns = parse_time(moment)
        except ValueError as failure:
            raise ProtocolError(f"a message on {message.subject}: {failure}") from failure
        return ArchivedMessage(int(seq), ts_ns, subject.encode("utf-8", "surrogateescape"), block, message.body)

    def _write_waiting(self) -> None:
        self._found.add(self._waiting)
        try:
            for piece in self._writer.messages(self._waiting):
                self._spool.write(self._frames.write(piece))
        except OSError as failure:
            raise StorageError(f"cannot write to {self._target.parent}: {failure.strerror}") from failure
        self._waiting = []

    def finish(self, dropped: int = 0) -> Captured:
        """Put the backup under its name and return what it holds. Raises StorageError; nothing stays then."""
        self._write_waiting()
        found, state = self._found, self._state()
        frames = FrameWriter()
        head = ArchivedStream(created_ns=self._began_ns, state=state)
        with self._spool as spool:
            for piece in self._writer.end(self._last_seq, found.last_ts_ns):
                spool.write(self._frames.write(piece))
            spool.write(self._frames.finish())
            spool.seek(0)
            writer = BackupWriter(self._target)
            try:
                writer.write(frames.write(WriterV2().begin(head, ())) + frames.finish())
                while piece := spool.read(_COPY_BYTES):
                    writer.write(piece)
                writer.finish(self._config, msgspec.to_builtins(state), self._manifest(state), self._source(dropped))
            finally:
                writer.discard()
        return Captured(
            stream=str(self._config.get("name", "")),
            target=str(self._target),
            messages=found.messages,
            bytes=state.bytes,
            dropped=dropped,
        )

    def _state(self) -> StreamState:
        found = self._found
        state = StreamState(
            messages=found.messages,
            bytes=found.stored_bytes(in_memory=self._config.get("storage") == "memory"),
            first_seq=found.first_seq if found.messages else 1,
            last_seq=self._last_seq,
            num_subjects=len(found.subjects),
        )
        if found.messages:
            state.first_ts, state.last_ts = format_time(found.first_ts_ns), format_time(found.last_ts_ns)
        return state

    def _manifest(self, state: StreamState) -> Manifest:
        return Manifest(
            format=FORMAT,
            tool=f"natsctl {__version__}",
            created=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            stream=str(self._config.get("name", "")),
            server=MadeOn(),
            method="captured",
            archive=2,
            consumers=False,
            state=msgspec.to_builtins(state),
        )

    def _source(self, dropped: int) -> dict[str, Any]:
        """Return what backup.json says of the subscription, as the `nats` tool writes it."""
        said: dict[str, Any] = {"subjects": self._subjects or self._config.get("subjects") or []}
        if self._stored:
            said["stream"] = self._config.get("name", "")
        said |= {"started": format_time(self._began_ns), "ended": format_time(time.time_ns())}
        return {"source": {**said, **({"dropped": dropped} if dropped else {})}}

    def discard(self) -> None:
        """Forget what was written."""
        self._spool.close()
