"""A stream's meta file: one JSON line that identifies the stream and checks everything, then its owner's bytes.

The line says whose the file is: the store, the stream's number and its identity, which is drawn at random when the
stream is created and repeated in the header of every file of the stream. A stream of a store that was made by an
earlier version has an identity that follows from the store's and its number, so that its files can carry it from the
first one that is written anew, whichever that is.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

from natsctl.store.frame import IDENTITY_BYTES, NO_IDENTITY

UNMARKED, MARKED = 1, 2
"""Formats: without, and with an identity."""


class Envelope(NamedTuple):
    """Content of the meta file; `replaces` is the id of a stream of the same key that was being deleted."""

    stream_id: int
    key: str
    meta: bytes
    replaces: int = 0
    store: bytes = NO_IDENTITY
    identity: bytes = NO_IDENTITY
    run: int = 0
    """The run of the store in which the stream was created."""
    version: int = 0
    """Number of earlier writes of the file, so that an earlier one is recognised."""
    unmarked: tuple[int, int] = (0, -1)
    """Highest base of a segment, and generation of the journal, whose header has no identity."""

    def encode(self) -> bytes:
        """Return the file's bytes."""
        marked = self.identity != NO_IDENTITY
        fields: dict[str, object] = {"format": MARKED if marked else UNMARKED, "id": self.stream_id, "key": self.key}
        if self.replaces:
            fields["replaces"] = self.replaces
        if marked:
            fields |= {"store": self.store.hex(), "identity": self.identity.hex(), "run": self.run}
            fields |= {"version": self.version, "unmarked": list(self.unmarked)}
        plain = json.dumps(fields, sort_keys=True).encode()
        fields["crc"] = crc32(plain + b"\n" + self.meta)
        return json.dumps(fields, sort_keys=True).encode() + b"\n" + self.meta


def parse_envelope(data: bytes) -> Envelope | None:
    """Return what a meta file holds, None when it is damaged."""
    line, newline, meta = data.partition(b"\n")
    if not newline:
        return None
    try:
        fields = json.loads(line)
        found = Envelope(fields["id"], fields["key"], meta, fields.get("replaces", 0))
        if fields["format"] == MARKED:
            store, identity = bytes.fromhex(fields["store"]), bytes.fromhex(fields["identity"])
            base, generation = fields["unmarked"]
            found = found._replace(store=store, identity=identity, run=fields["run"])
            found = found._replace(version=fields["version"], unmarked=(base, generation))
        known = isinstance(found.stream_id, int) and isinstance(found.key, str)
        return found if known and found.encode() == data else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def inherited_identity(store: bytes, stream_id: int) -> bytes:
    """Return the identity of a stream that was created before streams had one of their own."""
    return blake2b(store + stream_id.to_bytes(8, "little"), digest_size=IDENTITY_BYTES).digest()
