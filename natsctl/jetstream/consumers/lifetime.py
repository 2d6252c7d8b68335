"""Pause and end of a consumer: pause_until and the inactive threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.config.consumer_config import pause_until_ns
from natsctl.jetstream.alarm import Alarm

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer_context import ConsumerContext

_JITTER_MIN_NS: Final = 100_000_000
_JITTER_SPAN_NS: Final = 900_000_000
"""Added to the threshold of a pull consumer, whose next request may be on its way."""


class Lifetime:
    """Pause and inactivity of one consumer."""

    __slots__ = ("_consumer", "_inactivity", "_pause", "_threshold_ns", "paused")

    def __init__(self, consumer: ConsumerContext) -> None:
        self._consumer = consumer
        self._inactivity = Alarm(consumer.engine.timers, self._on_inactivity)
        self._pause = Alarm(consumer.engine.timers, self._on_pause_end)
        self._threshold_ns = 0
        self.paused = False

    def configure(self, threshold: bool = True) -> None:
        """With `threshold`, take the inactive threshold from the configuration; it counts from now."""
        if not threshold:
            return
        consumer = self._consumer
        self._inactivity.cancel()
        self._threshold_ns = consumer.config.inactive_threshold
        if self._threshold_ns > 0:
            if not consumer.config.deliver_subject:
                self._threshold_ns += int(_JITTER_MIN_NS + consumer.engine.rng.random() * _JITTER_SPAN_NS)
            consumer.delivery.idle_since_ns = consumer.engine.clock.monotonic_ns()
            self.watch()

    def stop(self) -> None:
        """Cancel both timers."""
        self._pause.cancel()
        self._inactivity.cancel()

    def used(self) -> None:
        """Record that a message was acknowledged."""
        if self._threshold_ns > 0:
            self._consumer.delivery.idle_since_ns = self._consumer.engine.clock.monotonic_ns()

    def pause_remaining_ns(self) -> int:
        """Return how long the consumer is still paused."""
        return max(pause_until_ns(self._consumer.config) - self._consumer.engine.clock.now_ns(), 0)

    def apply_pause(self) -> None:
        """Pause or resume as configured."""
        consumer = self._consumer
        remaining_ns = self.pause_remaining_ns()
        self.paused = remaining_ns > 0
        self._pause.cancel()
        if self.paused:
            self._pause.no_later_than(consumer.engine.clock.monotonic_ns() + remaining_ns)
        else:
            consumer.schedule()

    def advise_pause(self) -> None:
        """Publish that the consumer is paused, if it is: each creation and change by a create request does so."""
        if self.paused:
            self._consumer.events.paused(True)

    def watch(self) -> None:
        """Check again once the consumer was not used for its threshold."""
        if self._threshold_ns > 0 and not self._consumer.stopped:
            self._inactivity.no_later_than(self._consumer.delivery.idle_since_ns + self._threshold_ns)

    def _on_inactivity(self) -> None:
        """End the consumer, unless it was used since the alarm was armed or acks may still be on their way."""
        consumer = self._consumer
        now_ns = consumer.engine.clock.monotonic_ns()
        pull = not consumer.config.deliver_subject
        if consumer.delivery.active():
            if pull:
                self._inactivity.no_later_than(now_ns + self._threshold_ns)
        elif consumer.delivery.idle_since_ns + self._threshold_ns > now_ns:
            self.watch()
        elif pull and (wait_ns := self._unacked_ns()) > 0:
            self._inactivity.no_later_than(now_ns + wait_ns)
        else:
            consumer.journal.expired(consumer)

    def _unacked_ns(self) -> int:
        """Return how long the last outstanding ack keeps the consumer alive. Source: nats-server, consumer.go."""
        consumer = self._consumer
        last_ns = max(map(consumer.redelivery.deadline, consumer.state.pending), default=0)
        return last_ns + self._threshold_ns - consumer.now_ns() if last_ns else 0

    def _on_pause_end(self) -> None:
        self.apply_pause()
        self._consumer.events.paused(self.paused)
