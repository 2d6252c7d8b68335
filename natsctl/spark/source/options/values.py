"""The meaning of the texts of options: each function returns the value, or raises a ValueError of what is due."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from natsctl.spark.source.columns.json_times import check_pattern, zone_of

EARLIEST = -2
LATEST = -1
"""The numbers that stand for a sequence in an offset by stream, as with Spark's Kafka source."""

_UNIT_S = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60,
    "h": 3600, "hour": 3600, "d": 86400, "day": 86400,
}  # fmt: skip
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
LEAST_MS = 100_000_000_000
"""1973-03-03 as milliseconds since 1970; as seconds, such a number is of the year 5138."""
_LATEST_MS = 253_402_300_799_999
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")


def text(said: str) -> str:
    """Any text."""
    return said


def some_text(said: str) -> str:
    """Any text but none."""
    if not said.strip():
        raise ValueError("it is empty")
    return said.strip()


def key_text(said: str) -> str:
    """Return a text that can be part of a key: letters, digits, dashes and underscores."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", said.strip()):
        raise ValueError("it has letters, digits, - and _ only")
    return said.strip()


def flag(said: str) -> bool:
    """Return the value of `true` or `false`."""
    if said.strip().lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return said.strip().lower() == "true"


def one_of(*known: str) -> Callable[[str], str]:
    """Return one of the words, in any case."""

    def parse(said: str) -> str:
        if said.strip().lower() not in known:
            raise ValueError(f"it is one of {', '.join(known)}")
        return said.strip().lower()

    return parse


def whole(least: int) -> Callable[[str], int]:
    """Return a whole number, not below `least`."""

    def parse(said: str) -> int:
        try:
            number = int(said.strip())
        except ValueError:
            raise ValueError("it is a whole number") from None
        if number < least:
            raise ValueError(f"it is at least {least}")
        return number

    return parse


def duration_s(said: str) -> float:
    """Seconds, of a text such as `30s`, `1m30s`, `15 minutes`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", said.lower())
    if not parts or re.sub(r"(\d+(?:\.\d+)?)\s*([a-z]+)|\s", "", said.lower()):
        raise ValueError("it is a duration with its unit, such as 500ms, 30s or 15m")
    try:
        return sum(float(number) * _unit_s(unit) for number, unit in parts)
    except KeyError as failure:
        raise ValueError(f"{failure.args[0]!r} is no unit of time; write ms, s, m, h or d") from None


def wait_s(said: str) -> float:
    """Return the same, more than nothing."""
    seconds = duration_s(said)
    if not seconds:
        raise ValueError("it is longer than nothing")
    return seconds


def _unit_s(unit: str) -> float:
    return _UNIT_S[unit] if unit in _UNIT_S else _UNIT_S[unit.removesuffix("s")]


def size_bytes(said: str) -> int:
    """Return bytes, of a number or a text such as `8MiB`, `64m`."""
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)(?:i?b)?\s*", said.lower())
    if not found or int(found[1]) < 1:
        raise ValueError("it is a size of at least a byte, such as 1048576, 8MiB or 1g")
    return int(found[1]) * _SIZES[found[2]]


def names(said: str) -> tuple[str, ...]:
    """Return the parts of a list by commas, once each."""
    parts = [part.strip() for part in said.split(",")]
    if not all(parts):
        raise ValueError("it is a list by commas, and one of its parts is empty")
    return tuple(dict.fromkeys(parts))


