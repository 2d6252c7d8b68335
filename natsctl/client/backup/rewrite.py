"""Rewriting of archives: under another name, in the other format, or with some of the messages only.

A version 2 archive does not contain its stream's name: restored under another name it stays as it is. In version 1 the
hash of every record and of the configuration is keyed by the stream's name, so another name requires reading and
writing all of it: as version 2 where the server reads that, else as version 1 with all hashes computed again. Version 2
is needed by streams in memory, version 1 by servers before 2.15.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream, ArchiveWriter
from natsctl.api.archive.archive_v1 import WriterV1
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.codec import InvalidJSONError, decode, encode
from natsctl.api.errors import UsageError
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.api.times import format_time
from natsctl.api.units import plural
from natsctl.client.backup.archive_contents import (
    OnRead,
    Summary,
    ignore_read,
    read_items,
    read_messages,
    run_in_thread,
    summarise,
    version_of,
)
from natsctl.client.backup.reader import BackupData

if TYPE_CHECKING:
    from natsctl.client.backup.reader import OpenBackup

V2_SINCE = (2, 15)
"""The server version from which on version 2 is read."""

Keep = Callable[[ArchivedMessage], bool]


def is_since(server_version: str, since: tuple[int, int]) -> bool:
    """Return whether a server's version is that or later; an unknown version counts as new."""
    parts = server_version.split("-")[0].split(".")[:2]
    return not all(part.isdecimal() for part in parts) or tuple(map(int, parts)) >= since


def version_for(backup: OpenBackup, config: dict[str, Any], server_version: str) -> int:
    """Return the format in which that server restores the stream. Raises UsageError where there is none."""
    new_server = is_since(server_version, V2_SINCE)
    if config.get("storage") == "memory":
        if not new_server:
            raise UsageError(
                f"nats-server {server_version} restores no stream in memory",
                hint='restore it with a --config that has "storage": "file", or on a server from 2.15 on',
            )
        return 2
    if not new_server:
        return 1
    return 2 if config["name"] != backup.stream else version_of(backup)


@contextlib.asynccontextmanager
async def fitted(
    backup: OpenBackup, config: dict[str, Any], version: int, on_read: OnRead = ignore_read
) -> AsyncIterator[str]:
    """Yield the backup with data in that format that may be restored as `config`.

    The returned text describes the changes.
    """
    had = version_of(backup)
    renamed = config["name"] != backup.stream
    lowered = (
        await run_in_thread(lambda read: _over(backup, _replicas(config), read), on_read)
        if _fewer(config, backup)
        else []
    )
    if had == version and not (renamed and had == 1) and not lowered:
        yield ""
        return
    before, size = backup.data, backup.size
    with tempfile.TemporaryFile() as data:
        await run_in_thread(lambda read: rewrite(backup, data, config, version, on_read=read), on_read)
        backup.data, backup.size = BackupData(backup.path, before.name, data), data.tell()
        try:
            yield _done(had, version, lowered, _replicas(config))
        finally:
            backup.data, backup.size = before, size


def _replicas(config: dict[str, Any]) -> int:
    """Return the copies that a configuration of a stream asks for."""
    return int(config.get("num_replicas") or 1)


def _fewer(config: dict[str, Any], backup: OpenBackup) -> bool:
    """Return whether the stream gets fewer replicas than it had, which its consumers may not exceed."""
    return _replicas(config) < _replicas(backup.config)


def _over(backup: OpenBackup, replicas: int, on_read: OnRead) -> list[str]:
    """Return the consumers that have more copies; in version 2 they stand before the messages."""
    found: list[str] = []
    consumers_first = version_of(backup) == 2
    for item in read_items(backup, on_read):
        if isinstance(item, ArchivedConsumer):
            found += [item.name] if item.config.num_replicas > replicas else []
        elif consumers_first and isinstance(item, Sequence) and item:
            break
    return found


def _done(had: int, version: int, lowered: list[str], replicas: int) -> str:
    """Return a description of the changes to an archive, for the user."""
    done = []
    if had != version or not lowered:
        done.append(
            f"archive of version {had} rewritten as version {version}" + (", with new hashes" if version == 1 else "")
        )
    if lowered:
        done.append(f"{plural(replicas, 'replica')}, as the stream has, for {', '.join(lowered)}")
    return "; ".join(done)


