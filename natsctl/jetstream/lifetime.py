"""When a consumer rests and when it ends: pause_until and the inactive threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.jetstream.alarm import Alarm
from natsctl.jetstream.consumer_config import pause_until_ns

if TYPE_CHECKING:
    from natsctl.jetstream.consumer import Consumer

_JITTER_MIN_NS: Final = 100_000_000
_JITTER_SPAN_NS: Final = 900_000_000
"""Added to the threshold of a pull consumer, whose next request may be on its way."""


class Lifetime:
    """Pause and inactivity of one consumer."""

    __slots__ = ("_consumer", "_inactivity", "_pause", "paused")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._inactivity = Alarm(consumer.engine.timers, self._on_inactivity)
        self._pause = Alarm(consumer.engine.timers, self._on_pause_end)
        self.paused = False

    def configure(self) -> None:
        """Take pause and threshold from the configuration."""
        self.apply_pause()
        self._inactivity.cancel()
        self.watch()

    def stop(self) -> None:
        """Neither wake nor end the consumer any more."""
        self._pause.cancel()
        self._inactivity.cancel()

    def pause_remaining_ns(self) -> int:
        """Return how long the consumer is still paused."""
        return max(pause_until_ns(self._consumer.config) - self._consumer.engine.clock.now_ns(), 0)

    def apply_pause(self) -> None:
        """Pause or resume as the configuration says, and tell so if that changed."""
        consumer = self._consumer
        remaining_ns = self.pause_remaining_ns()
        paused = remaining_ns > 0
        self._pause.cancel()
        if paused:
            self._pause.no_later_than(consumer.engine.clock.monotonic_ns() + remaining_ns)
        if paused != self.paused:
            self.paused = paused
            consumer.events.paused(paused)
            consumer.schedule()

    def watch(self) -> None:
        """Look again when nobody has used the consumer for its threshold."""
        consumer = self._consumer
        threshold_ns = consumer.config.inactive_threshold
        if threshold_ns <= 0 or consumer.stopped:
            return
        jitter_ns = 0
        if not consumer.config.deliver_subject:
            jitter_ns = int(_JITTER_MIN_NS + consumer.engine.rng.random() * _JITTER_SPAN_NS)
        self._inactivity.no_later_than(consumer.delivery.idle_since_ns + threshold_ns + jitter_ns)

    def _on_inactivity(self) -> None:
        """End the consumer, unless it was used since the alarm was armed."""
        consumer = self._consumer
        now_ns = consumer.engine.clock.monotonic_ns()
        threshold_ns = consumer.config.inactive_threshold
        if consumer.delivery.active():
            self._inactivity.no_later_than(now_ns + threshold_ns)
        elif consumer.delivery.idle_since_ns + threshold_ns > now_ns:
            self.watch()
        else:
            consumer.journal.expired(consumer)

    def _on_pause_end(self) -> None:
        self.apply_pause()
