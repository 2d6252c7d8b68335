"""Pull delivery: open requests, served in turn with one message each.

Theory of operation. `waiting` is the queue: its head gets the next message and, if it wants more, goes to the tail (or
after the others of its priority). No more is read from the store than all of them still want. A request ends with a
status message (served ones end silently), and a request without a subscriber on its reply subject is detected by the
failed send and dropped silently; its message goes to the next request.

One alarm serves the deadlines and idle heartbeats of all requests. There may be very many (max_waiting has no limit),
so that each call and each run handles some of them, and the next one the others.

The body of a request is nothing, a whole number or a JSON object; anything else asks for one message, as in
nats-server. A number below 1 is served one message, and the status of its end counts from the number that was sent.
Source: nats-server, consumer.go nextReqFromMsg and processNextMsgRequest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.consumer import ConsumerConfig, PriorityPolicy
from natsctl.api.json_steps import SMALL_TEXT
from natsctl.api.requests import PullRequest
from natsctl.api.strict import DecodeError, read_strict
from natsctl.api.units import format_duration
from natsctl.jetstream.api_level import is_refused
from natsctl.jetstream.consumers.delivery_budget import READ_BATCH
from natsctl.jetstream.consumers.priority_groups import MISMATCH, WRONG_PIN, Pin, Priority, PullVerdict, priority_of
from natsctl.jetstream.consumers.waiting_pulls import WaitingPull, WaitingPulls
from natsctl.jetstream.timers import Alarm
from natsctl.store.steps import Steps, pieces

if TYPE_CHECKING:
    from natsctl.broker.subscription import Delivery
    from natsctl.jetstream.consumers.consumer import Consumer


API_LEVEL_TOO_LOW: Final = b"NATS/1.0 412 Required Api Level\r\n\r\n"
NO_MESSAGES: Final = b"NATS/1.0 404 No Messages\r\n\r\n"
REQUESTS_PENDING: Final = b"NATS/1.0 408 Requests Pending\r\n\r\n"
MAX_WAITING: Final = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
CONSUMER_DELETED: Final = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
PUSH_BASED: Final = b"NATS/1.0 409 Consumer is push based\r\n\r\n"
_BAD_REQUEST: Final = b"NATS/1.0 400 Bad Request - %b\r\n\r\n"

MAX_PRIORITY: Final = 9
INT64: Final = 1 << 63
"""Sizes at and above this are refused."""

_EMBEDDED: Final = r"(GetNextRequest\.)((group|min_pending|min_ack_pending|id|priority) )"
"""Fields that nats-server has in a separate struct; its texts contain the struct's name."""

_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}")
_decode: Final = msgspec.json.Decoder(PullRequest).decode


class PullRequestError(Exception):
    """A request that cannot be read; `block` is the status to send."""

    def __init__(self, block: bytes) -> None:
        super().__init__(block)
        self.block = block


def parse_request(body: bytes) -> tuple[PullRequest, bool]:
    """Return the parsed request, and whether it was JSON. Raises PullRequestError."""
    text = body.strip()
    if text[:1] != b"{":
        return PullRequest(batch=int(text) if _NUMBER.fullmatch(text) else 1), False
    try:
        asked = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        asked = _decode_exactly(text)
    if not -INT64 <= min(asked.batch, asked.max_bytes) <= max(asked.batch, asked.max_bytes) < INT64:
        asked = _decode_exactly(text)
    if asked.idle_heartbeat > 0 and asked.idle_heartbeat * 2 > asked.expires:
        raise PullRequestError(_BAD_REQUEST % b"heartbeat value too large")
    return asked, True


def _decode_exactly(text: bytes) -> PullRequest:
    """Parse a body that the quick decoder rejects; raises PullRequestError with nats-server's text.

    No request that makes sense is long, and this takes long.
    """
    if len(text) > SMALL_TEXT:
        raise PullRequestError(_BAD_REQUEST % b"request too long")
    try:
        return msgspec.convert(read_strict(text, PullRequest, unknown=True), PullRequest)
    except (DecodeError, msgspec.MsgspecError) as fault:
        words = re.sub(_EMBEDDED, r"\1PriorityGroup.\2", str(fault))
        raise PullRequestError(_BAD_REQUEST % words.encode()) from fault


