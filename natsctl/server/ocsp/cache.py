"""The cache of OCSP responses about the other sides of connections, and its file.

The file is nats-server's: a JSON object of certificates' fingerprints, with responses compressed as an S2 stream;
either server continues with the other's. It is written to a temporary file and renamed, after each interval with
changed and at the end. A response from the file is trusted no more than one from a responder: its signature is checked
at each use.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.times import ZERO_TIME, Clock, format_time, parse_time
from natsctl.api.units import SECOND
from natsctl.server.files import read_file, replace_file
from natsctl.server.ocsp.responses import MAX_RESPONSE_BYTES, OcspResponse

if TYPE_CHECKING:
    from natsctl.server.log.lines import Log
    from natsctl.server.options import OcspCacheOptions

FILE_NAME: Final = "cache.json"
MAX_CACHED: Final = 50_000
"""Responses that are kept; beyond them the oldest is forgotten."""
MAX_FILE_BYTES: Final = 256 << 20
"""Longest file that is read: a full cache of ordinary responses has less."""
FOLDER_MODE: Final = 0o750


class Cached(msgspec.Struct):
    cached_at: str
    resp_status: str
    resp: bytes
    """DER."""
    resp_expires: str = ZERO_TIME
    subject: str = ""


class CacheStats(msgspec.Struct):
    hits: int = 0
    misses: int = 0


class ResponseCache:
    """Responses by fingerprint; of the type `none` it keeps nothing."""

    def __init__(self, options: OcspCacheOptions, log: Log, clock: Clock) -> None:
        self.options = options
        self.stats = CacheStats()
        self._log = log
        self._clock = clock
        self._items: dict[str, Cached] = {}
        self._dirty = False
        self._path = Path(options.folder or ".") / FILE_NAME

    @property
    def is_local(self) -> bool:
        return self.options.kind == "local"

    def counts(self) -> dict[str, int]:
        found = dict.fromkeys(("good", "revoked", "unknown"), 0)
        for item in self._items.values():
            found[item.resp_status] = found.get(item.resp_status, 0) + 1
        return found

    def get(self, key: str) -> bytes | None:
        if not self.is_local:
            return None
        item = self._items.get(key)
        if item is None:
            self.stats.misses += 1
            self._log.debug(f"OCSP peer cache miss for key [{key}]")
            return None
        self.stats.hits += 1
        self._log.debug(f"OCSP peer cache hit for key [{key}]")
        return item.resp

    def is_revoked(self, key: str) -> bool:
        """Return whether a response of a revocation is kept, by the entry's own status: its DER may be unreadable."""
        return key in self._items and self._items[key].resp_status == "revoked"

    def put(self, key: str, response: OcspResponse, subject: str) -> None:
        if not self.is_local:
            return
        self._log.debug(f"Caching OCSP response for [{subject}], key [{key}]")
        now_ns = (self._clock.now_ns() + SECOND // 2) // SECOND * SECOND
        self._items.pop(key, None)
        self._items[key] = Cached(format_time(now_ns), response.status, response.der, response.next_update, subject)
        while len(self._items) > MAX_CACHED:
            del self._items[next(iter(self._items))]
        self._dirty = True

    def delete(self, key: str) -> None:
        """Forget a response that was found and could not be used; a revocation may be preserved."""
        item = self._items.get(key)
        if item is None:
            return
        self.stats.misses += 1
        self.stats.hits -= 1
        if item.resp_status == "revoked" and self.options.preserve_revoked:
            self._log.debug(f"Revoked OCSP response for key [{key}] preserved by cache policy")
            return
        self._log.debug(f"Deleting OCSP peer cached response for key [{key}]")
        del self._items[key]
        self._dirty = True

    # The file

    def load(self) -> None:
        """Read the file; one that cannot be used is logged, and replaced by the next save."""
        if not self.is_local:
            return
        self._log.debug("Starting OCSP peer cache")
        self._log.debug(f"Loading OCSP peer cache [{self._path.absolute()}]")
        try:
            content = read_file(self._path, MAX_FILE_BYTES)
            if len(content) > MAX_FILE_BYTES:
                raise ValueError(f"the file is longer than {MAX_FILE_BYTES} bytes")
            self._items = _items(content)
        except FileNotFoundError:
            self._log.debug("No OCSP peer cache found, starting with empty cache")
        except (OSError, ValueError) as why:
            self._log.warn(f"Unable to load OCSP peer cache: {why}")
            self._dirty = not isinstance(why, OSError)

    def unsaved(self) -> Callable[[], int] | None:
        """Return a function that writes the cache's present state to the file, or None if nothing has changed.

        It may run in another thread, returns the number of bytes, and raises OSError.
        """
        if not self._dirty:
            return None
        self._log.debug("OCSP peer cache is dirty, saving")
        self._log.debug(f"Saving OCSP peer cache [{self._path.absolute()}]")
        items, path = dict(self._items), self._path
        self._dirty = False
        return lambda: _write(path, _content(items))

    def saved(self, size: int | OSError) -> None:
        """Log the end of a save: its bytes, or the fault, after which the next save tries again."""
        if isinstance(size, OSError):
            self._dirty = True
            self._log.error(f"Unable to save OCSP peer cache: {size}")
        else:
            self._log.debug(f"Saved OCSP peer cache successfully ({size} bytes)")

    def save(self) -> None:
        write = self.unsaved()
        if write is None:
            return
        try:
            self.saved(write())
        except OSError as why:
            self.saved(why)


def _items(content: bytes) -> dict[str, Cached]:
    """Return the responses of a file; raises ValueError (also msgspec's) if it is damaged."""
    from natsctl.api.archive.s2 import S2FrameError
    from natsctl.api.archive.s2_rewrite import S2BlockError

    items = msgspec.json.decode(content, type=dict[str, Cached])
    if len(items) > MAX_CACHED:
        raise ValueError(f"the file has more than {MAX_CACHED} responses")
    for item in items.values():
        parse_time(item.cached_at)
        try:
            item.resp = _decompressed(item.resp)
        except (S2FrameError, S2BlockError) as why:
            raise ValueError(str(why)) from why
        if item.resp_status not in ("good", "revoked"):
            item.resp_status = "unknown"
    return items


def _decompressed(data: bytes) -> bytes:
    from natsctl.api.archive.s2 import FrameReader

    content = bytearray()
    for part in FrameReader().read(data):
        content += part
        if len(content) > MAX_RESPONSE_BYTES:
            raise ValueError(f"a response is longer than {MAX_RESPONSE_BYTES} bytes")
    return bytes(content)


def _compressed(data: bytes) -> bytes:
    from natsctl.api.archive.s2 import FrameWriter

    writer = FrameWriter()
    return writer.write(data) + writer.finish()


def _content(items: dict[str, Cached]) -> bytes:
    shown: dict[str, dict[str, Any]] = {
        key: {
            **({"subject": item.subject} if item.subject else {}),
            "cached_at": item.cached_at,
            "resp_status": item.resp_status,
            "resp_expires": item.resp_expires,
            "resp": base64.b64encode(_compressed(item.resp)).decode(),
        }
        for key, item in sorted(items.items())
    }
    return msgspec.json.format(msgspec.json.encode(shown), indent=1)


def _write(path: Path, content: bytes) -> int:
    """Replace the file durably and return its bytes; raises OSError."""
    path.parent.mkdir(FOLDER_MODE, exist_ok=True)
    replace_file(path, content)
    return len(content)
