"""Writing of stream backups: a directory or a single file, under a temporary name until it is complete.

`backup.json` is `{"config": …, "state": …}` as the server gave them, and the body of the restore request;
`stream.tar.s2` (version 1) or `stream.arc.s2` (version 2) holds the server's bytes unread; `manifest.json` has their
checksums. A directory is laid out as the `nats` tool does, so either tool restores the other's backups. A path
that ends in .tgz, .tar.gz, .tar or .tar.s2, or that is a file already, gets the same members in one tar file, gzipped
for .tgz and .tar.gz.

The temporary name is next to the final one: all is synced there and then renamed, so that a failure leaves nothing, and
an older backup of that name stays.

A capture writes the messages of a subscription as a stream backup while they arrive. Messages of a stream keep their
sequences and times; other messages are numbered from 1 and have the time of their arrival. The state stands first in an
archive, so the records wait in a file of their own. The backup gets its name when the subscription has ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, Self

import msgspec

from natsctl.api import acks, headers
from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.errors import ProtocolError, UsageError, file_errors
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.api.subjects import is_valid_name
from natsctl.api.times import format_time, parse_time
from natsctl.client.atomic_file import sync_file
from natsctl.client.backup.archives import ArchiveSummary
from natsctl.client.backup.manifest import (
    DATA_NAME,
    GZIP_ENDINGS,
    MANIFEST_NAME,
    META_NAME,
    NAMES,
    PART_PREFIX,
    Document,
    FileSum,
    Manifest,
    data_name_of,
    encode_manifest,
    is_single_file,
    new_manifest,
)
from natsctl.client.message import Message, as_bytes

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_GZIP_LEVEL = 1


def part_of(target: Path) -> Path:
    """Make the folder next to a backup's target that is written first; raises UsageError."""
    with file_errors(f"cannot write a backup to {target}", UsageError):
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=PART_PREFIX, suffix=".part", dir=target.parent))


