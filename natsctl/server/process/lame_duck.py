"""Lame duck mode: a server that is about to stop lets its clients go elsewhere, a few at a time.

Nobody is accepted any more and every client is told. After the grace period, in which clients leave by themselves,
those who stayed are closed one by one over the rest of the duration, so that they do not fall upon the next server
all at once. The server stops when the last one is gone.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from natsctl.broker.reasons import CloseReason

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance
    from natsctl.server.process.log import Log

LONGEST_PAUSE_S: Final = 1.0
"""Between two clients: few of them need not wait the whole duration."""

SHORTEST_PAUSE_S: Final = 0.001


async def lame_duck(server: ServerInstance, log: Log, rng: random.Random) -> None:
    """Empty the server; returns when nobody is left."""
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
