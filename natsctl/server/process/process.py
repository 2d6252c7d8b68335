"""`natsctl server run` as a process: flags in, log lines out, signals, pid and ports files, exit status.

Exit status: 0 after SIGTERM or SIGINT, 1 when the server could not start, 2 for a wrong command line or documents, and
that of `natsctl apply` when documents could not be carried out. A second signal while the server stops ends the process
as signals do, whatever it is waiting for. `--signal` sends a signal to a running server, found by its pid or by name.

In lame duck mode a server that is about to stop sends its clients elsewhere, a few at a time. No connection is accepted
any more and every client is notified. After the grace period, in which clients leave by themselves, the rest is closed
one by one over the remaining duration, so that they do not reach the next server all at once. The server stops when the
last one is gone.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from natsctl import __version__
from natsctl.api.errors import NatsctlError, StorageError
from natsctl.api.versions import SERVER_VERSION
from natsctl.broker.refusals import CloseReason
from natsctl.native import lib
from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.query import BadRequestError, ReloadDone
from natsctl.server.options import ServerOptions
from natsctl.server.process.announcement import (
    announce,
    announce_listeners,
    ports_path,
    start_fault,
    write_pid_file,
    write_ports_file,
)
from natsctl.server.process.flags import USAGE, CommandLine, FlagError, parse_command_line
from natsctl.server.process.log import Log
from natsctl.server.process.provision import NotProvisionedError, Preparation, Provisioner, provision
from natsctl.server.process.service_manager import ServiceManager
from natsctl.server.resources import (
    default_max_storage,
    let_garbage_wait,
    new_event_loop,
    raise_descriptor_limit,
    tune_interpreter,
)

if TYPE_CHECKING:
    from pathlib import Path


COMMANDS: Final = {
    "stop": signal.SIGKILL, "quit": signal.SIGINT, "term": signal.SIGTERM, "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP, "ldm": signal.SIGUSR2,
}  # fmt: skip

NAMES: Final = {
    signal.SIGINT: "interrupt", signal.SIGTERM: "terminated", signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1", signal.SIGUSR2: "user defined signal 2",
}  # fmt: skip
"""Names of the signals in log lines."""


def send_signal(text: str) -> None:
    """Carry out `command[=pid]`; a pid may be a pid file's path, or end in `*`. Raises FlagError."""
    command, _, target = text.partition("=")
    number = COMMANDS.get(command)
    if number is None:
        raise FlagError(f'unknown signal "{command}"')
    faults = []
    for pid in _pids(target):
        try:
            os.kill(pid, number)
        except OSError as error:
            faults.append(f'signal "{command}" {pid}: {(error.strerror or str(error)).lower()}')
    if faults:
        raise FlagError("\n".join(faults))


def _pids(target: str) -> list[int]:
    begins, many = target.removesuffix("*"), target.endswith("*")
    if begins and not begins.isdigit():
        from pathlib import Path

        try:
            begins = Path(target).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise FlagError(f"invalid pid: {target}") from None
    if begins.isdigit() and not many:
        return [int(begins)]
    if begins and not begins.isdigit():
        raise FlagError(f"invalid pid: {target}")
    found = [pid for pid in _running() if str(pid).startswith(begins)]
    if not found:
        raise FlagError("no natsctl server processes running")
    if len(found) > 1 and not many:
        raise FlagError("multiple natsctl server processes running:\n" + "\n".join(map(str, found)))
    return found


def _running() -> Iterator[int]:
    """Yield the other processes that run this server."""
    from pathlib import Path

    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_server(arguments) and int(folder.name) != os.getpid():
            yield int(folder.name)


def is_server(arguments: list[bytes]) -> bool:
    """Return whether a command line is that of a server: `natsctl server run …` or `python -m natsctl.server …`."""
    if any(word.endswith((b"-sl", b"-signal")) or b"-signal=" in word or b"-sl=" in word for word in arguments):
        return False
    names = [word.rsplit(b"/", 1)[-1] for word in arguments[:3]]
    at = next((place for place, name in enumerate(names) if name in (b"natsctl", b"natsctl.server")), None)
    return at is not None and (names[at] == b"natsctl.server" or arguments[at + 1 : at + 3] == [b"server", b"run"])


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


