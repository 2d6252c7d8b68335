"""Which messages of a backup are meant: by subject, time, sequence, headers and payload, and how many of a subject."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from natsctl.api import headers
from natsctl.api.archive.archive import ArchivedMessage
from natsctl.api.errors import UsageError
from natsctl.api.subjects import matches
from natsctl.client.backup.contents import read_messages
from natsctl.client.backup.document import Document

if TYPE_CHECKING:
    from natsctl.client.backup.opened import OpenBackup

_REMOVALS = (b"DEL", b"PURGE")
_MARKERS = (b"MaxAge", b"Purge", b"Remove")
"""Values of `KV-Operation` and of `Nats-Marker-Reason` that say a key is gone."""


class Filter(StrEnum):
    """Filters of single messages, in the order in which they are tried."""

    SEQUENCE = "sequence"
    TIME = "time"
    SUBJECT = "subject"
    HEADER = "header"
    PAYLOAD = "payload"


@dataclass(frozen=True, slots=True)
class Pick:
    """Filters of single messages; 0 and nothing mean any. Times and sequences include both ends.

    A message has to match one of `subjects`, one of `headers` (a name, and a value unless that is None) and one of
    `payloads`, and none of those to exclude. Names of headers are compared without regard to case.
    """

    subjects: tuple[str, ...] = ()
    since_ns: int = 0
    until_ns: int = 0
    first_seq: int = 0
    last_seq: int = 0
    exclude_subjects: tuple[str, ...] = ()
    headers: tuple[tuple[str, str | None], ...] = ()
    exclude_headers: tuple[str, ...] = ()
    payloads: tuple[re.Pattern[str], ...] = ()
    exclude_payloads: tuple[re.Pattern[str], ...] = ()

    def __call__(self, message: ArchivedMessage) -> bool:
        """Return whether the message is meant."""
        return self.rejected_by(message) is None

    def rejected_by(self, message: ArchivedMessage) -> Filter | None:
        """Return the first filter that the message does not pass, None where it passes all."""
        if message.seq < self.first_seq or (self.last_seq and message.seq > self.last_seq):
            return Filter.SEQUENCE
        if message.ts_ns < self.since_ns or (self.until_ns and message.ts_ns > self.until_ns):
            return Filter.TIME
        if (self.subjects or self.exclude_subjects) and not self._has_subject(message):
            return Filter.SUBJECT
        if (self.headers or self.exclude_headers) and not self._has_header(message):
            return Filter.HEADER
        if (self.payloads or self.exclude_payloads) and not self._has_payload(message):
            return Filter.PAYLOAD
        return None

    def _has_subject(self, message: ArchivedMessage) -> bool:
        subject = message.subject.decode("utf-8", "replace")
        if any(matches(pattern, subject) for pattern in self.exclude_subjects):
            return False
        return not self.subjects or any(matches(pattern, subject) for pattern in self.subjects)

    def _has_header(self, message: ArchivedMessage) -> bool:
        found = [
            (key.decode("utf-8", "replace").lower(), value.decode("utf-8", "replace"))
            for key, value in headers.parse(message.header)
        ]
        if any(key == name.lower() for name in self.exclude_headers for key, _ in found):
            return False
        return not self.headers or any(
            key == name.lower() and wanted in (None, value) for name, wanted in self.headers for key, value in found
        )

    def _has_payload(self, message: ArchivedMessage) -> bool:
        payload = message.payload.decode("utf-8", "replace")
        if any(pattern.search(payload) for pattern in self.exclude_payloads):
            return False
        return not self.payloads or any(pattern.search(payload) for pattern in self.payloads)

    def options(self) -> list[str]:
        """Return the filters as `name=value`, in a fixed order, under the names of the `nats` tool's flags."""
        from natsctl.api.times import format_time

        said = [f"subject={text}" for text in sorted(self.subjects)]
        said += [f"exclude-subject={text}" for text in sorted(self.exclude_subjects)]
        said += [f"after={format_time(self.since_ns)}"] if self.since_ns else []
        said += [f"before={format_time(self.until_ns + 1)}"] if self.until_ns else []
        said += [f"first-seq={self.first_seq}"] if self.first_seq else []
        said += [f"last-seq={self.last_seq}"] if self.last_seq else []
        said += [f"header={name}" for name, value in sorted(self.headers, key=str) if value is None]
        said += [f"header={name}:{value}" for name, value in sorted(self.headers, key=str) if value is not None]
        said += [f"no-header={name}" for name in sorted(self.exclude_headers)]
        said += [f"payload-match={text}" for text in sorted(one.pattern for one in self.payloads)]
        said += [f"exclude-payload-match={text}" for text in sorted(one.pattern for one in self.exclude_payloads)]
        return said


