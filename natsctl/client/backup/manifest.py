"""`manifest.json`: what a backup holds, when and by what it was made, and the checksum of each of its files.

It stands beside the two files that the `nats` tool knows, which does not mind it. A backup of that tool has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from natsctl.api.errors import StorageError
from natsctl.client.backup.document import Document

FORMAT = "natsctl.stream-backup/2"
_UNSUMMED_FORMAT = "natsctl.stream-backup/1"
"""The format before, which has no checksum of the manifest itself."""
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
    """What a backup says of itself.

    `method` is "snapshot", "replay" (messages that a client read one by one), "captured" (what a
    subscription brought) or "rewritten" (made of another backup).
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
        """Return what the manifest says of a file."""
        return next((one for one in self.files if one.name == name), None)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file's content."""
    unsummed = _text(msgspec.structs.replace(manifest, sha256=""))
    return _text(msgspec.structs.replace(manifest, sha256=hashlib.sha256(unsummed).hexdigest()))


def _text(manifest: Manifest) -> bytes:
    return json.dumps(msgspec.to_builtins(manifest), indent=2, ensure_ascii=False).encode() + b"\n"


def decode_manifest(text: bytes, path: Path) -> Manifest:
    """The manifest in a file. Raises StorageError when it is none, or of a later format."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as failure:
        raise StorageError(f"{path}: manifest.json: {failure}") from failure
    if manifest.format not in (FORMAT, _UNSUMMED_FORMAT):
        raise StorageError(f"{path}: manifest.json is of the unknown format {manifest.format!r}")
    if manifest.format == FORMAT and encode_manifest(manifest) != text:
        raise StorageError(f"{path}: manifest.json is damaged: its checksum does not match")
    return manifest


class Readable(Protocol):
    """Bytes that come piece by piece."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, none at the end."""


def sum_of(name: str, content: Readable) -> FileSum:
    """The size and checksum of what can be read."""
    digest, size = hashlib.sha256(), 0
    while piece := content.read(_PIECE_BYTES):
        digest.update(piece)
        size += len(piece)
    return FileSum(name=name, bytes=size, sha256=digest.hexdigest())


def faults(manifest: Manifest, found: Iterable[FileSum]) -> list[str]:
    """What of the files is not as the manifest has it, a sentence each."""
    there = {one.name: one for one in found}
    told: list[str] = []
    for wanted in manifest.files:
        one = there.get(wanted.name)
        if one is None:
            told.append(f"{wanted.name} is missing")
        elif why := mismatch(wanted, one):
            told.append(why)
    return told


def mismatch(wanted: FileSum, found: FileSum) -> str:
    """Return how a file differs from what the manifest has of it, "" where it does not."""
    if found.bytes != wanted.bytes:
        return f"{wanted.name} has {found.bytes:,} bytes, the manifest says {wanted.bytes:,}"
    if found.sha256 != wanted.sha256:
        return f"the checksum of {wanted.name} does not match the manifest"
    return ""
