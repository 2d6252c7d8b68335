"""Listening on subjects until enough came, nothing came for long enough, or Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from natsctl.api.errors import NothingReceived
from natsctl.cli import output
from natsctl.cli.messaging.bodies import received
from natsctl.cli.render.message import Received, message_document, render_headers, render_received
from natsctl.cli.render.values import body_text, safe

if TYPE_CHECKING:
    from natsctl.cli.consumer.messages import Reply
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.subscription import Subscription

MAX_WAITING = 1024
"""Messages kept between the subscriptions and the screen; those beyond wait in the subscriptions."""


@dataclass(frozen=True, slots=True)
class Listening:
    """What to listen on, and when to end: after `count` messages (0 never), or after `wait_s` without one."""

    subjects: tuple[str, ...]
    queue: str = ""
    count: int = 0
    wait_s: float | None = None


class Show(Protocol):
    """What `listen` gives messages to."""

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Say that everything that comes from now on will be shown."""

    async def show(self, manager: Manager, number: int, message: Message) -> None:
        """Show one message."""


async def listen(manager: Manager, listening: Listening, show: Show) -> int:
    """Show messages as they come, and return how many. Raises NothingReceived when the wait ended without any."""
    async with _merged(manager, listening) as arriving:
        await manager.connection.flush()
        show.banner(listening.subjects)
        number = 0
        while not listening.count or number < listening.count:
            try:
                async with asyncio.timeout(listening.wait_s):
                    message = await arriving.get()
            except TimeoutError:
                break
            if isinstance(message, BaseException):
                raise message
            number += 1
            await show.show(manager, number, message)
    if number == 0:
        raise NothingReceived(f"no message received on {', '.join(listening.subjects)}")
    return number


@asynccontextmanager
async def _merged(manager: Manager, listening: Listening) -> AsyncIterator[asyncio.Queue[Message | BaseException]]:
    """The messages of all subjects in one queue, in the order they come."""
    arriving: asyncio.Queue[Message | BaseException] = asyncio.Queue(MAX_WAITING)
    subscriptions = [await manager.connection.subscribe(one, queue=listening.queue) for one in listening.subjects]
    tasks = [asyncio.create_task(_pump(one, arriving)) for one in subscriptions]
    try:
        yield arriving
    finally:
        for task in tasks:
            task.cancel()
        for subscription in subscriptions:
            await subscription.stop()


async def _pump(subscription: Subscription, arriving: asyncio.Queue[Message | BaseException]) -> None:
    from natsctl.api.errors import NatsctlError

    try:
        async for message in subscription:
            await arriving.put(message)
    except NatsctlError as failure:
        await arriving.put(failure)


class Shower:
    """Shows messages of subscriptions: numbered on stdout, or one JSON document on each line, or bodies only."""

    def __init__(
        self,
        *,
        raw: bool = False,
        json: bool = False,
        stamped: bool = False,
        headers_only: bool = False,
        subjects_only: bool = False,
    ) -> None:
        self.raw = raw
        self.json = json
        self.stamped = stamped
        self.headers_only = headers_only
        self.subjects_only = subjects_only
        self.reply: Reply | None = None

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Say on stderr what is listened on."""
        if not self.raw and not self.json:
            output.log(f"Subscribing on {', '.join(safe(subject) for subject in subjects)}")

    async def show(self, manager: Manager, number: int, message: Message) -> None:
        """Show one message, and answer it if that was asked for."""
        self._show(number, received(message))
        if self.reply is not None:
            await self.reply.send(manager, message)

    def _show(self, number: int, message: Received) -> None:
        if self.json:
            output.emit_json_line(message_document(message))
        elif self.subjects_only:
            output.emit(safe(message.subject))
        elif self.raw:
            output.emit_bytes(message.payload + b"\n")
        else:
            self._show_text(number, message)
        sys.stdout.flush()

    def _show_text(self, number: int, message: Received) -> None:
        output.emit(render_received(number, message, self.stamped))
        for line in render_headers(message.headers):
            output.emit(line)
        if message.headers:
            output.emit("")
        if self.headers_only:
            return
        if sys.stdout.isatty():
            output.emit(f"{body_text(message.payload)}\n")
        else:
            output.emit_bytes(message.payload + b"\n\n")


class EventShower:
    """Shows advisories and metrics: long form, or each as the server sent it."""

    def __init__(self, json: bool) -> None:
        self.json = json

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Say on stderr what is listened on."""
        for subject in () if self.json else subjects:
            kind = "Metrics" if ".METRIC." in subject else "Advisories"
            output.note(f"Listening for {kind} on {safe(subject)}")

    async def show(self, manager: Manager, number: int, message: Message) -> None:
        """Show one event."""
        from natsctl.cli.render.event import render_event

        if self.json:
            output.emit_json_line(message.body)
        else:
            output.emit(render_event(message.subject, message.body, time.time_ns()))
            sys.stdout.flush()
