"""A stream's meta file: one JSON line that identifies the stream and checks everything, then its owner's bytes."""

from __future__ import annotations

import json
from typing import NamedTuple
from zlib import crc32

FORMAT = 1


class Envelope(NamedTuple):
    """What the meta file holds; `replaces` is the id of a stream of the same key that was being deleted."""

    stream_id: int
    key: str
    meta: bytes
    replaces: int = 0

    def encode(self) -> bytes:
        """Return the file's bytes."""
        fields: dict[str, object] = {"format": FORMAT, "id": self.stream_id, "key": self.key}
        if self.replaces:
            fields["replaces"] = self.replaces
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
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        return None
    stream_id, key, replaces = fields.get("id"), fields.get("key"), fields.get("replaces", 0)
    if not (isinstance(stream_id, int) and isinstance(key, str) and isinstance(replaces, int)):
        return None
    found = Envelope(stream_id, key, meta, replaces)
    return found if found.encode() == data else None
