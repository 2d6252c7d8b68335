"""Push delivery: messages go to the deliver subject while it has a subscriber.

Theory of operation. The account calls back when interest in the deliver subject appears or vanishes; `active` holds the
latest state. While active, redeliveries and new messages are sent until the budget, max_ack_pending, the flow control
window or the rate limit is reached; with the latter two, a time or an answer resumes delivery. The idle heartbeat is an
alarm that looks at the time of the last message and sends only when that is long enough ago.

Interest is a subscription to exactly the deliver subject, in the deliver group if there is one; a wildcard that covers
it receives messages but does not start delivery. With ack policy flow_control, the answers to flow control requests
are the acks: they name the messages consumed so far, so a request also goes out when max_ack_pending is reached, and
after a heartbeat while anything waits for its ack. Source: nats-server, consumer.go and sublist.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.consumer import AckPolicy
from natsctl.api.headers import LAST_CONSUMER, LAST_STREAM
from natsctl.api.headers import get as header_of
from natsctl.broker.deferred_work import SLICE_NS
from natsctl.jetstream.consumers.delivery_budget import READ_BATCH, FlowControl, RateLimit
from natsctl.jetstream.consumers.pull import PUSH_BASED
from natsctl.jetstream.timers import Alarm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.broker.account import SubscriberWatch
    from natsctl.broker.subscription import Delivery
    from natsctl.jetstream.consumers.consumer import Consumer

FLOW_REQUEST: Final = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
_HEARTBEAT: Final = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n%b\r\n"

DEFAULT_BURST_BYTES: Final = 1 << 20
"""The burst of a rate limit where the stream has no max_msg_size: the default max_payload."""


class PushDelivery:
    __slots__ = (
        "_acks_by_flow",
        "_beat",
        "_consumer",
        "_flow",
        "_group",
        "_rate",
        "_resume",
        "_subject",
        "_watch",
        "idle_since_ns",
        "is_active",
        "last_ns",
    )

    def __init__(self, consumer: Consumer) -> None:
        config, timers = consumer.config, consumer.engine.timers
        self._consumer = consumer
        self._subject = config.deliver_subject.encode()
        self._group = config.deliver_group.encode()
        self._flow = FlowControl() if config.flow_control else None
        self._acks_by_flow = config.ack_policy is AckPolicy.FLOW_CONTROL
        self._rate: RateLimit | None = None
        self._resume = Alarm(timers, consumer.schedule)
        self._beat = Alarm(timers, self._heartbeat)
        self._watch: SubscriberWatch | None = None
        self.is_active = False
        self.last_ns = self.idle_since_ns = consumer.engine.clock.monotonic_ns()
        self.limit_rate()

    def limit_rate(self) -> None:
        config = self._consumer.config
        self._rate = None
        if config.rate_limit_bps > 0:
            max_msg_size = self._consumer.stream.config.max_msg_size
            burst = max_msg_size if max_msg_size > 0 else DEFAULT_BURST_BYTES
            self._rate = RateLimit(config.rate_limit_bps, burst, self.last_ns)

    # Called by the consumer

    def start(self) -> None:
        account = self._consumer.account
        self._watch = account.watch_subscribers(self._subject, self._group, self._interest_changed)
        self._interest_changed()
        if self._consumer.config.idle_heartbeat:
            self._beat.set(self.last_ns + self._consumer.config.idle_heartbeat)

    def stop(self, deleted: bool) -> None:
        self._resume.cancel()
        self._beat.cancel()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self.is_active = False

    def shut_down(self) -> None:
        """Do nothing: a subscriber sees its connection end."""

    def ready(self) -> bool:
        return self.is_active

    def bound(self) -> bool:
        return self.is_active

    def active(self) -> bool:
        """Return whether a client uses the consumer, for the inactive threshold."""
        return self.is_active

    def num_waiting(self) -> int:
        return 0

    def on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        if reply:
            self._consumer.account.publish(reply, b"", PUSH_BASED, b"")

    def on_flow_answer(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        if self._flow is None or not self._flow.answered(subject):
            return
        if header and self._acks_by_flow:
            sseq = header_of(header, LAST_STREAM) or b""
            cseq = header_of(header, LAST_CONSUMER) or b""
            if sseq.isdigit():
                self._consumer.acks.through(int(sseq), int(cseq) if cseq.isdigit() else 0)
        self._consumer.schedule()

    def _interest_changed(self) -> None:
        active = self._watch is not None and self._watch.subscribers > 0
        if active == self.is_active:
            return
        self.is_active = active
        if self._flow is not None:
            self._flow.forget()
        if active:
            self._consumer.schedule()
        else:
            self._lost_interest()

    def _lost_interest(self) -> None:
        self.is_active = False
        self.idle_since_ns = self._consumer.engine.clock.monotonic_ns()
        self._consumer.lifetime.watch()

    # Delivery

    def run(self, budget: int) -> int:
        """Send messages, redeliveries first, until they have cost the `budget`; return their cost."""
        consumer = self._consumer
        sent, cost = 0, consumer.budget.cost(self._subject)
        while sent < budget and self.is_active and self._is_routed() and not self._held_up():
            if consumer.redelivery.queued:
                number = consumer.retry.deliver(self._send)
            else:
                number = self._deliver(max((budget - sent) // cost, 1))
            if not number:
                break
            sent += number * cost
        return sent

    def _held_up(self) -> bool:
        """Return whether the client must read or answer before it gets more."""
        return (self._flow is not None and self._flow.stalled()) or self._consumer.budget.congested(self._subject)

    def _is_routed(self) -> bool:
        """Return whether the route of the deliver subject is known; a long search for it continues in later turns."""
        routes, clock = self._consumer.account.routes, self._consumer.engine.clock
        until_ns = clock.monotonic_ns() + SLICE_NS
        if not routes.wide or routes.walked(self._subject, lambda: clock.monotonic_ns() <= until_ns):
            return True
        self._resume.no_later_than(clock.monotonic_ns())
        return False

    def _deliver(self, budget: int) -> int:
        consumer = self._consumer
        messages = consumer.budget.take(min(budget, consumer.budget.room(), READ_BATCH))
        if not messages:
            return 0
        deliveries = consumer.budget.deliveries(messages)
        now_ns = consumer.engine.clock.monotonic_ns()
        if self._flow is None and self._rate is None:
            done = consumer.account.send_all(self._subject, deliveries)
            if done < len(deliveries):
                self._lost_interest()
        elif self._flow is not None and self._rate is None:
            done = self._send_by_window(self._flow, deliveries)
        else:
            done = 0
            for subject, reply, header, payload in deliveries:
                if not self._send(subject, reply, header, payload, now_ns):
                    break
                done += 1
        if done:
            self.last_ns = now_ns
            consumer.record_deliveries([message[0] for message in messages[:done]])
            if self._acks_by_flow and not consumer.budget.room():
                self._ask()
        return done

    def _send_by_window(self, flow: FlowControl, deliveries: Sequence[Delivery]) -> int:
        """Send messages together until the client has to answer, and return how many went."""
        done, number = 0, len(deliveries)
        while done < number and self.is_active and not flow.stalled():
            count, ask = flow.fit(deliveries, done, len(self._subject))
            sent = self._consumer.account.send_all(self._subject, deliveries[done : done + count])
            done += sent
            if sent < count:
                self._lost_interest()
            elif ask:
                self._ask()
        return done

    def _send(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, now_ns: int) -> bool:
        flow, size = self._flow, len(reply) + len(header) + len(payload)
        if flow is not None and flow.stalled():
            return False
        if self._rate is not None:
            wait_ns = self._rate.wait_ns(size + len(subject), now_ns)
            if wait_ns:
                self._resume.no_later_than(now_ns + wait_ns)
                return False
        if not self._consumer.account.deliver(self._subject, subject, reply, header, payload):
            self._lost_interest()
            return False
        self.last_ns = now_ns
        if flow is not None and flow.sent(size + len(self._subject)):
            self._ask()
        return True

    def _ask(self) -> None:
        """Ask the client to answer for everything sent so far, unless a request is already open."""
        flow = self._flow
        if flow is not None and not flow.pending_reply:
            flow.ask(self._consumer.flow_reply())
            self._consumer.account.publish(self._subject, flow.pending_reply, FLOW_REQUEST, b"")

    def _heartbeat(self) -> None:
        """Send an idle heartbeat if nothing else was sent for that long, and set the next alarm."""
        consumer = self._consumer
        if consumer.stopped:
            return
        now_ns, interval = consumer.engine.clock.monotonic_ns(), consumer.config.idle_heartbeat
        if now_ns - self.last_ns >= interval:
            self.last_ns = now_ns
            if self.is_active:
                stalled = b""
                if self._flow is not None and self._flow.pending_reply:
                    stalled = b"Nats-Consumer-Stalled: %b\r\n" % self._flow.pending_reply
                block = _HEARTBEAT % (consumer.state.delivered_cseq, consumer.undelivered.position, stalled)
                consumer.account.publish(self._subject, b"", block, b"")
                if self._acks_by_flow and consumer.state.pending:
                    self._ask()
        self._beat.set(self.last_ns + interval)
