"""Where texts go on in the next line: between words, else within names, paths and subjects at their joints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_JOINTS: Final = tuple(
    re.compile(joint)
    for joint in (r"[,;]", r"(?<![:/])[/|&?](?!/)", r"[.=@](?!\d)", r"[_-]", r":(?!/)", r"(?<=[a-z])(?=[A-Z])")
)
"""After what a list, a path, a name, a subject go on in the next line, the best first."""

_WHOLE: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [+-]\d\d:\d\d)?|\d (?:B|[KMGTPE]iB)\b")
"""Times and sizes, which stay in one piece."""
_TIED: Final = "\0"
"""Stands for a blank where a line is not broken; no text that was made harmless has it."""


def length(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def folded(text: str, width: int) -> list[str]:
    """A text in lines of at most `width`: broken between words, else within names and paths at their joints."""
    if "\n" not in text and length(text) <= width:
        return [text]
    return [piece for line in text.splitlines() for piece in _folded_line(line, width)] or [""]


def hanging(text: str, width: int | None) -> str:
    """A text as lines of at most `width`, those after the first indented; as it is without a width."""
    if width is None or ("\n" not in text and length(text) <= width):
        return text
    return "\n  ".join(folded(text, max(width - 2, 1)))


def _folded_line(line: str, width: int) -> Iterator[str]:
    if length(line) > width:
        whole = _WHOLE.sub(lambda found: found[0].replace(" ", _TIED), line)
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
    """Where a word goes on in the next line: at the best joint that leaves half of the line filled."""
    for marks in _JOINTS:
        at = max((found.end() for found in marks.finditer(line, 0, most)), default=0)
        if at * 2 >= most:
            return at
    return most


def _fitting(line: str, width: int) -> int:
    """How many letters of a line that is too long have room."""
    if line.isascii():
        return max(width, 1)
    taken = 0
    for at, letter in enumerate(line):
        taken += length(letter)
        if taken > width:
            return max(at, 1)
    return len(line)
