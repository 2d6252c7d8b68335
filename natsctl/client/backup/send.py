"""The data of one restore: pieces as requests, several ahead of their answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from natsctl.api import endpoints
from natsctl.api.answers import StreamCreateAnswer
from natsctl.api.errors import ApiResponseError, NatsctlError, ProtocolError, UnreachableError
from natsctl.client.answer import Answer, parse_object
from natsctl.client.backup.attempts import TransferInterruptedError, TransferTimeoutError
from natsctl.client.backup.progress import OnProgress, Progress
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.requests import api_error

if TYPE_CHECKING:
    from natsctl.client.backup.opened import OpenBackup
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message

PIECE_BYTES = 64 * 1024
"""What the `nats` tool sends at once; every server takes it."""
WINDOW = 8
ABANDON_WAIT_S = 10.0
END_WAIT_S = 3600.0
"""What a server may take to make the stream of what it was sent, as in the `nats` tool."""


class Sending:
    """Sends a backup's data to a server, as often as it is asked to."""

    def __init__(self, backup: OpenBackup, config: dict[str, Any], idle_s: float, on_progress: OnProgress) -> None:
        self.backup = backup
        self._config = config
        self._idle_s = idle_s
        self._on_progress = on_progress
        self.progress = Progress(str(config["name"]), backup.size)
        self.begun = False
        self.unheard = False
        """Whether the server was told that all was sent, and what it said to that did not come."""
        self.left_part = False
        """Whether the server made a stream of what had come before it was abandoned."""
        self._deliver = ""

    async def send(self, manager: Manager) -> Answer[StreamCreateAnswer]:
        """The server's answer once the stream is there.

        Raises ApiResponseError, TransferInterruptedError, TransferTimeoutError or UnreachableError.
        """
        name = self.progress.stream
        if self.begun:
            self.progress.again()
        body = {"config": self._config, "state": self.backup.state}
        try:
            answer = await manager.requests.ask(endpoints.STREAM_RESTORE, name, body=body)
        except UnreachableError:
            self.begun = True  # perhaps: the server may have died with its answer, and its cluster hold the name
            raise
        self.begun, self.unheard = True, False
        deliver = str(answer.raw.get("deliver_subject") or "")
        if not deliver:
            raise ProtocolError(f"the answer on {answer.subject} names no deliver_subject")
        self._deliver = deliver
        self.backup.data.rewind()
        self._on_progress(self.progress)
        raw = await self._pieces(manager, deliver)
        if raw is None:
            self.unheard = True
            said = await manager.connection.request(deliver, b"", timeout_s=END_WAIT_S)
            self.unheard = False
            raw = self._checked(said, deliver)
        self._deliver = ""
        return Answer(StreamCreateAnswer, deliver, raw=raw)

    async def abandon(self, manager: Manager) -> None:
        """End what was begun and not ended, from whatever connection, so that its name is free at once.

        A server waits some seconds for the next piece otherwise. Told that there is no more, it throws away what it
        has, or makes the stream where only the end was missing, or where a part looks like a whole.
        """
        deliver, self._deliver = self._deliver, ""
        if deliver:
            with contextlib.suppress(NatsctlError):
                said = await manager.connection.request(deliver, b"", timeout_s=ABANDON_WAIT_S)
                self.left_part = self._checked(said, deliver) is not None

    async def _pieces(self, manager: Manager, deliver: str) -> dict[str, Any] | None:
        """Send the data, `WINDOW` pieces ahead of their answers; raises what the server refuses them with."""
        connection, progress = manager.connection, self.progress
        size = min(PIECE_BYTES, connection.max_payload)
        pending: deque[asyncio.Task[Message]] = deque()
        try:
            while piece := await asyncio.to_thread(self.backup.data.read, size):
                pending.append(asyncio.ensure_future(connection.request(deliver, piece, timeout_s=self._idle_s)))
                # Let the request go out before the next one is made: pieces must stay in order.
                await asyncio.sleep(0)
                progress.archive_bytes += len(piece)
                progress.chunks += 1
                if len(pending) >= WINDOW and (ended := await self._answered(pending.popleft(), deliver)):
                    return ended
                self._on_progress(progress)
            while pending:
                if ended := await self._answered(pending.popleft(), deliver):
                    return ended
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        return None

    async def _answered(self, piece: asyncio.Task[Message], deliver: str) -> dict[str, Any] | None:
        """What the server says to a piece, as `_checked` gives it.

        Raises TransferTimeoutError where it says nothing.
        """
        try:
            return self._checked(await piece, deliver)
        except UnreachableError as failure:
            raise TransferTimeoutError(failure.text, hint=failure.hint) from failure

    def _checked(self, message: Message, subject: str) -> dict[str, Any] | None:
        """The JSON of an answer to a piece, None for the empty one that means "go on"; raises ApiResponseError."""
        if message.status == NO_RESPONDERS:
            raise TransferInterruptedError(
                f"the server gave up the restore of {self.progress.stream}: nobody receives the data any more"
            )
        if not message.body:
            return None
        raw = parse_object(message.body, subject)
        if error := raw.get("error"):
            raise ApiResponseError(api_error(error), subject)
        return raw
