"""What of a table is shown in a width: which columns, how wide, and where their texts go on in the next line.

A table that has no room gives up, one after another and no more than it must: columns that are empty in every row, the
offset of its times where all have the same, the columns that it calls the least, and then room for texts. Numbers,
times and the words of headings stay in one piece. Who still has no room gets no table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from natsctl.cli.render.text import length

BETWEEN: Final = 3
"""Columns of the terminal between two of the table: a blank, the rule and a blank."""
COMFORT: Final = 20
"""The width in which a text is read with ease; narrower than that only where no column can be left out."""
NARROWEST: Final = 8
"""The width below which a text is in pieces."""
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Part:
    """A column: its heading and cells, and whether they are numbers."""

    title: str
    cells: Sequence[str]
    right: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """The columns that are shown, their widths, what was left out, and the offset that the times do not say."""

    parts: Sequence[Part]
    widths: Sequence[int]
    left_out: Sequence[str] = ()
    offset: str = ""


def fit(parts: Sequence[Part], least: Sequence[str], width: int) -> Fit | None:
    """How the table is shown in `width`; the columns named in `least` are given up in that order. None: it is not."""
    used = [at for at, part in enumerate(parts) if any(part.cells)] or list(range(len(parts)))
    for places in (range(len(parts)), used):
        kept = [parts[at] for at in places]
        if (widths := _widths(kept, width, width)) is not None:
            return Fit(kept, widths)
    short, offset = _without_offset(parts)
    rank = {part.title: least.index(part.title) for part in parts if part.title in least}
    given_up = sorted((at for at in used if short[at].title in rank), key=lambda at: rank[short[at].title])[
        : len(used) - 1
    ]
    found = _with_room(short, used, given_up, width)
    if found is None:
        return None
    kept, widths, left_out = found
    told = offset if any(_is_moment(cell) for part in kept for cell in part.cells) else ""
    return Fit(kept, widths, [parts[at].title for at in sorted(left_out)], told)


def _with_room(
    parts: Sequence[Part], used: Sequence[int], given_up: Sequence[int], width: int
) -> tuple[list[Part], list[int], list[int]] | None:
    """The columns that have room without as few as can be, their widths, and which were given up."""

    def without(gone: Sequence[int], comfort: int = COMFORT) -> tuple[list[Part], list[int] | None]:
        kept = [parts[at] for at in used if at not in gone]
        return kept, _widths(kept, width, comfort)

    for number in range(len(given_up) + 1):
        gone = list(given_up[:number])
        kept, widths = without(gone)
        if widths is None:
            continue
        # What went before a wider column had to go may have room again.
        for at in reversed(gone[:-1]):
            more, wider = without([one for one in gone if one != at])
            if wider is not None:
                gone, kept, widths = [one for one in gone if one != at], more, wider
        return kept, widths, gone
    for comfort in range(COMFORT - 1, NARROWEST - 1, -1):
        kept, widths = without(given_up, comfort)
        if widths is not None:
            return kept, widths, list(given_up)
    return None


def _without_offset(parts: Sequence[Part]) -> tuple[list[Part], str]:
    """The columns with times that do not say their offset, where all have the same, and that offset."""
    offsets = {found[2] for part in parts for cell in part.cells if (found := _MOMENT.fullmatch(cell))}
    if len(offsets) != 1:
        return list(parts), ""
    short = [
        replace(part, cells=[found[1] if (found := _MOMENT.fullmatch(cell)) else cell for cell in part.cells])
        for part in parts
    ]
    return short, offsets.pop()


def _widths(parts: Sequence[Part], width: int, comfort: int) -> list[int] | None:
    """The width of each column: what it needs, then the rest to those that lack least; None for no room."""
    room = width - BETWEEN * len(parts) - 1
    lines = [max(map(length, (part.title, *set(_lines(part)))), default=1) for part in parts]
    widths = [_least_width(part, comfort) for part in parts]
    if sum(widths) > room:
        return None
    left = room - sum(widths)
    lacking = sorted(range(len(widths)), key=lambda at: lines[at] - widths[at])
    for number, at in enumerate(lacking):
        more = min(lines[at] - widths[at], left // (len(lacking) - number))
        widths[at] += more
        left -= more
    return widths


def _least_width(part: Part, comfort: int) -> int:
    heading = max(map(length, part.title.split()), default=1)
    longest = max(map(length, set(_lines(part))), default=1)
    whole = part.right or all(cell in ("", "never") or _is_moment(cell) for cell in part.cells)
    return max(heading, longest if whole else min(longest, comfort), 1)


def _is_moment(cell: str) -> bool:
    return len(cell) in (19, 26) and cell[:4].isdigit() and cell[4:5] == "-"


def _lines(part: Part) -> Iterator[str]:
    for cell in part.cells:
        yield from cell.splitlines()
