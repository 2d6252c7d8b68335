"""Bars as SVG within a page; every text in it is escaped, colours come from the page's style."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

WIDTH: Final = 960
"""Units of a drawing; the page scales it."""
_LEFT, _BOTTOM, _TOP = 70, 22, 8
_ROW, _LABEL = 24, 330
_LETTER = 7.2
"""Units that a letter of a label takes."""


class Bar(NamedTuple):
    """A bar: how long it is, what stands below it, and what is told where the mouse rests on it."""

    value: float
    label: str
    told: str


def columns(bars: Sequence[Bar], unit: Callable[[float], str], *, height: int = 180, labels: int = 6) -> str:
    """Bars side by side with a scale on the left, and about `labels` of their labels below."""
    top = max((bar.value for bar in bars), default=0) or 1
    each = (WIDTH - _LEFT) / max(1, len(bars))
    step = max(1, -(-len(bars) // labels))
    parts = [_scale(height, top, unit)]
    for at, bar in enumerate(bars):
        x, tall = _LEFT + at * each, bar.value / top * (height - _TOP - _BOTTOM)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{height - _BOTTOM - tall:.1f}" width="{max(1.0, each - 1):.1f}" '
            f'height="{tall:.1f}"><title>{text(bar.told)}</title></rect>'
        )
        if at % step == 0:
            parts.append(f'<text x="{x:.1f}" y="{height - 6}">{text(bar.label)}</text>')
    return _drawing("".join(parts), height)


def rows(bars: Sequence[Bar]) -> str:
    """Bars below each other, each with its label before it and what it tells behind it."""
    top = max((bar.value for bar in bars), default=0) or 1
    room = WIDTH - _LABEL - 200
    parts = []
    for at, bar in enumerate(bars):
        y, long = at * _ROW, bar.value / top * room
        label = _short(bar.label, int(_LABEL / _LETTER) - 1)
        parts.append(
            f"<g><title>{text(bar.label)}: {text(bar.told)}</title>"
            f'<text x="{_LABEL - 8}" y="{y + 16}" text-anchor="end">{text(label)}</text>'
            f'<rect class="bar" x="{_LABEL}" y="{y + 4}" width="{max(1.0, long):.1f}" height="{_ROW - 8}"/>'
            f'<text x="{_LABEL + long + 8:.1f}" y="{y + 16}">{text(bar.told)}</text></g>'
        )
    return _drawing("".join(parts), max(1, len(bars)) * _ROW)


def _scale(height: int, top: float, unit: Callable[[float], str]) -> str:
    """Three lines with what they stand for."""
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = height - _BOTTOM - share * (height - _TOP - _BOTTOM)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text(unit(share * top))}</text>')
    return "".join(parts)


def _drawing(content: str, height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{content}</svg>'


def _short(label: str, letters: int) -> str:
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def text(value: str) -> str:
    r"""Text for a page: markup is escaped, and what moves, hides or reorders letters is written as `\u202e`."""
    harmless = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in value)
    return html.escape(harmless)
