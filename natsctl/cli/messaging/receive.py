"""Listening until enough came, nothing came for long enough, nothing more will come, or Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from natsctl.api.errors import NothingReceivedError
from natsctl.api.subjects import matches
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.render.text import safe
from natsctl.client.messaging.feed import CoreFeed

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.messaging.feed import Feed

BREATH = 1000
"""Messages shown at a stretch before the connection and Ctrl-C get their turn."""


@dataclass(frozen=True, slots=True)
class Listening:
    """What to listen on, and when to end: after `count` messages (0 never), or after `wait_s` without one.

    Messages on `ignored` subjects count for nothing.
    """

    subjects: tuple[str, ...]
    queue: str = ""
    count: int = 0
    wait_s: float | None = None
    ignored: tuple[str, ...] = ()


class Idle:
    """How long nothing was shown: the wait begins anew with each message that was."""

    def __init__(self, wait_s: float | None) -> None:
        self._wait_s = wait_s
        self._until_s = 0.0
        self._waiting = False
        self.over = False

    @property
    def left_s(self) -> float | None:
        """Seconds to wait for the next message, None for no end; the wait begins now unless it has begun."""
        if self._wait_s is None:
            return None
        if not self._waiting:
            self._waiting = True
            self._until_s = time.monotonic() + self._wait_s
        return max(0.0, self._until_s - time.monotonic())

    def ends(self) -> None:
        """A message was shown."""
        self._waiting = False

    def passed(self) -> None:
        """A message came that was not for showing."""
        self.over = self.left_s == 0.0


class Show(Protocol):
    """What `listen` gives messages to."""

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Say that everything that comes from now on will be shown."""

    async def show(self, manager: Manager, number: int, message: Message) -> bool | None:
        """Show one message; False when it was not for showing and does not count."""

    def flush(self) -> None:
        """Let what was shown be seen: nothing more is there to be shown now."""


async def listen(manager: Manager, listening: Listening, show: Show) -> int:
    """Show messages as they are published, and return how many. Raises NothingReceivedError when there were none."""
    async with CoreFeed(manager, listening.subjects, listening.queue) as feed:
        number = await follow(manager, feed, listening, show)
        if feed.dropped:
            output.note(
                f"{plural(feed.dropped, 'message')} arrived faster than they could be shown, and were not shown"
            )
    return number


async def follow(manager: Manager, feed: Feed, listening: Listening, show: Show, *, may_be_none: bool = False) -> int:
    """Show what a feed brings, and return how many.

    Raises NothingReceivedError for none, unless there `may_be_none`.
    """
    show.banner(listening.subjects)
    number = stretch = 0
    most = listening.count or sys.maxsize
    idle = Idle(listening.wait_s)
    try:
        while number < most and not idle.over:
            message = feed.now()
            if message is None or stretch == BREATH:
                show.flush()
                stretch = 0
                await asyncio.sleep(0)
                message = message or await feed.next(idle.left_s)
                if message is None:
                    break
            stretch += 1
            ignored = listening.ignored and any(matches(pattern, message.subject) for pattern in listening.ignored)
            if ignored or await show.show(manager, number + 1, message) is False:
                idle.passed()
            else:
                idle.ends()
                number += 1
    finally:
        show.flush()
    if number == 0 and not may_be_none:
        raise NothingReceivedError(f"no message received on {safe(', '.join(listening.subjects))}")
    return number
