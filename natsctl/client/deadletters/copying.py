"""The service that copies the messages of dead letters into their capture streams, while they still exist.

It reads the advisories with a durable consumer, so that it continues after a restart. Each advisory has its own copy
subject, and a copy is published with the condition that its subject is empty: a repeated one is refused, however long
ago the first was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from natsctl.api import acks
from natsctl.api.errors import ApiResponseError, ErrCode
from natsctl.api.units import SECOND
from natsctl.client.connection import ConnectionLostError
from natsctl.client.deadletters.capture import (
    COPYING_CONSUMER,
    CaptureOptions,
    CaptureStream,
    NoDeadLettersError,
    advisories_of,
    capture_streams,
    enable,
)
from natsctl.client.deadletters.letters import AT_ONCE, DeadLetter, LetterSource, copy_headers, parse_advisory
from natsctl.client.manager import Manager
from natsctl.client.message import Message
from natsctl.client.messaging.messages import acknowledge, publish
from natsctl.client.requests import side_by_side

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
RESCAN_S: Final = 30.0
"""Seconds between two lookups of capture streams with copies."""
ACK_WAIT_NS: Final = 10 * SECOND
_STORED_BEFORE: Final = frozenset((ErrCode.STREAM_WRONG_LAST_SEQUENCE, ErrCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT))


class CopyReport(msgspec.Struct):
    """Advisories handled: copies stored now, stored before, messages that did not exist any more, and refused ones."""

    copied: int = 0
    copied_before: int = 0
    missing: int = 0
    refused: int = 0


CopyListener = Callable[[DeadLetter, str], None]
"""Called with each dead letter and its outcome: `copied`, `copied before`, `missing`, or the reason of a refusal."""


def ignore_outcome(letter: DeadLetter, outcome: str) -> None:
    """Ignore an outcome."""


async def turn_on_copies(manager: Manager, stream: str = "") -> list[str]:
    """Make the capture streams of `stream` ("": all that natsctl made) keep copies; return their names."""
    captures = [capture for capture in await capture_streams(manager, stream) if capture.made_by_natsctl]
    for capture in captures:
        if not capture.copies:
            await enable(manager, capture.stream, CaptureOptions(copies=True))
    return [capture.name for capture in captures]


async def copy_messages(
    manager: Manager, stream: str = "", *, once: bool = False, on_outcome: CopyListener = ignore_outcome
) -> CopyReport:
    """Copy the messages of dead letters of `stream` ("": of all streams) from every capture stream with copies.

    Runs until it is cancelled, or with `once` until no advisory waits. Raises NoDeadLettersError if no stream keeps
    copies, ApiResponseError and UnreachableError.
    """
    report = CopyReport()
    running: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            for capture in await capture_streams(manager, stream):
                if capture.copies and (capture.name not in running or running[capture.name].done()):
                    copier = _Copier(manager, capture, stream, report, on_outcome)
                    running[capture.name] = asyncio.ensure_future(copier.run(once=once))
            if not running:
                of = f" of {stream}" if stream else ""
                raise NoDeadLettersError(
                    f"no stream keeps copies of dead letters{of}",
                    hint=f"natsctl deadletter enable {stream or '--all'} --copy keeps them from now on",
                )
            if once:
                await asyncio.gather(*running.values())
                return report
            ended, _ = await asyncio.wait(running.values(), timeout=RESCAN_S, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
    finally:
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)


class _Copier:
    """Copies the messages of one capture stream."""

    def __init__(
        self, manager: Manager, capture: CaptureStream, stream: str, report: CopyReport, on_outcome: CopyListener
    ) -> None:
        self._manager, self._capture, self._stream = manager, capture, stream
        self._report, self._on_outcome = report, on_outcome
        self._source = LetterSource(manager, [capture])

    async def run(self, *, once: bool) -> None:
        from natsctl.client.messaging.consumers import LeadershipChangeError, resumed

        await self._manager.consumer_create(self._capture.name, self._consumer())
        while True:
            try:
                messages = await self._batch({"batch": AT_ONCE, "no_wait": True})
                if not messages:
                    if once and await self._is_done():
                        return
                    messages = await self._batch({"batch": 1, "expires": ACK_WAIT_NS, "idle_heartbeat": 5 * SECOND})
                await side_by_side(self._copy, messages, AT_ONCE)
            except (LeadershipChangeError, ConnectionLostError):
                if once and not self._manager.connection.reconnects:
                    raise
                await resumed(
                    self._manager.connection, lambda: self._manager.consumer_info(self._capture.name, COPYING_CONSUMER)
                )
            except ApiResponseError as failure:
                if failure.err_code == ErrCode.STREAM_NOT_FOUND and not once:
                    return
                raise

    async def _is_done(self) -> bool:
        """Return whether no advisory waits; a service that was killed leaves some that wait for its acks."""
        info = (await self._manager.consumer_info(self._capture.name, COPYING_CONSUMER)).value
        return not info.num_pending and not info.num_ack_pending

    def _consumer(self) -> dict[str, Any]:
        return {
            "durable_name": COPYING_CONSUMER,
            "description": "natsctl deadletter run",
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_NS,
            "deliver_policy": "all",
            "filter_subjects": advisories_of(self._capture.stream),
        }

    async def _batch(self, request: dict[str, Any]) -> list[Message]:
        from natsctl.client.messaging.consumers import pull

        return [message async for message in pull(self._manager, self._capture.name, COPYING_CONSUMER, request)]

    async def _copy(self, message: Message) -> None:
        place = acks.parse(message.reply.encode())
        entry = place.stream_seq if place is not None else 0
        letter = parse_advisory(self._capture.name, message.subject, entry, message.body)
        if letter is not None:
            outcome = await self._outcome(letter)
            counted = outcome.replace(" ", "_") if outcome in ("copied", "copied before", "missing") else "refused"
            setattr(self._report, counted, getattr(self._report, counted) + 1)
            self._on_outcome(letter, outcome)
        await acknowledge(self._manager, message, wait=False)

    async def _outcome(self, letter: DeadLetter) -> str:
        message = await self._source.stored(letter)
        (subject,) = letter.copy_subjects()
        if message is None:
            copy = await self._source.copy(letter)
            return "missing" if copy is None else "copied before"
        headers = [(EXPECTED, "0"), *copy_headers(message, letter.failure)]
        room = int(self._manager.connection.info.get("max_payload") or 0)
        size = len(message.body) + sum(len(name) + len(value) + 4 for name, value in headers)
        if room and size + 16 > room:
            return f"too large for a copy: {size:,} bytes with its headers, and the server allows {room:,}"
        try:
            await publish(self._manager, subject, message.body, headers=headers)
        except ApiResponseError as refusal:
            return "copied before" if refusal.err_code in _STORED_BEFORE else refusal.text
        return "copied"
