"""Backups offline: discovery below a folder, description of the contents, and verification.

Verification checks the checksums, the archive up to its end mark, and its counts. Reading an archive checks every
frame's CRC-32C and, in version 1, the HighwayHash of the metadata and of every record.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from natsctl.api.archive.archive import ArchivedConsumer
from natsctl.api.errors import NatsctlError, StorageError, UsageError
from natsctl.api.model import Model, blank, new_list, zero_time
from natsctl.api.times import ZERO_TIME, format_time
from natsctl.api.units import plural
from natsctl.client.backup.account_backup import missing_in
from natsctl.client.backup.archives import ArchiveSummary, OnRead, check_whole, ignore_read, summarise, version_of
from natsctl.client.backup.configuration import read_saved
from natsctl.client.backup.manifest import DATA_NAME, FILE_ENDINGS, META_NAME, Document, FileSum, Manifest, faults
from natsctl.client.backup.reader import OpenBackup, open_backup

CONFIGURATION = "configuration"
MAX_DEPTH = 8
"""Folders below the one that is looked through; links are not followed."""


class Found(Document):
    """One backup: `form` is "directory", "file", "server files" or "configuration" (a JSON file of 2020).

    `archive` is the format of its data, 0 without data. `error` is the reason why it is unreadable.
    """

    path: str
    form: str
    kind: str = "stream"
    stream: str = ""
    archive: int = 0
    messages: int = 0
    bytes: int = 0
    size: int = 0
    created: str = ""
    tool: str = ""
    error: str = ""


def find_backups(top: Path, *, read: bool = False) -> list[Found]:
    """Return the backups at or below that path, in the order of the paths; with `read` damaged data is an error too.

    Raises UsageError if there is no such path.
    """
    if not top.exists():
        raise UsageError(f"{top} does not exist")
    return [describe(path, read=read) for path in candidates(top)]


def candidates(top: Path) -> Iterator[Path]:
    """Yield the paths that look like backups, in order."""
    if top.is_file() or (top / META_NAME).is_file():
        yield top
        return
    for folder, folders, files in os.walk(top):
        here = Path(folder)
        depth = len(here.relative_to(top).parts)
        found = sorted(name for name in folders if (here / name / META_NAME).is_file())
        folders[:] = sorted(
            name for name in folders if name not in found and not name.startswith(".") and depth < MAX_DEPTH
        )
        found += [name for name in files if _is_file_of_one(name)]
        yield from (here / name for name in sorted(found))


def _is_file_of_one(name: str) -> bool:
    if name.startswith("."):
        return False
    if name.lower().endswith(FILE_ENDINGS):
        return name != DATA_NAME
    return name.startswith("stream_") and name.endswith(".json")


def describe(path: Path, *, read: bool = False) -> Found:
    try:
        if path.is_file() and path.suffix == ".json":
            return _configuration(path)
        with open_backup(path) as backup:
            if read:
                check_whole(backup)
            manifest, state = backup.manifest, backup.state
            return Found(
                path=str(path),
                form=str(backup.form),
                stream=backup.stream,
                archive=version_of(backup),
                messages=int(state.get("messages") or 0),
                bytes=int(state.get("bytes") or 0),
                size=backup.size,
                created=manifest.created if manifest is not None else "",
                tool=manifest.tool if manifest is not None else "",
            )
    except NatsctlError as failure:
        return Found(path=str(path), form="", error=failure.text)


def _configuration(path: Path) -> Found:
    saved = read_saved(path)
    stream = saved.configuration.get("stream") if saved.kind == "consumer" else saved.configuration.get("name")
    return Found(
        path=str(path),
        form=CONFIGURATION,
        kind=saved.kind,
        stream=str(stream or ""),
        size=path.stat().st_size,
        created=saved.time,
    )


class ConsumerInside(Document):
    """A consumer of a backup: how far it is, and how many messages it waits for."""

    name: str
    config: dict[str, Any]
    delivered: int
    ack_floor: int
    pending: int
    redelivered: int


class SubjectCount(Document):
    subject: str
    messages: int


class Inspection(Document):
    """Contents of a backup; `subjects` has the fullest first, `other_messages` counts those on no subject of the list.

    `payload_bytes` counts only bodies, `size` the stored archive.
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
    """The part of backup.json about the edit that made a backup."""

    options: list[str] = msgspec.field(default_factory=new_list)
    source_digest: str = msgspec.field(default_factory=blank)
    version: str = ""
    obfuscated: bool = False


class CaptureBlock(Model):
    """The part of backup.json about the subscription that a backup was made from."""

    subjects: list[str] = msgspec.field(default_factory=new_list)
    stream: str = ""
    started: str = msgspec.field(default_factory=zero_time)
    ended: str = msgspec.field(default_factory=zero_time)
    dropped: int = 0


