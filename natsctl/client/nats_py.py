"""The door to nats-py: its core client without what JetStream adds to it, and with a short way for messages.

nats-py puts each message into a queue of its subscription, from which a task calls back, and keeps one value of a
repeated header. `ShortClient` hands subject, reply, body and header block to the function that waits for them.

`nats.aio.client` imports `nats.js` for two constructors that natsctl never calls and for the names of two headers,
and that is nearly half of the CPU time of the import. So `nats.js` is put in place as a module that runs its code
when something is first looked up in it: a message with a status header, or anyone's call of `jetstream()`, finds the
real one. It also looks up its own version in the metadata of what is installed, which costs more than all the rest;
the name of the folder that holds them has it too.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from natsctl.client.quick_parser import QuickParser

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription

Taker: TypeAlias = Callable[[bytes, bytes, bytes, bytes | None], None]
"""What is called with subject, reply, body and header block of a message."""

_PACKAGE = "nats"
_LAZY = "nats.js"
_METADATA = "importlib.metadata"


class _OnFirstUse(types.ModuleType):
    """A module whose code runs when a name is missed in it.

    importlib's LazyLoader runs it on any access, and the import statement itself looks at `__spec__`.
    """

    def __getattr__(self, name: str) -> Any:
        self.__class__ = types.ModuleType  # type: ignore[assignment]  # from here on it is a plain module
        spec = self.__spec__
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(self)
        return getattr(self, name)


class Listening(Protocol):
    """What a connection needs of nats-py's client beside what that has itself."""

    async def listen(self, subject: str, queue: str, taker: Taker) -> Subscription:
        """Subscribe, and give each message to `taker`."""

    async def send(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        """Send a message with a header block."""


@functools.cache
def client_class() -> type[Client]:
    """nats-py's `Client` with the short way."""
    if _PACKAGE not in sys.modules:
        _import_with_lazy_jetstream()
    plain: type[Client] = importlib.import_module("nats.aio.client").Client

    class ShortClient(plain):  # type: ignore[valid-type,misc]  # known only once nats-py is imported
        """A client whose messages go straight to who waits for them."""

        def __init__(self) -> None:
            super().__init__()
            self.takers: dict[int, Taker] = {}
            self._ps: Any = QuickParser(self._ps, self._subs, self.takers)
            self._quick = self._ps

        @property
        def error_line(self) -> str:
            """The last -ERR of the server, as it came."""
            return str(self._quick.error_line.decode(errors="replace"))

        async def listen(self, subject: str, queue: str, taker: Taker) -> Subscription:
            """Subscribe, and give each message to `taker`."""
            # The number that nats-py gives next; a message may come before `subscribe` returns.
            self.takers[self._sid + 1] = taker
            return await self.subscribe(subject, queue=queue)  # type: ignore[no-any-return]  # of an untyped base

        async def send(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
            """Send a message with a header block."""
            size, whole = len(block), len(block) + len(body)
            lead = b"HPUB %b %b %d %d\r\n" % (subject, reply, size, whole)
            self.stats["out_msgs"] += 1
            self.stats["out_bytes"] += len(body)
            await self._send_command(b"%b%b%b\r\n" % (lead, block, body))
            if self._flush_queue is not None and self._flush_queue.empty():
                await self._flush_pending()

        async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
            """Send a PING behind all that is still to be sent.

            nats-py writes it at once, so that its answer says nothing about what was published before.
            """
            self._pongs.append(future or asyncio.get_running_loop().create_future())
            await self._send_command(b"PING\r\n")
            await self._flush_pending()

        async def _flush_pending(self, force_flush: bool = False) -> Any:
            """Kick the flusher, and with `force_flush` wait for it; nats-py drops a Ctrl-C that meets it there."""
            queue, flusher = self._flush_queue, self._flusher_task
            if queue is None or queue.full() or flusher is None or flusher.done():
                return await super()._flush_pending(force_flush)
            kicked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            queue.put_nowait(kicked)
            if force_flush:
                # The flusher sets the result, which must not be cancelled under its hands.
                done, _ = await asyncio.wait((kicked,), timeout=self._flush_timeout)
                if not done:
                    await self._error_cb(importlib.import_module("nats.errors").FlushTimeoutError())
            return kicked

        def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
            self.takers.pop(sid, None)
            super()._remove_sub(sid, max_msgs)

    return ShortClient


def failure_class() -> type[Exception]:
    """The base of what nats-py raises."""
    client_class()
    failure: type[Exception] = importlib.import_module("nats.errors").Error
    return failure


def _import_with_lazy_jetstream() -> None:
    package = PathFinder.find_spec(_PACKAGE)
    found = PathFinder.find_spec(_LAZY, package.submodule_search_locations) if package else None
    if found is None:
        importlib.import_module(_PACKAGE)
        return
    module = importlib.util.module_from_spec(found)
    module.__class__ = _OnFirstUse
    sys.modules[_LAZY] = module
    with _versions_by_folder():
        package_module = importlib.import_module(_PACKAGE)
    # An import statement that finds the module ready does not bind it in its package, so that is done here.
    package_module.js = module  # type: ignore[attr-defined]  # bound by a plain import


@contextlib.contextmanager
def _versions_by_folder() -> Iterator[None]:
    """Put a module with `version` alone in place of importlib.metadata, unless that is loaded already."""
    if _METADATA in sys.modules:
        yield
        return
    module = types.ModuleType(_METADATA)
    module.version = installed_version  # type: ignore[attr-defined]  # all that nats-py takes of it
    sys.modules[_METADATA] = module
    try:
        yield
    finally:
        del sys.modules[_METADATA]


def installed_version(name: str) -> str:
    """The version of a distribution, by the folder of its metadata; raises LookupError."""
    start, end = f"{name.replace('-', '_')}-", ".dist-info"
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder or "."):  # noqa: PTH208  # a Path for each name is the cost that is saved
                if entry.startswith(start) and entry.endswith(end):
                    return entry[len(start) : -len(end)]
    raise LookupError(name)
