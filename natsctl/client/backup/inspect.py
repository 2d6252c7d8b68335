"""All that a backup tells of its stream, read offline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.archive.archive import ArchivedConsumer
from natsctl.api.errors import StorageError
from natsctl.api.model import Model, blank, new_list, zero_time
from natsctl.api.times import ZERO_TIME, format_time
from natsctl.client.backup.contents import OnRead, summarise, unseen
from natsctl.client.backup.document import Document
from natsctl.client.backup.manifest import Manifest

if TYPE_CHECKING:
    from natsctl.client.backup.opened import OpenBackup


class ConsumerInside(Document):
    """A consumer of a backup: how far it is, and how many messages it waits for."""

    name: str
    config: dict[str, Any]
    delivered: int
    ack_floor: int
    pending: int
    redelivered: int


class SubjectCount(Document):
    """How many messages are on a subject."""

    subject: str
    messages: int


class Inspection(Document):
    """What a backup holds; `subjects` has the fullest first, `other_messages` counts those on no subject of the list.

    `payload_bytes` are the bodies alone, `size` the archive as it is stored.
    """

    path: str
    form: str
    archive: int
    size: int
    config: dict[str, Any]
    state: dict[str, Any]
    messages: int
    payload_bytes: int
    number_of_subjects: int
    other_messages: int
    subjects: list[SubjectCount]
    consumers: list[ConsumerInside]
    manifest: Manifest | None = None


class EditBlock(Model):
    """What backup.json says of the edit that made a backup."""

    options: list[str] = msgspec.field(default_factory=new_list)
    source_digest: str = msgspec.field(default_factory=blank)
    version: str = ""
    obfuscated: bool = False


class CaptureBlock(Model):
    """What backup.json says of the subscription whose messages a backup holds."""

    subjects: list[str] = msgspec.field(default_factory=new_list)
    stream: str = ""
    started: str = msgspec.field(default_factory=zero_time)
    ended: str = msgspec.field(default_factory=zero_time)
    dropped: int = 0


class BackupInfo(Model):
    """A backup as `nats backup info` describes it; `declared` is the state that stands in the archive itself.

    `bytes` is what the messages take in the stream's storage; `subjects` is there where it was asked for.
    """

    config: dict[str, Any]
    declared: dict[str, Any]
    declared_counts_advisory: bool
    consumers: list[str]
    messages: int
    num_subjects: int
    bytes: int
    first_seq: int
    last_seq: int
    first_time: str
    last_time: str
    edit: EditBlock | None = None
    source: CaptureBlock | None = None
    subjects: dict[str, int] | None = None


def describe(backup: OpenBackup, *, subjects: bool = False, on_read: OnRead = unseen) -> BackupInfo:
    """Return what the backup holds, all of it read, with every subject where they are wanted. Raises StorageError."""
    found = summarise(backup, on_read)
    declared = backup.state if found.inner.state is None else msgspec.to_builtins(found.inner.state)
    edited, captured = backup.block("edit"), backup.block("source")
    try:
        return BackupInfo(
            config=backup.config,
            declared=declared,
            declared_counts_advisory=bool(found.messages) and not (declared.get("messages") and declared.get("bytes")),
            edit=msgspec.convert(edited, EditBlock) if edited else None,
            source=msgspec.convert(captured, CaptureBlock) if captured else None,
            consumers=[one.name for one in found.consumers],
            messages=found.messages,
            num_subjects=len(found.subjects),
            subjects=dict(sorted(found.subjects.items())) if subjects else None,
            bytes=found.stored_bytes(in_memory=backup.config.get("storage") == "memory"),
            first_seq=found.first_seq,
            last_seq=found.last_seq if found.messages else 0,
            first_time=format_time(found.first_ts_ns) if found.messages else ZERO_TIME,
            last_time=format_time(found.last_ts_ns) if found.messages else ZERO_TIME,
        )
    except msgspec.ValidationError as failure:
        raise StorageError(f"{backup.path}: backup.json: {failure}") from failure


def inspect(backup: OpenBackup, *, top: int = 0, on_read: OnRead = unseen) -> Inspection:
    """What the backup holds, all of it read; `top` limits the subjects that are listed. Raises StorageError."""
    found = summarise(backup, on_read)
    counts = sorted(found.subjects.items(), key=lambda one: (-one[1], one[0]))
    listed = counts[:top] if top else counts
    return Inspection(
        path=str(backup.path),
        form=str(backup.form),
        archive=found.version,
        size=backup.size,
        config=backup.config,
        state=backup.state,
        messages=found.messages,
        payload_bytes=found.payload_bytes,
        number_of_subjects=len(counts),
        other_messages=found.messages - sum(number for _, number in listed),
        subjects=[SubjectCount(subject=subject, messages=number) for subject, number in listed],
        consumers=[_consumer(one) for one in found.consumers],
        manifest=backup.manifest,
    )


def _consumer(one: ArchivedConsumer) -> ConsumerInside:
    reached = one.progress
    return ConsumerInside(
        name=one.name,
        config=msgspec.to_builtins(one.config),
        delivered=reached.delivered_sseq,
        ack_floor=reached.floor_sseq,
        pending=len(reached.pending),
        redelivered=len(reached.redelivered),
    )