class BackupInfo(Model):
    """A backup as described by `nats backup info`; `declared` is the state in the archive itself.

    `bytes` is the size of the messages in the stream's storage; `subjects` is present if requested.
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


def backup_info(backup: OpenBackup, *, subjects: bool = False, on_read: OnRead = ignore_read) -> BackupInfo:
    """Return the contents of the backup, all of it read, with every subject on request. Raises StorageError."""
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
            consumers=[consumer.name for consumer in found.consumers],
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


def inspect(backup: OpenBackup, *, top: int = 0, on_read: OnRead = ignore_read) -> Inspection:
    """Return the contents of the backup, all of it read; `top` limits the listed subjects. Raises StorageError."""
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
        consumers=[_consumer(consumer) for consumer in found.consumers],
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


class Check(Document):
    """One check: `ok` is false on a failure, and `detail` describes the finding."""

    name: str
    ok: bool
    detail: str = ""


class Verdict(Document):
    path: str
    form: str = ""
    stream: str = ""
    archive: int = 0
    whole: bool = True
    messages: int = 0
    consumers: int = 0
    subjects: int = 0
    first_seq: int = 0
    last_seq: int = 0
    checks: list[Check] = msgspec.field(default_factory=list)

    def add(self, name: str, ok: bool, detail: str = "") -> None:
        self.checks.append(Check(name=name, ok=ok, detail=detail))
        self.whole = self.whole and ok


def verify(path: Path, on_read: OnRead = ignore_read) -> Verdict:
    """Return the result for the backup at a path; an unreadable backup gives a result too."""
    from concurrent.futures import ThreadPoolExecutor

    verdict = Verdict(path=str(path))
    try:
        if path.is_file() and path.suffix == ".json":
            saved = read_saved(path)
            verdict.form, verdict.stream = CONFIGURATION, str(saved.configuration.get("name") or "")
            verdict.add("checksum", True, saved.kind.replace("_", " "))
            return verdict
        with open_backup(path, judged=False) as backup:
            verdict.form, verdict.stream = str(backup.form), backup.stream
            with ThreadPoolExecutor(1) as pool:  # checksums leave the interpreter to the reading of the archive
                sums = pool.submit(_sums_of, path) if backup.manifest is not None else None
                found = _summary_of(backup, on_read)
                _check_manifest(backup, verdict, sums.result() if sums is not None else [])
            _check_archive(backup, verdict, found)
    except NatsctlError as failure:
        verdict.add("readable", False, failure.text)
    return verdict


def _sums_of(path: Path) -> list[FileSum]:
    """Return size and checksum of the files of a backup; this opens it once more."""
    with open_backup(path, judged=False) as backup:
        return backup.sums()


def _summary_of(backup: OpenBackup, on_read: OnRead) -> ArchiveSummary | NatsctlError:
    try:
        return summarise(backup, on_read)
    except NatsctlError as failure:
        return failure


def _check_manifest(backup: OpenBackup, verdict: Verdict, sums: list[FileSum]) -> None:
    manifest = backup.manifest
    if manifest is None:
        verdict.add("manifest", True, "none: it was not made by natsctl")
        return
    findings = faults(manifest, sums)
    if manifest.stream != backup.stream:
        findings.append(f"it is of stream {manifest.stream}")
    verdict.add(
        "checksums", not findings, "; ".join(findings) or f"{plural(len(manifest.files), 'file')}, {manifest.created}"
    )


def _check_archive(backup: OpenBackup, verdict: Verdict, found: ArchiveSummary | NatsctlError) -> None:
    if isinstance(found, NatsctlError):
        verdict.add("archive", False, found.text)
        return
    verdict.archive = found.version
    verdict.messages, verdict.consumers, verdict.subjects = (
        found.messages,
        len(found.consumers),
        len(found.subjects),
    )
    verdict.first_seq, verdict.last_seq = found.first_seq, found.last_seq
    checked = "frames, metadata and records" if found.version == 1 else "frames and records"
    verdict.add("archive", True, f"version {found.version}, {checked} read to the end")
    _check_counts(backup, found, verdict)
    if found.inner.config is not None and found.inner.config.name != backup.stream:
        verdict.add("name", False, f"the archive is of stream {found.inner.config.name}")


def _check_counts(backup: OpenBackup, found: ArchiveSummary, verdict: Verdict) -> None:
    state = backup.state
    said, first, last = (int(state.get(key) or 0) for key in ("messages", "first_seq", "last_seq"))
    findings = [] if found.messages == said else [f"{found.messages:,} messages, the state says {said:,}"]
    if found.messages and said and found.first_seq != first:
        findings.append(f"first sequence {found.first_seq:,}, the state says {first:,}")
    if found.last_seq > last:
        findings.append(f"last sequence {found.last_seq:,}, the state says {last:,}")
    verdict.add(
        "counts",
        not findings,
        "; ".join(findings) or f"{plural(said, 'message')}, {plural(len(found.consumers), 'consumer')}",
    )


def verify_account(folder: Path, paths: list[Path]) -> list[str]:
    """Return a sentence for each part that is missing of the account backups that these backups belong to."""
    found: dict[str, Path] = {}
    for path in paths:
        if path.parent == folder and path.is_dir():
            # One that cannot be opened has its own verdict.
            with contextlib.suppress(NatsctlError), open_backup(path) as backup:
                found[backup.stream] = path
    absent = missing_in(folder, found) if found else []
    return [f"stream {name} was saved together with the others and is not there" for name in absent]
