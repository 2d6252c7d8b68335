"""Lengths of time down to a microsecond, and how many of them there are of each length."""

from __future__ import annotations

from collections.abc import Sequence

from natsctl.cli.render.values import count

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
NARROWEST_BAR = 10


def fine(ns: float) -> str:
    """A length of time in three digits: `326µs`, `4.85ms`, `12.3s`; a minute and more in seconds."""
    for unit, name in _UNITS:
        if ns >= unit:
            number = ns / unit
            digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
            return f"{number:.{digits}f}{name}"
    return f"{ns:.0f}ns" if ns else "0s"


def render_bins(bins: Sequence[tuple[int, int]], columns: int) -> list[str]:
    """A line for each bin, with a bar as long as it is full; `columns` is what the widest line may have."""
    if not bins:
        return []
    most = max(number for _, number in bins)
    lead = max(len(fine(end)) for end, _ in bins)
    figures = len(count(most))
    room = max(NARROWEST_BAR, columns - lead - figures - 5)
    lines = []
    for end, number in bins:
        bar = "█" * (round(number / most * room) or (1 if number else 0))
        lines.append(f"< {fine(end):>{lead}}  {number:>{figures},} {bar}".rstrip())
    return lines
