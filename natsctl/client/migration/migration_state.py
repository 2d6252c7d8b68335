"""State of a migration: its document in a folder, the labels of streams that are being moved, and its report.

The document has the progress of each stream, next to the copied messages, because it is useless without them. The
metadata of the streams records the changes on both servers, so that they can be reverted without the folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from natsctl.api.errors import ConflictError, StorageError, UsageError, file_errors
from natsctl.client.atomic_file import PRIVATE, atomic_write, hold_lock
from natsctl.client.backup.manifest import Document, checked_name
from natsctl.client.migration.spool import Spool

MARKER: Final = "natsctl.migration"
"""The key of the metadata of a stream that is being moved, on either side."""
SUBJECTS: Final = "natsctl.migrating."
"""Prefix of a stream's temporary subject until the destination is opened."""
FORMAT: Final = "natsctl.migration/1"
MARKER_FORMAT: Final = "natsctl.migration-stop/1"
_MADE_BY_ANOTHER: Final = "use the natsctl that made it, or a newer one"
_STATE: Final = "state.json"
_LOCK: Final = "lock"
_STREAMS: Final = "streams"


class MigrationPhase(StrEnum):
    COPYING = "copying"
    """Nothing is changed on either side."""
    STOPPED = "stopped"
    """The origin is or may be stopped, the destination may have a closed stream."""
    VERIFIED = "verified"
    """The destination has a closed stream with every message."""
    OPENING = "opening"
    """Every stream is verified, and some may be open: the migration only goes forward."""
    DONE = "done"


class StreamMoved(Document):
    """A stream of a migration; `pending` counts delivered messages without an ack.

    `behind` counts uncopied sequences. `sha256` is the checksum of every message with its sequence,
    time, subject and headers, found equal on both sides.
    """

    stream: str
    phase: str = MigrationPhase.COPYING
    messages: int = 0
    bytes: int = 0
    behind: int = 0
    first_seq: int = 0
    last_seq: int = 0
    first_ts: str = ""
    last_ts: str = ""
    consumers: int = 0
    pending: int = 0
    replicas: int = 0
    sha256: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)


class MigrationReport(Document):
    """Result of a run: `action` is "copied", "moved", "sampled" or "taken back"; `elapsed` and `pause` in ns."""

    action: str
    origin: str
    destination: str
    folder: str
    streams: list[StreamMoved] = msgspec.field(default_factory=list)
    messages: int = 0
    elapsed: int = 0
    pause: int = 0


class MigrationRecord(Document):
    """A stream in the document; `config` is the origin's configuration before it was stopped."""

    created: str = ""
    phase: MigrationPhase = MigrationPhase.COPYING
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    moved: StreamMoved | None = None


class MigrationState(Document):
    """The document; `stopped_ns` is the time when ingest was stopped, 0 before."""

    format: str
    id: str
    origin: str
    destination: str
    stopped_ns: int = 0
    streams: dict[str, MigrationRecord] = msgspec.field(default_factory=dict)


class MigrationMarker(Document):
    """The label of a stopped stream with its earlier configuration.

    `reached` has the last sequence of each source, `paused` the consumers with their earlier pauses.
    """

    id: str
    destination: str
    created: str
    subjects: list[str] | None = None
    sources: list[Any] | None = None
    reached: list[int] = msgspec.field(default_factory=list)
    paused: dict[str, str] = msgspec.field(default_factory=dict)
    format: str = MARKER_FORMAT


def label_of(config: Mapping[str, Any]) -> str:
    """Return the label that a migration has given a stream, "" for others."""
    return str((config.get("metadata") or {}).get(MARKER) or "")


