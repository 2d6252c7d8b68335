"""Checks of a store's folder before anything in it is read: its format, its identity and its owner.

FORMAT carries the store's identity, drawn at random when the folder is made. A folder of format 1, which had none, is
given one by the first start of this version; earlier versions then refuse it by its format, and nothing else is
converted: every file gets its marks when it is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from zlib import crc32

from natsctl.store.disk import Disk
from natsctl.store.errors import StoreDamagedError, StoreFormatError
from natsctl.store.file_commit import NO_SPACE, replace_file

FORMAT = 2
UNMARKED_TEXT = b'{"format":1,"min_reader":1}\n'
"""The whole file in folders of format 1."""


def format_text(identity: bytes) -> bytes:
    """Return what FORMAT says of a store."""
    fields: dict[str, object] = {"format": FORMAT, "min_reader": FORMAT, "store": identity.hex()}
    fields["crc"] = crc32(json.dumps(fields).encode())
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def open_layout(disk: Disk, new_identity: Callable[[], bytes], make_room: Callable[[], bool]) -> bytes:
    """Make what is missing from a new folder and return the store's identity.

    `make_room` gives up what is held back for a full disk. Raises StoreFormatError, StoreDamagedError (a store stood
    here), OSError.
    """
    identity = b""
    if disk.exists("FORMAT"):
        identity = _identity(disk)
    elif disk.exists("WITNESS") or (disk.exists("streams") and disk.listdir("streams")):
        raise StoreFormatError("FORMAT is missing from a folder that holds a store")
    if not disk.exists("streams"):
        if disk.exists("WITNESS"):
            raise StoreDamagedError("streams/ is missing from a folder that holds a store")
        disk.mkdir("streams")
    if not identity:
        identity = new_identity()
        try:
            replace_file(disk, "FORMAT", format_text(identity))
        except OSError as error:
            if error.errno not in NO_SPACE or not make_room():
                raise
            replace_file(disk, "FORMAT", format_text(identity))
    disk.fsync_dir("")
    return identity


def _identity(disk: Disk) -> bytes:
    """Return the identity that FORMAT says, empty for a folder of format 1. Raises StoreFormatError."""
    file = disk.open_read("FORMAT")
    try:
        found = file.pread(4096, 0)
    finally:
        file.close()
    if found == UNMARKED_TEXT:
        return b""
    try:
        identity = bytes.fromhex(json.loads(found)["store"])
    except (ValueError, TypeError, KeyError):
        identity = b""
    if not identity or found != format_text(identity):
        raise StoreFormatError(f"FORMAT says {found[:200]!r}; this version reads formats 1 and {FORMAT}")
    return identity
