"""How far the consumers of a stream are, with what that is measured by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from natsctl.api.consumer import ConsumerInfo
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager


class Progress(NamedTuple):
    """The consumers of a stream, and how many messages that has."""

    stream: str
    messages: int
    infos: Sequence[Answer[ConsumerInfo]]


async def progress(manager: Manager, stream: str) -> Progress:
    """The progress of all consumers; both requests go at once."""
    of, consumers = await asyncio.gather(manager.stream_info(stream), manager.consumer_list(stream))
    return Progress(stream, int(of.raw["state"]["messages"]), consumers)
