"""What the start of a store found."""

from __future__ import annotations

import msgspec


def refusal(key: str, reason: str) -> str:
    """Return what is said of a stream that was refused."""
    return f"stream {key} is damaged and refused: {reason}"


class RecoveryReport(msgspec.Struct):
    """Findings of `Store.open`: notes for the log, and the reasons why streams (by key, or folder) were refused."""

    streams: int = 0
    messages: int = 0
    clean_stop: bool = False
    notes: list[str] = msgspec.field(default_factory=list)
    damaged: dict[str, str] = msgspec.field(default_factory=dict)
