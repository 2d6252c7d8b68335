"""`natsctl server run` as a process: flags in, log lines out, signals, pid and ports files, exit status.

Exit status: 0 after SIGTERM or SIGINT, 1 when the server could not start, 2 for a wrong command line.  A second signal
while the server stops ends the process as signals do, whatever it is waiting for.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from natsctl.api.errors import NatsctlError
from natsctl.api.units import format_duration, format_size
from natsctl.server.capacity import default_max_memory, default_max_storage
from natsctl.server.conf.syntax import ConfError
from natsctl.server.descriptors import raise_descriptor_limit
from natsctl.server.flags import USAGE, parse_command_line
from natsctl.server.goflags import FlagError
from natsctl.server.instance import ServerInstance
from natsctl.server.log import Log
from natsctl.server.loops import let_garbage_wait, new_event_loop, tune_interpreter
from natsctl.server.options import ServerOptions
from natsctl.server.ports import write_pid_file, write_ports_file
from natsctl.server.version import PROTOCOL_VERSION, version_line

STARTED: Final = 0
NOT_STARTED: Final = 1
USAGE_ERROR: Final = 2
WARM_UP_S: Final = 3.0
"""How long after its start a server imports what it may need later: one that lives shorter never does."""
LAME_DUCK_GRACE_S: Final = 10.0
"""How long clients have to leave a server in lame duck mode; the reference's lame_duck_grace_period."""

ECHO_S: Final = 0.25
"""A signal this soon after the first is the same one: wrappers such as `timeout` send it to us and to our group."""


def main(argv: Sequence[str]) -> int:
    """Run a server for the arguments after `natsctl server run` until a signal ends it; return the exit status."""
    try:
        command_line = parse_command_line(argv, os.environ)
    except FlagError as error:
        sys.stderr.write(f"natsctl server run: {error}\nTry `natsctl server run --help`.\n")
        return USAGE_ERROR
    except (ConfError, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"natsctl server run: {error}\n")
        return NOT_STARTED
    if command_line.action == "help":
        sys.stdout.write(USAGE)
        return 0
    if command_line.action == "version":
        sys.stdout.write(version_line() + "\n")
        return 0
    if command_line.action == "check":
        sys.stderr.write(f"natsctl server run: configuration file {command_line.config} is valid\n")
        return 0
    return _run(command_line.options)


def _run(options: ServerOptions) -> int:
    if options.jetstream and not options.max_storage:  # once: it looks at every file that is there
        options = replace(options, max_storage=default_max_storage(options.store_path))
    try:
        log = Log(options.log_file, with_time=options.log_time, debug=options.debug, trace=options.trace)
    except OSError as error:
        Log().fatal(f"error opening log file: {error}")
        return NOT_STARTED
    raise_descriptor_limit()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(ServerProcess(options, log).serve())
    finally:
        log.close()


