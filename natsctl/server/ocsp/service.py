"""OCSP of one server: the staples of its listeners, the checks of other sides, and their cache.

At the start every certificate that is to be stapled needs a response, or the server does not start. A reload is taken
first: until the response about a new certificate has arrived, handshakes wait for it within their time limit, and if it
does not come the listener serves without it, with a warning. Checks of other sides are never given up with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from natsctl.server.ocsp.cache import ResponseCache
from natsctl.server.ocsp.peers import CLIENT, PeerVerifier
from natsctl.server.ocsp.responders import Responders
from natsctl.server.ocsp.staples import Staple, StapleError, StapleSources, staple_of
from natsctl.server.options import OcspCacheOptions, ServerOptions
from natsctl.server.tls.contexts import ListenerTls, TlsFileError

if TYPE_CHECKING:
    from natsctl.api.times import Clock
    from natsctl.server.log.lines import Log
    from natsctl.server.system.events import OcspEvents

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
