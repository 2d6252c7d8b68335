"""One running server: store, broker and engine put together, a listener in front, and the way up and down.

Up: the store is locked and recovered, the engine takes its streams from it, and only then the listener opens, so that a
client that was accepted meets a server that is ready.  Down: nothing is accepted or read any more, what was read is
synced and answered, clients are closed, the store is closed and unlocked.

`ServerInstance` lives on the caller's event loop; `ServerThread` runs one on a loop of its own for plain callers.
"""

import asyncio
import random
import secrets
import socket
import ssl
import time
from types import TracebackType
from typing import Final

from natsctl.api.errors import StorageError
from natsctl.broker.broker import Broker, BrokerOptions
from natsctl.jetstream.engine import Engine, JetStreamOptions
from natsctl.server.capacity import default_max_memory, default_max_storage
from natsctl.server.clock import SystemClock
from natsctl.server.identity import server_id
from natsctl.server.listener import ClientConnection
from natsctl.server.log import Log
from natsctl.server.options import ServerOptions
from natsctl.server.shell import Shell
from natsctl.server.tls import server_context
from natsctl.server.version import PROTOCOL_VERSION
from natsctl.store.disk import PosixDisk
from natsctl.store.store import Store, StoreOptions

CLOSE_CLIENTS_S: Final = 3.0
"""How long a stopping server waits for its clients' transports to close."""

BACKLOG: Final = 1024
"""Connections that may wait to be accepted."""


class StoreInUse(StorageError):
    """The store's lock is held by another server."""


class ServerInstance:
    """A server on the running event loop, as an async context manager or through `start` and `stop`."""

    def __init__(self, options: ServerOptions, log: Log | None = None) -> None:
        """Prepare a server; without `log` it is silent."""
        self.options = options
        self.log = log or Log(quiet=True)
        self.server_id = server_id(secrets.token_bytes(32))
        self.host = options.host
        self.port = 0
        self.store: Store | None = None
        self._broker: Broker | None = None
        self._shell: Shell | None = None
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where clients on this machine connect, without credentials."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0", "::") else self.host
        scheme = "tls" if self.options.tls else "nats"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    @property
    def broker(self) -> Broker:
        """The running server's broker."""
        if self._broker is None:
            raise RuntimeError("the server is not running")
        return self._broker

    async def start(self) -> None:
        """Recover the store and listen.

        Raises StorageError when the store is locked or cannot be opened, OSError when the address or a TLS file cannot
        be used; nothing is left running then.
        """
        context = server_context(self.options.tls) if self.options.tls else None
        sock = _bind(self.options.host, self.options.port)
        try:
            self.port = sock.getsockname()[1]
            self._build()
            await self._listen(sock, context)
        except BaseException:
            sock.close()
            await self.stop()
            raise

    def _build(self) -> None:
        clock, rng = SystemClock(), random.Random(secrets.randbits(128))
        options = self.options
        self._broker = Broker(clock, rng, self._broker_options())
        engine = None
        if options.jetstream:
            self.store = self._open_store(rng)
            engine = Engine(self.store, self._broker, clock, rng, self._jetstream_options())
            engine.recover()
        self._shell = Shell(
            asyncio.get_running_loop(), self.log, self._broker, engine, self.store, options.write_deadline_s
        )
        self._shell.start()

    def _broker_options(self) -> BrokerOptions:
        options = self.options
        return BrokerOptions(
            server_id=self.server_id,
            server_name=options.server_name or self.server_id,
            version=PROTOCOL_VERSION,
            host=options.host,
            port=self.port,
            jetstream=options.jetstream,
            max_payload=options.max_payload,
            max_pending=options.max_pending,
            user=options.user,
            password=options.password,
            token=options.token,
            tls_required=options.tls is not None,
            tls_verify=options.tls is not None and options.tls.verify,
        )

    def _jetstream_options(self) -> JetStreamOptions:
        path = self.options.store_path
        return JetStreamOptions(
            max_memory=self.options.max_memory or default_max_memory(),
            max_storage=self.options.max_storage or default_max_storage(path),
        )

    def _open_store(self, rng: random.Random) -> Store:
        path = self.options.store_path
        path.parent.mkdir(parents=True, exist_ok=True)
        store = Store(
            PosixDisk(path),
            StoreOptions(sync=self.options.sync),
            rng_salt=lambda: rng.getrandbits(32) | 1,
            monotonic_ns=time.monotonic_ns,
            log=self.log.warn,
        )
        report = store.open()
        for line in report.lines():
            self.log.info(line)
        return store

    async def _listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        loop, shell = asyncio.get_running_loop(), self._shell
        assert shell is not None
        self._listener = await loop.create_server(lambda: ClientConnection(shell, context), sock=sock, backlog=BACKLOG)

    async def stop(self) -> None:
        """Stop accepting and reading, make everything durable, close clients and store; safe to call twice."""
        listener, shell, store = self._listener, self._shell, self.store
        self._listener, self._shell, self.store = None, None, None
        if listener is not None:
            listener.close()
        if shell is not None:
            await _quiet(shell)
            shell.stop()
        if store is not None:
            store.close()

    async def __aenter__(self) -> "ServerInstance":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


async def _quiet(shell: Shell) -> None:
    """Answer what was read, then close every client and wait (bounded) until they are gone."""
    for connection in tuple(shell.connections.values()):
        connection.pause()
    await shell.settle()
    for connection in tuple(shell.connections.values()):
        connection.close()
    deadline = shell.loop.time() + CLOSE_CLIENTS_S
    while shell.connections and shell.loop.time() < deadline:
        await asyncio.sleep(0.005)


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; raises OSError when it is in use or not this machine's."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, max(port, 0), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        if port > 0:  # for "any free port" the kernel could otherwise choose one that is being taken by another
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