def moment_ns(said: str) -> int:
    """Nanoseconds since 1970, of RFC 3339 or of milliseconds since 1970.

    Numbers that are small enough for seconds are refused, except 0.
    """
    if re.fullmatch(r"\s*\d+\s*", said):
        if int(said) > _LATEST_MS:
            raise ValueError("there is no such time: it is milliseconds since 1970, of a year before 10000")
        if 0 < int(said) < LEAST_MS:
            raise ValueError(
                f"{said.strip()} milliseconds since 1970 are before March 1973; if these are seconds, write "
                f"{datetime.fromtimestamp(int(said), UTC):%Y-%m-%dT%H:%M:%SZ}"
            )
        return int(said) * 1_000_000
    found = _MOMENT.fullmatch(said.strip())
    if not found:
        raise ValueError("it is a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970")
    day, clock, fraction, zone = found.groups()
    try:
        seconds = datetime.fromisoformat(f"{day}T{clock}{zone.upper().replace('Z', '+00:00')}")
    except ValueError as failure:
        raise ValueError(f"there is no such time: {failure}") from None
    since = seconds - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def moments_ns(said: str) -> dict[str, int]:
    """Nanoseconds since 1970 by stream, of a JSON object of times as `moment_ns` takes them."""
    example = '{"ORDERS": "2026-01-31T12:00:00Z"}'
    try:
        found = json.loads(said)
    except ValueError:
        raise ValueError(f"it is JSON such as {example}") from None
    if not isinstance(found, dict):
        raise ValueError(f"it gives each stream a time: {example}")
    moments: dict[str, int] = {}
    for name, each in found.items():
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise ValueError(f"{name} needs a time, not {json.dumps(each)}: {example}")
        try:
            moments[name] = moment_ns(str(each))
        except ValueError as failure:
            raise ValueError(f"{name}: {failure}") from None
    return moments


def time_pattern(said: str) -> str:
    """Return a pattern of times and dates."""
    return check_pattern(said)


def time_zone(said: str) -> str:
    """Return a zone, by its name or its offset."""
    zone_of(said.strip())
    return said.strip()


def sequences(*words: str) -> Callable[[str], str | dict[str, int]]:
    """Return one of the words, or a JSON object of sequences by stream: -2 is the earliest and -1 the latest."""

    def parse(said: str) -> str | dict[str, int]:
        if said.strip().lower() in words:
            return said.strip().lower()
        example = '{"ORDERS": 123}'
        try:
            found = json.loads(said)
        except ValueError:
            raise ValueError(f"it is {' or '.join(words)}, or JSON such as {example}") from None
        if not isinstance(found, dict) or not all(_is_sequence(number) for number in found.values()):
            raise ValueError(f"it gives each stream a sequence, -2 (earliest) or -1 (latest): {example}")
        return found

    return parse


def _is_sequence(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= EARLIEST


def subjects(said: str) -> tuple[str, ...]:
    """Return the subjects of a list by commas, wildcards allowed, those that others cover left out."""
    from_list = names(said)
    for subject in from_list:
        check_subject(subject)
    kept = tuple(one for one in from_list if not any(other != one and covers(other, one) for other in from_list))
    for at, one in enumerate(kept):
        for other in kept[at + 1 :]:
            if meet(one, other) is not None:
                raise ValueError(f"{one} and {other} have subjects in common, which the server does not take")
    return kept


def check_stream(name: str) -> None:
    """Raise ValueError for what no stream is called; a server may not answer at all when it is asked for such."""
    if re.search(r"[\s.*>]", name):
        raise ValueError(f"{name!r} is no name of a stream: it has no blanks, dots or wildcards")


def check_subject(subject: str) -> None:
    """Raise ValueError for what is no subject, wildcards allowed."""
    tokens = subject.split(".")
    if not all(tokens) or re.search(r"\s", subject) or ">" in tokens[:-1]:
        raise ValueError(f"{subject!r} is no subject: tokens are separated by single dots, and > stands last")


def covers(wide: str, narrow: str) -> bool:
    """Return whether every subject of one filter is also one of a wider."""
    return meet(wide, narrow) == narrow


def meet(one: str, other: str) -> str | None:
    """Return the filter for subjects that two filters have in common, or None where there are none."""
    here, there = one.split("."), other.split(".")
    common: list[str] = []
    for at in range(max(len(here), len(there))):
        mine = here[at] if at < len(here) else ""
        yours = there[at] if at < len(there) else ""
        if mine == ">" and yours:
            return ".".join(common + there[at:])
        if yours == ">" and mine:
            return ".".join(common + here[at:])
        if not mine or not yours or (mine != yours and "*" not in (mine, yours)):
            return None
        common.append(yours if mine == "*" else mine)
    return ".".join(common)
