"""Checks of a store's folder before anything in it is read: its format, its identity and its owner.

FORMAT carries the store's identity, drawn at random when the folder is made. A folder of format 1 has no identity; the
first start of this version adds one; earlier versions then refuse it by its format, and nothing else is converted:
every file gets its marks when it is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING
from zlib import crc32

from natsctl.store.disk import Disk
from natsctl.store.errors import StoreDamagedError, StoreFormatError, StoreKeyError
from natsctl.store.file_commit import replace_file

if TYPE_CHECKING:
    from natsctl.store.reserve import Reserve

FORMAT, ENCRYPTED_FORMAT = 2, 3
"""The second is for a store encrypted with the keys in KEYS; earlier versions refuse it."""
UNMARKED_TEXT = b'{"format":1,"min_reader":1}\n'
"""The whole file in folders of format 1."""


def format_text(identity: bytes, number: int = FORMAT) -> bytes:
    fields: dict[str, object] = {"format": number, "min_reader": number, "store": identity.hex()}
    fields["crc"] = crc32(json.dumps(fields).encode())
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def open_layout(disk: Disk, new_identity: Callable[[], bytes], reserve: Reserve) -> bytes:
    """Create missing parts of a new folder, with the reserve if needed, and return the store's identity.

    Raises StoreKeyError, StoreFormatError, StoreDamagedError (a
    store stood here), OSError.
    """
    stated, identity = _stated(disk)
    if not disk.encrypted and (stated == ENCRYPTED_FORMAT or disk.exists("KEYS")):
        raise StoreKeyError("encrypted store encountered with no main key")
    if not stated and (disk.exists("WITNESS") or (disk.exists("streams") and disk.listdir("streams"))):
        raise StoreFormatError("FORMAT is missing from a folder that holds a store")
    if not disk.exists("streams"):
        if disk.exists("WITNESS"):
            raise StoreDamagedError("streams/ is missing from a folder that holds a store")
        disk.mkdir("streams")
    wanted = ENCRYPTED_FORMAT if disk.encrypted else FORMAT
    if stated != wanted:
        identity = identity or new_identity()
        text = format_text(identity, wanted)
        reserve.spend(lambda: replace_file(disk, "FORMAT", text))
    disk.fsync_dir("")
    return identity


def says_encrypted(disk: Disk) -> bool:
    """Return whether the folder holds an encrypted store. Raises StoreFormatError, OSError."""
    return _stated(disk)[0] == ENCRYPTED_FORMAT


def _stated(disk: Disk) -> tuple[int, bytes]:
    """Return the format and the identity that FORMAT says: 0 for a folder without one, no identity in format 1.

    Raises StoreFormatError.
    """
    if not disk.exists("FORMAT"):
        return 0, b""
    file = disk.open_read("FORMAT")
    try:
        found = file.pread(4096, 0)
    finally:
        file.close()
    if found == UNMARKED_TEXT:
        return 1, b""
    try:
        identity, number = bytes.fromhex(json.loads(found)["store"]), json.loads(found)["format"]
    except (ValueError, TypeError, KeyError):
        identity, number = b"", 0
    if not identity or number not in (FORMAT, ENCRYPTED_FORMAT) or found != format_text(identity, number):
        raise StoreFormatError(f"FORMAT says {found[:200]!r}; this version reads formats 1 to {ENCRYPTED_FORMAT}")
    return number, identity
