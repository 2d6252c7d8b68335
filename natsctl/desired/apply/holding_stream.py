"""The holding stream of a replacement: state and data of a stream that is removed and created again with its messages.

`natsctl-replaced-STREAM` is created before anything is changed. Its metadata describes the replacement and its progress
(`HoldingMarker`), its messages are the pieces of a backup of the stream. Every client with access to the account can
finish an interrupted replacement with it (recovery.py); while the process of the replacement runs, it answers on the
inbox in the marker.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import field

from natsctl.api.errors import (
    ApiResponseError,
    ErrCode,
    NatsctlError,
    NotAuthorisedError,
    StorageError,
    UnreachableError,
    UsageError,
)
from natsctl.api.model import Model
from natsctl.client.message import NO_RESPONDERS
from natsctl.client.messaging import messages
from natsctl.client.requests import end_tasks

if TYPE_CHECKING:
    from natsctl.client.backup.transfer import RetryingManager
    from natsctl.client.connection import Connection, Subscription
    from natsctl.client.manager import Manager


PREFIX: Final = "natsctl-replaced-"
SUBJECTS: Final = "natsctl.replaced."
"""Prefix of the subjects of holding streams, and of a stream's temporary subject while it is replaced."""
MARKER: Final = "natsctl.replacement"
"""The key of the metadata with the marker, and of the label of a stream that is restored and not yet released."""
FORMAT: Final = "natsctl.replacement/2"
PIECE_BYTES: Final = 64 * 1024
WINDOW: Final = 8
"""Pieces in flight."""
MAX_MARKER_BYTES: Final = 100_000
"""Servers accept 128 KiB of metadata."""
MAX_STREAM_BYTES: Final = 200
"""A longer name is cut, so that the holding stream's fits into the 255 bytes of a name."""
ANSWER_WAIT_S: Final = 2.0
UNANSWERED: Final = 2
"""Unanswered requests after which a process counts as alive, though silent."""
SILENT_FOR_S: Final = 600.0
"""Age after which a replacement counts as interrupted if its process cannot be asked."""
_NO_ROOM: Final = frozenset(
    (ErrCode.MEMORY_RESOURCES_EXCEEDED, ErrCode.STORAGE_RESOURCES_EXCEEDED, ErrCode.INSUFFICIENT_RESOURCES)
)
"""Errors of an account or a server without room in the requested kind of storage."""


class HoldingPhase(StrEnum):
    """The progress of a replacement."""

    SAVING = "saving"
    """The stream is unchanged; it may listen on the quiet subject."""
    SAVED = "saved"
    """The holding stream has everything: the stream may be removed, or partly restored."""
    DONE = "done"
    """The stream is restored and whole; only its subjects are still missing."""


class HoldingMarker(Model, kw_only=True, omit_defaults=False):
    """A replacement in progress; its process answers on `alive`."""

    format: str = FORMAT
    phase: HoldingPhase = HoldingPhase.SAVING
    created: str
    token: str
    stream: str
    alive: str = ""
    before: dict[str, Any]
    wanted: dict[str, Any]
    consumers: dict[str, int] = field(default_factory=dict)
    """The durable consumers to restore, each with its ack floor as a stream sequence."""
    consumer_replicas: dict[str, int] = field(default_factory=dict)
    """The consumers with replicas of their own: the stream is restored with one, and they with it."""
    state: dict[str, Any] = field(default_factory=dict)
    """The contents of the saved stream: `messages`, `first_seq`, `last_seq`."""
    pieces: int = 0
    sha256: str = ""

    @property
    def quiet(self) -> str:
        """The stream's temporary subject while it is replaced; it is secret."""
        return f"{SUBJECTS}{self.token}.quiet"


def holding_name(stream: str) -> str:
    name = stream.encode()
    if len(name) <= MAX_STREAM_BYTES:
        return PREFIX + stream
    return f"{PREFIX}{name[:MAX_STREAM_BYTES].decode(errors='ignore')}-{hashlib.sha256(name).hexdigest()[:12]}"


