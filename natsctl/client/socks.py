"""Connections that a SOCKS proxy makes, by python-socks; nats-py has its transport replaced for them."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from natsctl.api.errors import UnreachableError, UsageError


def socks_transport(proxy_url: str) -> Any:
    """A transport for nats-py that connects through the proxy; raises UsageError for a URL that is none.

    The proxy resolves the names of servers. Connecting raises UnreachableError where proxy or server cannot be reached.
    """
    from python_socks import ProxyError
    from python_socks.async_.asyncio import Proxy

    url = proxy_url if "://" in proxy_url else f"socks5://{proxy_url}"
    try:
        proxy = Proxy.from_url(url, rdns=True)
    except ValueError as failure:
        raise UsageError(f"--socks-proxy: {failure}", hint="such as socks5://proxy.example.com:1080") from failure
    plain: Any = importlib.import_module("nats.aio.transport").TcpTransport

    class SocksTransport(plain):  # type: ignore[misc]  # known only once nats-py is imported
        """nats-py's TCP transport over a socket that the proxy has connected."""

        async def connect(self, uri: Any, buffer_size: int, connect_timeout: float) -> None:
            """Connect to the server that `uri` names."""
            try:
                opened = await proxy.connect(uri.hostname, uri.port, timeout=connect_timeout)
            except (ProxyError, OSError) as failure:
                raise UnreachableError(f"no way through the SOCKS proxy {_shown(url)}: {failure}") from failure
            reader, writer = await asyncio.open_connection(sock=opened, limit=buffer_size)
            self._bare_io_reader = self._io_reader = reader
            self._bare_io_writer = self._io_writer = writer

        def __bool__(self) -> bool:
            """Whether nats-py is to use it: always, or it would make one of its own."""
            return True

    return SocksTransport()


def _shown(url: str) -> str:
    """The proxy without user and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
