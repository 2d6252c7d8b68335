"""One client of a benchmark: its connection, its share, and the start that it waits for with all others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, NatsctlError, ProtocolError, UnreachableError
from natsctl.client.answer import parse_object
from natsctl.client.bench.link import Link
from natsctl.client.bench.load import Load
from natsctl.client.bench.tally import Tally
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.requests import api_error

if TYPE_CHECKING:
    from natsctl.client.manager import Manager


@dataclass(slots=True)
class Client:
    """What the work of one client is given."""

    manager: Manager
    link: Link
    load: Load
    number: int
    ready: Callable[[], None]
    """Called once it only waits for the start."""
    started: asyncio.Event
    tally: Tally = field(default_factory=Tally)

    @property
    def first(self) -> int:
        """Its first message, from 0."""
        return self.load.share(self.number)[0]

    @property
    def share(self) -> int:
        """How many messages it has."""
        return self.load.share(self.number)[1]

    @property
    def idle_s(self) -> float:
        """How long it waits for something that should come."""
        return self.load.wait_ns / 1e9 or self.manager.connection.timeout_s

    def new_inbox(self) -> bytes:
        """A subject that nobody else uses."""
        return self.manager.connection.new_inbox().encode()

    async def start(self) -> None:
        """Wait for the others, then start the clock."""
        await self.link.flush()
        self.ready()
        await self.started.wait()
        self.tally.begin()


def refusal(subject: str, header: bytes, body: bytes) -> NatsctlError | None:
    """What an answer says against a message, or None: nobody took it, or the stream's error."""
    if header.startswith(b"NATS/1.0 "):
        return failed_status(subject, header)
    if b'"error"' not in body:
        return None
    try:
        said = parse_object(body, subject).get("error")
    except ProtocolError:
        return None
    return ApiResponseError(api_error(said), subject) if said else None


def failed_status(subject: str, header: bytes) -> NatsctlError:
    """The failure that a status message tells."""
    from natsctl.api.headers import parse_status

    status, text = parse_status(header)
    failure: NatsctlError
    if status == NO_RESPONDERS:
        failure = UnreachableError(f"no responders on {subject}", hint="no subscriber and no stream takes it")
    else:
        failure = ApiResponseError(ApiError(code=status, description=text), subject)
    failure.subject = subject
    return failure