class Dropped(Document):
    """Messages that were left out, each counted at the first filter that it did not pass."""

    sequence: int = 0
    time: int = 0
    subject: int = 0
    header: int = 0
    payload: int = 0
    last_per_subject: int = 0
    kv_compact: int = 0


class Picked(Document):
    """Numbers of messages and subjects that were read and are kept.

    `tombstones_dropped` are marks of removed keys that a filter of headers or payloads left out, so that the keys come
    back; `subject_state_keys` the subjects that --last-per-subject or --kv-compact looked at.
    """

    source_messages: int = 0
    source_subjects: int = 0
    kept: int = 0
    kept_subjects: int = 0
    dropped: Dropped = msgspec.field(default_factory=Dropped)
    tombstones_dropped: int = 0
    subject_state_keys: int = 0


@dataclass(slots=True)
class Choice:
    """Messages of one backup that are kept, found by reading it; `seqs` is None where the pick alone decides."""

    pick: Pick
    report: Picked = field(default_factory=Picked)
    seqs: set[int] | None = None
    older: int = 0
    """Kept messages that the stream's max_age no longer allows."""

    def __call__(self, message: ArchivedMessage) -> bool:
        """Return whether the message is kept."""
        return self.pick(message) if self.seqs is None else message.seq in self.seqs


class _Entry(NamedTuple):
    """A message that passed the filters, and whether it says that its key is gone."""

    seq: int
    ts_ns: int
    gone: bool


def choose(
    backup: OpenBackup, pick: Pick, *, last_per_subject: int = 0, kv_compact: bool = False, since_ns: int = 0
) -> Choice:
    """Return the choice of what passes `pick`, and of that the newest of each subject where either is asked for.

    `kv_compact` keeps the newest of each key and drops keys that are removed; what is kept from before `since_ns` is
    counted. Raises StorageError; UsageError where compaction is asked for and the stream is no bucket.
    """
    if kv_compact:
        _check_bucket(backup)
    choice = Choice(pick)
    report, subjects, kept = choice.report, set[int](), set[int]()
    latest: dict[bytes, deque[_Entry]] = {}
    depth = 1 if kv_compact else last_per_subject
    for message in _messages(backup):
        report.source_messages += 1
        subjects.add(hash(message.subject))
        reason = pick.rejected_by(message)
        if reason is not None:
            setattr(report.dropped, reason.value, getattr(report.dropped, reason.value) + 1)
            report.tombstones_dropped += reason in (Filter.HEADER, Filter.PAYLOAD) and _is_tombstone(message.header)
        elif depth:
            gone = kv_compact and _is_tombstone(message.header)
            latest.setdefault(message.subject, deque(maxlen=depth)).append(_Entry(message.seq, message.ts_ns, gone))
            report.kept += 1
        else:
            kept.add(hash(message.subject))
            report.kept += 1
            choice.older += message.ts_ns < since_ns
    report.source_subjects, report.kept_subjects = len(subjects), len(kept)
    if depth:
        _keep_latest(choice, latest, kv_compact, since_ns)
    return choice


def _keep_latest(choice: Choice, latest: dict[bytes, deque[_Entry]], kv_compact: bool, since_ns: int) -> None:
    report, passed = choice.report, choice.report.kept
    kept = [entry for entries in latest.values() for entry in entries if not entry.gone]
    choice.seqs = {entry.seq for entry in kept}
    choice.older = sum(entry.ts_ns < since_ns for entry in kept)
    report.kept = len(kept)
    report.kept_subjects = sum(any(not entry.gone for entry in entries) for entries in latest.values())
    report.subject_state_keys = len(latest)
    if kv_compact:
        report.dropped.kv_compact = passed - report.kept
    else:
        report.dropped.last_per_subject = passed - report.kept


def _messages(backup: OpenBackup) -> Iterator[ArchivedMessage]:
    for batch in read_messages(backup):
        yield from batch


def _check_bucket(backup: OpenBackup) -> None:
    """Raise UsageError where the stream is no key-value bucket."""
    bucket, subjects = backup.stream.removeprefix("KV_"), backup.config.get("subjects")
    if not bucket or bucket == backup.stream or subjects != [f"$KV.{bucket}.>"]:
        raise UsageError(f"--kv-compact requires a KV bucket backup: {backup.stream} is no key-value bucket")


def _is_tombstone(header: bytes) -> bool:
    """Return whether a message says that its key is gone."""
    if not header:
        return False
    operation = headers.get(header, headers.KV_OPERATION)
    if operation:
        return operation in _REMOVALS
    return headers.get(header, headers.MARKER_REASON) in _MARKERS