class BackupWriter:
    """Write the data, then `finish` with the content of `backup.json`; a context manager, as it has temporary files."""

    def __init__(self, target: Path, *, replace: bool = False) -> None:
        """Create the temporary folder next to the target; raises UsageError if nothing can or may be written."""
        self.target = target
        with file_errors(f"cannot write a backup to {target}", UsageError):
            self._single = is_single_file(target)
            check_free(target, self._single, replace)
        self._folder = part_of(target)
        self._data = _create(self._folder / DATA_NAME)
        self._digest = hashlib.sha256()
        self.data_bytes = 0

    def write(self, chunk: bytes) -> None:
        """Append to the data; raises StorageError."""
        with file_errors(f"cannot write to {self.target.parent}"):
            self._data.write(chunk)
        self._digest.update(chunk)
        self.data_bytes += len(chunk)

    def copy(self, data: IO[bytes]) -> None:
        data.seek(0)
        while piece := data.read(_COPY_BYTES):
            self.write(piece)

    def written(self) -> IO[bytes]:
        """Open the data that was written so far, for reading."""
        self._data.flush()
        return (self._folder / DATA_NAME).open("rb")

    def restart(self) -> None:
        self._data.seek(0)
        self._data.truncate()
        self._digest = hashlib.sha256()
        self.data_bytes = 0

    def finish(
        self, config: dict[str, Any], state: dict[str, Any], manifest: Manifest, more: Mapping[str, Any] = NOTHING
    ) -> None:
        """Put the whole, synced backup under its name, with `more` blocks in backup.json; raises StorageError."""
        meta = json.dumps({"config": config, "state": state, **more}, indent=2, ensure_ascii=False).encode() + b"\n"
        name_of_data = data_name_of(manifest.archive)
        manifest.files = [
            FileSum(name=META_NAME, bytes=len(meta), sha256=hashlib.sha256(meta).hexdigest()),
            FileSum(name=name_of_data, bytes=self.data_bytes, sha256=self._digest.hexdigest()),
        ]
        with file_errors(f"cannot write the backup {self.target}"):
            # A single file is synced once, when it is complete: three syncs less for each stream of an account.
            settle: Callable[[IO[bytes]], None] = _flush if self._single else sync_file
            settle(self._data)
            self._data.close()
            (self._folder / DATA_NAME).rename(self._folder / name_of_data)
            for name, content in ((META_NAME, meta), (MANIFEST_NAME, encode_manifest(manifest))):
                with _create(self._folder / name) as file:
                    file.write(content)
                    settle(file)
            if self._single:
                self._rename_single(name_of_data)
            else:
                rename_folder(self._folder, self.target)

    def _rename_single(self, name_of_data: str) -> None:
        """Pack the files into one, the data last: what stands before it is read at once."""
        packed = self._folder / "packed"
        with _create(packed) as file:
            zipped = self.target.name.lower().endswith(GZIP_ENDINGS)
            with _tar_writer(file, zipped) as tar:
                for name in (META_NAME, MANIFEST_NAME, name_of_data):
                    tar.add(self._folder / name, arcname=name, recursive=False, filter=_owner_only)
            sync_file(file)
        packed.replace(self.target)
        sync_folder(self.target.parent)
        shutil.rmtree(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Remove the files; a finished backup stays."""
        with contextlib.suppress(OSError):
            self._data.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def check_free(target: Path, single: bool, replace: bool) -> None:
    """Raise UsageError if a backup would replace something: a backup unless `replace`, anything else always."""
    if target.is_dir():
        if single:
            raise UsageError(f"{target} is a directory", hint="name a file, or a path that does not end in .tgz")
        names = {entry.name for entry in target.iterdir()}
        if others := names - NAMES:
            raise UsageError(f"{target} exists and is not a backup: it holds {min(others)}")
        if not names:
            return
    if target.exists() and not replace:
        raise UsageError(f"{target} exists", hint="name another path, or give --force to replace it")


def rename_folder(folder: Path, target: Path) -> None:
    """Rename a complete folder durably; an older one of that name is removed once the new one is in place."""
    sync_folder(folder)
    old: Path | None = None
    if target.is_dir() and any(target.iterdir()):
        old = Path(tempfile.mkdtemp(prefix=PART_PREFIX, suffix=".old", dir=target.parent))
        target.rename(old)
    folder.rename(target)
    sync_folder(target.parent)
    if old is not None:
        shutil.rmtree(old)


def _create(path: Path) -> IO[bytes]:
    """Return a new file that only its owner may read: a backup holds messages."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _tar_writer(file: IO[bytes], zipped: bool) -> tarfile.TarFile:
    if zipped:
        return tarfile.open(fileobj=file, mode="w:gz", compresslevel=_GZIP_LEVEL, format=tarfile.PAX_FORMAT)
    return tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)


