"""How far the consumers of a stream are, with what that is measured by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.errors import ApiResponseError, UnreachableError

if TYPE_CHECKING:
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager


class Progress(NamedTuple):
    """The consumers of a stream, and how many messages that has."""

    stream: str
    messages: int
    infos: Sequence[Answer[Any]]
    missing: Sequence[str] = ()
    """Consumers whose leaders do not answer."""


async def progress(manager: Manager, stream: str) -> Progress:
    """The progress of all consumers; both requests go at once.

    Consumers that elect a leader while they are listed are asked for one by one.
    """
    of, consumers = await asyncio.gather(manager.stream_info(stream), manager.consumer_list(stream))
    infos: list[Answer[Any]] = list(consumers)
    missing: list[str] = []
    for name in [*(consumers.raw.get("missing") or ()), *(consumers.raw.get("offline") or ())]:
        try:
            infos.append(await manager.consumer_info(stream, name))
        except (ApiResponseError, UnreachableError):
            missing.append(name)
    return Progress(stream, int(of.raw["state"]["messages"]), infos, missing)
