"""When what one side of a link did has got across."""

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError, TimeoutError

WITHIN_S = 60.0
PAIRS = [
    pytest.param(("natsctl", "natsctl"), id="both"),
    pytest.param(("reference", "natsctl"), id="spoke"),
    pytest.param(("natsctl", "reference"), id="hub"),
]
"""Kinds of hub and spoke; the id says what natsctl is."""


async def across(here: Client, there: Client) -> None:
    """Return when the server of `here` knows what `there` listens to, and `there` has all that `here` has published.

    A link carries interest and messages in their order: behind both goes a request that only `there` can answer.
    """
    inbox = there.new_inbox()

    async def answer(message: Any) -> None:
        await message.respond(b"")

    sub = await there.subscribe(inbox, cb=answer)
    async with asyncio.timeout(WITHIN_S):
        while not await _answered(here, inbox):
            await asyncio.sleep(0.02)
    await sub.unsubscribe()


async def _answered(client: Client, subject: str) -> bool:
    try:
        await client.request(subject, timeout=5)
    except (NoRespondersError, TimeoutError):
        return False
    return True
