"""Stretches of time of a length that people count in, few enough to look at."""

from __future__ import annotations

from typing import Final

MOST_SLOTS: Final = 120
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
LENGTHS_S: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 2, 7, 14, 30, 90, 365, 3650)),
)  # fmt: skip


def slot_length(first_ns: int, last_ns: int) -> float:
    """Seconds of a slot, so that there are at most `MOST_SLOTS` from the first moment to the last."""
    span_s = max(0, last_ns - first_ns) / 1e9
    return next((length for length in LENGTHS_S if span_s / length < MOST_SLOTS - 1), LENGTHS_S[-1])