def labelled(config: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return a configuration with that label, without any if it is empty."""
    metadata = {key: value for key, value in (config.get("metadata") or {}).items() if key != MARKER}
    metadata |= {MARKER: label} if label else {}
    return {**{key: value for key, value in config.items() if key != "metadata"}, **given("metadata", metadata)}


def given(name: str, value: Any) -> dict[str, Any]:
    """Return a field of a configuration, nothing if its value is empty."""
    return {name: value} if value else {}


def marker_of(config: Mapping[str, Any]) -> MigrationMarker | None:
    """Return the label of a stopped stream, None for others. Raises StorageError for one that is not understood."""
    label = label_of(config)
    if not label.startswith("{"):
        return None
    try:
        marker = msgspec.json.decode(label, type=MigrationMarker)
    except msgspec.MsgspecError as failure:
        raise StorageError(f"stream {config.get('name')}: {MARKER} in its metadata: {failure}") from failure
    if marker.format != MARKER_FORMAT:
        raise StorageError(
            f"stream {config.get('name')}: {MARKER} in its metadata is of the unknown format {marker.format!r}",
            hint=_MADE_BY_ANOTHER,
        )
    return marker


def given_back(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the earlier configuration of a stopped stream; others are unchanged."""
    marker = marker_of(config)
    if marker is None:
        return dict(config)
    kept = {key: value for key, value in labelled(config, "").items() if key not in ("subjects", "sources")}
    return {**kept, **given("subjects", marker.subjects), **given("sources", marker.sources)}


class MigrationFolder:
    """The folder of a migration: its state, and the copied messages of each stream."""

    def __init__(self, path: Path, origin: str, destination: str) -> None:
        self.path = path
        self.state = MigrationState(format=FORMAT, id=secrets.token_hex(6), origin=origin, destination=destination)

    @contextlib.contextmanager
    def held(self, *, dry_run: bool = False) -> Iterator[None]:
        """Hold the folder until the process ends, and read its state; a dry run only reads.

        Raises UsageError, StorageError, ConflictError.
        """
        if dry_run:
            self._load()
            yield
            return
        with file_errors(f"cannot write to {self.path}", UsageError):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            try:
                hold_lock(lock)
            except OSError:
                raise ConflictError(
                    f"another natsctl migrates with {self.path}", hint="wait for it, or give another --dir"
                ) from None
            self._load()
            yield
        finally:
            os.close(lock)

    def _load(self) -> None:
        path, own = self.path / _STATE, self.state
        try:
            state = msgspec.json.decode(path.read_bytes(), type=MigrationState)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as failure:
            raise StorageError(f"cannot read {path}: {failure}") from failure
        if state.format != FORMAT:
            raise StorageError(f"{path} is of the unknown format {state.format!r}", hint=_MADE_BY_ANOTHER)
        if (state.origin, state.destination) != (own.origin, own.destination):
            raise UsageError(
                f"{self.path} has the migration from {state.origin} to {state.destination}", hint="give another --dir"
            )
        self.state = state

    def save(self) -> None:
        """Make the state durable. Raises StorageError."""
        state = msgspec.json.format(msgspec.json.encode(self.state), indent=2)
        with (
            file_errors(f"cannot write to {self.path}"),
            atomic_write(self.path / _STATE, PRIVATE, durable=True) as file,
        ):
            file.write(state)

    def record(self, name: str) -> MigrationRecord:
        """Return the record of a stream, a new one for a stream that is not in the state yet."""
        return self.state.streams.setdefault(name, MigrationRecord())

    def streams_in(self, *phases: MigrationPhase) -> list[str]:
        return [name for name, record in self.state.streams.items() if record.phase in phases]

    def place(self, name: str) -> Path:
        return self.path / _STREAMS / checked_name("stream", name)

    @contextlib.contextmanager
    def spool(self, name: str) -> Iterator[Spool]:
        spool = Spool(self.place(name))
        try:
            yield spool
        finally:
            spool.close()

    def clear(self) -> None:
        shutil.rmtree(self.path / _STREAMS, ignore_errors=True)
        (self.path / _STATE).unlink(missing_ok=True)