class ServerProcess:
    """One server as the process: what it logs, the files it leaves for others, and the signals it obeys."""

    def __init__(self, options: ServerOptions, log: Log) -> None:
        """Prepare to serve `options`."""
        self._options = options
        self._log = log
        self._server = ServerInstance(options, log)
        self._files: list[Path] = []
        self._stopping: asyncio.Event | None = None
        self._lame_duck = False
        self._warming: asyncio.Future[ModuleType] | None = None

    async def serve(self) -> int:
        """Serve until a signal and return the exit status."""
        self._stopping = asyncio.Event()
        self._catch_signals()
        let_garbage_wait()
        try:
            self._announce()
            await self._server.start()
            self._leave_files()
        except (OSError, NatsctlError) as error:
            self._log.fatal(_reason(self._options, error))
            await self._server.stop()
            self._remove_files()
            return NOT_STARTED
        tune_interpreter()
        self._ready()
        if self._options.jetstream:
            asyncio.get_running_loop().call_later(WARM_UP_S, self._warm_up)
        await self._stopping.wait()
        self._log.info("Initiating Shutdown...")
        await self._server.stop()
        self._remove_files()
        self._log.info("Server Exiting..")
        return STARTED

    def _warm_up(self) -> None:
        """Import what the first snapshot needs, beside the loop: it takes 0.1 s, on a busy machine a second."""
        self._warming = asyncio.get_running_loop().run_in_executor(
            None, import_module, "natsctl.jetstream.archive.hash_lanes"
        )

    def _announce(self) -> None:
        log, options = self._log, self._options
        log.info(f"Starting natsctl/nats-server version {PROTOCOL_VERSION}")
        log.info(f"  Name:     {options.server_name or self._server.server_id}")
        log.info(f"  ID:       {self._server.server_id}")
        for key in options.unserved:
            log.warn(f"{key}: not served by this version, nothing listens or connects there")
        if not options.jetstream:
            return
        if options.store_dir is None:
            log.warn(f"Temporary storage folder used, data could be lost on system reboot: {options.store_path}")
        if options.sync != "always":
            log.warn(f"Acknowledged messages can be lost in a power failure: sync policy is {_sync_text(options)}")
        log.info("Starting JetStream")
        log.info("---------------- JETSTREAM ----------------")
        log.info(f"  Max Memory:      {format_size(options.max_memory or default_max_memory())}")
        log.info(f"  Max Storage:     {format_size(options.max_storage)}")
        log.info(f'  Store Directory: "{options.store_path}"')
        log.info(f"  Sync:            {_sync_text(options)}")
        log.info("-------------------------------------------")

    def _ready(self) -> None:
        log, server = self._log, self._server
        monitoring, websocket_port = server.port_of("monitoring"), server.port_of("websocket")
        if monitoring:
            log.info(f"Starting http monitor on {_address(self._options.http_host, monitoring)}")
        websocket = self._options.websocket
        if websocket is not None:
            scheme = "wss" if websocket.tls else "ws"
            log.info(f"Listening for websocket clients on {scheme}://{_address(websocket.host, websocket_port)}")
        log.info(f"Listening for client connections on {_address(server.host, server.port)}")
        if self._options.tls is not None:
            log.info("TLS required for client connections")
        log.info(f"Server id is {server.server_id}")
        log.info("Server is ready")

    def _leave_files(self) -> None:
        options = self._options
        if options.pid_file is not None:
            write_pid_file(options.pid_file)
            self._files.append(options.pid_file)
        if options.ports_file_dir is not None:
            ports = ([self._server.url], self._server.port_of("monitoring"), self._server.port_of("websocket"))
            self._files.append(write_ports_file(options.ports_file_dir, *ports))

    def _remove_files(self) -> None:
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files.clear()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload_signal)
        loop.add_signal_handler(signal.SIGUSR1, self._log.reopen)
        loop.add_signal_handler(signal.SIGUSR2, self._lame_duck_signal)

    def _stop_signal(self, number: signal.Signals) -> None:
        assert self._stopping is not None
        if not self._stopping.is_set():
            self._log.info(f"Trapped {number.name}")
            self._stop()

    def _lame_duck_signal(self) -> None:
        """Let clients go elsewhere by themselves, and stop when their time is over."""
        if not self._lame_duck:
            self._lame_duck = True
            self._log.info("Trapped SIGUSR2")
            self._log.info("Entering lame duck mode, stop accepting new clients")
            self._server.enter_lame_duck()
            asyncio.get_running_loop().call_later(LAME_DUCK_GRACE_S, self._stop)

    def _stop(self) -> None:
        """Begin the stop, once."""
        assert self._stopping is not None
        if not self._stopping.is_set():
            self._stopping.set()
            asyncio.get_running_loop().call_later(ECHO_S, self._release_signals)

    def _release_signals(self) -> None:
        """Give SIGTERM and SIGINT back to the kernel: a second one works even when the loop waits for a dead disk."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    def _reload_signal(self) -> None:
        self._log.error("Failed to reload server configuration: the server was started without a configuration file")


def _sync_text(options: ServerOptions) -> str:
    if isinstance(options.sync, str):
        return options.sync
    return format_duration(options.sync)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(options: ServerOptions, error: Exception) -> str:
    """Return why the server does not start, in the reference server's words where it has some."""
    if isinstance(error, OSError) and error.errno is not None and not error.filename:
        address = _address(options.host, max(options.port, 0))
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
        return f"Error listening on port: {address}, {(reason or str(error)).lower()}"
    return str(error)
