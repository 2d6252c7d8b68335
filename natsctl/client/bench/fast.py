"""A publisher of a fast batch: the stream says now and then how far it is, and how much may be under way.

The reply subject of each message says where in the batch it stands:
`<inbox>.<batch>.<messages between acks>.fail.<place>.<operation>.$FI`. Source: ADR-50.
"""

from __future__ import annotations

import asyncio
import json
import uuid

from natsctl.api.errors import ApiResponseError, NatsctlError, ProtocolError
from natsctl.client.bench.client import Client, refusal
from natsctl.client.bench.messages import Maker, Pace, command
from natsctl.client.bench.tally import Tally
from natsctl.client.requests import api_error

START, APPEND, COMMIT = range(3)


class Flow:
    """How far the stream says the batch is; `may_send` is the place up to which messages may go."""

    def __init__(self, tally: Tally, subject: str, size: int, outstanding: int, share: int) -> None:
        self._tally, self._subject, self._size = tally, subject, size
        self._outstanding, self._share = outstanding, share
        self.may_send = 1
        self.moved = asyncio.Event()

    def take(self, _subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        """Take what the stream says."""
        failure = refusal(self._subject, header, body)
        said = {} if failure is not None or not body else json.loads(body)
        if said.get("type") == "gap":
            failure = ProtocolError(f"the stream missed messages of the batch on {self._subject}: {said}")
        elif "batch" in said:
            self._count(self._share)
        elif said.get("type") == "ack":
            self._count(int(said.get("seq") or 0))
            self.may_send = self._tally.msgs + self._outstanding * int(said.get("msgs") or 1)
        elif failure is None:
            failure = _odd(self._subject, said)
        if failure is not None:
            self._tally.fail(failure)
        self.moved.set()

    def _count(self, stored: int) -> None:
        more = stored - self._tally.msgs
        if more > 0:
            self._tally.add(more, more * self._size)


def _odd(subject: str, said: dict[str, object]) -> NatsctlError:
    if error := said.get("error"):
        return ApiResponseError(api_error(error), subject)
    return ProtocolError(f"the stream answered on {subject} what is not an ack of a fast batch: {said}")


async def publish_fast(client: Client) -> None:
    """Send all messages of the client as one batch, as quickly as the stream lets it."""
    load, tally, inbox = client.load, client.tally, client.new_inbox()
    make = Maker(load)
    head = b"%b.%b.%d.fail" % (inbox, uuid.uuid4().hex.encode(), load.batch)
    flow = Flow(tally, load.subject, len(make.body), load.max_outstanding_acks, client.share)
    await client.link.listen(f"{inbox.decode()}.>", flow.take, tally)
    await client.start()
    pace, sent = Pace(load), 0

    def one(place: int) -> bytes:
        operation = COMMIT if place == client.share else START if place == 1 else APPEND
        number = client.first + place - 1
        reply = b"%b.%d.%d.$FI" % (head, place, operation)
        return command(make.subject(number), make.body, reply, make.pairs(number))

    while sent < client.share:
        tally.check()
        until = min(flow.may_send, client.share, sent + pace.step(make.fitting))
        if until > sent:
            await client.link.write(b"".join(map(one, range(sent + 1, until + 1))))
            sent = until
            await pace.rest(sent)
        else:
            await _moved(client, flow)
    await tally.reach(client.share, client.idle_s, client.idle_s)
    tally.end()


async def _moved(client: Client, flow: Flow) -> None:
    """Return once the stream has said something; raises UnreachableError when it is silent."""
    from natsctl.api.errors import UnreachableError

    flow.moved.clear()
    client.tally.check()
    try:
        async with asyncio.timeout(client.idle_s):
            await flow.moved.wait()
    except TimeoutError:
        client.tally.check()
        raise UnreachableError(f"the stream said nothing about the batch for {client.idle_s:g}s") from None
