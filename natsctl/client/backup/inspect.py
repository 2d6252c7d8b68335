"""All that a backup tells of its stream, read offline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.archive.archive import ArchivedConsumer
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
