"""Selection of messages of a backup, and the edit that makes a backup of them.

Messages are selected by subject, time, sequence, headers and payload, and by their number on a subject. An edit may
also change the name and the format.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from natsctl import __version__
from natsctl.api import headers
from natsctl.api.archive.archive import ArchivedMessage
from natsctl.api.errors import UsageError
from natsctl.api.subjects import is_valid_name, matches
from natsctl.api.times import format_time
from natsctl.api.units import plural
from natsctl.client.backup.archives import OnRead, ignore_read, read_messages, rewrite
from natsctl.client.backup.manifest import Document, is_single_file, new_manifest
from natsctl.client.backup.obfuscation import Obfuscated, Obfuscator, check_key_file, key_file_of
from natsctl.client.backup.reader import OpenBackup, open_backup
from natsctl.client.backup.renaming import renamed, renaming_of
from natsctl.client.backup.save import SavedStream, state_fields
from natsctl.client.backup.writer import BackupWriter, check_free

_REMOVALS = (b"DEL", b"PURGE")
_MARKERS = (b"MaxAge", b"Purge", b"Remove")
"""Values of `KV-Operation` and of `Nats-Marker-Reason` for a removed key."""


class MessageFilter(StrEnum):
    SEQUENCE = "sequence"
    TIME = "time"
    SUBJECT = "subject"
    HEADER = "header"
    PAYLOAD = "payload"


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """Filters of single messages; 0 and nothing mean any. Times and sequences include both ends.

    A message has to match one of `subjects`, one of `headers` (a name, and a value unless that is None) and one of
    `payloads`, and nothing to exclude. Names of headers are compared without regard to case.
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
        return self.rejected_by(message) is None

    def rejected_by(self, message: ArchivedMessage) -> MessageFilter | None:
        """Return the first filter that the message does not pass, or None."""
        if message.seq < self.first_seq or (self.last_seq and message.seq > self.last_seq):
            return MessageFilter.SEQUENCE
        if message.ts_ns < self.since_ns or (self.until_ns and message.ts_ns > self.until_ns):
            return MessageFilter.TIME
        if (self.subjects or self.exclude_subjects) and not self._has_subject(message):
            return MessageFilter.SUBJECT
        if (self.headers or self.exclude_headers) and not self._has_header(message):
            return MessageFilter.HEADER
        if (self.payloads or self.exclude_payloads) and not self._has_payload(message):
            return MessageFilter.PAYLOAD
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
        said = [f"subject={text}" for text in sorted(self.subjects)]
        said += [f"exclude-subject={text}" for text in sorted(self.exclude_subjects)]
        said += [f"after={format_time(self.since_ns)}"] if self.since_ns else []
        said += [f"before={format_time(self.until_ns + 1)}"] if self.until_ns else []
        said += [f"first-seq={self.first_seq}"] if self.first_seq else []
        said += [f"last-seq={self.last_seq}"] if self.last_seq else []
        said += [f"header={name}" for name, value in sorted(self.headers, key=str) if value is None]
        said += [f"header={name}:{value}" for name, value in sorted(self.headers, key=str) if value is not None]
        said += [f"no-header={name}" for name in sorted(self.exclude_headers)]
        said += [f"payload-match={text}" for text in sorted(payload.pattern for payload in self.payloads)]
        said += [
            f"exclude-payload-match={text}" for text in sorted(payload.pattern for payload in self.exclude_payloads)
        ]
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
    """Messages of one backup to keep, found by reading it; `seqs` is None if only the pick decides."""

    pick: MessageSelection
    report: Picked = field(default_factory=Picked)
    seqs: set[int] | None = None
    older: int = 0
    """Kept messages that the stream's max_age no longer allows."""

    def __call__(self, message: ArchivedMessage) -> bool:
        return self.pick(message) if self.seqs is None else message.seq in self.seqs


class _Entry(NamedTuple):
    """A message that passed the filters, and whether it removes its key."""

    seq: int
    ts_ns: int
    gone: bool


