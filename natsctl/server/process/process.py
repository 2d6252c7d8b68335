"""`natsctl server run`: its command line, signals to a running server, and the exit status.

Exit status: 0 after SIGTERM or SIGINT, 1 when the server could not start, 2 for a wrong command line or documents, and
the status of `natsctl apply` if documents could not be applied. A second signal while the server stops ends the process
as signals do, whatever it is waiting for. `--signal` sends a signal to a running server, found by its pid or by name.

The addresses of clients are listened on as soon as the options are known, before the server itself is imported: a
client that comes meanwhile waits in the queue of the socket until the server is ready, and gets INFO then. If the start
fails its connection is closed with the socket. What cannot be listened on is reported by the start.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from natsctl import __version__
from natsctl.api.errors import NatsctlError
from natsctl.api.versions import SERVER_VERSION
from natsctl.server.process import import_loop_without_tls
from natsctl.server.process.flags import (
    NOT_STARTED,
    USAGE,
    USAGE_ERROR,
    CommandLine,
    FlagError,
    NotProvisionedError,
    file_fault,
    parse_command_line,
)
from natsctl.server.sockets import listen

if TYPE_CHECKING:
    from natsctl.server.process.provision import Preparation, Provisioner


COMMANDS: Final = {
    "stop": signal.SIGKILL, "quit": signal.SIGINT, "term": signal.SIGTERM, "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP, "ldm": signal.SIGUSR2,
}  # fmt: skip


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
    pids = [pid for pid in _running() if str(pid).startswith(begins)]
    if not pids:
        raise FlagError("no natsctl server processes running")
    if len(pids) > 1 and not many:
        raise FlagError("multiple natsctl server processes running:\n" + "\n".join(map(str, pids)))
    return pids


def _running() -> Iterator[int]:
    from pathlib import Path

    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_server(arguments) and int(folder.name) != os.getpid():
            yield int(folder.name)


def is_server(arguments: list[bytes]) -> bool:
    """Return whether a command line starts a server: `natsctl server run …` or `python -m natsctl.server …`."""
    if any(word.endswith((b"-sl", b"-signal")) or b"-signal=" in word or b"-sl=" in word for word in arguments):
        return False
    names = [word.rsplit(b"/", 1)[-1] for word in arguments[:3]]
    at = next((place for place, name in enumerate(names) if name in (b"natsctl", b"natsctl.server")), None)
    return at is not None and (names[at] == b"natsctl.server" or arguments[at + 1 : at + 3] == [b"server", b"run"])


def version_line() -> str:
    """Return the output of `-v`; the clients' test suites parse its beginning."""
    return f"nats-server: v{SERVER_VERSION} (natsctl {__version__})"


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
        sys.stderr.write(f"nats-server: {file_fault(error)}\n")
        return NOT_STARTED
    options = command_line.options
    sockets = listen(options)
    if options.config_file is None and options.tls is None and prepare is None:  # a reload cannot bring TLS either
        import_loop_without_tls()
    try:
        from natsctl.server.process.serving import run

        return run(options, lambda: parse_command_line(argv, os.environ).options, prepare, sockets)
    finally:
        for sock in sockets.values():
            sock.close()


def _preparation(command_line: CommandLine, provisioner: Provisioner | None) -> Preparation | None:
    """Return the step before the server listens; raises NotProvisionedError with all faults of documents."""
    documents = command_line.documents
    if documents is None:
        return None
    if provisioner is None:
        raise FlagError("--apply: documents are for `natsctl server run`")
    from natsctl.server.process.provision import provision

    try:
        return partial(provision, documents, provisioner(documents))
    except NatsctlError as failure:
        raise NotProvisionedError(failure) from failure


def _answer(command_line: CommandLine) -> int:
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
