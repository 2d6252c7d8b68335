"""Verification of a backup without any server: its checksums, its archive up to the end mark, its counts.

Reading an archive checks every frame's CRC-32C and, in version 1, the HighwayHash of the metadata and of every record.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from natsctl.api.errors import NatsctlError
from natsctl.api.units import plural
from natsctl.client.backup.account_backup import missing_in
from natsctl.client.backup.archive_contents import OnRead, Summary, ignore_read, summarise
from natsctl.client.backup.configuration import read_saved
from natsctl.client.backup.discovery import CONFIGURATION
from natsctl.client.backup.manifest import Document, faults
from natsctl.client.backup.reader import OpenBackup, open_backup


class Check(Document):
    """One check: `ok` is false on a failure, and `detail` describes the finding."""

    name: str
    ok: bool
    detail: str = ""


class Verdict(Document):
    """Result of verifying one backup."""

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
        """Record a finding."""
        self.checks.append(Check(name=name, ok=ok, detail=detail))
        self.whole = self.whole and ok


def verify(path: Path, on_read: OnRead = ignore_read) -> Verdict:
    """Return the result for the backup at a path; an unreadable backup gives a result too."""
    verdict = Verdict(path=str(path))
    try:
        if path.is_file() and path.suffix == ".json":
            saved = read_saved(path)
            verdict.form, verdict.stream = CONFIGURATION, str(saved.configuration.get("name") or "")
            verdict.add("checksum", True, saved.kind.replace("_", " "))
            return verdict
        with open_backup(path, judged=False) as backup:
            verdict.form, verdict.stream = str(backup.form), backup.stream
            _check_manifest(backup, verdict)
            _check_archive(backup, verdict, on_read)
    except NatsctlError as failure:
        verdict.add("readable", False, failure.text)
    return verdict


def _check_manifest(backup: OpenBackup, verdict: Verdict) -> None:
    manifest = backup.manifest
    if manifest is None:
        verdict.add("manifest", True, "none: it was not made by natsctl")
        return
    findings = faults(manifest, backup.sums())
    if manifest.stream != backup.stream:
        findings.append(f"it is of stream {manifest.stream}")
    verdict.add(
        "checksums", not findings, "; ".join(findings) or f"{plural(len(manifest.files), 'file')}, {manifest.created}"
    )


def _check_archive(backup: OpenBackup, verdict: Verdict, on_read: OnRead) -> None:
    try:
        found = summarise(backup, on_read)
    except NatsctlError as failure:
        verdict.add("archive", False, failure.text)
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


def _check_counts(backup: OpenBackup, found: Summary, verdict: Verdict) -> None:
    """Compare what the archive holds with what `backup.json` says."""
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
