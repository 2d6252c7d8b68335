"""Ordered consumer: the messages of a stream in order and without gaps.

The consumer pushes to an inbox, with flow control and heartbeats, and is kept in memory on one server. Its messages are
numbered: where a number is missing, or heartbeats stay away, it is created again behind the last message received.
Creating it changes nothing that is visible to others, so dry runs read too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api import acks, codec, endpoints
from natsctl.api.errors import NatsctlError, ProtocolError, UnreachableError
from natsctl.client.connection import ConnectionLostError

if TYPE_CHECKING:
    from natsctl.api.acks import AckSubject
    from natsctl.client.connection import Subscription
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message

HEARTBEAT_S = 2.0
MISSED_S = 3 * HEARTBEAT_S
"""Seconds without a sign of life after which the consumer counts as lost."""
ELECTION_S = 15.0
"""Longest time without a leader of the stream; elections need 4 to 9 seconds where a server is lost."""
AGAIN_S = 0.25
INACTIVE_S = 300
REPLACED = 1000
"""Messages that may come on top of twice those that there were."""
V1_TOKENS = 9
_CONTROL = 100


class Delivered(NamedTuple):
    """A message and its position in the stream: sequence, time of storing, number of pending messages."""

    message: Message
    at: AckSubject


class OrderedReader:
    """Reads the messages of `stream` on `subject`; an asynchronous context manager.

    `deliver` is a deliver policy's name, with `start_seq` for `by_start_sequence`. After entering, `pending` is how
    many messages there were to begin with.
    """

    def __init__(
        self,
        manager: Manager,
        stream: str,
        subject: str | Sequence[str],
        *,
        deliver: str = "all",
        start_seq: int = 0,
        start_time: str = "",
        headers_only: bool = False,
    ) -> None:
        self._manager = manager
        self._stream = stream
        self._subjects = [subject] if isinstance(subject, str) else list(subject)
        self._deliver = deliver
        self._start_seq = start_seq
        self._start_time = start_time
        self._headers_only = headers_only
        self._subscription: Subscription | None = None
        self._name = ""
        self._held: Message | None = None
        self._received = 0
        self._last_seq = 0
        self.pending = 0

    async def __aenter__(self) -> OrderedReader:
        self.pending = await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def stored(self) -> AsyncIterator[Delivered]:
        """Yield the messages that existed when reading began, and those that replaced them meanwhile.

        A message that is replaced before it is sent comes as its successor, behind the others, maybe a moment later. So
        reading continues until as many have come as existed and none is pending, or the server reports the end, or
        twice as many have come, where writers are quicker than this reader.
        """
        most = 2 * self.pending + REPLACED if self.pending else 0
        for number in range(1, most + 1):
            delivered = await self._next(None, ends_idle=True)
            if delivered is None:
                return
            yield delivered
            if not delivered.at.pending and number >= self.pending:
                return

    async def next(self, timeout_s: float | None = None) -> Delivered | None:
        """Return the next message, or None when none came in time.

        Raises what ends the reading, such as a removed stream.
        """
        return await self._next(timeout_s)

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield the messages without end; raises as `next`."""
        while True:
            if (delivered := await self.next()) is not None:
                yield delivered.message

    def now(self) -> Delivered | None:
        """Return the next message if it has come already.

        Status messages, and messages out of order, are left to `next`.
        """
        if self._held is not None or self._subscription is None:
            return None
        message = self._subscription.now()
        if message is None:
            return None
        if not message.status and (delivered := self._placed(message)) is not None:
            return delivered
        self._held = message
        return None

    async def _next(self, timeout_s: float | None, *, ends_idle: bool = False) -> Delivered | None:
        """Return the next message.

        None after the time, or with `ends_idle` when the server has nothing left to send.
        """
        loop = asyncio.get_running_loop()
        end_s = None if timeout_s is None else loop.time() + timeout_s
        lost_s = loop.time() + MISSED_S
        while True:
            now_s = loop.time()
            if now_s >= lost_s:
                await self._restart()
                lost_s = loop.time() + MISSED_S
            message = await self._read(max(0.0, min(lost_s, end_s or lost_s) - now_s))
            if message is None:
                if end_s is not None and loop.time() >= end_s:
                    return None
                continue
            lost_s = loop.time() + MISSED_S
            if message.status == _CONTROL:
                if await self._control(message) and ends_idle:
                    return None
            elif (delivered := self._placed(message)) is not None:
                return delivered
            else:
                await self._restart()

    async def _read(self, timeout_s: float) -> Message | None:
        if self._subscription is None:
            raise ProtocolError("the reader was not entered")
        held, self._held = self._held, None
        if held is not None:
            return held
        try:
            return await self._subscription.next(timeout_s)
        except ConnectionLostError:
            if not self._manager.connection.several:
                raise
            await self._restart()
            return None

    def _placed(self, message: Message) -> Delivered | None:
        """Return the message with its place, None where others before it are missing."""
        at = _place(message.reply)
        if at is None:
            raise ProtocolError(f"a message of {self._stream} does not say its place: {message.reply!r}")
        if at.consumer_seq != self._received + 1:
            return None
        self._received = at.consumer_seq
        self._last_seq = at.stream_seq
        return Delivered(message, at)

    async def _control(self, message: Message) -> bool:
        """Answer flow control, and return whether the server reports that all was sent."""
        answer = message.reply or message.headers.get("Nats-Consumer-Stalled", "")
        if answer:
            await self._manager.connection.publish(answer)
            return False
        sent = message.headers.get("Nats-Last-Consumer", "0")
        if sent.isdigit() and int(sent) > self._received:
            await self._restart()
            return False
        return True

    async def _restart(self) -> None:
        """Continue behind the last message with another consumer; waits for a leader where none can create it now."""
        await self._end()
        if self._last_seq:
            self._deliver, self._start_seq, self._start_time = "by_start_sequence", self._last_seq + 1, ""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + ELECTION_S
        while True:
            try:
                await self._begin()
                return
            except UnreachableError:
                connection = self._manager.connection
                if (connection.lost and not connection.several) or loop.time() > until_s:
                    raise
            await asyncio.sleep(AGAIN_S)

    async def _begin(self) -> int:
        """Create the consumer, and return how many messages it has to send."""
        connection = self._manager.connection
        inbox = connection.new_inbox()
        self._subscription = await connection.subscribe(inbox)
        self._received = 0
        self._name = f"natsctl_{inbox.rpartition('.')[2]}"
        body = {"stream_name": self._stream, "config": self._config(inbox)}
        prefix = connection.target.api_prefix
        filtered = self._subjects if len(self._subjects) == 1 else ()
        subject = endpoints.CONSUMER_CREATE.subject(self._stream, self._name, *filtered, prefix=prefix)
        try:
            made = await self._manager.requests.exchange(subject, codec.encode(body))
        except BaseException:
            await self._subscription.stop()
            self._subscription = None
            raise
        return int(made.get("num_pending") or 0)

    def _config(self, inbox: str) -> dict[str, Any]:
        config: dict[str, Any] = {
            "name": self._name,
            "deliver_subject": inbox,
            "deliver_policy": self._deliver,
            "ack_policy": "none",
            "max_deliver": 1,
            **self._filter(),
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
            "inactive_threshold": INACTIVE_S * 10**9,
            "num_replicas": 1,
            "mem_storage": True,
        }
        if self._start_seq:
            config["opt_start_seq"] = self._start_seq
        if self._start_time:
            config["opt_start_time"] = self._start_time
        if self._headers_only:
            config["headers_only"] = True
        return config

    def _filter(self) -> dict[str, Any]:
        if len(self._subjects) == 1:
            return {"filter_subject": self._subjects[0]}
        return {"filter_subjects": self._subjects} if self._subjects else {}

    async def _end(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._held = None
        if subscription is None:
            return
        await subscription.stop()
        prefix = self._manager.connection.target.api_prefix
        # Who may make a consumer may not always delete one; the server removes it by itself later.
        with contextlib.suppress(NatsctlError):
            await self._manager.requests.exchange(
                endpoints.CONSUMER_DELETE.subject(self._stream, self._name, prefix=prefix), b"", once=True
            )


def _place(reply: str) -> AckSubject | None:
    """Return the fields of an ack subject, without the names of stream and consumer; None for another subject.

    The form of nearly all servers is read here, as each message pays for it.
    """
    tokens = reply.split(".")
    if len(tokens) != V1_TOKENS or tokens[0] != "$JS" or tokens[1] != "ACK":
        return acks.parse(reply.encode())
    try:
        delivered, stream_seq, consumer_seq, ts_ns, pending = map(int, tokens[4:])
    except ValueError:
        return None
    return acks.AckSubject(b"", b"", delivered, stream_seq, consumer_seq, ts_ns, pending)
