"""Pull delivery: open requests, served in turn with one message each.

Theory of operation. `waiting` is the round robin: its head gets the next message and, if it wants more, goes to the
tail. `wanted` is the sum of what all of them still want, so that no more is read from the store than can be handed
out. A request ends with a status message (served ones end silently), and one whose reply subject has nobody listening
is found out by the failed send and dropped silently; its message goes to the next request.

One alarm serves the deadlines and idle heartbeats of all requests: on its call every open request is looked at, which
max_waiting bounds.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from natsctl.api.headers import REQUIRED_API_LEVEL
from natsctl.api.headers import get as header_of
from natsctl.api.messages import PullRequest, parse_pull_request
from natsctl.api.units import format_duration
from natsctl.jetstream.alarm import Alarm

if TYPE_CHECKING:
    from natsctl.broker.account import Delivery
    from natsctl.jetstream.consumer import Consumer

API_LEVEL_TOO_LOW: Final = b"NATS/1.0 412 Required Api Level\r\n\r\n"
NO_MESSAGES: Final = b"NATS/1.0 404 No Messages\r\n\r\n"
REQUESTS_PENDING: Final = b"NATS/1.0 408 Requests Pending\r\n\r\n"
MAX_WAITING: Final = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
CONSUMER_DELETED: Final = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
PUSH_BASED: Final = b"NATS/1.0 409 Consumer is push based\r\n\r\n"
_WITH_PENDING: Final = b"NATS/1.0 %b\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n"
_HEARTBEAT: Final = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"

READ_BATCH: Final = 256
"""Messages read from the store at once."""


class OpenRequest:
    """One pull request that still wants messages; times are monotonic ns, 0 = none."""

    __slots__ = (
        "bytes_left",
        "delivered",
        "expires_ns",
        "heartbeat_ns",
        "last_ns",
        "left",
        "max_bytes",
        "no_wait",
        "reply",
    )

    def __init__(self, reply: bytes, wish: PullRequest, now_ns: int) -> None:
        self.reply = reply
        self.left = wish.batch
        self.max_bytes = self.bytes_left = max(wish.max_bytes, 0)
        self.expires_ns = now_ns + wish.expires if wish.expires > 0 else 0
        self.heartbeat_ns = max(wish.idle_heartbeat, 0)
        self.no_wait = wish.no_wait
        self.last_ns = now_ns
        self.delivered = 0

    def ends_without_messages(self) -> bool:
        """Whether there being nothing (more) to deliver ends this request."""
        return self.no_wait and (self.delivered > 0 or not self.expires_ns)

    def next_event_ns(self) -> int:
        """Return when this request must be looked at, 0 for never."""
        if not self.heartbeat_ns:
            return self.expires_ns
        beat = self.last_ns + self.heartbeat_ns
        return min(beat, self.expires_ns) if self.expires_ns else beat


class PullDelivery:
    """Hands the messages of one consumer to whoever asked for them."""

    __slots__ = ("_alarm", "_consumer", "idle_since_ns", "waiting", "wanted")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._alarm = Alarm(consumer.engine.timers, self._look)
        self.waiting: deque[OpenRequest] = deque()
        self.wanted = 0
        self.idle_since_ns = consumer.engine.clock.monotonic_ns()

    # What the consumer asks

    def start(self) -> None:
        """Begin; there is nothing open yet."""

    def stop(self, deleted: bool) -> None:
        """End every request; told so when the consumer is gone for good."""
        self._alarm.cancel()
        waiting, self.waiting, self.wanted = self.waiting, deque(), 0
        if deleted:
            for request in waiting:
                self._status(request.reply, CONSUMER_DELETED)

    def shut_down(self) -> None:
        """End every request because the server goes away: clients then look for the consumer elsewhere, or anew."""
        for request in tuple(self.waiting):
            self._end(request, self._pending(b"409 Server Shutdown", request))

    def ready(self) -> bool:
        """Whether somebody would take a message now."""
        return bool(self.waiting)

    def bound(self) -> bool:
        """Whether a push consumer has its subscriber; never for pull."""
        return False

    def active(self) -> bool:
        """Whether somebody uses the consumer, for the inactive threshold."""
        return self.num_waiting() > 0

    def num_waiting(self) -> int:
        """Return how many requests are open, after dropping those nobody listens to any more."""
        has_interest = self._consumer.account.has_interest
        for request in [r for r in self.waiting if not has_interest(r.reply)]:
            self._close(request)
        return len(self.waiting)

    # Requests

    def on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        """Take a request from `$JS.API.CONSUMER.MSG.NEXT…`."""
        level = header_of(header, REQUIRED_API_LEVEL) if header else None
        if level is None or level == b"0":
            self.request(reply, payload)
        elif reply:
            self._status(reply, API_LEVEL_TOO_LOW)

    def request(self, reply: bytes, body: bytes) -> None:
        """Open a request, or refuse it with a status; what is neither a number nor JSON asks for one message."""
        if not reply:
            return
        try:
            wish = parse_pull_request(body)
        except ValueError as error:
            if body.lstrip()[:1] == b"{":
                self._status(reply, b"NATS/1.0 400 Bad Request - %b\r\n\r\n" % str(error).encode())
                return
            wish = PullRequest(batch=1)
        self.open(reply, wish)

    def open(self, reply: bytes, wish: PullRequest) -> None:
        """Open a parsed request, or refuse it with a status."""
        refusal = self._refusal(wish) or (self._without_waiting(wish) if wish.no_wait else b"")
        if refusal:
            self._status(reply, refusal)
            return
        consumer = self._consumer
        if len(self.waiting) >= consumer.config.max_waiting and self.num_waiting() >= consumer.config.max_waiting:
            if not wish.idle_heartbeat:
                self._status(reply, MAX_WAITING)
            return
        request = OpenRequest(reply, wish, consumer.engine.clock.monotonic_ns())
        self.waiting.append(request)
        self.wanted += request.left
        event = request.next_event_ns()
        if event:
            self._alarm.no_later_than(event)
        if consumer.undelivered.count > 0 or consumer.redelivery.queued or request.no_wait:
            consumer.schedule()

    def _refusal(self, wish: PullRequest) -> bytes:
        """Return the status that refuses a request for what it asks, b"" when it may be served."""
        config = self._consumer.config
        if 0 < config.max_batch < wish.batch:
            return b"NATS/1.0 409 Exceeded MaxRequestBatch of %d\r\n\r\n" % config.max_batch
        if 0 < config.max_expires < wish.expires:
            text = format_duration(config.max_expires).encode()
            return b"NATS/1.0 409 Exceeded MaxRequestExpires of %b\r\n\r\n" % text
        if 0 < config.max_bytes < wish.max_bytes:
            return b"NATS/1.0 409 Exceeded MaxRequestMaxBytes of %d\r\n\r\n" % config.max_bytes
        if wish.idle_heartbeat > 0 and 0 < wish.expires < 2 * wish.idle_heartbeat:
            return b"NATS/1.0 400 Bad Request - heartbeat value too large\r\n\r\n"
        return b""

    def _without_waiting(self, wish: PullRequest) -> bytes:
        """Return the status for a no_wait request that can not be served now, b"" when it is to be opened."""
        if wish.expires > 0:
            return b""
        available = self._consumer.supply.available()
        if not available:
            return NO_MESSAGES
        return REQUESTS_PENDING if available < self.wanted else b""

    # Delivery

    def run(self, budget: int) -> int:
        """Hand out up to `budget` messages, redeliveries first, and return how many went."""
        consumer = self._consumer
        sent = 0
        while sent < budget and self._find_taker():
            if consumer.redelivery.queued:
                number = consumer.retry.deliver(self._hand_out)
            else:
                number = self._deliver(budget - sent)
            if not number:
                break
            sent += number
        if self.waiting and not consumer.supply.available():
            for request in [r for r in self.waiting if r.ends_without_messages()]:
                self._end(request, NO_MESSAGES)
        return sent

    def _find_taker(self) -> bool:
        """Bring a request to the head whose client keeps up with reading; False when there is none."""
        for _ in range(len(self.waiting)):
            if not self._consumer.supply.congested(self.waiting[0].reply):
                return True
            self.waiting.rotate(-1)
        return False

    def _deliver(self, budget: int) -> int:
        """Hand out new messages, read in one batch, and return how many went."""
        consumer = self._consumer
        messages = consumer.supply.take(min(budget, self.wanted, consumer.supply.room(), READ_BATCH))
        if not messages:
            return 0
        deliveries = consumer.supply.deliveries(messages)
        request = self.waiting[0]
        if len(self.waiting) == 1 and not request.max_bytes:
            done = self._hand_all(request, deliveries)
        else:
            now_ns, done = consumer.engine.clock.monotonic_ns(), 0
            for subject, reply, header, payload in deliveries:
                if not self._hand_out(subject, reply, header, payload, now_ns):
                    break
                done += 1
        if done:
            consumer.book_first([message[0] for message in messages[:done]])
        return done

    def _hand_all(self, request: OpenRequest, deliveries: list[Delivery]) -> int:
        """Send to the only open request, which wants at least as many, and return how many it took."""
        done = self._consumer.account.send_all(request.reply, deliveries)
        request.left -= done
        request.delivered += done
        request.last_ns = self._consumer.engine.clock.monotonic_ns()
        self.wanted -= done
        if done < len(deliveries):
            self._close(request)
        elif request.left <= 0:
            self._served(request)
        return done

    def _hand_out(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, now_ns: int) -> bool:
        """Send one message to the next request that takes it; False when there is none left."""
        waiting = self.waiting
        send = self._consumer.account.send
        while waiting:
            request = waiting[0]
            if request.max_bytes:
                size = len(subject) + len(reply) + len(header) + len(payload)
                if size > request.bytes_left:
                    self._end(request, self._pending(b"409 Message Size Exceeds MaxBytes", request))
                    continue
                request.bytes_left -= size
            if not send(request.reply, subject, reply, header, payload):
                self._close(request)
                continue
            request.left -= 1
            request.delivered += 1
            request.last_ns = now_ns
            self.wanted -= 1
            if request.left <= 0:
                self._served(request)
            elif len(waiting) > 1:
                waiting.rotate(-1)
            return True
        return False

    # Ends

    def _served(self, request: OpenRequest) -> None:
        """Close the head of the queue, which got all it wanted."""
        self.waiting.popleft()
        if request.bytes_left > 0:
            self._status(request.reply, self._pending(b"409 Batch Completed", request))
        if not self.waiting:
            self._became_idle()

    def _close(self, request: OpenRequest) -> None:
        """Take a request out of the queue without a word."""
        self.waiting.remove(request)
        self.wanted -= request.left
        if not self.waiting:
            self._became_idle()

    def _end(self, request: OpenRequest, status: bytes) -> None:
        """Take a request out of the queue and tell why."""
        self._close(request)
        self._status(request.reply, status)

    def _became_idle(self) -> None:
        self.idle_since_ns = self._consumer.engine.clock.monotonic_ns()
        self._consumer.lifetime.watch()

    def _pending(self, status: bytes, request: OpenRequest) -> bytes:
        return _WITH_PENDING % (status, request.left, request.bytes_left)

    def _status(self, reply: bytes, block: bytes) -> None:
        self._consumer.account.publish(reply, b"", block, b"")

    def _look(self) -> None:
        """End expired requests, send idle heartbeats, and arm the alarm for what comes next."""
        consumer = self._consumer
        now_ns = consumer.engine.clock.monotonic_ns()
        for request in tuple(self.waiting):
            if request.expires_ns and request.expires_ns <= now_ns:
                self._end(request, self._pending(b"408 Request Timeout", request))
            elif request.heartbeat_ns and request.last_ns + request.heartbeat_ns <= now_ns:
                state = consumer.state
                request.last_ns = now_ns
                self._status(request.reply, _HEARTBEAT % (state.delivered_cseq, state.delivered_sseq))
        events = [event for event in (r.next_event_ns() for r in self.waiting) if event]
        if events:
            self._alarm.no_later_than(min(events))
