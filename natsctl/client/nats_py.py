"""Import of nats-py: its core client (client/nats_client.py) without JetStream, and connections through SOCKS.

`nats.aio.client` imports `nats.js` for two constructors that natsctl never calls and for the names of two headers,
which is nearly half of the CPU time of the import. So `nats.js` is registered as a module that runs its code at the
first access: a message with a status header, or a call of `jetstream()`, gets the real one.

For a SOCKS proxy nats-py's transport is replaced by one over python-socks.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import sys
import types
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import UnreachableError, UsageError
from natsctl.wire.server_url import without_login

if TYPE_CHECKING:
    from natsctl.client.nats_client import ShortClient


_PACKAGE = "nats"
_LAZY = "nats.js"


class _OnFirstUse(types.ModuleType):
    """A module that runs its code at the first missing name.

    importlib's LazyLoader runs it on any access, and the import statement itself looks at `__spec__`.
    """

    def __getattr__(self, name: str) -> Any:
        self.__class__ = types.ModuleType  # type: ignore[assignment]  # from here on it is a plain module
        spec = self.__spec__
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(self)
        return getattr(self, name)


@functools.cache
def client_class() -> type[ShortClient]:
    """Return nats-py's `Client` with the shorter ways of client/nats_client.py."""
    if _PACKAGE not in sys.modules:
        _import_with_lazy_jetstream()
    short: type[ShortClient] = importlib.import_module("natsctl.client.nats_client").ShortClient
    return short


def failure_class() -> type[Exception]:
    """Return the base class of nats-py's exceptions."""
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
    package_module = importlib.import_module(_PACKAGE)
    # An import statement that finds the module ready does not bind it in its package, so that is done here.
    package_module.js = module  # type: ignore[attr-defined]  # bound by a plain import


def socks_transport(proxy_url: str) -> Any:
    """Return a transport for nats-py that connects through the proxy; raises UsageError for another text.

    The proxy resolves the names of servers. Connecting raises UnreachableError where proxy or server cannot be reached.
    """
    from python_socks import ProxyError
    from python_socks.async_.asyncio import Proxy

    url = proxy_url if "://" in proxy_url else f"socks5://{proxy_url}"
    try:
        proxy = Proxy.from_url(url, rdns=True)
    except ValueError:
        # Its text may repeat a part of the login.
        raise UsageError(
            "--socks-proxy: not the URL of a SOCKS proxy", hint="such as socks5://proxy.example.com:1080"
        ) from None
    plain: Any = importlib.import_module("nats.aio.transport").TcpTransport

    class SocksTransport(plain):  # type: ignore[misc]  # known only once nats-py is imported
        """nats-py's TCP transport over a socket that the proxy has connected."""

        async def connect(self, uri: Any, buffer_size: int, connect_timeout: float) -> None:
            """Connect to the server that `uri` names."""
            try:
                opened = await proxy.connect(uri.hostname, uri.port, timeout=connect_timeout)
            except (ProxyError, OSError) as failure:
                raise UnreachableError(f"no way through the SOCKS proxy {without_login(url)}: {failure}") from failure
            reader, writer = await asyncio.open_connection(sock=opened, limit=buffer_size)
            self._bare_io_reader = self._io_reader = reader
            self._bare_io_writer = self._io_writer = writer

        def __bool__(self) -> bool:
            """Return whether nats-py is to use it: always, or it would make one of its own."""
            return True

    return SocksTransport()