def _owner_only(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = int(member.mtime)  # a fraction would need an extra header without a checksum
    member.mode, member.uid, member.gid, member.uname, member.gname = 0o600, 0, 0, "", ""
    return member


def _flush(file: IO[bytes]) -> None:
    file.flush()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    """A backup of a subscription's messages; sizes in bytes."""

    stream: str
    target: str
    messages: int
    bytes: int
    dropped: int


def captured_config(target: Path, subjects: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of a stream for messages as they are published, named after the target.

    Raises UsageError if no stream can have that name.
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


def stored_record(message: Message) -> ArchivedMessage:
    """Return the message as its stream has it, from its ack subject or the headers of a direct get.

    Raises ProtocolError.
    """
    if place := acks.parse(as_bytes(message.reply)):
        return _record(message, place.ts_ns, place.stream_seq)
    pairs, added = list(getattr(message.headers, "pairs", ())), {}
    for name in _DIRECT:
        # A stored header may have the same name: the server's header comes after it.
        at = next((at for at in reversed(range(len(pairs))) if pairs[at][0] == name), None)
        if at is not None:
            added[name] = pairs.pop(at)[1]
    seq, moment = added.get(headers.SEQUENCE.decode(), ""), added.get(headers.TIME_STAMP.decode(), "")
    if not seq.isdecimal() or not moment:
        raise ProtocolError(f"a message on {message.subject} carries no sequence of its stream")
    block = _block(pairs)
    subject = added.get(headers.SUBJECT.decode(), message.subject)
    try:
        ts_ns = parse_time(moment)
    except ValueError as failure:
        raise ProtocolError(f"a message on {message.subject}: {failure}") from failure
    return ArchivedMessage(int(seq), ts_ns, as_bytes(subject), block, message.body)


def _block(pairs: Sequence[tuple[str, str]]) -> bytes:
    """Return the block of headers that were received, whatever their names are."""
    if not pairs:
        return b""
    return headers.encode((as_bytes(name), as_bytes(value)) for name, value in pairs)


def _record(message: Message, ts_ns: int, seq: int) -> ArchivedMessage:
    block = _block(message.headers.pairs)
    return ArchivedMessage(seq, ts_ns, as_bytes(message.subject), block, message.body)


class ArchiveSpool:
    """Messages of a version 2 archive that wait in a file: the state stands first there, and is known last."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # `close` closes it
        self._frames, self._writer = FrameWriter(), WriterV2()

    def add(self, messages: Sequence[ArchivedMessage]) -> tuple[int, int]:
        """Append messages, and return the bytes of their records, plain and compressed. Raises OSError."""
        records = b"".join(self._writer.messages(messages))
        packed = self._frames.write(records)
        self._file.write(packed)
        return len(records), len(packed)

    def write_to(self, writer: BackupWriter, head: ArchivedStream, consumers: Sequence[ArchivedConsumer] = ()) -> None:
        """Write the whole archive: its beginning, then the messages."""
        frames = FrameWriter()
        writer.write(frames.write(b"".join(WriterV2().beginning(head, consumers))) + frames.finish())
        self._file.write(self._frames.write(b"".join(self._writer.end(0, 0))) + self._frames.finish())
        writer.copy(self._file)

    def close(self) -> None:
        self._file.close()


class Capture:
    """Write messages with `add`, then `finish`, or `discard` to keep nothing."""

    def __init__(self, target: Path, config: dict[str, Any], subjects: Sequence[str], *, stored: bool) -> None:
        """Check the target and open the file for records; raises UsageError.

        With `stored` the messages are those of the stream that `config` configures.
        """
        self._target, self._config, self._stored = target, config, stored
        self._subjects = list(subjects)
        check_free(target, is_single_file(target), replace=False)
        with file_errors(f"--backup: cannot write to {target}", UsageError):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._spool = ArchiveSpool(target.parent)
        self._waiting: list[ArchivedMessage] = []
        self._found = ArchiveSummary()
        self._last_seq = 0
        self._began_ns = time.time_ns()

    def add(self, message: Message) -> None:
        """Write a message; one that a stream has delivered before is left out. Raises ProtocolError, StorageError."""
        record = stored_record(message) if self._stored else _record(message, time.time_ns(), self._last_seq + 1)
        if record.seq <= self._last_seq:
            return
        self._last_seq = record.seq
        self._waiting.append(record)
        if len(self._waiting) >= _BATCH:
            self._write_waiting()

    def _write_waiting(self) -> None:
        self._found.add(self._waiting)
        with file_errors(f"cannot write to {self._target.parent}"):
            self._spool.add(self._waiting)
        self._waiting = []

    def finish(self, dropped: int = 0) -> Captured:
        """Give the backup its name and return its contents. Raises StorageError; nothing stays then."""
        self._write_waiting()
        found, state = self._found, self._state()
        manifest = new_manifest(str(self._config.get("name", "")), state, "captured")
        with closing(self._spool) as spool, BackupWriter(self._target) as writer:
            spool.write_to(writer, ArchivedStream(created_ns=self._began_ns, state=state))
            writer.finish(self._config, manifest.state, manifest, self._source(dropped))
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

    def _source(self, dropped: int) -> dict[str, Any]:
        """Return the part of backup.json about the subscription, as the `nats` tool writes it."""
        said: dict[str, Any] = {"subjects": self._subjects or self._config.get("subjects") or []}
        if self._stored:
            said["stream"] = self._config.get("name", "")
        said |= {"started": format_time(self._began_ns), "ended": format_time(time.time_ns())}
        return {"source": {**said, **({"dropped": dropped} if dropped else {})}}

    def discard(self) -> None:
        self._spool.close()