def is_being_replaced(config: Mapping[str, Any]) -> bool:
    """Return whether a stream accepts no messages because of a replacement, running or interrupted."""
    return any(str(subject).startswith(SUBJECTS) for subject in config.get("subjects") or ()) or bool(
        (config.get("metadata") or {}).get(MARKER)
    )


class Holding:
    """One holding stream; `marker` is the content of its metadata."""

    def __init__(self, retrying: RetryingManager, marker: HoldingMarker) -> None:
        self._retrying, self.marker = retrying, marker
        self.name = holding_name(marker.stream)

    @property
    def _manager(self) -> Manager:
        return self._retrying.manager

    def _config(self, storage: str) -> dict[str, Any]:
        before = self.marker.before
        limit = {}
        if int(before.get("max_bytes") or -1) > 0:  # the account may require a limit of every stream
            limit = {"max_bytes": 2 * int(before["max_bytes"]) + 16 * 1024 * 1024}
        return {
            "name": self.name,
            "description": f"{self.marker.stream} while it is replaced; natsctl apply finishes that",
            "subjects": [f"{SUBJECTS}{self.marker.token}.data"],
            "storage": storage,
            "num_replicas": int(before.get("num_replicas") or 1),
            "discard": "new",
            **({"placement": before["placement"]} if before.get("placement") else {}),
            **limit,
            "metadata": {MARKER: msgspec.json.encode(self.marker).decode()},
        }

    async def create(self) -> None:
        """Create the stream, in the storage type of the replaced one, else in the other.

        Raises UsageError if the stream's description is too big, ApiResponseError if the server refuses it.
        """
        if len(msgspec.json.encode(self.marker)) > MAX_MARKER_BYTES:
            raise UsageError(
                f"{self.marker.stream} has too many consumers or too long a configuration to be replaced with messages",
                hint="natsctl stream backup and restore do it by hand",
            )
        own = str(self.marker.before.get("storage") or "file")
        try:
            await self._manager.stream_create(self._config(own))
        except ApiResponseError as failure:
            if failure.err_code not in _NO_ROOM:
                raise
            await self._manager.stream_create(self._config("file" if own == "memory" else "memory"))

    async def mark(self, phase: HoldingPhase) -> None:
        self.marker.phase = phase
        live = (await self._manager.stream_info(self.name)).raw.get("config") or {}
        config = {**live, "metadata": {MARKER: msgspec.json.encode(self.marker).decode()}}
        await self._manager.stream_update(config)

    async def fill(self, copy: Path, state: Mapping[str, Any]) -> None:
        """Store a whole backup, and record that it is complete."""
        digest, under_way, count = hashlib.sha256(), deque[asyncio.Task[Any]](), 0
        size = min(PIECE_BYTES, self._manager.connection.max_payload)
        subject = f"{SUBJECTS}{self.marker.token}.data"
        try:
            with copy.open("rb") as file:
                while piece := await asyncio.to_thread(file.read, size):
                    digest.update(piece)
                    count += 1
                    under_way.append(asyncio.create_task(messages.publish(self._manager, subject, piece)))
                    await asyncio.sleep(0)  # pieces are sent in order
                    if len(under_way) >= WINDOW:
                        await under_way.popleft()
                while under_way:
                    await under_way.popleft()
        finally:
            await end_tasks(under_way)
        self.marker.pieces, self.marker.sha256 = count, digest.hexdigest()
        self.marker.state = {name: int(state.get(name) or 0) for name in ("messages", "first_seq", "last_seq")}
        await self.mark(HoldingPhase.SAVED)

    async def read(self, copy: Path) -> None:
        """Write the stored backup to a file. Raises StorageError if the checksum does not match."""
        digest, under_way = hashlib.sha256(), deque[asyncio.Task[Any]]()
        try:
            with copy.open("wb") as file:
                for seq in range(1, self.marker.pieces + WINDOW):
                    if seq <= self.marker.pieces:
                        under_way.append(asyncio.create_task(self._manager.message_get(self.name, seq=seq)))
                    if under_way and (len(under_way) >= WINDOW or seq >= self.marker.pieces):
                        message = (await under_way.popleft()).raw["message"]
                        piece = base64.b64decode(message.get("data") or "")
                        digest.update(piece)
                        await asyncio.to_thread(file.write, piece)
        finally:
            await end_tasks(under_way)
        if digest.hexdigest() != self.marker.sha256:
            raise StorageError(f"stream {self.name} does not hold the saved state of {self.marker.stream}")

    async def remove(self) -> None:
        with contextlib.suppress(ApiResponseError):
            await self._manager.stream_delete(self.name)


