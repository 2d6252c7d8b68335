"""Durations, byte sizes and counts as people write them, and the TTLs of messages.

Durations are Go's (`1h2m3.5s`, units ns us µs ms s m h) with the units of the `nats` tool too: d (24 h), w (7 d),
M (30 d), y and Y (365 d). Sizes accept K M G T P E, also as KB / KiB (always powers of 1024).
"""

from __future__ import annotations

import re
from functools import lru_cache

from natsctl.hints import Final

NANOSECOND: Final = 1
MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
MONTH: Final = 30 * DAY
YEAR: Final = 365 * DAY

_UNITS: Final = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "µs": MICROSECOND,  # U+00B5, the micro sign
    "μs": MICROSECOND,  # U+03BC, the Greek letter
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
    "d": DAY,
    "w": WEEK,
    "M": MONTH,
    "y": YEAR,
    "Y": YEAR,
}
_DURATION_MAX: Final = 2**63 - 1
_DIGITS: Final = r"[0-9]{1,20}"
_PART: Final = rf"({_DIGITS})?(?:\.([0-9]{{0,30}}))?(ns|us|µs|μs|ms|[smhdwMyY])"
_SIZE: Final = rf"({_DIGITS})(?:\.([0-9]{{1,18}}))?\s*(?:([KMGTPE])(?:i?B)?|B)?"
"""Patterns are compiled when they are first used: a server can start without them."""
_SIZE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration; raises ValueError with a reason for the user.

    "0" needs no unit; "" is refused; a leading "-" makes the whole negative.
    """
    body = text.strip()
    negative = body.startswith("-")
    if body[:1] in ("-", "+"):
        body = body[1:]
    if body == "0":
        return 0
    total, at = 0, 0
    while at < len(body):
        part = re.compile(_PART).match(body, at)
        if part is None or (part[1] is None and not part[2]):
            raise ValueError(f"expected a duration such as 30s, 5m, 1h30m or 1y, got {text!r}")
        unit = _UNITS[part[3]]
        total += int(part[1] or "0") * unit
        if part[2]:
            total += int(part[2]) * unit // 10 ** len(part[2])
        at = part.end()
    if not body:
        raise ValueError("expected a duration such as 30s, 5m, 1h30m or 1y, got nothing")
    if total > _DURATION_MAX:
        raise ValueError(f"duration {text!r} is longer than the 292 years a duration can hold")
    return -total if negative else total


def format_duration(ns: int) -> str:
    """Return `ns` in Go's spelling: 0s, 1.5ms, 2m0s, 26h0m0s."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns < SECOND:
        for unit, name in ((MILLISECOND, "ms"), (MICROSECOND, "µs"), (NANOSECOND, "ns")):
            if ns >= unit:
                return f"{sign}{_decimal(ns, unit)}{name}"
    minutes, rest = divmod(ns, MINUTE)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    if hours:
        text = f"{hours}h{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    """Return value/unit exactly, without trailing zeros; `unit` is a power of ten."""
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).rjust(len(str(unit)) - 1, '0').rstrip('0')}"


def parse_size(text: str) -> int:
    """Return the bytes of a size, -1 for "-1" (no limit); raises ValueError with a reason for the user."""
    body = text.strip()
    if body == "-1":
        return -1
    match = re.fullmatch(_SIZE, body, re.IGNORECASE)
    if match is None:
        raise ValueError(f"expected a size such as 512, 64KiB, 10MB or 1GiB, got {text!r}")
    scale = 1024 ** ("KMGTPE".index(match[3].upper()) + 1) if match[3] else 1
    size = int(match[1]) * scale
    if match[2]:
        size += int(match[2]) * scale // 10 ** len(match[2])
    if size > _DURATION_MAX:
        raise ValueError(f"size {text!r} does not fit in 63 bits")
    return size


def parse_length(text: str) -> int:
    """Return the nanoseconds of a duration that is not negative; raises ValueError with a reason for the user."""
    ns = parse_duration(text)
    if ns < 0:
        raise ValueError(f"expected a duration that is not negative, got {text!r}")
    return ns


def plural(number: int, noun: str, verbs: tuple[str, str] | None = None) -> str:
    """Return `number` with its noun, given in the singular, and a verb: "1 message waits", "1,234 messages wait"."""
    verb = f" {verbs[number != 1]}" if verbs else ""
    return f"1 {noun}{verb}" if number == 1 else f"{number:,} {noun}s{verb}"


def format_size(size: int) -> str:
    """Return `size` in binary units, below ten with one decimal: "13 MiB", "1.5 KiB"."""
    value = abs(size)
    sign = "-" if size < 0 else ""
    if value < 1024:
        return f"{sign}{value} B"
    index = min((value.bit_length() - 1) // 10, len(_SIZE_UNITS) - 1)
    tenths = (value * 10 + (1 << (10 * index - 1))) >> (10 * index)  # rounded half up
    if tenths >= 10240 and index < len(_SIZE_UNITS) - 1:
        index, tenths = index + 1, 10
    if tenths < 100:
        return f"{sign}{tenths // 10}.{tenths % 10} {_SIZE_UNITS[index]}"
    return f"{sign}{(value + (1 << (10 * index - 1))) >> (10 * index)} {_SIZE_UNITS[index]}"


NEVER: Final = -1
"""A TTL that never ends."""
KNOWN_TEXTS: Final = 1024
"""Spellings of TTLs that are remembered; publishers use the same ones again and again."""
MAX_TEXT: Final = 64
"""Characters of a TTL that are read; no duration is longer."""
_NOT_IN_GO: Final = b"dwMyY"
"""Units that durations have here, and not in Go."""


@lru_cache(KNOWN_TEXTS)
def parse_ttl(text: bytes) -> int | None:
    """Return the nanoseconds of a TTL, whole seconds as nats-server counts them; 0: none, -1: never, None: invalid.

    A Go duration of a second or more, digits (seconds), or `never`. Source: nats-server, stream.go.
    """
    if not text:
        return 0
    if text.lower() == b"never":
        return NEVER
    duration = parse_go_duration(text)
    if duration is not None:
        return duration // SECOND * SECOND if duration >= SECOND else None
    if not text.isdigit() or len(text) > MAX_TEXT:
        return None
    return min(int(text), _DURATION_MAX // SECOND) * SECOND


def parse_go_duration(text: bytes) -> int | None:
    """Return the nanoseconds of a duration in Go's spelling, None for anything else."""
    if len(text) > MAX_TEXT or text.strip() != text or text.translate(None, _NOT_IN_GO) != text:
        return None
    try:
        return parse_duration(text.decode())
    except ValueError:
        return None
