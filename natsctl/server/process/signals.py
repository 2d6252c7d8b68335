"""`--signal`: telling a server that runs to reload, reopen its log, or stop; by its pid, or by finding it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Final

from natsctl.server.process.goflags import FlagError

COMMANDS: Final = {
    "stop": signal.SIGKILL, "quit": signal.SIGINT, "term": signal.SIGTERM, "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP, "ldm": signal.SIGUSR2,
}  # fmt: skip

NAMES: Final = {
    signal.SIGINT: "interrupt", signal.SIGTERM: "terminated", signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1", signal.SIGUSR2: "user defined signal 2",
}  # fmt: skip
"""How log lines call the signals."""


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
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_server(words) and int(folder.name) != os.getpid():
            yield int(folder.name)


def is_server(words: list[bytes]) -> bool:
    """Whether a command line is that of a server: `natsctl server run …` or `python -m natsctl.server …`."""
    if any(word.endswith((b"-sl", b"-signal")) or b"-signal=" in word or b"-sl=" in word for word in words):
        return False
    names = [word.rsplit(b"/", 1)[-1] for word in words[:3]]
    at = next((place for place, name in enumerate(names) if name in (b"natsctl", b"natsctl.server")), None)
    return at is not None and (names[at] == b"natsctl.server" or words[at + 1 : at + 3] == [b"server", b"run"])
