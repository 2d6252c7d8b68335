"""One check: what it found, what it measured, and what that comes to.

A threshold is reached by a value that is equal to it. More is worse of times and shares, less of what runs out; of
other numbers more is worse unless the critical threshold is the smaller one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Limits = Mapping[str, Any]
"""Thresholds and switches by name (`lag-critical`): durations in nanoseconds, sizes in bytes."""

NS_PER_S = 1e9
METADATA = "io.nats.monitor."
"""What metadata of streams and consumers that set a threshold begin with."""


class Status(enum.IntEnum):
    """How a check ended; the numbers are those of Nagios."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured value; times are seconds."""

    name: str
    value: float
    help: str
    unit: str = ""
    warning: float | None = None
    critical: float | None = None


@dataclass(slots=True)
class Check:
    """A check under way, or done; `suite` is its kind, `name` what was looked at."""

    suite: str
    name: str
    critical: list[str] = field(default_factory=list)
    warning: list[str] = field(default_factory=list)
    ok: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)

    @property
    def status(self) -> Status:
        """The worst that was found."""
        if self.critical:
            return Status.CRITICAL
        if self.unknown:
            return Status.UNKNOWN
        return Status.WARNING if self.warning else Status.OK

    def measure(self, name: str, value: float, help: str, unit: str = "") -> None:
        """Keep a value that has no thresholds."""
        self.metrics.append(Metric(name, value, help, unit))

    def compare(
        self,
        metric: Metric,
        text: str,
        warning: float | None = None,
        critical: float | None = None,
        *,
        low: bool | None = None,
    ) -> None:
        """Keep a value and say `text` of it at the status that its thresholds give; without thresholds say nothing.

        `low`: whether less is worse; without it the thresholds tell. Negative ones count as none, and where more is
        worse 0 does too.
        """
        warning, critical = _set(warning), _set(critical)
        falling = warning is not None and critical is not None and critical < warning if low is None else low
        if not falling:
            warning, critical = warning or None, critical or None
        self.metrics.append(Metric(metric.name, metric.value, metric.help, metric.unit, warning, critical))
        if warning is None and critical is None:
            return
        if _reached(metric.value, critical, falling):
            self.critical.append(text)
        elif _reached(metric.value, warning, falling):
            self.warning.append(text)
        else:
            self.ok.append(text)

    def require(self, condition: bool, held: str, broken: str) -> None:
        """Say `held`, or critically `broken`."""
        (self.ok if condition else self.critical).append(held if condition else broken)


def _set(threshold: float | None) -> float | None:
    return None if threshold is None or threshold < 0 else threshold


def _reached(value: float, threshold: float | None, falling: bool) -> bool:
    if threshold is None:
        return False
    return value <= threshold if falling else value >= threshold


def seconds(limits: Limits, name: str) -> float | None:
    """A threshold that is a duration, in seconds."""
    ns = limits.get(name)
    return None if ns is None else ns / NS_PER_S


def active(limits: Limits, name: str) -> bool:
    """Whether a threshold is given and means something."""
    value = limits.get(name)
    return value is not None and value > 0
