"""Reading from push consumers: a subscription on the delivery subject that keeps flow control going."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.errors import UnreachableError

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message

_STATUS: Final = 100
_STALLED: Final = "Nats-Consumer-Stalled"
MISSED: Final = 3
"""Heartbeats that may be missing in a row before the consumer counts as lost."""


async def pushed(manager: Manager, config: Mapping[str, Any]) -> AsyncGenerator[Message, None]:
    """What the consumer of that configuration delivers, without end, as one of its queue group if it has one.

    Raises UnreachableError when heartbeats that the consumer promises do not come any more.
    """
    connection = manager.connection
    beat_s = int(config.get("idle_heartbeat") or 0) / 1e9
    queue = config.get("deliver_group") or ""
    subscription = await connection.subscribe(config["deliver_subject"], queue=queue, lasting=True)
    try:
        await connection.flush()
        while True:
            message = await subscription.next(MISSED * beat_s or None)
            if message is None:
                raise UnreachableError(f"no heartbeat of the consumer for {MISSED * beat_s:g}s")
            if message.status != _STATUS:
                yield message
            elif stalled := message.reply or message.headers.get(_STALLED, ""):
                await connection.publish(stalled)
    finally:
        await subscription.stop()
