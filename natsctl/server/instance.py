"""One running server: store, broker, engine and listeners, their start and their stop.

At the start the address of clients is listened on first, so that a client that reconnects finds it. The store is locked
and recovered, the engine takes its streams from it, and only then connections are accepted: with INFO a client meets a
server that is ready. At the stop nothing is accepted or read any more, everything that was read is synced and answered,
clients are closed, and the store is closed and unlocked.

`ServerInstance` lives on the caller's event loop; `ServerThread` runs one on a loop and a thread of its own, for
callers without a loop.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from natsctl.broker.broker import Broker
from natsctl.broker.info import make_server_id
from natsctl.server.broker_setup import broker_options, map_default_domains
from natsctl.server.listener import ClientConnection, ListeningEndpoint, TransportEndpoint, named
from natsctl.server.log.lines import Log
from natsctl.server.logins import callout_faults
from natsctl.server.monitor.query import BadRequestError, ReloadCall, ReloadDone
from natsctl.server.options import UNSPECIFIED, ServerOptions, TlsOptions, WebSocketOptions
from natsctl.server.resources import SystemClock, new_event_loop
from natsctl.server.shell import Shell
from natsctl.server.tls.listener_tls import ListenerTls

if TYPE_CHECKING:
    from socket import socket

    from natsctl.api.account import AccountLimits
    from natsctl.api.nkey_pairs import SigningPair
    from natsctl.jetstream.engine import Engine
    from natsctl.server.committer import Committer
    from natsctl.server.leaf.nodes import LeafNodes
    from natsctl.server.ocsp.service import OcspService
    from natsctl.server.system.account import OcspEvents, SystemAccount
    from natsctl.server.tls.contexts import TlsContexts
    from natsctl.server.websocket.protocol import Upgrader
    from natsctl.store.store import Store


CLOSE_CLIENTS_S: Final = 3.0
"""Time that a stopping server waits for its clients' transports to close."""


