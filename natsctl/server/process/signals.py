"""`--signal` for a running server, found by its pid or by name, and lame duck mode.

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
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from natsctl.broker.refusals import CloseReason
from natsctl.server.process.flags import FlagError

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance
    from natsctl.server.process.log import Log


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
