"""OCSP of one server: the staples of its listeners, the checks of other sides, and their cache.

At the start every certificate that is to be stapled needs a response, or the server does not start. A reload is taken
first: until the response about a new certificate has arrived, handshakes wait for it within their time limit, and if it
does not come the listener serves without it, with a warning. Checks of other sides are never given up with it.

The cache's file is nats-server's: a JSON object of certificates' fingerprints, with responses compressed as an S2
stream; either server continues with the other's. It is replaced after each interval with changes and at the end. A
response from the file is trusted no more than one from a responder: its signature is checked at each use.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.times import ZERO_TIME, Clock, format_time, parse_time
from natsctl.api.units import SECOND
from natsctl.server.files import read_file, replace_file
from natsctl.server.ocsp.peers import CLIENT, PeerVerifier
from natsctl.server.ocsp.responses import MAX_RESPONSE_BYTES, OcspResponse, Responders
from natsctl.server.ocsp.staples import Staple, StapleError, StapleSources, staple_of
from natsctl.server.options import OcspCacheOptions, ServerOptions
from natsctl.server.tls.contexts import TlsFileError
from natsctl.server.tls.listener_tls import ListenerTls

if TYPE_CHECKING:
    from natsctl.server.log.lines import Log
    from natsctl.server.system.account import OcspEvents

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


STAPLED: Final = ("clients", "websocket")
"""Listeners with stapled certificates; leaf nodes are checked instead. Source: nats-server, enableOCSP."""


class OcspService:
    def __init__(
        self, options: ServerOptions, log: Log, clock: Clock, events: Callable[[], OcspEvents], end: Callable[[], None]
    ) -> None:
        """Prepare; `events` returns the receiver of refusals, `end` ends the server."""
        self.options = options
        self.cache = ResponseCache(options.ocsp_cache or OcspCacheOptions(), log, clock)
        self.peers = PeerVerifier(log, clock, lambda: self.cache, events, responders := Responders())
        self._responders = responders
        self._log = log
        self._clock = clock
        self._end = end
        self._listeners: dict[str, ListenerTls] = {}
        self._staples: dict[str, dict[Path, Staple]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def checks_peers(self) -> bool:
        return self.options.checks_peers

    # Start and end

    async def prepare(self) -> None:
        """Find the first response of every certificate that is to be stapled; raises TlsFileError."""
        try:
            self._staples = self._wanted(self.options)
            for staple in self._all():
                await staple.check()
        except (StapleError, ValueError) as why:
            raise TlsFileError(str(why)) from why

    def attach(self, kind: str, listener: ListenerTls) -> None:
        self._listeners[kind] = listener
        self._use(kind)

    def start(self) -> None:
        self._begin_renewals()
        self._open_cache()

    def stop(self) -> None:
        self._cancel()
        if self.checks_peers:
            self._log.debug("Stopping OCSP peer cache")
            self.cache.save()

    def follow(self, options: ServerOptions, listeners: dict[str, ListenerTls]) -> None:
        """Go by the options of a reload; a certificate that cannot be stapled is logged and served without."""
        self._cancel()
        self._listeners = listeners
        if self.checks_peers:
            self.cache.save()
        self.options = options
        self.cache = ResponseCache(options.ocsp_cache or OcspCacheOptions(), self._log, self._clock)
        before = {staple.key: staple for staple in self._all()}
        try:
            self._staples = self._wanted(options)
            for kind in STAPLED:
                self._use(kind)
        except (StapleError, TlsFileError, ValueError) as why:
            self._give_up(str(why))
        for staple in self._all():
            staple.inherit(before.get(staple.key))
        self._spawn(self._check_all())
        self._open_cache()

    async def _check_all(self) -> None:
        """Find the responses of a reload, then begin to renew them."""
        try:
            for staple in self._all():
                await staple.check()
        except StapleError as why:
            self._give_up(str(why))
        self._begin_renewals()

    def _give_up(self, why: str) -> None:
        self._log.warn(f"Can't restart OCSP features: {why}")
        self._staples = {}
        for kind in STAPLED:
            if kind in self._listeners:
                self._listeners[kind].staple(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    # Staples

    def _all(self) -> list[Staple]:
        return [staple for found in self._staples.values() for staple in found.values()]

    def _wanted(self, options: ServerOptions) -> dict[str, dict[Path, Staple]]:
        """Return the staples of each listener by certificate file; raises StapleError."""
        urls = options.ocsp.urls if options.ocsp is not None else ()
        sources = StapleSources(self._log, self._clock, self._responders, options.store_dir, urls)
        wanted: dict[str, dict[Path, Staple]] = {}
        for kind, tls in options.tls_blocks.items():
            for file, _ in tls.pairs if kind in STAPLED else ():
                staple = file and staple_of(sources, options.ocsp, CLIENT, file, tls.ca_file)
                if file and staple:
                    wanted.setdefault(kind, {})[file] = staple
        return wanted

    def _use(self, kind: str) -> None:
        listener, staples = self._listeners.get(kind), self._staples.get(kind)
        if listener is None:
            return
        if not staples or listener.options is None:
            listener.staple(None)
            return
        from natsctl.server.ocsp.stapling import StapledContexts

        listener.staple(StapledContexts(listener.options, staples))

    def _begin_renewals(self) -> None:
        for kind in self._staples:
            self._log.info(f"OCSP Stapling enabled for {CLIENT} connections")
            for staple in self._staples[kind].values():
                self._spawn(self._renew(staple))

    async def _renew(self, staple: Staple) -> None:
        if await staple.keep_renewed():
            self._end()

    # The cache

    def _open_cache(self) -> None:
        if not self.checks_peers:
            return
        import cryptography.x509.ocsp  # noqa: F401  # now, and not with the first client

        import natsctl.server.tls.certificates  # noqa: F401

        self.cache.load()
        self._log.info(f"OCSP peer cache online, type [{self.cache.options.kind}]")
        if self.cache.is_local:
            self._spawn(self._save_often(self.cache))

    async def _save_often(self, cache: ResponseCache) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(cache.options.save_interval_s)
            self._log.debug("OCSP peer cache save timer expired")
            write = cache.unsaved()
            if write is None:
                continue
            try:
                cache.saved(await loop.run_in_executor(None, write))
            except OSError as why:
                cache.saved(why)