def choose(backup: OpenBackup, edit: Edit, since_ns: int) -> Choice:
    """Return the messages that the edit keeps; kept ones from before `since_ns` are counted.

    Raises StorageError; UsageError for a compaction of a stream that is not a bucket.
    """
    if edit.kv_compact:
        _check_bucket(backup)
    pick, choice = edit.pick, Choice(edit.pick)
    report, subjects, kept = choice.report, set[int](), set[int]()
    latest: dict[bytes, deque[_Entry]] = {}
    depth = 1 if edit.kv_compact else edit.last_per_subject
    for message in chain.from_iterable(read_messages(backup)):
        report.source_messages += 1
        subjects.add(hash(message.subject))
        reason = pick.rejected_by(message)
        if reason is not None:
            setattr(report.dropped, reason.value, getattr(report.dropped, reason.value) + 1)
            report.tombstones_dropped += reason in (MessageFilter.HEADER, MessageFilter.PAYLOAD) and _is_tombstone(
                message.header
            )
        elif depth:
            gone = edit.kv_compact and _is_tombstone(message.header)
            latest.setdefault(message.subject, deque(maxlen=depth)).append(_Entry(message.seq, message.ts_ns, gone))
            report.kept += 1
        else:
            kept.add(hash(message.subject))
            report.kept += 1
            choice.older += message.ts_ns < since_ns
    report.source_subjects, report.kept_subjects = len(subjects), len(kept)
    if depth:
        _keep_latest(choice, latest, edit.kv_compact, since_ns)
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


def _check_bucket(backup: OpenBackup) -> None:
    """Raise UsageError for a stream that is not a key-value bucket."""
    bucket, subjects = backup.stream.removeprefix("KV_"), backup.config.get("subjects")
    if not bucket or bucket == backup.stream or subjects != [f"$KV.{bucket}.>"]:
        raise UsageError(f"--kv-compact requires a KV bucket backup: {backup.stream} is no key-value bucket")


def _is_tombstone(header: bytes) -> bool:
    if not header:
        return False
    operation = headers.get(header, headers.KV_OPERATION)
    if operation:
        return operation in _REMOVALS
    return headers.get(header, headers.MARKER_REASON) in _MARKERS