class ServerInstance:
    """A server on the running event loop, as an async context manager or through `start` and `stop`."""

    def __init__(
        self, options: ServerOptions, log: Log | None = None, sockets: dict[str, socket] | None = None
    ) -> None:
        """Prepare a server; without `log` it is silent. `sockets` listen already, for endpoints by their kind."""
        self.options = options
        self._sockets = sockets or {}
        self.log = log or Log(quiet=True)
        self._key = _server_key() if options.asks_services else None
        """The key of the server's id; a server that signs nothing only has an id."""
        self.server_id = self._key.public if self._key is not None else make_server_id(random.SystemRandom())
        self.host = options.host
        self.port = 0
        self.store: Store | None = None
        self._broker: Broker | None = None
        self._operated: dict[str, AccountLimits] | None = None
        """The accounts of operators with JetStream; None without an operator."""
        self._shell: Shell | None = None
        self.system: SystemAccount | None = None
        self.leafs: LeafNodes | None = None
        """Leaf nodes, where the server accepts them or is one."""
        self.ocsp: OcspService | None = None
        """Staples and checks of certificates; None on a server without TLS."""
        self.end: Callable[[], None] = self._end_alone
        """Ends the server from within, as for a certificate that was revoked; the program around it replaces this."""
        self.reload: ReloadCall = no_reload
        """Reads the configuration again, if any; calls back with the reason of a refusal."""
        self.http_requests: dict[str, int] = {}
        """Requests to each endpoint of monitoring."""
        self.config_load_ns = 0
        """Time of the last reload of the configuration, wall clock; 0: none since the start."""
        self.endpoints: dict[str, ListeningEndpoint] = {}
        """The listeners by kind of peer: `clients`, `websocket`, `monitoring`; in the order they are opened."""
        self.listener_tls: dict[str, ListenerTls] = {}
        """The TLS of each listener; a reload replaces the files."""
        self.upgrader: Upgrader | None = None

    @property
    def engine(self) -> Engine | None:
        return self._shell.engine if self._shell is not None else None

    @property
    def lag_s(self) -> float:
        """The longest delay of the event loop within the last minute, in seconds."""
        return self._shell.lag_s if self._shell is not None else 0.0

    @property
    def committer(self) -> Committer | None:
        return self._shell.committer if self._shell is not None else None

    def port_of(self, kind: str) -> int:
        return self.endpoints[kind].port if kind in self.endpoints else 0

    @property
    def url(self) -> str:
        """The URL for clients on this machine, without credentials."""
        host = "127.0.0.1" if self.host in UNSPECIFIED else self.host
        scheme = "tls" if self.options.tls else "nats"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    def urls(self) -> dict[str, list[str]]:
        options = self.options
        secured = options.websocket is not None and options.websocket.tls is not None
        schemes = {
            "monitoring": "https" if options.https_port else "http",
            "websocket": "wss" if secured else "ws",
            "leafnodes": "nats",
        }
        found = {"nats": [self.url]}
        for kind, scheme in schemes.items():
            if port := self.port_of(kind):
                found[kind] = [f"{scheme}://127.0.0.1:{port}"]
        return found

    @property
    def shell(self) -> Shell:
        if self._shell is None:
            raise RuntimeError("the server is not running")
        return self._shell

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            raise RuntimeError("the server is not running")
        return self._broker

    async def start(self, prepare: Callable[[ServerInstance], Awaitable[None]] | None = None) -> None:
        """Listen, recover the store, run `prepare`, and accept clients.

        Raises StorageError when the store is locked or cannot be opened, OSError when the address or a TLS file cannot
        be used, and what `prepare` raises; nothing is left running then.
        """
        clients = self._client_endpoint()
        try:
            if self.options.has_tls:
                await self._ocsp_service().prepare()
            clients.bind()
            self.port = clients.port
            self._build()
            if prepare is not None:
                await prepare(self)
            self.endpoints = {**self._more_endpoints(), "clients": clients}
            for kind, endpoint in self.endpoints.items():
                with named(kind):
                    await endpoint.start()
            if self.ocsp is not None:
                self.ocsp.start()
            if self.leafs is not None:
                self.leafs.start()
            if self.broker.options.websocket is not None:
                self.broker.options.websocket.port = self.port_of("websocket")
        except BaseException:
            clients.stop_accepting()
            await self.stop()
            raise

    def _ocsp_service(self) -> OcspService:
        if self.ocsp is None:
            from natsctl.server.ocsp.service import OcspService

            self.ocsp = OcspService(self.options, self.log, SystemClock(), self._ocsp_events, lambda: self.end())
        return self.ocsp

    def _ocsp_events(self) -> OcspEvents:
        assert self.system is not None
        return self.system.ocsp

    def _end_alone(self) -> None:
        self._ending = asyncio.get_running_loop().create_task(self.stop())

    def follow_ocsp(self, options: ServerOptions) -> None:
        if self.ocsp is None and not options.has_tls:
            return
        service = self._ocsp_service()
        self.shell.check_peer = service.peers.verdict
        service.follow(options, self.listener_tls)

    def _build(self) -> None:
        clock, secure = SystemClock(), random.SystemRandom()
        rng = random.Random(secure.getrandbits(128))
        self._broker = Broker(clock, rng, broker_options(self.options, self.server_id, self.port), secure)
        self._broker.configure(self.options.accounts)
        if self._key is not None:
            self._start_callouts(self._broker, self._key)
        if self.options.operator is not None:
            from natsctl.server.operator_mode import start_operator_mode

            self._operated = start_operator_mode(self._broker, self.log)
        engine = self._start_engine(self._broker, clock, rng) if self.options.jetstream else None
        loop = asyncio.get_running_loop()
        shell = self._shell = Shell(loop, self.log, self._broker, engine, self.options.write_deadline_s)
        if self.store is not None:
            from natsctl.server.committer import Committer

            shell.committer = Committer(self.store, loop.call_soon_threadsafe, shell.committed, shell.fault, loop=loop)
            shell.committer.gather, shell.committer.send = self._broker.gather_acks, self._broker.send_acks
        shell.write_retry = self.options.write_timeout == "retry"
        shell.start()
        if self.ocsp is not None:
            shell.check_peer = self.ocsp.peers.verdict
            self.ocsp.attach("clients", self.listener_tls["clients"])
        map_default_domains(self.options, self._broker, engine, self.log)
        self.system = self._start_system(shell)
        self.leafs = self._leaf_nodes(shell)

    def _start_callouts(self, broker: Broker, key: SigningPair) -> None:
        from natsctl.api.nkey_pairs import SEED_BYTES, CurvePair
        from natsctl.broker.jwt.callout_requests import Callouts

        Callouts(broker, key, CurvePair(os.urandom(SEED_BYTES)))
        for fault in callout_faults(self.options):
            self.log.error(fault)

    def _leaf_nodes(self, shell: Shell) -> LeafNodes | None:
        if self.options.leafnodes is None:
            return None
        from natsctl.server.leaf.nodes import LeafNodes

        return LeafNodes(self.options, shell)

    def follow_leafnodes(self, options: ServerOptions, contexts: TlsContexts | None = None) -> None:
        """Apply other options of leaf nodes; `contexts` are their listener's. A server without any may get remotes."""
        if self.leafs is not None:
            self.leafs.apply(options, contexts)
        elif options.leafnodes is not None:
            self.leafs = self._leaf_nodes(self.shell)
            if self.leafs is not None:
                self.leafs.start()

    def _start_system(self, shell: Shell) -> SystemAccount | None:
        if not self.broker.options.system_account:
            return None
        from natsctl.server.system.account import SystemAccount

        system = SystemAccount(self, shell.wake, lambda done: self.reload(done))
        shell.on_turn.append(system.requests.run)
        system.start()
        return system

    def _client_endpoint(self) -> TransportEndpoint:
        tls = ListenerTls(self.options.tls, self.options.allow_non_tls)
        self.listener_tls["clients"] = tls
        load_tls_connections(self.options.tls)
        proxied = self.options.proxy_protocol
        return TransportEndpoint(
            self.options.host,
            self.options.port,
            lambda: _client_connection(self.shell, tls, proxied=proxied),
            sock=self._sockets.get("clients"),
        )

    def _more_endpoints(self) -> dict[str, ListeningEndpoint]:
        """Return the endpoints to open before the clients' endpoint, so that a client finds them open."""
        more_endpoints: dict[str, ListeningEndpoint] = {}
        if self.options.http_port or self.options.https_port:
            more_endpoints["monitoring"] = self._monitor()
        if self.options.websocket is not None:
            more_endpoints["websocket"] = self._websocket(self.options.websocket)
        if self.leafs is not None and self.leafs.endpoint is not None:
            more_endpoints["leafnodes"] = self.leafs.endpoint
        return more_endpoints

    def _monitor(self) -> ListeningEndpoint:
        from natsctl.server.monitor.pages import monitoring_endpoint

        return monitoring_endpoint(self)

    def _websocket(self, options: WebSocketOptions) -> ListeningEndpoint:
        from natsctl.server.websocket.connection import WebSocketConnection
        from natsctl.server.websocket.protocol import Upgrader

        tls = ListenerTls(options.tls)
        self.listener_tls["websocket"] = tls
        if self.ocsp is not None:
            self.ocsp.attach("websocket", tls)
        upgrader = self.upgrader = Upgrader(options, self.options.max_payload)
        return TransportEndpoint(
            options.host,
            options.port,
            lambda: WebSocketConnection(self.shell, tls, upgrader),
            sock=self._sockets.get("websocket"),
        )

    def _start_engine(self, broker: Broker, clock: SystemClock, rng: random.Random) -> Engine:
        from natsctl.api.catalogue import entries
        from natsctl.jetstream.engine import Engine
        from natsctl.server.storage import engine_options, open_store

        entries()  # read now: later, descriptors may be short
        self.store = open_store(self.options, self.log, rng)
        options = engine_options(self.options, self._operated)
        if self.options.operator is not None:
            from natsctl.server.operator_mode import wake_accounts

            wake_accounts(broker, dict.fromkeys(key.partition("/")[0] for key in self.store.streams), self.log)
        engine = Engine(self.store, broker, clock, rng, options, self.log.warn)
        engine.recover()
        return engine

    def enter_lame_duck(self) -> None:
        """Accept no more connections, and send clients to another server; remaining ones are still served."""
        if self.leafs is not None:
            self.leafs.stop_connecting()
        for kind in ("clients", "websocket", "leafnodes"):
            if kind in self.endpoints:
                self.endpoints[kind].stop_accepting()
        if self._shell is not None:
            if self.system is not None:
                self.system.lame_duck()
            self.broker.enter_lame_duck()
            self._shell.turn()

    def wake(self) -> None:
        self.shell.wake()

    async def stop(self) -> None:
        """Stop accepting and reading, make everything durable, close clients and store; safe to call twice."""
        endpoints, shell, store = self.endpoints, self._shell, self.store
        self.endpoints, self._shell, self.store = {}, None, None
        for endpoint in endpoints.values():
            await endpoint.stop()
        if self.upgrader is not None:
            self.upgrader.close()
        if self.ocsp is not None:
            self.ocsp.stop()
        if shell is not None:
            if self.leafs is not None:
                self.leafs.stop()
            if self.system is not None:
                self.system.shut_down()
            await _quiet(shell)
            shell.stop()
        if store is None:
            return
        if shell is not None and shell.committer is not None and shell.committer.in_flight:
            # A write may still reach the files: the folder stays locked until the process ends, as after a kill.
            self.log.error("The disk does not answer: stopped without a clean end of the store")
            return
        store.close()

    async def __aenter__(self) -> ServerInstance:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