def refuse_request(config: ConsumerConfig, asked: PullRequest, formal: bool) -> bytes:
    """Return the status that refuses a request to this consumer, b"" when it may be served."""
    if 0 < config.max_batch < asked.batch:
        return b"NATS/1.0 409 Exceeded MaxRequestBatch of %d\r\n\r\n" % config.max_batch
    if 0 < config.max_expires < asked.expires:
        text = format_duration(config.max_expires).encode()
        return b"NATS/1.0 409 Exceeded MaxRequestExpires of %b\r\n\r\n" % text
    if 0 < config.max_bytes < asked.max_bytes:
        return b"NATS/1.0 409 Exceeded MaxRequestMaxBytes of %d\r\n\r\n" % config.max_bytes
    misuse = _misuse(config, asked) if formal else b""
    return _BAD_REQUEST % misuse if misuse else b""


def _misuse(config: ConsumerConfig, asked: PullRequest) -> bytes:
    """Return the fault in the priority keys of a request, b"" for none."""
    policy = config.priority_policy or PriorityPolicy.NONE
    if (asked.min_pending or asked.min_ack_pending) and policy is not PriorityPolicy.OVERFLOW:
        return b"Not a Overflow Priority consumer"
    if asked.id and policy is not PriorityPolicy.PINNED_CLIENT:
        return b"Not a Pinned Client Priority consumer"
    if not 0 <= asked.priority <= MAX_PRIORITY:
        return b"Priority must be between 0 and 9"
    if policy is PriorityPolicy.NONE:
        return b""
    if not asked.group:
        return b"Priority Group missing"
    return b"" if asked.group in config.priority_groups else b"Invalid Priority Group"


_HEARTBEAT: Final = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"

LOOKS: Final = 2048
"""Requests that one run passes over in search of one that takes the message."""
END_COST: Final = 16
"""Cost of the end of one of them, in requests that are only passed over."""
LOOKS_OF_MESSAGE: Final = 4
"""Requests that are passed over at the cost of one message."""
AT_ONCE: Final = 256
"""Requests that end, get heartbeats or are examined for congestion at once."""
PRUNED_AT_ONCE: Final = 1024
"""Requests that are examined for a subscriber at once: less than a millisecond."""


