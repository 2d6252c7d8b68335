"""Atomic batches: messages that a stream stores all together or not at all.

The first message and the last one are requests: the first is answered by nothing, or by why the stream takes no batch;
the last one, which commits, by the ack. Those between have no answer. A batch that is not committed within the
server's time is abandoned there, and nothing of it was stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import uuid4

from natsctl.api.errors import UsageError
from natsctl.client.messaging.messages import ack_of, refused_by
from natsctl.client.messaging.outgoing import Outgoing
from natsctl.client.preview import DryRunError, Planned

if TYPE_CHECKING:
    from natsctl.api.messages import PubAck
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager

MAX_MESSAGES = 1000
"""Messages in one batch that servers take."""


def numbered(messages: Iterable[Outgoing]) -> list[Outgoing]:
    """The messages with the headers that make them one batch. Raises UsageError for none, or too many."""
    batch, parts = uuid4().hex, list(messages)
    if not 0 < len(parts) <= MAX_MESSAGES:
        raise UsageError(f"a batch has 1 to {MAX_MESSAGES} messages, not {len(parts)}")
    last = len(parts)
    return [
        one._replace(
            headers=(
                *one.headers,
                ("Nats-Batch-Id", batch),
                ("Nats-Batch-Sequence", str(number)),
                *((("Nats-Batch-Commit", "1"),) if number == last else ()),
            )
        )
        for number, one in enumerate(parts, 1)
    ]


async def publish_batch(manager: Manager, messages: Iterable[Outgoing]) -> Answer[PubAck]:
    """The ack of the whole batch.

    Raises NoStreamResponseError when nobody listens, ApiResponseError when the batch is refused: nothing was stored
    then.
    """
    parts = numbered(messages)
    connection = manager.connection
    if connection.dry_run:
        raise DryRunError(*(Planned(one.subject, one.body, one.headers) for one in parts))
    for number, one in enumerate(parts[:-1]):
        if number:
            await connection.publish(one.subject, one.body, headers=one.headers)
            continue
        answer = await connection.request(one.subject, one.body, headers=one.headers)
        if answer.status or answer.body:
            refused_by(answer, one.subject)
    end = parts[-1]
    return ack_of(await connection.request(end.subject, end.body, headers=end.headers), end.subject)