def load_tls_connections(tls: TlsOptions | None) -> None:
    if tls is not None:
        import natsctl.server.tls.listener  # noqa: F401


def _client_connection(shell: Shell, tls: ListenerTls, *, proxied: bool = False) -> ClientConnection:
    if proxied:
        from natsctl.server.proxy_protocol import ProxiedConnection, ProxiedTlsConnection

        return ProxiedConnection(shell) if tls.options is None else ProxiedTlsConnection(shell, tls)
    if tls.options is None:
        return ClientConnection(shell)
    from natsctl.server.tls.listener import TlsConnection

    return TlsConnection(shell, tls)


def _server_key() -> SigningPair:
    from natsctl.api.nkey_pairs import SEED_BYTES, SigningPair

    return SigningPair("server", os.urandom(SEED_BYTES))


def no_reload(done: ReloadDone) -> None:
    done(BadRequestError("can only reload config when a file is provided using -c or --config"))


async def _quiet(shell: Shell) -> None:
    """Answer everything that was read, then close every client and wait (bounded) for their end."""
    for connection in tuple(shell.connections.values()):
        connection.pause()
    await shell.quiesce()
    if shell.engine is not None:
        shell.engine.shut_down()
        await shell.quiesce()
    deadline = shell.loop.time() + CLOSE_CLIENTS_S
    while shell.connections and shell.loop.time() < deadline:
        for connection in tuple(shell.connections.values()):
            if not connection.closing:  # also those accepted only now
                connection.close()
        await asyncio.sleep(0.005)


