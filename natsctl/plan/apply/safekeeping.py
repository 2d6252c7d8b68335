"""The folder in which a stream waits while it is replaced: what tells a later run of an interrupted replacement.

`natsctl-replaced-STREAM-TIME/` holds `replacement.json`, written before anything is changed, and `stream/`, a backup
that has its name only once it is whole. While a process works with the folder it holds a lock on `replacement.json`,
so that no other takes a running replacement for an interrupted one. A replacement that has come to its end leaves no
folder, unless it was asked to keep the backup: then `replacement.json` goes and the backup stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from msgspec import field

from natsctl import __version__
from natsctl.api.errors import StorageError, UsageError
from natsctl.api.model import Model
from natsctl.client.backup.layout import META_NAME
from natsctl.client.backup.target import sync_folder
from natsctl.plan.apply.leftovers import MARKER, PREFIX, folders_in

if TYPE_CHECKING:
    from natsctl.client.connection import Connection

FORMAT: Final = "natsctl.replacement/1"
_NO_MARKER: Final = f".{MARKER}"
"""The marker's name before it is whole, and once the folder is to go: what is in such a folder is of no use."""
_COPY: Final = "stream"
_MOST_OF_A_NAME: Final = 100
"""Bytes of a stream's name in a folder's: file systems take 255 for all of it."""


class Where(Model, kw_only=True, omit_defaults=False):
    """The account that a stream is in: as much as a later run can know again."""

    urls: list[str] = field(default_factory=list)
    server_id: str = ""
    server_name: str = ""
    cluster: str = ""
    api_prefix: str = ""
    account: str = ""

    def is_same(self, other: Where) -> bool:
        """Whether both are one account, by whatever of its server is still what it was."""
        if self.api_prefix != other.api_prefix or (self.account and other.account and self.account != other.account):
            return False
        pairs = (
            (self.server_id, other.server_id),
            (self.server_name, other.server_name),
            (self.cluster, other.cluster),
        )
        return any(one and one == another for one, another in pairs) or not set(self.urls).isdisjoint(other.urls)


class Marker(Model, kw_only=True, omit_defaults=False):
    """What is being replaced by what. `quiet` is the subject that the stream listens on while it is saved."""

    format: str = FORMAT
    tool: str = f"natsctl {__version__}"
    created: str
    where: Where
    stream: str
    quiet: str = ""
    before: dict[str, Any]
    wanted: dict[str, Any]
    consumers: dict[str, int] = field(default_factory=dict)
    """The durable consumers that have to come back, and up to which message of the stream each has had its acks."""


@dataclass(slots=True)
class Safekeeping:
    """One folder, with the lock on it held."""

    folder: Path
    marker: Marker
    _lock: int

    @property
    def copy(self) -> Path:
        """Where the backup of the stream is, once it is whole."""
        return self.folder / _COPY

    @property
    def is_saved(self) -> bool:
        """Whether the backup is whole."""
        return (self.copy / META_NAME).is_file()

    def release(self) -> None:
        """Leave the folder as it is, for a later run."""
        os.close(self._lock)

    def discard(self) -> None:
        """Remove the folder and all in it."""
        # First of all nobody shall take it for an interrupted replacement, should the process end here.
        with contextlib.suppress(OSError):
            (self.folder / MARKER).rename(self.folder / _NO_MARKER)
        _remove(self.folder)
        self.release()

    def keep_copy(self) -> None:
        """Leave the backup, which nobody shall take for an interrupted replacement."""
        (self.folder / MARKER).unlink(missing_ok=True)
        self.release()


def where_is(connection: Connection, account: str) -> Where:
    """The account of a connection; `account` is its name, "" where the server does not say."""
    from natsctl.client.settings import without_login

    info, target = connection.info, connection.target
    return Where(
        urls=sorted({without_login(url) for url in (connection.url, *target.urls) if url}),
        server_id=str(info.get("server_id") or ""),
        server_name=str(info.get("server_name") or ""),
        cluster=str(info.get("cluster") or ""),
        api_prefix=target.api_prefix,
        account=account,
    )


def begin(parent: Path, marker: Marker) -> Safekeeping:
    """A new folder below `parent` with its marker on disk. Raises UsageError where nothing can be written there."""
    parent = parent.absolute()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = quote(marker.stream, safe="")[:_MOST_OF_A_NAME]
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = _new_folder(parent, f"{PREFIX}{name}-{stamp}")
        # Nobody shall see a marker that is not whole, or not locked.
        lock = os.open(folder / _NO_MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, msgspec.json.format(msgspec.json.encode(marker), indent=2) + b"\n")
        os.fsync(lock)
        (folder / _NO_MARKER).rename(folder / MARKER)
        sync_folder(folder)
        sync_folder(parent)
    except OSError as failure:
        raise UsageError(
            f"cannot write to {parent}: {failure.strerror}", hint="give another folder with --backup-folder"
        ) from failure
    return Safekeeping(folder, marker, lock)


def _new_folder(parent: Path, name: str) -> Path:
    for number in range(1, 1000):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise FileExistsError(0, "too many replacements at once", str(parent / name))


def found_in(parent: Path) -> Iterator[Safekeeping]:
    """The folders of replacements that nobody works on, each with its lock held: to be released or discarded.

    `parent` may be such a folder itself. Raises StorageError for a marker that is damaged or of a later format.
    """
    for folder in folders_in(parent):
        _clear(folder)
        kept = _opened(folder)
        if kept is not None:
            yield kept


def _clear(folder: Path) -> None:
    """Remove a folder whose process ended before it had a marker, or while it was removing the folder."""
    try:
        lock = os.open(folder / _NO_MARKER, os.O_RDWR)
    except OSError:
        return
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not (folder / MARKER).exists():
            _remove(folder)
    os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, that by which it is known to be of no use last."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _opened(folder: Path) -> Safekeeping | None:
    """The folder with its lock; None where it is none, or somebody works on it."""
    try:
        lock = os.open(folder / MARKER, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        marker = msgspec.json.decode(os.pread(lock, os.fstat(lock).st_size, 0), type=Marker)
    except OSError:
        os.close(lock)
        return None
    except msgspec.MsgspecError as failure:
        os.close(lock)
        raise StorageError(f"{folder / MARKER}: {failure}", hint=_BY_HAND) from failure
    if marker.format != FORMAT:
        os.close(lock)
        raise StorageError(f"{folder / MARKER} is of the unknown format {marker.format!r}", hint=_BY_HAND)
    return Safekeeping(folder, marker, lock)


_BY_HAND: Final = "natsctl stream restore reads the backup beside it; move the folder away to go on without it"
