"""Files of a stream backup: their names, the checks of names and paths, and the manifest.

`manifest.json` has the contents of a backup, its time and program, and the checksum of each of its files. It
is next to the two files of the `nats` tool, and that tool ignores it. A backup of that tool has no manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from natsctl import __version__
from natsctl.api.errors import ProtocolError, StorageError
from natsctl.api.model import Model
from natsctl.api.subjects import is_valid_name

if TYPE_CHECKING:
    from _typeshed import SupportsRead

    from natsctl.api.stream import StreamState

META_NAME = "backup.json"
DATA_NAME = "stream.tar.s2"
NEWER_DATA_NAME = "stream.arc.s2"
"""The `nats` tool's name for data of servers from 2.15 on (version 2); both names are read."""
MANIFEST_NAME = "manifest.json"
NAMES = frozenset({META_NAME, DATA_NAME, NEWER_DATA_NAME, MANIFEST_NAME})
FILE_ENDINGS = (".tgz", ".tar.gz", ".tar", ".tar.s2")
GZIP_ENDINGS = (".tgz", ".tar.gz")
MAX_META_BYTES = 64 * 1024 * 1024
"""Limit of a file that describes a backup."""
PART_PREFIX = ".natsctl-"
"""Begins the name of an incomplete backup; short, so that it is a file name for any stream's name."""


def is_single_file(path: Path) -> bool:
    return path.is_file() or path.name.lower().endswith(FILE_ENDINGS)


def checked_name(noun: str, name: str) -> str:
    """Return a name that a server gave, as part of a file name; raises ProtocolError for an impossible name.

    A server chooses the names in its answers: one with a slash would lead out of the backup's folder.
    """
    if not is_valid_name(name) or any("\ud800" <= char <= "\udfff" for char in name):
        raise ProtocolError(f"the server lists a {noun} called {name!r}, a name that no {noun} can have")
    return name


def configuration_in(answer: Mapping[str, Any], asset: str) -> dict[str, Any]:
    """Return the configuration that an answer has; raises ProtocolError without one: the backup could not be used."""
    config: dict[str, Any] | None = answer.get("config")
    if not config:
        raise ProtocolError(f"the answer about {asset} has no configuration")
    return dict(config)


def data_name_of(version: int) -> str:
    """Return the name of a file with data of that version, or 0 if unknown."""
    return NEWER_DATA_NAME if version == 2 else DATA_NAME


def data_name(names: Container[str]) -> str:
    """Return the file of a backup with the data, or ""; raises StorageError if two may have it."""
    found = [name for name in (DATA_NAME, NEWER_DATA_NAME) if name in names]
    if len(found) > 1:
        raise StorageError(f"the backup holds both {DATA_NAME} and {NEWER_DATA_NAME}")
    return found[0] if found else ""


_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags for opening a file to read: a named pipe does not wait for its writer."""


def plain_file(path: Path) -> IO[bytes]:
    """Open a file of unknown origin; raises StorageError for a pipe or a device, because they have no end."""
    file = os.fdopen(os.open(path, _READ), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise StorageError(f"{path} is not a regular file")
    return file


def small_file(path: Path) -> bytes:
    """Return the content of a small file; raises StorageError for a longer one."""
    with plain_file(path) as file:
        content = file.read(MAX_META_BYTES + 1)
    if len(content) > MAX_META_BYTES:
        raise StorageError(f"{path} has more than {MAX_META_BYTES} bytes")
    return content


class Document(Model, omit_defaults=False):
    """Base of natsctl's JSON documents about backups: every field is always present, for scripts."""


FORMAT = "natsctl.stream-backup/2"
_UNSUMMED_FORMAT = "natsctl.stream-backup/1"
"""The previous format, without a checksum of the manifest itself."""
_PIECE_BYTES = 1 << 20


class FileSum(Document):
    """One file of a backup: its name, size and checksum."""

    name: str
    bytes: int
    sha256: str


class MadeOn(Document):
    """The server that a backup was made on."""

    name: str = ""
    id: str = ""
    version: str = ""
    cluster: str = ""


class Manifest(Document):
    """Manifest of a backup.

    `method` is "snapshot", "replay" (messages that a client read one by one), "captured" (messages of
    a subscription) or "rewritten" (made of another backup).
    `account` names every stream of the account backup that this one is part of, so that a missing one is noticed.
    `sha256` is the checksum of this document without it.
    """

    format: str
    tool: str
    created: str
    stream: str
    server: MadeOn
    method: str = "snapshot"
    archive: int = 0
    consumers: bool = True
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    files: list[FileSum] = msgspec.field(default_factory=list)
    account: list[str] = msgspec.field(default_factory=list)
    sha256: str = ""

    def file(self, name: str) -> FileSum | None:
        return next((one for one in self.files if one.name == name), None)


def new_manifest(
    stream: str,
    state: StreamState | dict[str, Any],
    method: str,
    *,
    server: MadeOn | None = None,
    archive: int = 2,
    consumers: bool = False,
    account: Sequence[str] = (),
) -> Manifest:
    return Manifest(
        format=FORMAT,
        tool=f"natsctl {__version__}",
        created=created_now(),
        stream=stream,
        server=server or MadeOn(),
        method=method,
        archive=archive,
        consumers=consumers,
        state=msgspec.to_builtins(state),
        account=list(account),
    )


def created_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def encode_manifest(manifest: Manifest) -> bytes:
    unsummed = _text(msgspec.structs.replace(manifest, sha256=""))
    return _text(msgspec.structs.replace(manifest, sha256=hashlib.sha256(unsummed).hexdigest()))


def _text(manifest: Manifest) -> bytes:
    return json.dumps(msgspec.to_builtins(manifest), indent=2, ensure_ascii=False).encode() + b"\n"


def decode_manifest(text: bytes, path: Path) -> Manifest:
    """Return the manifest in a file. Raises StorageError if it is invalid or of a later format."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as failure:
        raise StorageError(f"{path}: manifest.json: {failure}") from failure
    if manifest.format not in (FORMAT, _UNSUMMED_FORMAT):
        raise StorageError(
            f"{path}: manifest.json is of the unknown format {manifest.format!r}",
            hint="use the natsctl that made the backup, or a newer one",
        )
    if manifest.format == FORMAT and encode_manifest(manifest) != text:
        raise StorageError(f"{path}: manifest.json is damaged: its checksum does not match")
    return manifest


def sum_of(name: str, content: SupportsRead[bytes]) -> FileSum:
    digest, size = hashlib.sha256(), 0
    while piece := content.read(_PIECE_BYTES):
        digest.update(piece)
        size += len(piece)
    return FileSum(name=name, bytes=size, sha256=digest.hexdigest())


def faults(manifest: Manifest, found: Iterable[FileSum]) -> list[str]:
    """Return a sentence for each difference between the files and the manifest."""
    there = {one.name: one for one in found}
    findings: list[str] = []
    for file in manifest.files:
        one = there.get(file.name)
        if one is None:
            findings.append(f"{file.name} is missing")
        elif why := mismatch(file, one):
            findings.append(why)
    return findings


def mismatch(wanted: FileSum, found: FileSum) -> str:
    """Return the difference of a file from its entry in the manifest, or ""."""
    if found.bytes != wanted.bytes:
        return f"{wanted.name} has {found.bytes:,} bytes, the manifest says {wanted.bytes:,}"
    if found.sha256 != wanted.sha256:
        return f"the checksum of {wanted.name} does not match the manifest"
    return ""
