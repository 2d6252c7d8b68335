"""Notices to the service manager that started the process: ready, reloading, stopping, still alive.

systemd names a socket in NOTIFY_SOCKET for units of `Type=notify` (or `notify-reload`), and takes lines of `KEY=value`
there. With WatchdogSec= it restarts a service that has said nothing for so long: the loop says that it turns, so that a
server whose loop hangs is restarted. Without NOTIFY_SOCKET nothing is sent. Source: sd_notify(3).
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

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