def rewrite(
    backup: OpenBackup,
    out: IO[bytes],
    config: dict[str, Any],
    version: int,
    *,
    keep: Keep | None = None,
    consumers: bool = True,
    more: Sequence[ArchivedConsumer] = (),
    renumber: bool = False,
    on_read: OnRead = ignore_read,
) -> dict[str, Any]:
    """Rewrite the archive to `out` and return the state that goes with it. Raises StorageError, UsageError.

    With `keep` only those messages, under the sequences that they had; the stream's last sequence stays. With
    `renumber` their sequences begin at 1, and no consumer may be kept. `more` are consumers that the archive lacks, or
    that stand in for those of the same name.
    """
    found = summarise(backup, on_read)
    known = StreamState() if not backup.state else _typed_state(backup)
    stand_ins = {one.name for one in more}
    left = [one for one in found.consumers if consumers and one.name not in stand_ins]
    state = msgspec.structs.replace(known, consumer_count=len(left) + len(more))
    if keep is not None:
        _recount(backup, found, keep, state)
    if renumber:
        state.first_seq, state.last_seq = 1, state.messages
        state.num_deleted, state.deleted = 0, []
    head = ArchivedStream(config=_typed_config(config), created_ns=found.inner.created_ns, state=state)
    kept_consumers = _fitting(left, backup, found, keep)
    kept_consumers = [_lowered(one, _replicas(config)) for one in (*kept_consumers, *more)]
    writer: ArchiveWriter = WriterV1() if version == 1 else WriterV2()
    frames = FrameWriter()
    out.write(frames.write(writer.begin(head, kept_consumers)))
    written = 0
    for messages in read_messages(backup, on_read, found.removed):
        if chosen := messages if keep is None else list(filter(keep, messages)):
            if renumber:
                chosen = [one._replace(seq=written + at) for at, one in enumerate(chosen, 1)]
                written += len(chosen)
            for piece in writer.messages(chosen):
                out.write(frames.write(piece))
    for piece in writer.end(state.last_seq, found.last_ts_ns):
        out.write(frames.write(piece))
    out.write(frames.finish())
    return dict(msgspec.to_builtins(state))


def _recount(backup: OpenBackup, found: Summary, keep: Keep, state: StreamState) -> None:
    """Set the state to that of the kept messages."""
    kept = Summary()
    for messages in read_messages(backup, removed=found.removed):
        kept.add(list(filter(keep, messages)))
    state.messages = kept.messages
    state.bytes = kept.stored_bytes(in_memory=backup.config.get("storage") == "memory")
    state.first_seq, state.first_ts = state.last_seq + 1, state.last_ts
    if kept.messages:
        state.first_seq, state.first_ts = kept.first_seq, format_time(kept.first_ts_ns)
    state.num_deleted, state.deleted, state.num_subjects, state.subjects = 0, [], len(kept.subjects), {}


def _fitting(
    consumers: list[ArchivedConsumer], backup: OpenBackup, found: Summary, keep: Keep | None
) -> list[ArchivedConsumer]:
    """Return the consumers, waiting for acks of messages only that are there."""
    if keep is None:
        return consumers
    waiting = {seq for one in consumers for seq in (*one.progress.pending, *one.progress.redelivered)}
    batches = read_messages(backup, removed=found.removed) if waiting else ()
    there = {message.seq for batch in batches for message in filter(keep, batch)} & waiting
    return [
        replace(
            one,
            progress=replace(
                one.progress,
                pending={seq: entry for seq, entry in one.progress.pending.items() if seq in there},
                redelivered={seq: count for seq, count in one.progress.redelivered.items() if seq in there},
            ),
        )
        for one in consumers
    ]


def _lowered(consumer: ArchivedConsumer, replicas: int) -> ArchivedConsumer:
    """Return the consumer with no more copies than its stream has."""
    if consumer.config.num_replicas <= replicas:
        return consumer
    return replace(consumer, config=replace(consumer.config, num_replicas=replicas))


def _typed_config(config: dict[str, Any]) -> StreamConfig:
    try:
        return decode(encode(config), StreamConfig)
    except InvalidJSONError as failure:
        raise UsageError(f"the configuration of the backup is not understood: {failure}") from failure


def _typed_state(backup: OpenBackup) -> StreamState:
    try:
        return decode(encode(backup.state), StreamState)
    except InvalidJSONError as failure:
        raise UsageError(f"{backup.path}: the state is not understood: {failure}") from failure