class EditedBackup(SavedStream):
    """A backup made from another one, with the numbers of read and kept messages.

    `warnings` list limits of the stream that remove messages at the restore; `obfuscation` is present if names were
    replaced.
    """

    picked: Picked
    consumers_dropped: int
    warnings: list[str]
    obfuscation: Obfuscated | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes that make one backup of another."""

    name: str = ""
    pick: MessageSelection = field(default_factory=MessageSelection)
    last_per_subject: int = 0
    kv_compact: bool = False
    renumber: bool = False
    version: int = 2
    consumers: bool = True
    obfuscate: bool = False
    key_file: Path | None = None

    @property
    def keeps_all(self) -> bool:
        return self.pick == MessageSelection() and not self.last_per_subject and not self.kv_compact

    def options(self) -> list[str]:
        """Return the changes as backup.json lists them."""
        said = self.pick.options()
        said += [f"last-per-subject={self.last_per_subject}"] if self.last_per_subject else []
        said += [name for name, asked in (("kv-compact", self.kv_compact), ("renumber", self.renumber)) if asked]
        return said


def edit_backup(
    source: Path,
    target: Path,
    edit: Edit = Edit(),
    *,
    replace: bool = False,
    dry_run: bool = False,
    on_read: OnRead = ignore_read,
) -> EditedBackup:
    """Write the picked messages to a new backup with the same configuration, and return its numbers.

    Raises UsageError, StorageError; nothing is left then. In a dry run nothing is written.
    """
    begun = time.monotonic()
    check_free(target, is_single_file(target), replace)
    hidden = Obfuscator(edit.key_file) if edit.obfuscate else None
    if hidden is not None:
        check_key_file(target, edit.key_file)
    with open_backup(source) as backup, tempfile.TemporaryFile() as data:
        config = _config(backup, edit, hidden)
        renaming = renaming_of(backup, config) if edit.name and hidden is None else None
        config = renaming.config(config) if renaming else config
        max_age_ns = int(config.get("max_age") or 0)
        choice = choose(backup, edit, time.time_ns() - max_age_ns if max_age_ns > 0 else 0)
        consumers = edit.consumers and not edit.renumber
        keep = None if edit.keeps_all else choice
        settings: dict[str, Any] = {"consumers": consumers, "renumber": edit.renumber, "on_read": on_read}
        state = rewrite(backup, data, config, edit.version, keep=keep, alter=hidden or renaming, **settings)
        had = int(backup.state.get("consumer_count") or 0)
        size = 0
        if not dry_run:
            made_on = backup.manifest.server if backup.manifest is not None and not edit.obfuscate else None
            manifest = new_manifest(
                config["name"], state, "rewritten", server=made_on, archive=edit.version, consumers=consumers
            )
            blocks = _blocks(backup, edit, hidden)
            with _key_file(hidden, target, edit.key_file), BackupWriter(target, replace=replace) as writer:
                writer.copy(data)
                writer.finish(config, state, manifest, blocks)
                size = writer.data_bytes
    obfuscated = None
    if hidden is not None:
        obfuscated = Obfuscated(len(hidden.tokens), hidden.bodies, "" if dry_run else str(key_file_of(target)))
    return EditedBackup(
        stream=config["name"],
        target=str(target),
        archive_bytes=size,
        chunks=0,
        elapsed=int((time.monotonic() - begun) * 1e9),
        archive=edit.version,
        method="rewritten",
        attempts=1,
        picked=choice.report,
        consumers_dropped=max(0, had - state["consumer_count"]),
        warnings=_warnings(config, state, choice, edit),
        obfuscation=obfuscated,
        **state_fields(state),
    )


def _config(backup: OpenBackup, edit: Edit, hidden: Obfuscator | None) -> dict[str, Any]:
    """Return the configuration of the new backup. Raises UsageError."""
    config = renamed(backup.config, edit.name or backup.stream)
    _check(edit, config)
    if edit.renumber:
        config.pop("first_seq", None)
    if hidden is None:
        return config
    hidden.keeps_bodies = bool(config.get("allow_msg_counter"))
    return {**hidden.config(config), **({"name": edit.name} if edit.name else {})}


def _check(edit: Edit, config: dict[str, Any]) -> None:
    """Raise UsageError if no such backup can be made."""
    if not is_valid_name(config["name"]):
        raise UsageError(f"{config['name']!r} is not a valid stream name")
    if edit.version == 1 and config.get("storage") == "memory":
        raise UsageError("a stream in memory has no archive of version 1", hint="leave --archive out")


def _blocks(backup: OpenBackup, edit: Edit, hidden: Obfuscator | None) -> dict[str, Any]:
    """Return the part of backup.json about the edit, as the `nats` tool writes it, and about an earlier capture."""
    digest = next(one.sha256 for one in backup.sums() if one.name == backup.data.name)
    options = edit.options() if hidden is None else hidden.options(edit.options())
    said: dict[str, Any] = {
        "version": f"natsctl {__version__}",
        "options": options,
        "source_digest": f"sha256:{digest}",
    }
    captured = backup.block("source")
    if hidden is not None:
        said["obfuscated"] = True
        captured = hidden.capture(captured) if captured else captured
    return {"edit": said, **({"source": captured} if captured else {})}


def _warnings(config: dict[str, Any], state: dict[str, Any], choice: Choice, edit: Edit) -> list[str]:
    """Return the messages that the stream's limits remove when it is restored."""

    def limit(name: str) -> int:
        return int(config.get(name) or 0)

    kept, said = choice.report.kept, []
    if 0 < limit("max_msgs") < kept:
        said.append(f"{plural(kept, 'message')} kept, max_msgs is {limit('max_msgs'):,}: a restore drops the oldest")
    if 0 < limit("max_bytes") < state["bytes"]:
        said.append(f"{plural(state['bytes'], 'byte')} kept, max_bytes is {limit('max_bytes'):,}: a restore drops some")
    if choice.older:
        said.append(f"{plural(choice.older, 'message')} kept that max_age no longer allows: a restore drops them")
    if 0 < limit("max_msgs_per_subject") < edit.last_per_subject:
        said.append(f"a restore keeps {limit('max_msgs_per_subject'):,} of each subject: max_msgs_per_subject")
    return said


@contextmanager
def _key_file(hidden: Obfuscator | None, target: Path, given: Path | None) -> Iterator[None]:
    """Write the key file of a backup with replaced names, and remove a new one if the backup is not written."""
    is_new = hidden is not None and hidden.save(target, given)
    try:
        yield
    except BaseException:
        if is_new:
            key_file_of(target).unlink(missing_ok=True)
        raise
