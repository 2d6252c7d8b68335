"""Outages of a server: repeated attempts with growing pauses, until it answers or the limit is reached.

Pauses double and are random within their upper half, so that the tasks of a cluster do not return all at once.
"""

from __future__ import annotations

import logging
import random
import time
from typing import Final

from natsctl.spark.source.errors import JetStreamSourceError
from natsctl.spark.source.handshake import ServerSettings

MAX_PAUSE_S: Final = 5.0
"""Upper bound of pauses, unless `retryInterval` is longer: about the time that a returned server goes unnoticed."""
LOG_EVERY_S: Final = 10.0
PREFIX: Final = "jetstream: "
"""The beginning of warnings; sessions look for it in Spark's output."""
_log = logging.getLogger("natsctl.spark.jetstream")


class Outage:
    """The attempts since the last success."""

    def __init__(self, settings: ServerSettings, hint: str = "") -> None:
        """Prepare; the warnings end with `hint`, a correction to consider."""
        self._settings = settings
        self._hint = hint
        self._attempts = 0
        self._began = 0.0
        self._logged = 0.0

    def end(self) -> None:
        """Note a success: the next failure begins another outage."""
        if self._attempts and self._logged > self._began:
            _log.warning("%sthe server answers again, after %.0f s", PREFIX, time.monotonic() - self._began)
        self._attempts = 0

    def pause(self, failure: JetStreamSourceError) -> None:
        """Wait before the next attempt; raise the failure if the limit is reached."""
        settings, now = self._settings, time.monotonic()
        if not self._attempts:
            self._began = self._logged = now
        self._attempts += 1
        left_s = self._began + settings.retry_timeout_s - now
        if left_s <= 0 if settings.retries is None else self._attempts > settings.retries:
            if self._attempts == 1:
                raise failure
            spent = f"given up after {self._attempts} attempts in {now - self._began:.0f} s"
            raise type(failure)(f"{failure.text} ({spent})") from failure
        longest_s = max(MAX_PAUSE_S, settings.retry_interval_s)
        pause_s = min(settings.retry_interval_s * 2 ** min(self._attempts - 1, 16), longest_s)
        pause_s *= random.uniform(0.5, 1.0)
        if settings.retries is None:
            pause_s = min(pause_s, left_s)
        if self._attempts == 1 or now - self._logged >= LOG_EVERY_S:
            limit = f"for {left_s:.0f} s more" if settings.retries is None else f"{settings.retries} times at most"
            _log.warning("%s%s; trying again, %s%s", PREFIX, failure.text, limit, self._hint)
            self._logged = max(now, self._began + 1e-9)
        time.sleep(pause_s)
