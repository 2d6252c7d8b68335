"""JSON documents of the monitoring endpoints, indented as in nats-server, and their times and durations.

Documents are written in pieces: a long list may be an iterator, advanced when the previous element has been
written, so an answer about thousands of streams is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from natsctl.api.codec import encode
from natsctl.api.times import Clock, format_time
from natsctl.api.units import SECOND, format_duration

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker


T = TypeVar("T")

Making: TypeAlias = Generator[Any, None, T]
"""A value made in steps, so that other work can be done between them."""


def pieces(value: Any, margin: bytes = b"\n", step: int = 2) -> Iterator[bytes]:
    """Yield the text of a value; `margin` is a newline and the indentation of its first line.

    Without both, the text has no blanks, as `encode` writes it.
    """
    inner, colon = margin + b" " * step, b": " if margin else b":"
    if isinstance(value, dict) and _is_long(value):
        opening = b"{"
        for key, item in value.items():
            yield opening + inner + encode(key) + colon
            yield from pieces(item, inner, step)
            opening = b","
        yield margin + b"}"
    elif _is_long(value):
        opening = b"["
        for item in value:
            yield opening + inner
            yield from pieces(item, inner, step)
            opening = b","
        yield margin + b"]" if opening == b"," else b"[]"
    elif margin:
        yield msgspec.json.format(encode(value), indent=step).replace(b"\n", margin)
    else:
        yield encode(value)


def _is_long(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_long, value.values()))
    return isinstance(value, Iterator) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def pieces_of(making: Making[Any], step: int) -> Iterator[bytes]:
    """Yield the text of a value that is still to be made."""
    while True:
        try:
            next(making)
        except StopIteration as end:
            yield from pieces(end.value, step=step)
            return
        yield b""


def head(broker: Broker) -> dict[str, Any]:
    """Return the first members of most documents."""
    return {"server_id": broker.server_id, "now": format_time(broker.clock.now_ns())}


def present(members: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value}


def go_number(number: float) -> float | int:
    """Return a number that is encoded as Go does: without a decimal point if it is whole."""
    return int(number) if number.is_integer() else number


def text(raw: bytes) -> str:
    """Return a subject, a queue or a sid as text, with invalid UTF-8 replaced."""
    return raw.decode("utf-8", "replace")


def uptime(age_ns: int) -> str:
    """Return an age as nats-server spells it, such as `1d2h3m4s`; a year has 365 days."""
    seconds = max(age_ns, 0) // SECOND
    days = seconds // 86400
    parts = (
        (days // 365, "y"), (days % 365 if days >= 365 else days, "d"), (seconds // 3600 % 24, "h"),
        (seconds // 60 % 60, "m"), (seconds % 60, "s"),
    )  # fmt: skip
    first = next((index for index, (value, _) in enumerate(parts) if value), len(parts) - 1)
    return "".join(f"{value}{unit}" for value, unit in parts[first:])


def round_trip(rtt_ns: int) -> str:
    return format_duration(rtt_ns - rtt_ns % 1000 if 1000 < rtt_ns < 1_000_000 else rtt_ns)


def wall_time(clock: Clock, monotonic_ns: int) -> int:
    """Return the time since the epoch, in nanoseconds, of a reading of the monotonic clock."""
    return clock.now_ns() - (clock.monotonic_ns() - monotonic_ns)