T = TypeVar("T")

STOP_WITHIN_S: Final = 30.0
"""Bound of `stop`: longer than the server's own bounds together."""


class ServerThread:
    """A `ServerInstance` in a thread, started and stopped from plain code; also a context manager."""

    def __init__(self, options: ServerOptions) -> None:
        """Prepare a server thread; nothing runs before `start`."""
        self.instance = ServerInstance(options)
        self.instance.end = self._end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None

    @property
    def url(self) -> str:
        return self.instance.url

    @property
    def port(self) -> int:
        return self.instance.port

    def start(self) -> ServerThread:
        """Start the server and return when it listens; raises the error of the server's start."""
        self._thread = threading.Thread(target=self._run, name="natsctl-server", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            self._thread = None
            raise self._error
        return self

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            await self.instance.start()
        except BaseException as error:  # raised by the starting thread
            self._error = error
            return
        finally:
            self._started.set()
        await self._stopping.wait()
        await self.instance.stop()

    def _end(self) -> None:
        if self._stopping is not None:
            self._stopping.set()

    def clients_named(self, name: str) -> int:
        """Return how many clients introduced themselves by that name; 0 when the server does not run."""
        return self.run(self._count(name)) if self._thread is not None else 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work on the server's loop; raises its error."""
        if self._loop is None or self._thread is None or self._loop.is_closed():
            work.close()
            raise RuntimeError("the server is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _count(self, name: str) -> int:
        return sum(session.name == name for session in self.instance.broker.sessions.values())

    def stop(self) -> None:
        """Stop the server with everything synced; safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stopping is None:
            return
        with suppress(RuntimeError):  # the server has ended itself, and its loop is closed
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(STOP_WITHIN_S)

    def __enter__(self) -> ServerThread:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