class PullDelivery:
    __slots__ = (
        "_alarm",
        "_available",
        "_circle",
        "_consumer",
        "_looks",
        "_passed",
        "_unacked",
        "_unpruned",
        "idle_since_ns",
        "priority",
        "waiting",
    )

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._alarm = Alarm(consumer.engine.timers, self._look)
        self.waiting = WaitingPulls()
        self._unpruned: Iterator[WaitingPull] = iter(())
        """Requests that `prune` is still to examine."""
        self._looks = self._passed = 0
        """Requests that this run may still pass over, and that were passed over since one took a message."""
        self._circle: tuple[object, ...] = ()
        """What that depended on."""
        self.priority: Priority | None = priority_of(consumer)
        self._available = self._unacked = 0
        self.idle_since_ns = consumer.engine.clock.monotonic_ns()

    # Called by the consumer

    def start(self) -> None:
        """Do nothing: no request is open yet."""

    def stop(self, deleted: bool) -> None:
        """End every request; with `deleted`, send the status of a deleted consumer."""
        self._alarm.cancel()
        if self.priority is not None:
            self.priority.stop()
        waiting, self.waiting = self.waiting, WaitingPulls()
        if deleted and waiting:
            self._consumer.stream.js.work.begin(self._ending_all([*waiting]))

    def _ending_all(self, waiting: Sequence[WaitingPull]) -> Steps[None]:
        for piece in pieces(waiting):
            for request in piece:
                self._status(request.reply, CONSUMER_DELETED)
            yield len(piece)

    def configure(self) -> None:
        """Read the priority policy from the configuration; a pin stays where the policy stays."""
        fresh = priority_of(self._consumer)
        old = self.priority
        if fresh is None or old is None or fresh.policy is not old.policy:
            if old is not None:
                old.stop()
            self.priority = fresh
            waiting, self.waiting = self.waiting, WaitingPulls()
            for request in waiting:
                self._queue(request)

    def shut_down(self) -> None:
        """End every request because the server stops, so that clients look for the consumer again."""
        for request in tuple(self.waiting):
            self._end(request, request.ended(b"409 Server Shutdown"))

    @property
    def pin(self) -> Pin | None:
        return self.priority.pin if self.priority is not None else None

    def unpin(self, group: str) -> None:
        """Release the pin of a group; the next request gets it."""
        if self.pin is not None:
            self.pin.unpin(group, "admin")
        else:
            self._consumer.events.unpinned(group, "admin")

    def ready(self) -> bool:
        return bool(self.waiting)

    def bound(self) -> bool:
        """Return whether a push consumer has its subscriber; never for pull."""
        return False

    def active(self) -> bool:
        """Return whether a client uses the consumer, for the inactive threshold."""
        return self.num_waiting() > 0

    def num_waiting(self) -> int:
        """Drop requests as `prune` does, and return the number of open ones."""
        self.prune()
        return len(self.waiting)

    def prune(self) -> bool:
        """Drop requests without a subscriber on the reply subject; of very many, examine the next ones.

        Return whether all that were examined were dropped and others follow.
        """
        if len(self.waiting) <= PRUNED_AT_ONCE:
            return self._drop_dead([*self.waiting]) < 0
        examined = [*islice(self._unpruned, PRUNED_AT_ONCE)]
        if len(examined) < PRUNED_AT_ONCE:
            self._unpruned = iter([*self.waiting])
            examined = [*islice(self._unpruned, PRUNED_AT_ONCE)]
        return self._drop_dead(examined) == PRUNED_AT_ONCE

    def pruning(self) -> Steps[None]:
        """Drop all requests without a subscriber on the reply subject."""
        for piece in pieces([*self.waiting]):
            self._drop_dead(piece)
            yield len(piece)

    def _drop_dead(self, requests: Sequence[WaitingPull]) -> int:
        has_interest, waiting = self._consumer.account.has_interest, self.waiting
        dead = [request for request in requests if not has_interest(request.reply) and request in waiting]
        for request in dead:
            waiting.remove(request)
        return len(dead)

    # Requests

    def on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        if not header or not is_refused(header):
            self.request(reply, payload)
        elif reply:
            self._status(reply, API_LEVEL_TOO_LOW)

    def request(self, reply: bytes, body: bytes) -> None:
        if not reply:
            return
        self._consumer.catch_up()
        try:
            asked, formal = parse_request(body)
        except PullRequestError as refused:
            self._status(reply, refused.block)
            return
        refusal = refuse_request(self._consumer.config, asked, formal) or self._refuse_pin(asked)
        if not refusal and asked.no_wait:
            refusal = self._refuse_waiting(asked)
        if refusal:
            self._status(reply, refusal)
        else:
            self._open(reply, asked, formal)

    def _open(self, reply: bytes, asked: PullRequest, formal: bool) -> None:
        consumer = self._consumer
        if len(self.waiting) >= consumer.config.max_waiting and self.num_waiting() >= consumer.config.max_waiting:
            if not asked.idle_heartbeat:
                self._status(reply, MAX_WAITING)
            return
        store = consumer.stream.store
        request = WaitingPull(reply, asked, consumer.engine.clock.monotonic_ns(), formal, store.last_seq)
        self.idle_since_ns = request.last_ns
        if asked.expires < 0:
            self._status(reply, request.ended(b"408 Request Timeout"))
            return
        self._queue(request)
        event = request.next_event_ns()
        if event:
            self._alarm.no_later_than(event)
        if request.no_wait and store.unsettled:
            store.on_settled(lambda fault: consumer.schedule())
        if consumer.undelivered.count > 0 or consumer.redelivery.queued or request.no_wait:
            consumer.schedule()
        else:
            consumer.undelivered.look_at_end()

    def _queue(self, request: WaitingPull) -> None:
        self._circle = ()
        self.waiting.add(request, self.priority.rank(request) if self.priority is not None else 0)

    def _refuse_pin(self, asked: PullRequest) -> bytes:
        """Return the status for a request with an outdated pin, b"" for any other; the pinned client's holds it."""
        pin = self.pin
        if pin is None or not pin.id or not asked.id:
            return b""
        if asked.id != pin.id:
            return MISMATCH
        pin.used(asked.group)
        return b""

    def _refuse_waiting(self, asked: PullRequest) -> bytes:
        """Return the status for a no_wait request that cannot be served now, b"" when it is to be opened."""
        consumer = self._consumer
        if consumer.stream.store.unsettled:
            return b""
        available = max(consumer.undelivered.count, 0) + len(consumer.redelivery.queued)
        refusal = b""
        if not available and not asked.expires:
            refusal = NO_MESSAGES
        elif available and self.num_waiting() and available < self.waiting.wanted:
            refusal = REQUESTS_PENDING
        if refusal:
            self.idle_since_ns = consumer.engine.clock.monotonic_ns()
        return refusal

    # Delivery

    def run(self, budget: int) -> int:
        """Hand out messages, redeliveries first, until they have cost the `budget`; return their cost."""
        consumer = self._consumer
        sent, self._looks = 0, LOOKS
        while sent < budget and self._find_request():
            cost = consumer.budget.cost(self.waiting.head().reply)
            if consumer.redelivery.queued:
                self._available, self._unacked = consumer.undelivered.count + 1, len(consumer.state.pending)
                number = consumer.retry.deliver(self._hand_out)
            else:
                number = self._deliver(max((budget - sent) // cost, 1))
            if not number:
                if self._looks > 0:
                    self._nothing_more()
                break
            sent += number * cost
            if consumer.undelivered.count <= 0 and not consumer.redelivery.queued and not self.waiting.ending:
                break  # the next round would find as much
        if self._looks <= 0 and self.waiting:
            consumer.schedule()
        return sent + (LOOKS - self._looks) // LOOKS_OF_MESSAGE

    def rest(self) -> None:
        """End the requests of a paused consumer that do not wait."""
        self._nothing_more()

    def _nothing_more(self) -> None:
        """End the requests that do not wait, unless only missing acks hold up messages."""
        consumer = self._consumer
        held_up = not consumer.lifetime.paused and (
            consumer.budget.pacing() or (not consumer.redelivery.queued and not consumer.budget.room())
        )
        if not held_up and self._end_idle():
            consumer.schedule()

    def _end_idle(self) -> bool:
        """End requests that a lack of messages ends; return whether there may be more of them."""
        ended = [*islice(filter(self._ends_without_messages, self.waiting.ending), AT_ONCE)]
        for request in ended:
            self._end(request, NO_MESSAGES)
        return len(ended) == AT_ONCE

    def _ends_without_messages(self, request: WaitingPull) -> bool:
        """Return whether a lack of messages ends a request: all messages received before it can be read."""
        store = self._consumer.stream.store
        return request.ends_without_messages() and (request.seen_seq <= store.durable_seq or not store.unsettled)

    def _find_request(self) -> bool:
        """Move a request of a client that reads fast enough to the head; return False if there is no such request."""
        congested = self._consumer.budget.congested
        if self.priority is not None:
            return bool(self.waiting) and not congested(self.waiting.head().reply)
        for _ in range(min(len(self.waiting), AT_ONCE)):
            request = self.waiting.head()
            if not congested(request.reply):
                return True
            self.waiting.postpone(request)
        return False

    def _deliver(self, budget: int) -> int:
        consumer = self._consumer
        messages = consumer.budget.take(min(budget, self.waiting.wanted, consumer.budget.room(), READ_BATCH))
        if not messages:
            return 0
        deliveries = consumer.budget.deliveries(messages)
        request = self.waiting.head()
        if self.priority is None and len(self.waiting) == 1 and request.bytes_left <= 0:
            done = self._hand_all(request, deliveries)
        else:
            now_ns, done = consumer.engine.clock.monotonic_ns(), 0
            count, unacked = consumer.undelivered.count, len(consumer.state.pending)
            for subject, reply, header, payload in deliveries:
                self._available, self._unacked = count - done, unacked + done
                if not self._hand_out(subject, reply, header, payload, now_ns):
                    break
                done += 1
        if done:
            consumer.record_deliveries([message[0] for message in messages[:done]])
        return done

    def _hand_all(self, request: WaitingPull, deliveries: list[Delivery]) -> int:
        """Send to the only open request and return the number of sent messages; it must want at least as many."""
        done = self._consumer.account.send_all(request.reply, deliveries)
        self.idle_since_ns = self._consumer.engine.clock.monotonic_ns()
        self.waiting.delivered(request, done, self.idle_since_ns)
        if done < len(deliveries):
            self.waiting.remove(request)
        return done

    def _hand_out(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, now_ns: int) -> bool:
        """Send one message to the next request that accepts it; return False if no request is left."""
        send, waiting, pin = self._consumer.account.deliver, self.waiting, self.pin
        vacant = pin is not None and not pin.id
        while waiting and self._looks > 0:
            request = waiting.head()
            if self.priority is not None or request.expires_ns or request.bytes_left > 0:
                served = self._request_for(len(subject) + len(reply) + len(header) + len(payload), vacant, now_ns)
                if served is None:
                    return False
                request = served
            if send(request.reply, subject, reply, pin.stamp(header) if pin is not None else header, payload):
                self._took(request, now_ns)
                return True
            waiting.remove(request)
            self._looks -= END_COST
        return False

    def _request_for(self, size: int, vacant: bool, now_ns: int) -> WaitingPull | None:
        """Move the request for the next message to the head and return it; requests that cannot take it end."""
        waiting, priority, pin = self.waiting, self.priority, self.pin
        if priority is not None:
            circle = (self._available, self._unacked, pin and pin.id, len(waiting))
            self._passed = self._passed if circle == self._circle else 0
            self._circle = circle
        while waiting and self._looks > 0:
            request = waiting.head()
            if request.expires_ns and request.expires_ns <= now_ns:
                self._end(request, request.ended(b"408 Request Timeout"))
                continue
            if priority is not None:
                verdict = priority.decide(request, vacant, self._available, self._unacked)
                if verdict is PullVerdict.WRONG_PIN:
                    self._end(request, request.ended(WRONG_PIN))
                    continue
                if verdict is PullVerdict.PASS:
                    waiting.postpone(request)
                    self._looks -= 1
                    self._passed += 1
                    if self._passed >= len(waiting):
                        self._circle, self._looks = (), max(self._looks, 1)
                        return None
                    continue
            if request.bytes_left > 0 and not self._fits(request, size):
                if vacant and pin is not None:
                    pin.release()
                continue
            return request
        return None

    def _fits(self, request: WaitingPull, size: int) -> bool:
        """Deduct `size` from the max_bytes of a request; a request without room for it ends."""
        if size > request.bytes_left:
            self._end(request, request.ended(b"409 Message Size Exceeds MaxBytes"))
            return False
        request.bytes_left -= size
        if not request.bytes_left:
            self.waiting.wanted -= request.left - 1
            request.left, request.debt = 1, 0
        return True

    def _took(self, request: WaitingPull, now_ns: int) -> None:
        """Count the message that the head of the queue got."""
        self.idle_since_ns, self._circle = now_ns, ()
        self.waiting.delivered(request, 1, now_ns)
        if request.left > 0:
            self.waiting.postpone(request)
        elif request.bytes_left > 0:
            self._status(request.reply, request.ended(b"409 Batch Completed"))

    # Ends

    def _end(self, request: WaitingPull, status: bytes) -> None:
        self.waiting.remove(request)
        self._looks -= END_COST
        self.idle_since_ns = self._consumer.engine.clock.monotonic_ns()
        self._status(request.reply, status)

    def _status(self, reply: bytes, block: bytes) -> None:
        self._consumer.account.publish(reply, b"", block, b"")

    def _look(self) -> None:
        """End expired requests, send idle heartbeats, and arm the timer for the next event."""
        consumer, waiting = self._consumer, self.waiting
        now_ns = consumer.engine.clock.monotonic_ns()
        for _ in range(0 if consumer.stopped else AT_ONCE):
            request = waiting.due(now_ns)
            if request is None:
                break
            if request.expires_ns and request.expires_ns <= now_ns:
                self._end(request, request.ended(b"408 Request Timeout"))
                continue
            request.last_ns = now_ns
            beat = _HEARTBEAT % (consumer.state.delivered_cseq, consumer.undelivered.position)
            self._status(request.reply, beat)
            waiting.watch(request)
        more = not consumer.scheduled and self._end_idle()
        if waiting and consumer.undelivered.count <= 0 and not consumer.lifetime.paused and consumer.budget.room():
            consumer.undelivered.look_at_end()
        event_ns = now_ns if more else waiting.next_event_ns()
        if event_ns:
            self._alarm.no_later_than(event_ns)
