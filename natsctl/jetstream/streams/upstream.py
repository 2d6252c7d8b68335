"""The connection of a mirror or a source to its origin: a consumer on the origin that delivers to a local subject.

Theory of operation. Everything goes over subjects of the account, so that an origin in another account, domain or
server is reached like a local one. `connect` asks the origin's API for a consumer (flow control, heartbeats, no acks;
or a reset of the durable one that the configuration names) and, when it is there, subscribes to its deliver subject.
Deliveries go in batches to the mirror or source for storage. `sseq` is the newest sequence of the origin that
was taken, `dseq` the newest delivery of this consumer; a delivery that skips one, or a heartbeat that counts more of
them, means a loss, and the consumer is recreated after `sseq`.

Flow control is answered only when everything that came before it is durable here: a slow disk holds the origin back,
messages in flight are bounded by the origin's window, and a work queue on the origin removes nothing that could be lost
here. Failures wait longer each time, up to `RETRY_MAX_NS`. Source: server/stream.go of nats-server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import InvalidJSONError, decode
from natsctl.api.consumer import AckPolicy, ConsumerConfig
from natsctl.api.errors import ErrCode
from natsctl.api.stream import StreamSource, StreamSourceInfo
from natsctl.api.units import SECOND
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.streams import origin
from natsctl.jetstream.streams.origin import (
    NEWEST_LEVEL,
    OLD_LEVEL,
    SOURCING_LEVEL,
    STALLED_NS,
    ConsumerAnswer,
    Transforms,
    create_request,
    request_header,
    reset_request,
)
from natsctl.jetstream.timers import Alarm
from natsctl.store.errors import StoreError

if TYPE_CHECKING:
    from natsctl.broker.account import Watch
    from natsctl.broker.subscription import Delivery, Subscription
    from natsctl.jetstream.streams.stream import Stream


ANSWER_NS: Final = 30 * SECOND
"""Maximum wait for the creation of a consumer. Source: nats-server."""
RESET_ANSWER_NS: Final = 5 * SECOND
"""Maximum wait for the reset of a consumer. Source: nats-server."""
RETRY_NS: Final = SECOND // 2
"""Wait after the first failure; it doubles with each further one."""
RETRY_MAX_NS: Final = 10 * SECOND
"""Maximum wait between attempts: nats-server waits up to two minutes, and a new origin as long for its mirror."""
HELD_NS: Final = 2 * SECOND
"""Wait after a message that could not be stored: the connection itself is fine, so nothing doubles."""
JITTER: Final = 0.1
"""Random part of a wait, so that many mirrors of one origin do not send requests at once."""
CONNECT_COST: Final = 256
"""Share of one connection in a turn's budget of messages: about a millisecond with the consumer that it creates."""
STALLED_BEATS: Final = 3
"""Heartbeats that name the same unanswered flow control request before it is an error. Source: nats-server."""

_RANDOM: Final = 8
_CONTROL: Final = b"NATS/1.0 100 "
_FLOW_ANSWER: Final = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"
_TOO_NEW: Final = (ErrCode.REQUIRED_API_LEVEL, ErrCode.INVALID_JSON)
"""Errors of a server that is too old for the request."""

OriginMessage = tuple[int, int, bytes, bytes, bytes]
"""One message of the origin: sequence, time, subject, header, payload."""


class StoreLaterError(Exception):
    """A message cannot be stored now: it and later ones are to be delivered again a little later."""


