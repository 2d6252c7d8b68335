"""Forkserver of the test run: a process that has imported natsctl forks each process of natsctl that tests start.

Tests start natsctl hundreds of times, and starting Python and importing takes most of the time of a command. While
`installed()` is active, `subprocess.Popen` (and what is built on it) forks `[sys.executable, "-m", "natsctl", …]`. The
process has arguments, environment, folder and streams of its own and is a child of its caller, as any other, but shares
nothing else with it. Claims about a fresh start of Python are tested by a fresh start: a command line with anything
before `-m natsctl`, or an environment with other variables for Python. `at_terminal()` begins a command at a
pseudo-terminal.

Theory of operation. The forkserver is a fresh Python, without threads, on one end of a socket pair. A request is a line
of JSON and three descriptors. It forks a process that forks another and ends, so that the latter loses its parent; the
caller adopts orphans below it (PR_SET_CHILD_SUBREAPER) and receives the process id once that has happened.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from natsctl.server.monitor import varz

_PR_SET_CHILD_SUBREAPER: Final = 36
_CLONE: Final = Path(__file__).parents[2]
_COMMAND: Final = [sys.executable, "-m", "natsctl"]
_LEFT_OUT: Final = ("natsctl.__main__", "natsctl.testing", "natsctl.spark")
"""Modules that no command imports, or that do something when they are imported."""
_OF_PYTHON: Final = ("PYTHON", "LC_", "LANG")
"""Prefix of variables that Python reads when it starts."""
_SAME: Final = {"gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1, "preexec_fn": None}
"""Options of a process that the forkserver cannot serve."""


class ForkServer:
    def __init__(self) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = _Popen(words, pass_fds=[theirs.fileno()], cwd=_CLONE)
        self._environment = {name: text for name, text in os.environ.items() if name.startswith(_OF_PYTHON)}

    def takes(self, command: Any, environment: Mapping[Any, Any] | None) -> bool:
        """Return whether a command with an environment (None: this process's) starts here as it does elsewhere."""
        if not is_natsctl(command):
            return False
        given = os.environ if environment is None else environment
        return {k: v for k, v in given.items() if os.fsdecode(k).startswith(_OF_PYTHON)} == self._environment

    def begin(
        self,
        command: Sequence[Any],
        environment: Mapping[Any, Any] | None,
        folder: Any,
        streams: tuple[int, int, int],
        session: bool = False,
        terminal: bool = False,
    ) -> int:
        """Begin a command, in a session of its own and at the terminal that its stdin is if that is said.

        Returns its process id.
        """
        given = os.environ if environment is None else environment
        request = {
            "words": [os.fsdecode(word) for word in command[3:]],
            "environment": {os.fsdecode(name): os.fsdecode(text) for name, text in given.items()},
            "folder": os.path.abspath(os.fsdecode(folder or os.curdir)),  # noqa: PTH100  # where none is, too
            "session": session,
            "terminal": terminal,
        }
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            socket.send_fds(self._socket, [line[:1]], list(streams))
            self._socket.sendall(line[1:])
            answer = b""
            while not answer.endswith(b"\n"):
                more = self._socket.recv(64)
                if not more:
                    raise RuntimeError("the forkserver has ended")
                answer += more
        if answer.startswith(b"!"):
            raise FileNotFoundError(request["folder"])
        return int(answer)

    def end(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


_Popen: Final = subprocess.Popen
_WISHES: Final = inspect.signature(_Popen._execute_child)  # type: ignore[attr-defined]  # of CPython alone
_fork_server: ForkServer | None = None
_starting: Final = threading.Lock()


def is_natsctl(command: Any) -> bool:
    """Return whether a command is natsctl, started as a module of this Python."""
    return isinstance(command, list | tuple) and [*command[:3]] in (_COMMAND, [*map(os.fsencode, _COMMAND)])


def fork_server() -> ForkServer:
    global _fork_server
    with _starting:
        if _fork_server is None:
            _fork_server = ForkServer()
    return _fork_server


class _ForkedPopen(subprocess.Popen):  # type: ignore[type-arg]  # made for whatever it is made for
    """A Popen that begins commands of natsctl in the forkserver."""

    def _execute_child(self, *given: Any) -> None:
        wish = _WISHES.bind(self, *given).arguments
        plain = not wish["shell"] and not wish["pass_fds"] and all(wish.get(k, v) == v for k, v in _SAME.items())
        plain = plain and not wish["executable"] and is_natsctl(wish["args"])
        if not plain or not fork_server().takes(wish["args"], wish["env"]):
            super()._execute_child(*given)  # type: ignore[misc]  # as above
            return
        stdin, stdout, stderr = (at if wish[name] == -1 else wish[name] for at, name in enumerate(_CHILDS))
        streams = (stdin, stdout, stderr)
        try:
            self.pid = fork_server().begin(wish["args"], wish["env"], wish["cwd"], streams, wish["start_new_session"])
            self._child_created = True
        finally:
            self._close_pipe_fds(*(wish[name] for name in _PIPES))  # type: ignore[attr-defined]  # as above


_PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_CHILDS: Final = ("p2cread", "c2pwrite", "errwrite")


@contextmanager
def installed() -> Iterator[None]:
    """Start subprocesses of natsctl in the forkserver, which ends with this context."""
    global _fork_server
    subprocess.Popen = _ForkedPopen  # type: ignore[misc]  # what `subprocess.run` and others make
    try:
        yield
    finally:
        subprocess.Popen = _Popen  # type: ignore[misc]  # as it was
        if _fork_server is not None:
            _fork_server.end()
        _fork_server = None


def at_terminal(
    command: Sequence[Any], environment: Mapping[Any, Any] | None, folder: Any, size: tuple[int, int]
) -> tuple[int, int] | None:
    """Begin a command at a terminal of its own, of so many rows and columns; return its id and that terminal.

    The terminal is the end that a person sits at. None is of a command that is to begin as it does elsewhere.
    """
    if subprocess.Popen is not _ForkedPopen or not fork_server().takes(command, environment):
        return None
    ours, theirs = os.openpty()
    try:
        termios.tcsetwinsize(theirs, size)
        number = fork_server().begin(
            command, environment, folder, (theirs, theirs, theirs), session=True, terminal=True
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return number, ours


@contextmanager
def left_alone() -> Iterator[None]:
    """Start all subprocesses without the forkserver for a while."""
    before, subprocess.Popen = subprocess.Popen, _Popen  # type: ignore[misc]  # for a while
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]  # as it was


# In the forkserver


def serve(descriptor: int) -> dict[str, Any] | None:
    """Fork what is asked for; return in each process that was forked what it is to be, and None in the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as asked:
        while True:
            first, streams, _, _ = socket.recv_fds(asked, 1, 3)
            if not first:
                return None
            line = first
            while not line.endswith(b"\n"):
                line += asked.recv(1 << 16)
            request: dict[str, Any] = json.loads(line)
            if not os.path.isdir(request["folder"]):  # noqa: PTH112  # no pathlib for one look
                asked.sendall(b"!\n")
            elif (number := _forked()) == 0:
                request["streams"] = streams
                return request
            else:
                asked.sendall(b"%d\n" % number)
            for stream in streams:
                os.close(stream)


def _forked() -> int:
    """Fork a process that is an orphan at once; return its id here, and 0 there."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        child = os.fork()
        if child:
            os.write(writer, b"%d" % child)
            os._exit(0)
        os.close(reader)
        os.close(writer)
        return 0
    os.close(writer)
    os.waitpid(between, 0)
    with os.fdopen(reader, "rb") as pipe:
        return int(pipe.read())


def become(request: dict[str, Any]) -> None:
    """Become the process that was asked for, up to its first line."""
    gc.freeze()  # what is there already is not looked through again
    if request["session"]:
        os.setsid()
    for at, stream in enumerate(request["streams"]):
        os.dup2(stream, at)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.closerange(3, max(request["streams"]) + 1)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    varz._METER.begin()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["natsctl", *request["words"]]
    sys.path[0] = request["folder"]
    for at, (name, mode) in enumerate((("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb"))):
        stream = _stream(at, mode, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(descriptor: int, mode: str, like: Any) -> Any:
    unbuffered = mode == "wb" and bool(os.environ.get("PYTHONUNBUFFERED"))
    raw: Any = open(descriptor, mode, buffering=0 if unbuffered else -1, closefd=False)  # noqa: SIM115  # stays open as long as the process
    lines = descriptor == 2 or os.isatty(descriptor)
    text = io.TextIOWrapper(raw, like.encoding, like.errors, "\n", lines, write_through=unbuffered)
    text.mode = mode[0]  # type: ignore[misc]  # as Python sets it
    return text


def _import_commands() -> None:
    import natsctl

    for module in pkgutil.walk_packages(natsctl.__path__, "natsctl.", onerror=lambda name: None):
        if not module.name.startswith(_LEFT_OUT) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LATER:
        importlib.import_module(name)


_LATER: Final = (
    "nats", "questionary", "rich.console", "rich.live", "rich.progress", "rich.table", "typer", "uvloop", "yaml",
)  # fmt: skip
"""Modules that natsctl imports inside functions."""


def main() -> None:
    """Serve, and be a process of natsctl wherever one was forked."""
    _import_commands()
    request = serve(int(sys.argv[1]))
    if request is None:
        return
    become(request)
    try:
        runpy.run_module("natsctl", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        _leave(end)


def _leave(end: SystemExit) -> NoReturn:
    """End as Python does, but for taking everything apart."""
    code = end.code or 0
    if not isinstance(code, int):
        raise end
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the end of Python does
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        raise end from None
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
