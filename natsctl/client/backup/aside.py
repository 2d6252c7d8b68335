"""Long reading in another thread, so that the connection lives on and Ctrl-C ends it at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from natsctl.client.backup.contents import OnRead

T = TypeVar("T")


class ReadCancelledError(Exception):  # nobody waits for the result any more
    """Ends a reading whose result is not wanted any more."""


async def aside(work: Callable[[OnRead], T], on_read: OnRead) -> T:
    """The result of `work`, which tells its argument how far it is; `on_read` hears of that in this thread.

    Whoever waits may be cancelled: the work ends then at the next piece that it has read.
    """
    stopped = threading.Event()
    loop = asyncio.get_running_loop()

    def watch(done: int) -> None:
        if stopped.is_set():
            raise ReadCancelledError
        loop.call_soon_threadsafe(on_read, done)

    try:
        return await asyncio.to_thread(work, watch)
    except BaseException:
        stopped.set()
        raise
