"""The range that one task reads, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Transport = Literal["auto", "blocks", "consumer", "direct", "get"]


@dataclass(frozen=True)
class ReadRange:
    """Messages of one stream from sequence `first` to `last`, both included, on any of `filters` (none: all).

    Sequences that are gone, or filtered out, are simply absent from what is read.
    """

    stream: str
    first: int
    last: int
    filters: tuple[str, ...] = ()
    transport: Transport = "auto"


@dataclass(frozen=True)
class FetchLimits:
    """The amount that is asked for at once, two requests on their way at any time."""

    messages: int = 10_000
    bytes: int = 8 << 20
    """Below the server's max_pending of 64 MiB, beyond which it closes the connection as a slow consumer."""
    timeout_s: float = 30.0
    """Without any data for that long, reading begins anew behind the last message."""