async def names_of(manager: Manager) -> list[str]:
    """Return the names of the holding streams of an account; none if the user may not request them."""
    try:
        return sorted(name for name in await manager.stream_names(subject=f"{SUBJECTS}>") if name.startswith(PREFIX))
    except NotAuthorisedError:
        return []


async def found_in(retrying: RetryingManager) -> list[Holding]:
    """Return the holding streams of the account. Raises StorageError for one of another version of natsctl."""
    found = []
    for name in await names_of(retrying.manager):
        try:
            metadata = ((await retrying.manager.stream_info(name)).raw.get("config") or {}).get("metadata") or {}
            if MARKER in metadata:
                found.append(Holding(retrying, _decoded(name, metadata[MARKER])))
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.STREAM_NOT_FOUND:
                raise
    return found


def _decoded(name: str, text: str) -> HoldingMarker:
    hint = "use the version of natsctl that made it"
    try:
        marker = msgspec.json.decode(text, type=HoldingMarker)
    except msgspec.MsgspecError as failure:
        raise StorageError(f"stream {name}: {failure}", hint=hint) from failure
    if marker.format != FORMAT:
        raise StorageError(f"stream {name} is of the unknown format {marker.format!r}", hint=hint)
    return marker


class Heartbeat:
    """The answers on the inbox of a replacement while its process runs, on the current connection."""

    def __init__(self, retrying: RetryingManager, inbox: str) -> None:
        self._retrying, self._inbox = retrying, inbox
        self._on: Connection | None = None
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    async def ensure(self) -> None:
        """Answer on the current connection."""
        connection = self._retrying.manager.connection
        if connection is not self._on:
            await self.end()
            self._subscription = await connection.subscribe(self._inbox, lasting=True)
            self._on, self._task = connection, asyncio.create_task(_answer(connection, self._subscription))

    async def end(self) -> None:
        if self._task is not None:
            await end_tasks([self._task])
        if self._subscription is not None:
            with contextlib.suppress(NatsctlError):
                await self._subscription.stop()
        self._on = self._task = self._subscription = None


async def _answer(connection: Connection, subscription: Subscription) -> None:
    async for message in subscription:
        if message.reply:
            await connection.publish(message.reply, b"+OK")


async def is_at_work(retrying: RetryingManager, marker: HoldingMarker) -> bool:
    """Return whether the process that started a replacement still runs.

    A server may pass a request to a connection that has just ended, so one request without an answer proves nothing.
    """
    connection = retrying.manager.connection
    for _ in range(UNANSWERED):
        try:
            answer = await connection.request(marker.alive, b"", timeout_s=ANSWER_WAIT_S)
        except (NotAuthorisedError, UnreachableError) as failure:
            if connection.lost:
                raise
            if isinstance(failure, NotAuthorisedError):
                return _age_s(marker) < SILENT_FOR_S
        except NatsctlError:
            return False
        else:
            return answer.status != NO_RESPONDERS
    return True


def _age_s(marker: HoldingMarker) -> float:
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(marker.created)).total_seconds()
    except ValueError:
        return SILENT_FOR_S
