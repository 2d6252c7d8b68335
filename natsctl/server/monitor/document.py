"""JSON documents of the monitoring endpoints, indented as in nats-server, and their times and durations.

Documents are written in pieces: a long list may be an iterator, advanced when the previous element has been
written, so an answer about thousands of streams is never in memory as a whole. `whole` turns iterators into lists, for
answers that are sent at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from natsctl.api.codec import encode
from natsctl.api.subject_index import finish
from natsctl.api.times import Clock, format_time
from natsctl.api.units import SECOND, format_duration

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker


T = TypeVar("T")

Making: TypeAlias = Generator[None, None, T]
"""A value made in steps, so that other work can be done between them."""


def pieces(value: Any, margin: bytes = b"\n", step: int = 2) -> Iterator[bytes]:
    """Yield the text of a value; `margin` is a newline and the indentation of its first line."""
    inner = margin + b" " * step
    if isinstance(value, dict) and any(_is_long(item) for item in value.values()):
        opening = b"{"
        for key, item in value.items():
            yield opening + inner + encode(key) + b": "
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
    else:
        yield msgspec.json.format(encode(value), indent=step).replace(b"\n", margin)


def _is_long(value: Any) -> bool:
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


def whole(value: Any) -> Any:
    return finish(make(finish(value) if isinstance(value, Generator) else value))


def make(value: Any, each: Callable[[Any], Any] = lambda item: item) -> Making[Any]:
    """Write as `whole` does, with a stop after each element; `each` may replace elements."""
    found: Any = value
    if isinstance(value, dict):
        found = {}
        for key, item in value.items():
            found[key] = (yield from make(item, each)) if _is_long(item) or isinstance(item, dict) else item
    elif _is_long(value):
        found = []
        for item in value:
            part = (yield from make(item, each)) if _is_long(item) or isinstance(item, dict) else item
            found.append(each(part))
            yield
    return found


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