def version_line() -> str:
    """Return the output of `-v`; the clients' test suites parse its beginning."""
    return f"nats-server: v{SERVER_VERSION} (natsctl {__version__})"


STARTED: Final = 0
NOT_STARTED: Final = 1
USAGE_ERROR: Final = 2
WARM_UP_S: Final = 3.0
"""Time from the start until a server imports modules for later use; a shorter-lived one never does."""
NEEDED_BY_SYSTEM: Final = "natsctl.server.system_answers"
NEEDED_BY_ARCHIVES: Final = (
    "natsctl.jetstream.endpoints.snapshot",
    "natsctl.jetstream.endpoints.restore",
    *(() if lib else ("natsctl.api.archive.hash_lanes",)),
)

ECHO_S: Final = 0.25
"""A signal this soon after the first is the same one: wrappers such as `timeout` send it to us and to our group."""


def main(argv: Sequence[str], provisioner: Provisioner | None = None) -> int:
    """Run a server for the arguments after `natsctl server run` until a signal ends it; return the exit status.

    `provisioner` reads documents; without one, `--apply` is refused.
    """
    try:
        command_line = parse_command_line(argv, os.environ)
        prepare = _preparation(command_line, provisioner)
        if command_line.action != "run":
            return _answer(command_line)
    except FlagError as error:
        sys.stderr.write(f"natsctl server run: {error}\nTry `natsctl server run --help`.\n")
        return USAGE_ERROR
    except NotProvisionedError as error:
        sys.stderr.write(f"natsctl server run: {error}\n")
        return error.code
    except (NatsctlError, OSError) as error:
        sys.stderr.write(f"nats-server: {_file_fault(error)}\n")
        return NOT_STARTED
    return _run(command_line.options, lambda: parse_command_line(argv, os.environ).options, prepare)


def _preparation(command_line: CommandLine, provisioner: Provisioner | None) -> Preparation | None:
    """Return the step before the server listens; raises NotProvisionedError with all faults of documents."""
    documents = command_line.documents
    if documents is None:
        return None
    if provisioner is None:
        raise FlagError("--apply: documents are for `natsctl server run`")
    try:
        return partial(provision, documents, provisioner(documents))
    except NatsctlError as failure:
        raise NotProvisionedError(failure) from failure


def _answer(command_line: CommandLine) -> int:
    """Carry out an action that needs no server."""
    options = command_line.options
    if command_line.action == "signal":
        send_signal(command_line.signal)
    elif command_line.action == "check" and options.config_warnings:
        sys.stderr.write("nats-server: " + "\n".join(options.config_warnings) + "\n")
        return NOT_STARTED
    elif command_line.action == "check":
        sys.stderr.write(f"nats-server: configuration file {options.config_file} is valid ({options.config_digest})\n")
    else:
        sys.stdout.write(USAGE if command_line.action == "help" else version_line() + "\n")
    return 0


def _file_fault(error: Exception, path: Path | None = None) -> str:
    """Return the text of an error as Go writes it; `path` replaces the name of a temporary file."""
    if isinstance(error, OSError) and error.filename:
        return f"open {path or error.filename}: {(error.strerror or str(error)).lower()}"
    return str(error)


def _run(configured: ServerOptions, read: Callable[[], ServerOptions], prepare: Preparation | None) -> int:
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
            return runner.run(ServerProcess(options, log, configured, read, prepare).serve())
    finally:
        log.close()


