"""A server as the process: its log, the files it writes for other programs, signals, lame duck mode.

In lame duck mode a server that is about to stop sends its clients elsewhere, a few at a time. No connection is accepted
any more and every client is notified. After the grace period for clients to leave by themselves, the rest is closed
one by one over the remaining duration, so that they do not reach the next server all at once. The server stops when the
last one has disconnected.

A service manager that started the process hears of it: systemd names a socket in NOTIFY_SOCKET, and takes lines of
`KEY=value` there. With WatchdogSec= it restarts a service that has said nothing for so long: the loop says that it
turns. Source: sd_notify(3). Texts of the log's first lines are nats-server's where programs that start a server look
for them.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from natsctl import __version__
from natsctl.api.errors import NatsctlError, StorageError
from natsctl.api.units import format_duration, format_size
from natsctl.api.versions import API_LEVEL, SERVER_VERSION
from natsctl.broker.refusals import CloseReason
from natsctl.native import absent
from natsctl.server.files import replace_file
from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.monitor.query import BadRequestError, ReloadDone
from natsctl.server.options import ServerOptions, joined
from natsctl.server.process.flags import NOT_STARTED, STARTED, NotProvisionedError, file_fault
from natsctl.server.resources import (
    FrequentCollection,
    default_max_memory,
    default_max_storage,
    let_garbage_wait,
    new_event_loop,
    raise_descriptor_limit,
    tune_interpreter,
)

if TYPE_CHECKING:
    from pathlib import Path

    from natsctl.server.process.provision import Preparation

_RULE: Final = "-------------------------------------------"


def announce(log: Log, server: ServerInstance) -> None:
    options = server.options
    log.info("Starting nats-server")
    log.info(f"  Version:  {SERVER_VERSION}")
    log.info(f"  Natsctl:  {__version__}")
    log.info(f"  Native:   {f'not loaded, {absent}' if absent else 'loaded'}")
    log.info(f"  Name:     {options.server_name or server.server_id}")
    log.info(f"  ID:       {server.server_id}")
    if _plain_secrets(options):
        log.warn("Plaintext passwords detected, use nkeys or bcrypt")
    if options.config_file is not None:
        log.info(f"Using configuration file: {options.config_file} ({options.config_digest})")
    for warning in options.config_warnings:
        log.warn(warning)
    if options.operator is not None:
        from natsctl.server.operator_mode import announce_operators

        announce_operators(log, options, int(time.time()))
    for key in options.unserved:
        log.warn(f"{key}: not served by this version, nothing listens or connects there")
    if options.jetstream:
        _announce_jetstream(log, options)


def _announce_jetstream(log: Log, options: ServerOptions) -> None:
    if options.store_dir is None:
        log.warn(f"Temporary storage folder used, data could be lost on system reboot: {options.store_path}")
    if options.sync != "always":
        log.warn(f"Acknowledged messages can be lost in a power failure: sync policy is {_sync_text(options)}")
    log.info("Starting JetStream")
    log.info("---------------- JETSTREAM ----------------")
    if not options.no_jetstream_strict:
        log.info("  Strict:          true")
    log.info(f"  Max Memory:      {format_size(options.max_memory or default_max_memory())}")
    log.info(f"  Max Storage:     {format_size(options.max_storage)}")
    log.info(f'  Store Directory: "{options.store_path}"')
    if options.domain:
        log.info(f"  Domain:          {options.domain}")
    if options.encryption.key:
        log.info(f"  Encryption:      {options.encryption.cipher_name}")
    log.info(f"  Sync:            {_sync_text(options)}")
    log.info(f"  API Level:       {API_LEVEL}")
    log.info(_RULE)


def announce_listeners(log: Log, server: ServerInstance) -> None:
    options = server.options
    if options.operator is not None:
        from natsctl.server.operator_mode import announce_directory

        announce_directory(log, options)
    if port := server.port_of("monitoring"):
        scheme = "https" if options.https_port else "http"
        log.info(f"Starting {scheme} monitor on {joined(options.monitoring_host, port)}")
    if options.websocket is not None:
        scheme = "wss" if options.websocket.tls else "ws"
        address = joined(options.websocket.host, server.port_of("websocket"))
        log.info(f"Listening for websocket clients on {scheme}://{address}")
        if options.websocket.tls is None:
            log.warn("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")
    if options.leafnodes is not None and (port := server.port_of("leafnodes")):
        log.info(f"Listening for leafnode connections on {joined(options.leafnodes.host, port)}")
    log.info(f"Listening for client connections on {joined(server.host, server.port)}")
    if options.proxy_protocol:
        log.info("PROXY protocol enabled for client connections")
    loopback = server.host in ("localhost", "::1") or server.host.startswith("127.")
    if server.broker.options.auth is None and not loopback:
        log.warn("No users are configured: whoever reaches this address may do everything")
    if options.tls is not None:
        only_first = options.tls.handshake_first and not options.tls.fallback_s
        available = options.allow_non_tls and not only_first
        log.info(f"TLS {'available' if available else 'required'} for client connections")
        if only_first:
            log.warn('Clients that are not using "TLS Handshake First" option will fail to connect')
    log.info("Server is ready")


def _plain_secrets(options: ServerOptions) -> bool:
    secrets = [user.password for user in options.users] + [options.password, options.token]
    if not any(secrets):
        return False
    from natsctl.broker.auth.static_auth import is_bcrypt

    return any(secret and not is_bcrypt(secret) for secret in secrets)


def _sync_text(options: ServerOptions) -> str:
    return options.sync if isinstance(options.sync, str) else format_duration(options.sync)


def ports_path(folder: Path, pid: int) -> Path:
    return folder / f"nats-server_{pid}.ports"


def write_ports_file(folder: Path, ports: Mapping[str, Sequence[str]]) -> Path:
    """Write the URLs by kind atomically and return the file's path; raises OSError.

    The ports file is readable by all that the umask allows, the pid file by its owner. Source: nats-server, server.go.
    """
    import json

    path = ports_path(folder, os.getpid())
    content = json.dumps({kind: list(urls) for kind, urls in ports.items() if urls})
    replace_file(path, content.encode(), mode=0o666, durable=False)
    return path


def write_pid_file(path: Path) -> None:
    replace_file(path, str(os.getpid()).encode(), durable=False)


_START_FAULTS: Final = {
    "clients": 'Error listening on port: {address}, "{fault}"',
    "monitoring": "Can't start monitoring: can't listen to the monitor port: {fault}",
    "websocket": "Unable to listen for websocket connections: {fault}",
    "leafnodes": "Error listening on leafnode port: {port} - {fault}",
}


def start_fault(options: ServerOptions, error: Exception) -> str:
    """Return the reason of a failed start; the first note of an OSError names its listener, none means the clients'."""
    if not isinstance(error, OSError) or error.errno is None or error.filename:
        return str(error)
    kind = next(iter(getattr(error, "__notes__", ())), "clients")
    host, port = _listeners(options).get(kind, (options.host, options.port))
    address = joined(host, max(port, 0))
    reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    fault = f"listen tcp {address}: bind: {(reason or str(error)).lower()}"
    return _START_FAULTS.get(kind, _START_FAULTS["clients"]).format(address=address, port=port, fault=fault)


