"""Text for terminals: display forms of single values, escapes of control characters, and lines folded to a width."""

from __future__ import annotations

import re
from collections.abc import Iterator

from natsctl.api.units import SECOND, format_size
from natsctl.hints import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

FOREVER_NS = 2**63 - 1
"""Value of the contract for "no age at all" (Go's longest duration)."""

_HIDDEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs", "Co"))
"""Unicode categories that move the cursor, reorder text or do not show."""


def safe(text: str, block: bool = False) -> str:
    r"""Return `text` with everything that a terminal would interpret written as `\x1b` or `\u202e`.

    `block` keeps line ends and tabs: for bodies. Names and single values escape those as well.
    """
    if text.isprintable():
        return text
    return "".join(_shown(char, block) for char in text)


def _shown(char: str, block: bool) -> str:
    if char.isprintable() or (block and char in "\n\t"):
        return char
    import unicodedata

    if unicodedata.category(char) not in _HIDDEN:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def body_text(payload: bytes) -> str:
    r"""Return a payload for a terminal, with control characters escaped.

    Bytes that are not UTF-8 become `\xff`.
    """
    return safe(payload.decode("utf-8", "backslashreplace").replace("\r\n", "\n"), block=True)


def count(number: int) -> str:
    """Return `1234567` as `1,234,567`."""
    return f"{number:,}"


def limit(number: int) -> str:
    """Return a limit of a stream or consumer: a count, or the word for none."""
    return "unlimited" if number <= 0 else count(number)


def size_limit(number: int) -> str:
    return "unlimited" if number <= 0 else format_size(number)


def yes(value: object) -> str:
    return "true" if value else "false"


def listed(items: list[str] | tuple[str, ...] | None) -> str:
    return ", ".join(safe(item) for item in items or ())


def duration(ns: int) -> str:
    """Return a duration for display: `250ms`, `12.34s`, `5m3s`, `3d4h0m0s`, `1y0d0h0m0s`.

    Go's longest is `never`.
    """
    if ns < 0:
        return "-" + duration(-ns)
    if ns >= FOREVER_NS:
        return "never"
    if ns == 0:
        return "0s"
    if ns < 999_500:  # a number that would be rounded to 1000 has the next unit
        return f"{round(ns / 1000)}µs"
    if ns < 999_500_000:
        return f"{round(ns / 1_000_000)}ms"
    if ns < 59_995_000_000:
        return f"{ns / SECOND:.2f}s"
    minutes, seconds = divmod(max(60, ns // SECOND), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    years, days = divmod(days, 365)
    text = f"{minutes}m{seconds}s"
    if hours or days or years:
        text = f"{hours}h{text}"
    if days or years:
        text = f"{days}d{text}"
    return f"{years}y{text}" if years else text


def age_limit(ns: int) -> str:
    return "unlimited" if ns <= 0 else duration(ns)


def local(ns: int) -> datetime:
    """Return the moment in the local zone; parts of a microsecond are cut."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ns // SECOND, UTC).replace(microsecond=ns % SECOND // 1000).astimezone()


def when(moment: str | None) -> str:
    """Return a time of the contract as local time with its offset, to the second: `2026-07-20 15:23:51 +02:00`."""
    from natsctl.api.times import is_zero, parse_time

    if moment is None or is_zero(moment):
        return "never"
    return stamp(parse_time(moment))


def stamp(ns: int) -> str:
    """Return nanoseconds since the epoch as local time with its offset, to the second."""
    text = local(ns).isoformat(" ", "seconds")
    return f"{text[:19]} {text[19:]}"


def exact_stamp(ns: int) -> str:
    """Return nanoseconds since the epoch in local time, with microseconds and without a year.

    For example `Jul 14 08:10:00.123456`.
    """
    moment = local(ns)
    return f"{moment:%b} {moment.day:>2} {moment:%H:%M:%S.%f}"


def ago(moment: str | None, now_ns: int) -> str:
    """Return the time passed since a time of the contract until `now_ns`; `never` for the zero time."""
    from natsctl.api.times import is_zero, parse_time

    if moment is None or is_zero(moment):
        return "never"
    return duration(max(0, now_ns - parse_time(moment)))


# Patterns of this module are compiled when they are used: few commands use any.
_JOINTS: Final = (r"[,;]", r"(?<![:/])[/|&?](?!/)", r"[.=@](?!\d)", r"[_-]", r":(?!/)", r"(?<=[a-z])(?=[A-Z])")
"""Characters after which a list, path, name or subject may be broken, the best first."""

_WHOLE: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [+-]\d\d:\d\d)?|\d (?:B|[KMGTPE]iB)\b"
"""Times and sizes; they are not broken."""
_TIED: Final = "\0"
"""Placeholder for a blank that does not break a line; escaped text never has it."""


def length(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def folded(text: str, width: int) -> list[str]:
    """Return a text in lines of at most `width`: broken between words, else at separators in names and paths."""
    if "\n" not in text and length(text) <= width:
        return [text]
    return [piece for line in text.splitlines() for piece in _folded_line(line, width)] or [""]


def hanging(text: str, width: int | None) -> str:
    """Return a text as lines of at most `width`, those after the first indented; as it is without a width."""
    if width is None or ("\n" not in text and length(text) <= width):
        return text
    return "\n  ".join(folded(text, max(width - 2, 1)))


def _folded_line(line: str, width: int) -> Iterator[str]:
    if length(line) > width:
        whole = re.sub(_WHOLE, lambda found: found[0].replace(" ", _TIED), line)
        yield from (piece.replace(_TIED, " ") for piece in _pieces(whole, width))
    else:
        yield line


def _pieces(line: str, width: int) -> Iterator[str]:
    line = line.rstrip()
    while length(line) > width:
        most = _fitting(line, width)
        blank = line.rfind(" ", 0, most + 1)
        if blank > 0:
            yield line[:blank].rstrip()
            line = line[blank:].lstrip()
            continue
        at = _joint(line, most)
        yield line[:at]
        line = line[at:]
    yield line


def _joint(line: str, most: int) -> int:
    """Return the position to break a word: the best separator that leaves at least half of the line filled."""
    for marks in _JOINTS:
        at = max((found.end() for found in re.compile(marks).finditer(line, 0, most)), default=0)
        if at * 2 >= most:
            return at
    return most


def _fitting(line: str, width: int) -> int:
    if line.isascii():
        return max(width, 1)
    taken = 0
    for index, letter in enumerate(line):
        taken += length(letter)
        if taken > width:
            return max(index, 1)
    return len(line)