class Upstream:
    """The connection to one origin, made again after each failure: the part that mirrors and sources share."""

    __slots__ = (
        "_absent",
        "_alarm",
        "_answers",
        "_asked",
        "_awaits",
        "_beats",
        "_consumer",
        "_deliver",
        "_fails",
        "_level",
        "_messages",
        "_prefix",
        "_stream",
        "_watch",
        "consumer_name",
        "dseq",
        "error",
        "lag",
        "last_ns",
        "recreated",
        "source",
        "sseq",
        "stopped",
        "transforms",
    )  # fmt: skip

    letter: ClassVar[str]
    """M for mirrors, S for sources."""
    setup_failed: ClassVar[int]
    requires_flow_control: ClassVar[int]

    def __init__(self, stream: Stream, source: StreamSource) -> None:
        """Prepare; nothing is requested before `start`."""
        timers = stream.engine.timers
        self._stream = stream
        self.source = source
        self.transforms = Transforms(source.subject_transforms)
        self.recreated = False
        """True if the origin is another stream than before: the next connection starts over."""
        self._alarm = Alarm(timers, self._again)
        self._watch = Alarm(timers, self._look)
        self._answers: Subscription | None = None
        self._absent: Watch | None = None
        """Waits for interest in the origin's API."""
        self._messages: Subscription | None = None
        self._awaits = b""
        self._deliver = b""
        self._consumer = ""
        self._prefix = b""
        self._level = NEWEST_LEVEL
        self._fails = 0
        self._asked = b""
        self._beats = 0
        self.consumer_name = ""
        self.sseq = 0
        self.dseq = 0
        self.lag = 0
        self.last_ns = -1
        self.error: ApiError | None = None
        self.stopped = False

    # Of mirrors and sources

    def request(self) -> ConsumerConfig:
        raise NotImplementedError

    def known_identity(self) -> str:
        """Return the origin's identity when its last message was stored, "" when unknown."""
        return ""

    def connected(self, delivered_seq: int, identity: str) -> int:
        """Record that deliveries follow after `delivered_seq`; return the newest stored sequence of the origin."""
        raise NotImplementedError

    def store_messages(self, messages: Sequence[OriginMessage]) -> None:
        """Store messages in order. Raises StoreError or StoreLaterError; then `stored_seq` says how far it came."""
        raise NotImplementedError

    def stored_seq(self) -> int:
        """Return the newest sequence of the origin that is stored (appended view)."""
        raise NotImplementedError

    def fail_setup(self, reason: str) -> None:
        """Connect again later; a connection could not be made or kept."""
        self.retry(error(self.setup_failed, err=reason))

    # Life

    def start(self) -> None:
        """Connect in the next turn: when the server starts, every stream is there by then."""
        self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        """Connect, unless that has happened meanwhile."""
        if not self.stopped and self._messages is None and self._answers is None:
            self.connect()
            return CONNECT_COST
        return 0

    def _again(self) -> None:
        """Connect in the next turn, after a wait or without an answer."""
        self._cancel()
        self.start()

    def stop(self) -> None:
        self.stopped = True
        self._cancel()

    def delete_consumer(self) -> None:
        """Ask the origin to delete this stream's consumer, without waiting for an answer."""
        if self.source.consumer is None and self.consumer_name:
            verb = f"CONSUMER.DELETE.{self.source.name}.{self.consumer_name}"
            account = self._stream.account
            account.publish(account.mapped(origin.api_subject(self.source, verb)), b"", b"", b"")

    def _cancel(self) -> None:
        for subscription in (self._answers, self._messages):
            if subscription is not None:
                self._stream.account.unsubscribe(subscription)
        if self._absent is not None:
            self._absent.cancel()
        self._answers = self._messages = self._absent = None
        self._alarm.cancel()
        self._watch.cancel()

    def retry(self, fault: ApiError | None = None, least_ns: int = 0) -> None:
        """Connect again after a while, `least_ns` at least; `fault` is shown until then."""
        self._cancel()
        if self.stopped:
            return
        self.error = fault or self.error
        wait_ns = max(min(RETRY_NS << min(self._fails, 8), RETRY_MAX_NS), least_ns)
        self._fails += 1
        wait_ns += int(wait_ns * JITTER * self._stream.engine.rng.random())
        self._alarm.set(self._stream.engine.clock.monotonic_ns() + wait_ns)

    # Asking for a consumer

    def connect(self) -> None:
        self._cancel()
        stream = self._stream
        if self.stopped or not stream.store.healthy:
            return
        rng, durable = stream.engine.rng, self.source.consumer
        self._awaits = b"$JSC.R." + nuid(rng, _RANDOM).encode()
        self._answers = stream.account.subscribe(self._awaits, self._on_answer)
        wait_ns = ANSWER_NS if durable is None else RESET_ANSWER_NS
        self._alarm.set(stream.engine.clock.monotonic_ns() + wait_ns)
        identity = self.known_identity()
        if durable is not None:
            self._deliver = durable.deliver_subject.encode()
            subject, body = reset_request(self.source, durable.name)
        else:
            config = self.request()
            self.consumer_name = config.name
            subject, body = create_request(stream, self.source, self.letter, config, self._level)
        header = request_header(self._level, identity)
        if not stream.account.publish(stream.account.mapped(subject), self._awaits, header, body):
            self.retry()
            self._absent = stream.account.watch_interest(subject, partial(self._on_interest, subject))

    def _on_interest(self, subject: bytes) -> None:
        """Connect at once, because the origin may be reachable again."""
        if self._stream.account.has_interest(subject):
            self._fails = 0
            self.start()

    def _on_answer(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, from_: object) -> None:
        if subject != self._awaits or self._answers is None:
            return
        self._stream.account.unsubscribe(self._answers)
        self._answers = None
        try:
            answer = decode(payload, ConsumerAnswer)
        except InvalidJSONError:
            self.retry(error(ErrCode.INVALID_JSON, err="consumer create response"))
            return
        if answer.error is not None:
            self._refused(answer.error)
        elif not answer.name:
            self.fail_setup("invalid consumer create response")
        elif self.source.consumer is not None and answer.config.ack_policy is not AckPolicy.FLOW_CONTROL:
            self.retry(error(self.requires_flow_control))
        else:
            self._listen(answer, (headers.get(header, headers.STREAM_IDENTITY) or b"").decode("ascii", "replace"))

    def _refused(self, refusal: ApiError) -> None:
        """Ask again for less where the origin's server is older, else later."""
        if refusal.err_code == ErrCode.CONSUMER_STREAM_IDENTITY_MISMATCH:
            self.recreated = True
            self.sseq = 0
            self.connect()
        elif refusal.err_code in _TOO_NEW and self._level > OLD_LEVEL:
            self._level = SOURCING_LEVEL if self._level > SOURCING_LEVEL else OLD_LEVEL
            self.connect()
        else:
            self.retry(refusal)

    # Listening

    def _listen(self, made: ConsumerAnswer, identity: str) -> None:
        account = self._stream.account
        self.error, self._fails, self._beats, self.dseq = None, 0, 0, 0
        self._alarm.cancel()
        if self.source.consumer is None:
            self._deliver = made.config.deliver_subject.encode()
        self._consumer = made.name
        self._prefix = f"$JS.ACK.{made.stream_name}.{made.name}".encode()
        self.lag = made.num_pending
        try:
            self.sseq = self.connected(made.delivered.stream_seq, identity)
        except StoreError as fault:
            self.fail_setup(str(fault))
            return
        self._mark_heard()
        self._messages = account.subscribe(self._deliver, self._on_message, take_all=self._take)
        self._watch.no_later_than(self.last_ns + STALLED_NS)

    def _mark_heard(self) -> None:
        self.last_ns = self._stream.engine.clock.monotonic_ns()

    def _look(self) -> None:
        """Connect again when nothing arrived for too long."""
        now_ns = self._stream.engine.clock.monotonic_ns()
        if now_ns - self.last_ns >= STALLED_NS:
            self.connect()
        else:
            self._watch.no_later_than(self.last_ns + STALLED_NS)

    def _on_message(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, from_: object) -> None:
        if self._stream.work.closed:
            self._stream.work.hold(self._on_message, subject, reply, header, payload, from_)
        elif not payload and header.startswith(_CONTROL):
            self._mark_heard()
            self._on_control(reply, header)
        else:
            self._take([(subject, reply, header, payload)])

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        """Handle deliveries in order, and reconnect if one is missing."""
        if self._stream.work.closed:
            self._stream.work.hold(self._take, deliveries)
            return
        self._mark_heard()
        dseq, sseq, prefix, lost = self.dseq, self.sseq, self._prefix, False
        messages: list[OriginMessage] = []
        lag = b""
        for subject, reply, header, payload in deliveries:
            numbers = reply.rsplit(b".", 5)
            if numbers[0] != prefix:
                numbers = ack_numbers(reply, self._consumer.encode())
            try:
                _, count, stream_seq, consumer_seq, ts, pending = numbers
                number, seq, ts_ns = int(consumer_seq), int(stream_seq), int(ts)
            except ValueError:
                continue  # of an earlier consumer, or a client's
            if number != dseq + 1 or count != b"1":
                if number > dseq and count == b"1":
                    lost = True
                    break
                continue
            dseq, lag = number, pending
            if seq > sseq:
                sseq = seq
                messages.append((seq, ts_ns, subject, header, payload))
        if lag.isdigit():
            self.lag = int(lag)
        try:
            if messages:
                self.store_messages(messages)
        except (StoreError, StoreLaterError):
            self.sseq = self.stored_seq()
            self.lag += sum(message[0] > self.sseq for message in messages)
            self.retry(least_ns=HELD_NS)
            return
        self.dseq, self.sseq = dseq, sseq
        if lag:
            self._beats, self.error = 0, None
        if lost:
            self.connect()

    # Heartbeats and flow control

    def _on_control(self, reply: bytes, header: bytes) -> None:
        if reply:
            self._asked = reply
            store = self._stream.store
            settled = partial(self._answer_flow, reply, self._awaits, self.dseq, self.sseq)
            if store.last_seq > store.durable_seq:
                store.on_durable(settled)
            else:
                settled(None)
            return
        last = headers.get(header, headers.LAST_CONSUMER) or b""
        if last.isdigit() and int(last) not in (0, self.dseq):
            self.connect()
            return
        stalled = headers.get(header, headers.CONSUMER_STALLED)
        if stalled is None:
            self._flowing()
        elif stalled != self._asked:  # the answer to the one that was asked follows when all is durable
            self._stalled(stalled)

    def _answer_flow(self, reply: bytes, connection: bytes, dseq: int, sseq: int, fault: StoreError | None) -> None:
        if reply == self._asked:
            self._asked = b""
        if fault is None and connection == self._awaits and not self.stopped:
            self._stream.account.publish(reply, b"", _FLOW_ANSWER % (dseq, sseq), b"")

    def _stalled(self, reply: bytes) -> None:
        """Repeat an answer that did not arrive."""
        self._beats += 1
        if self._beats == STALLED_BEATS:
            self.error = error(ErrCode.SOURCE_CONSUMER_FLOW_CONTROL_STALLED)
        self._stream.account.publish(reply, b"", b"", b"")

    def _flowing(self) -> None:
        self._beats = 0
        if self.error is not None and self.error.err_code == ErrCode.SOURCE_CONSUMER_FLOW_CONTROL_STALLED:
            self.error = None

    # Information

    @property
    def requested(self) -> bool:
        return bool(self._awaits)

    def info(self) -> StreamSourceInfo:
        source, now_ns = self.source, self._stream.engine.clock.monotonic_ns()
        return StreamSourceInfo(
            name=source.name,
            external=source.external,
            lag=self.lag,
            active=now_ns - self.last_ns if self.last_ns >= 0 else -1,
            error=self.error,
            filter_subject=source.filter_subject,
            subject_transforms=source.subject_transforms,
        )


def ack_numbers(reply: bytes, consumer: bytes) -> list[bytes]:
    """Return prefix and the five numbers of an ack subject of either form, nothing for one of another consumer."""
    tokens = reply.split(b".")
    if tokens[:2] != [b"$JS", b"ACK"]:
        return []
    at = 2 if len(tokens) == 9 else 4
    if len(tokens) not in (9, 11, 12) or tokens[at + 1] != consumer:
        return []
    return [b"", *tokens[at + 2 : at + 7]]
