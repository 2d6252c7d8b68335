"""Values of the wire as people write them in documents, where that reads back to the same value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from natsctl.api.shapes import Shape
from natsctl.api.units import DAY, MINUTE, YEAR, format_duration, parse_duration, parse_size
from natsctl.plan.documents.interpolation import escaped

_SIZES: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def worded(value: Any, shape: Shape | None) -> Any:
    """Return a value with its durations and sizes as words, and its texts escaped for interpolation."""
    if isinstance(value, Mapping):
        return {key: worded(item, _inner(shape, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [worded(item, shape.item if shape is not None else None) for item in value]
    if isinstance(value, str):
        return escaped(value)
    if shape is None or shape.human not in _WORDS or not isinstance(value, int) or isinstance(value, bool):
        return value
    say, read = _WORDS[shape.human]
    text = say(value)
    return text if text and read(text) == value else value


def duration_words(ns: int) -> str:
    """Return a duration in words: "1y", "30d", "1h30m", "1.5s"; "" where the number is clearer."""
    if ns <= 0:
        return ""
    for unit, name in ((YEAR, "y"), (DAY, "d")):
        if ns % unit == 0:
            return f"{ns // unit}{name}"
    text = format_duration(ns)
    if ns % MINUTE == 0:
        text = text.removesuffix("0s")
        text = text.removesuffix("0m") if text.endswith("h0m") else text
    return text


def size_words(size: int) -> str:
    """Return a size in the largest unit that divides it: "10GiB"; "" if none does."""
    power = 0
    while size > 0 and size % 1024 == 0 and power < len(_SIZES):
        size, power = size // 1024, power + 1
    return f"{size}{_SIZES[power - 1]}" if power else ""


def _inner(shape: Shape | None, key: str) -> Shape | None:
    if shape is None:
        return None
    if shape.kind == "dict":
        return shape.item
    known = shape.fields.get(key)
    return known.shape if known is not None else None


_WORDS: Final[dict[str, tuple[Callable[[int], str], Callable[[str], int]]]] = {
    "duration": (duration_words, parse_duration),
    "size": (size_words, parse_size),
}