def _listeners(options: ServerOptions) -> dict[str, tuple[str, int]]:
    listeners = {"monitoring": (options.http_host, options.http_port or options.https_port)}
    if options.websocket is not None:
        listeners["websocket"] = (options.websocket.host, options.websocket.port)
    if options.leafnodes is not None:
        listeners["leafnodes"] = (options.leafnodes.host, options.leafnodes.port)
    return listeners


WATCHDOG_SHARE: Final = 2
"""Notices in the time that the watchdog waits for one. Source: sd_watchdog_enabled(3)."""


class ServiceManager:
    """The service manager of this process, if it has one; a notice that cannot be sent is dropped."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Read where the service manager listens, and how long its watchdog waits."""
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._interval_s = _watchdog_s(environment) / WATCHDOG_SHARE
        self._alive: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """Report that the server serves, from now on or again; the watchdog is kept content until `stopping`."""
        self._send("READY=1", f"STATUS={status}")
        if self._interval_s and self._alive is None:
            self._turn(asyncio.get_running_loop())

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def close(self) -> None:
        if self._alive is not None:
            self._alive.cancel()
            self._alive = None

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Report that the loop turns, and do so again after a while."""
        self._send("WATCHDOG=1")
        self._alive = loop.call_later(self._interval_s, self._turn, loop)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.connect(self._address)
            sender.send("\n".join(lines).encode())


def _address(name: str) -> str:
    """Return the address of a path, or of a name in the abstract namespace; "" for anything else."""
    return name if name.startswith("/") else f"\0{name[1:]}" if name.startswith("@") else ""


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """Return how long the watchdog of this process waits for a notice; 0 without a watchdog."""
    microseconds, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(microseconds) / 1e6


NAMES: Final = {
    signal.SIGINT: "interrupt", signal.SIGTERM: "terminated", signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1", signal.SIGUSR2: "user defined signal 2",
}  # fmt: skip


LONGEST_PAUSE_S: Final = 1.0
"""Between two clients: few of them need not wait the whole duration."""

SHORTEST_PAUSE_S: Final = 0.001


async def lame_duck(server: ServerInstance, log: Log, rng: random.Random) -> None:
    """Close all clients over the duration; returns when none is left."""
    log.info("Entering lame duck mode, stop accepting new clients")
    server.enter_lame_duck()
    if not server.broker.sessions:
        return
    options = server.options
    await asyncio.sleep(options.lame_duck_grace_s)
    log.info("Closing existing clients")
    sessions = [session for session in server.broker.sessions.values() if session.close_reason is None]
    rng.shuffle(sessions)
    pauses = pause_and_batch(options.lame_duck_duration_s - options.lame_duck_grace_s, len(sessions))
    for number, session in enumerate(sessions, 1):
        session.close(CloseReason.SERVER_SHUTDOWN)
        server.wake()
        if number < len(sessions) and number % pauses[1] == 0:
            await asyncio.sleep(pauses[0] * rng.uniform(0.5, 1.0))


def pause_and_batch(duration_s: float, clients: int) -> tuple[float, int]:
    """Return how long to wait, and after how many clients each, so that they are spread over the duration."""
    if clients == 0:
        return LONGEST_PAUSE_S, 1
    pause = min(max(duration_s, LONGEST_PAUSE_S) / clients, LONGEST_PAUSE_S)
    if pause >= SHORTEST_PAUSE_S:
        return pause, 1
    return SHORTEST_PAUSE_S, max(round(SHORTEST_PAUSE_S / pause), 1)


ECHO_S: Final = 0.25
"""A signal this soon after the first is the same one: wrappers such as `timeout` send it to us and to our group."""


def run(
    configured: ServerOptions,
    read: Callable[[], ServerOptions],
    prepare: Preparation | None,
    sockets: dict[str, socket.socket],
) -> int:
    """Run a server until a signal ends it and return the exit status; `sockets` listen already, by kind of peer."""
    options = configured
    if options.jetstream and not options.max_storage:  # once: it looks at every file that is there
        options = replace(options, max_storage=default_max_storage(options.store_path), storage_derived=True)
    try:
        log = Log.of(options)
    except OSError as error:
        Log().fatal(f"error opening log{' file' if options.log_file else ''}: {error}")
        return NOT_STARTED
    raise_descriptor_limit()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(ServingProcess(options, log, configured, read, prepare, sockets).serve())
    finally:
        log.close()


class ServingProcess:
    """One server as the process: its log, the files it writes for other programs, and its signals."""

    def __init__(
        self,
        options: ServerOptions,
        log: Log,
        configured: ServerOptions,
        read: Callable[[], ServerOptions],
        prepare: Preparation | None,
        sockets: dict[str, socket.socket],
    ) -> None:
        """Prepare to serve `options`, derived from `configured`; `read` reads the configuration again."""
        self._options = options
        self._log = log
        self._configured = configured
        self._read = read
        self._prepare = prepare
        self._server = ServerInstance(options, log, sockets)
        self._files: list[Path] = []
        self._stopping: asyncio.Event | None = None
        self._lame_duck: asyncio.Task[None] | None = None
        self._manager = ServiceManager()

    async def serve(self) -> int:
        self._stopping = asyncio.Event()
        self._catch_signals()
        let_garbage_wait()
        try:
            announce(self._log, self._server)
            self._write_pid_file()
            if not await self._start():
                self._remove_files()
                return STARTED
            self._write_ports_file()
        except (OSError, NatsctlError) as error:
            self._log.fatal(start_fault(self._options, error))
            await self._server.stop()
            self._remove_files()
            return error.code if isinstance(error, NotProvisionedError) else NOT_STARTED
        tune_interpreter()
        self._server.shell.on_turn.append(FrequentCollection(self._server.broker.clock).collect_if_due)
        self._server.reload = self._first_reload
        self._server.end = self._stop
        announce_listeners(self._log, self._server)
        self._manager.ready("Server is ready")
        await self._stopping.wait()
        self._log.info("Initiating Shutdown...")
        self._manager.stopping("Writing pending data and closing connections")
        await self._server.stop()
        self._manager.close()
        self._remove_files()
        self._log.info("Server Exiting..")
        return STARTED

    async def _start(self) -> bool:
        """Start the server; return False if a signal ended it before it listened."""
        assert self._stopping is not None
        if self._prepare is None:
            await self._server.start()
            return True
        prepare, log = self._prepare, self._log
        starting = asyncio.ensure_future(self._server.start(lambda server: prepare(server, log)))
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            starting.result()
            return True
        self._log.info("Initiating Shutdown...")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        self._log.info("Server Exiting..")
        return False

    # Files

    def _write_pid_file(self) -> None:
        """Write the pid file before the store is recovered; raises StorageError. Source: nats-server, server.go."""
        options = self._server.options
        if options.pid_file is not None:
            try:
                write_pid_file(options.pid_file)
            except OSError as error:
                raise StorageError(f"Could not write pidfile: {file_fault(error, options.pid_file)}") from error
            self._files.append(options.pid_file)

    def _write_ports_file(self) -> None:
        """Write the ports file of a server that is ready; like nats-server, it runs on without it."""
        options = self._server.options
        if options.ports_file_dir is not None:
            try:
                self._files.append(write_ports_file(options.ports_file_dir, self._server.urls()))
            except OSError as error:
                path = ports_path(options.ports_file_dir, os.getpid())
                self._log.error(f"Error writing ports file ({path}): {file_fault(error, path)}")

    def _remove_files(self) -> None:
        for path in self._files:
            with suppress(OSError):  # already removed, or replaced by a folder
                path.unlink()
        self._files.clear()

    # Signals

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        acts = {
            signal.SIGTERM: self._stop_signal,
            signal.SIGINT: self._stop,
            signal.SIGHUP: self._reload_signal,
            signal.SIGUSR1: self._log.reopen,
            signal.SIGUSR2: self._lame_duck_signal,
        }
        for number, act in acts.items():
            loop.add_signal_handler(number, self._trapped, number, act)

    def _trapped(self, number: signal.Signals, act: Callable[[], None]) -> None:
        assert self._stopping is not None
        if not self._stopping.is_set():
            self._log.info(f'Trapped "{NAMES[number]}" signal')
            act()

    def _stop_signal(self) -> None:
        """Stop, unless lame duck mode is closing the clients (it ends by itself)."""
        if self._lame_duck is None:
            self._stop()

    def _lame_duck_signal(self) -> None:
        if self._lame_duck is None:
            self._manager.stopping("Lame duck mode: sending clients elsewhere")
            going = lame_duck(self._server, self._log, random.Random())
            self._lame_duck = asyncio.get_running_loop().create_task(going)
            self._lame_duck.add_done_callback(lambda task: self._stop())

    def _stop(self) -> None:
        assert self._stopping is not None
        if not self._stopping.is_set():
            self._stopping.set()
            asyncio.get_running_loop().call_later(ECHO_S, self._release_signals)

    def _release_signals(self) -> None:
        """Restore the default SIGTERM and SIGINT: a second one works even when the loop waits for a dead disk."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    # Reload

    def _reload_signal(self) -> None:
        self._manager.reloading()
        self._server.reload(self._reload_ended)

    def _reload_ended(self, fault: BadRequestError | None) -> None:
        if fault is not None:
            self._log.error(f"Failed to reload server configuration: {fault}")
            self._manager.ready("The last reload failed: see the log")
        else:
            self._manager.ready("Server is ready")

    def _first_reload(self, done: ReloadDone) -> None:
        from natsctl.server.process.reload import Reloader

        reloader = Reloader(self._server, self._read, self._configured)
        reloader.applied = self._reloaded
        self._server.reload = reloader.begin
        reloader.begin(done)

    def _reloaded(self, old: ServerOptions, new: ServerOptions) -> None:
        self._log.configure(new)
        if (old.pid_file, old.ports_file_dir) != (new.pid_file, new.ports_file_dir):
            self._remove_files()
            try:
                self._write_pid_file()
                self._write_ports_file()
            except StorageError as error:
                self._log.error(str(error))
