"""The share of waiting messages that a batch takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from natsctl.spark.source.options.options import Options
from natsctl.spark.source.spark_api import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows


@dataclass(frozen=True)
class Admission:
    """The limits of a streaming read; None for one that was not given.

    Spark hands one limit only from the options to the engine and back, so that it says no more than whether limits
    count at all; which, stands here.
    """

    most: int | None = None
    most_bytes: int | None = None
    least: int | None = None
    delay_s: float = 900.0

    @property
    def default(self) -> ReadLimit:
        """The limit that Spark is given."""
        if self.most is not None:
            return ReadMaxRows(self.most)
        if self.most_bytes is not None:
            return ReadMaxBytes(self.most_bytes)
        return ReadAllAvailable() if self.least is None else ReadMinRows(self.least)

    def held_back(self, waiting: int, waited_s: float) -> bool:
        """Return whether a batch is not worth it yet."""
        return self.least is not None and waiting < self.least and waited_s < self.delay_s

    def shares(self, waiting: Mapping[str, int], sizes: Mapping[str, float]) -> dict[str, int]:
        """Return the messages that each stream may add, by the number waiting there and their average size."""
        factor = 1.0
        if self.most is not None:
            factor = min(factor, self.most / max(sum(waiting.values()), 1))
        if self.most_bytes is not None:
            total = sum(number * sizes[name] for name, number in waiting.items())
            factor = min(factor, self.most_bytes / max(total, 1.0))
        return {name: _share(number, factor) for name, number in waiting.items()}


def _share(number: int, factor: float) -> int:
    """Return a part of a stream's messages; at least one, so that a quiet stream is not starved by a busy one."""
    if factor >= 1:
        return number
    return max(math.floor(number * factor), min(number, 1))


def admission_of(options: Options) -> Admission:
    """Return the limits that the options of a streaming read set."""
    return Admission(
        options["maxOffsetsPerTrigger"],
        options["maxBytesPerTrigger"],
        options["minOffsetsPerTrigger"],
        options["maxTriggerDelay"],
    )