class ServerProcess:
    """One server as the process: its log, the files it writes for other programs, and its signals."""

    def __init__(
        self,
        options: ServerOptions,
        log: Log,
        configured: ServerOptions,
        read: Callable[[], ServerOptions],
        prepare: Preparation | None = None,
    ) -> None:
        """Prepare to serve `options`, which were derived from `configured`; `read` reads the configuration again."""
        self._options = options
        self._log = log
        self._configured = configured
        self._read = read
        self._prepare = prepare
        self._server = ServerInstance(options, log)
        self._files: list[Path] = []
        self._stopping: asyncio.Event | None = None
        self._lame_duck: asyncio.Task[None] | None = None
        self._warming: asyncio.Future[None] | None = None
        self._manager = ServiceManager()

    async def serve(self) -> int:
        """Serve until a signal and return the exit status."""
        self._stopping = asyncio.Event()
        self._catch_signals()
        let_garbage_wait()
        try:
            announce(self._log, self._server)
            if not await self._start():
                return STARTED
            self._write_files()
        except (OSError, NatsctlError) as error:
            self._log.fatal(start_fault(self._options, error))
            await self._server.stop()
            self._remove_files()
            return error.code if isinstance(error, NotProvisionedError) else NOT_STARTED
        tune_interpreter()
        self._server.reload = self._first_reload
        self._server.end = self._stop
        announce_listeners(self._log, self._server)
        self._manager.ready("Server is ready")
        asyncio.get_running_loop().call_later(WARM_UP_S, self._warm_up)
        await self._stopping.wait()
        self._log.info("Initiating Shutdown...")
        self._manager.stopping("Writing what is left and closing connections")
        await self._server.stop()
        self._manager.close()
        self._remove_files()
        self._log.info("Server Exiting..")
        return STARTED

    async def _start(self) -> bool:
        """Start the server; False where a signal ended it before it listened, as preparation may take long."""
        assert self._stopping is not None
        if self._prepare is None:
            await self._server.start()
            return True
        prepare = partial(self._prepare, log=self._log)
        starting = asyncio.ensure_future(self._server.start(prepare))
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

    def _warm_up(self) -> None:
        """Import modules that are needed later, beside the loop: it takes 0.1 s, on a busy machine a second."""
        modules = [NEEDED_BY_SYSTEM, *(NEEDED_BY_ARCHIVES if self._options.jetstream else ())]
        self._warming = asyncio.get_running_loop().run_in_executor(None, _import_all, modules)

    # Files

    def _write_files(self) -> None:
        """Write the pid file, which must succeed, and the ports file; nats-server too runs on without the latter."""
        options = self._server.options
        if options.pid_file is not None:
            try:
                write_pid_file(options.pid_file)
            except OSError as error:
                raise StorageError(f"Could not write pidfile: {_file_fault(error, options.pid_file)}") from error
            self._files.append(options.pid_file)
        if options.ports_file_dir is not None:
            try:
                self._files.append(write_ports_file(options.ports_file_dir, self._server.urls()))
            except OSError as error:
                path = ports_path(options.ports_file_dir, os.getpid())
                self._log.error(f"Error writing ports file ({path}): {_file_fault(error, path)}")

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
        """Stop, unless lame duck mode, which ends by itself, is closing the clients."""
        if self._lame_duck is None:
            self._stop()

    def _lame_duck_signal(self) -> None:
        """Enter lame duck mode, and stop when the last client has left."""

        if self._lame_duck is None:
            self._manager.stopping("Lame duck mode: sending clients elsewhere")
            going = lame_duck(self._server, self._log, random.Random())
            self._lame_duck = asyncio.get_running_loop().create_task(going)
            self._lame_duck.add_done_callback(lambda task: self._stop())

    def _stop(self) -> None:
        """Begin the stop, once."""
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
        """Reload; its modules are imported only now."""
        from natsctl.server.reload import Reloader

        reloader = Reloader(self._server, self._read, self._configured)
        reloader.applied = self._reloaded
        self._server.reload = reloader.begin
        reloader.begin(done)

    def _reloaded(self, old: ServerOptions, new: ServerOptions) -> None:
        """Apply the new options to the log and the written files."""
        self._log.configure(new)
        if (old.pid_file, old.ports_file_dir) != (new.pid_file, new.ports_file_dir):
            self._remove_files()
            try:
                self._write_files()
            except StorageError as error:
                self._log.error(str(error))


def _import_all(modules: Sequence[str]) -> None:
    for module in modules:
        with suppress(ModuleNotFoundError):  # numpy need not be there
            import_module(module)
