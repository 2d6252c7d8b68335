"""A small service that speaks the micro protocol: its one endpoint `echo` sends back what it is sent.

nats-py's own is not used: it reads subscriptions through callbacks in tasks of nats-py, which this room's client does
not have, and tells times in milliseconds without a zone that Python knows.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from natsctl import __version__
from natsctl.api.errors import UsageError
from natsctl.api.times import format_time
from natsctl.client.message import HeaderLike
from natsctl.client.services.ask import PREFIX
from natsctl.client.services.documents import (
    INFO,
    PING,
    STATS,
    Endpoint,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
)

if TYPE_CHECKING:
    from natsctl.client.connection import Connection
    from natsctl.client.message import Message
    from natsctl.client.subscription import Subscription

_NAME = re.compile(r"[A-Za-z0-9_-]+")
QUEUE = "q"
"""The queue group that services share requests in unless they say otherwise."""

Handle = Callable[["Message"], tuple[bytes, HeaderLike]]


class EchoService:
    """One instance; `run` serves until it is cancelled or the connection ends."""

    def __init__(self, name: str, headers: HeaderLike = (), description: str = "Echoes what it is sent") -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a service name: letters, digits, _ and - only")
        self._headers = headers
        self._started = format_time(time.time_ns())
        self.info = ServiceInfo(
            name=name,
            id=uuid.uuid4().hex[:22],
            version="1.0.0",
            metadata={"natsctl": __version__},
            description=description,
            endpoints=[Endpoint(name="echo", subject=f"{name}.echo", queue_group=QUEUE)],
        )
        self._done = EndpointStats(name="echo", subject=f"{name}.echo", queue_group=QUEUE)

    async def run(
        self, connection: Connection, listening: Callable[[], None], handled: Callable[[Message], None]
    ) -> None:
        """Answer requests; `listening` is called once it hears them, `handled` for each request to `echo`."""

        def echo(message: Message) -> tuple[bytes, HeaderLike]:
            handled(message)
            return message.body, self._headers

        heard = [(await connection.subscribe(subject, lasting=True), handle) for subject, handle in self._verbs()]
        heard.append((await connection.subscribe(self._done.subject, queue=QUEUE, lasting=True), self._counted(echo)))
        await connection.flush()
        listening()
        tasks = [asyncio.create_task(_serve(connection, subscription, handle)) for subscription, handle in heard]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _verbs(self) -> list[tuple[str, Handle]]:
        """The subjects on which it is asked about itself, and what answers there."""
        identity = {name: getattr(self.info, name) for name in ("name", "id", "version", "metadata")}
        told: dict[str, Callable[[], msgspec.Struct]] = {
            PING: lambda: ServicePing(**identity),
            INFO: lambda: self.info,
            STATS: lambda: ServiceStats(**identity, started=self._started, endpoints=[self._done]),
        }

        def handle(verb: str) -> Handle:
            return lambda message: (msgspec.json.encode(told[verb]()), ())

        name, id = self.info.name, self.info.id
        return [(f"{PREFIX}.{verb}{tail}", handle(verb)) for verb in told for tail in ("", f".{name}", f".{name}.{id}")]

    def _counted(self, handle: Handle) -> Handle:
        """The same, counted in the statistics."""

        def counted(message: Message) -> tuple[bytes, HeaderLike]:
            before = time.perf_counter_ns()
            answer = handle(message)
            done = self._done
            done.num_requests += 1
            done.processing_time += time.perf_counter_ns() - before
            done.average_processing_time = done.processing_time // done.num_requests
            return answer

        return counted


async def _serve(connection: Connection, subscription: Subscription, handle: Handle) -> None:
    """Answer every message of a subscription that asks for an answer."""
    async for message in subscription:
        body, headers = handle(message)
        if message.reply:
            await connection.publish(message.reply, body, headers=headers or None)
