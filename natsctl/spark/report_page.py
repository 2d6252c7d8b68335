"""A deep report as one page of HTML that needs nothing else: no script, no font, no picture from elsewhere.

Its bars are SVG; every text is escaped, and colours come from the page's style.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from natsctl.api.units import format_size, plural
from natsctl.spark.stream_report import DeepReport, Repeats

WIDTH: Final = 960
"""Units of a drawing; the page scales it."""
_LEFT, _BOTTOM, _TOP = 70, 22, 8
_ROW, _LABEL = 24, 330
_LETTER = 7.2
"""Units that a letter of a label takes."""


class Bar(NamedTuple):
    """A bar: its length, the label below it, and the text shown where the mouse rests on it."""

    value: float
    label: str
    caption: str


def columns(bars: Sequence[Bar], unit: Callable[[float], str], *, height: int = 180, labels: int = 6) -> str:
    """Return bars side by side with a scale on the left, and about `labels` of their labels below."""
    top = max((bar.value for bar in bars), default=0) or 1
    each = (WIDTH - _LEFT) / max(1, len(bars))
    step = max(1, -(-len(bars) // labels))
    parts = [_scale(height, top, unit)]
    for at, bar in enumerate(bars):
        x, tall = _LEFT + at * each, bar.value / top * (height - _TOP - _BOTTOM)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{height - _BOTTOM - tall:.1f}" width="{max(1.0, each - 1):.1f}" '
            f'height="{tall:.1f}"><title>{text(bar.caption)}</title></rect>'
        )
        if at % step == 0:
            parts.append(f'<text x="{x:.1f}" y="{height - 6}">{text(bar.label)}</text>')
    return _drawing("".join(parts), height)


def rows(bars: Sequence[Bar]) -> str:
    """Return bars below each other, each with its label before it and its figure behind it."""
    top = max((bar.value for bar in bars), default=0) or 1
    room = WIDTH - _LABEL - 200
    parts = []
    for at, bar in enumerate(bars):
        y, long = at * _ROW, bar.value / top * room
        label = _short(bar.label, int(_LABEL / _LETTER) - 1)
        parts.append(
            f"<g><title>{text(bar.label)}: {text(bar.caption)}</title>"
            f'<text x="{_LABEL - 8}" y="{y + 16}" text-anchor="end">{text(label)}</text>'
            f'<rect class="bar" x="{_LABEL}" y="{y + 4}" width="{max(1.0, long):.1f}" height="{_ROW - 8}"/>'
            f'<text x="{_LABEL + long + 8:.1f}" y="{y + 16}">{text(bar.caption)}</text></g>'
        )
    return _drawing("".join(parts), max(1, len(bars)) * _ROW)


def _scale(height: int, top: float, unit: Callable[[float], str]) -> str:
    """Return the scale: three lines with their numbers."""
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
    r"""Return text for a page: markup is escaped, and what moves, hides or reorders letters is written as `\u202e`."""
    harmless = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in value)
    return html.escape(harmless)


_STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --ink: #1c2430; --soft: #5d6b7a; --line: #d9dfe6; --bar: #2f7ed8; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181e; --ink: #e4e9ef; --soft: #93a1b1; --line: #313a45; --bar: #5aa2f2; } }
body { background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { color: var(--soft); margin: .2rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: .8rem; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; font-size: 1.1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; } .n { text-align: right; white-space: nowrap; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px ui-monospace, monospace; }
svg line { stroke: var(--line); } .bar { fill: var(--bar); }
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(report: DeepReport, made: str) -> str:
    """Return the page; `made` is the time of the report, as text."""
    parts = [
        f"<h1>Stream {text(report.stream)}</h1>",
        f"<p>{text(_heading(report))} · made by natsctl {text(made)}</p>",
        _facts(report),
    ]
    if report.messages:
        parts += [*_over_time(report), *_subjects(report), *_payload_sizes(report)]
        parts += [*_twice("Message ids that occur more than once", "Id", report.ids)]
        if report.payloads is not None:
            parts += _twice("Payloads that occur more than once", "SHA-256", report.payloads)
        parts += [*_missing(report), *_headers(report)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Stream {text(report.stream)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _heading(report: DeepReport) -> str:
    if not report.messages:
        return "no messages"
    return f"{report.messages:,} messages from {moment(report.first)} to {moment(report.last)}"


def moment(when: str) -> str:
    """Return a time of the report to the second."""
    return f"{when[:10]} {when[11:19]} UTC"


def _facts(report: DeepReport) -> str:
    sizes = report.sizes
    facts = [
        ("Messages", f"{report.messages:,}"),
        ("Sequences", f"{report.first_seq:,} to {report.last_seq:,}" if report.messages else "none"),
        ("Subjects", f"{report.number_of_subjects:,}"),
        ("Payloads", format_size(report.bytes)),
        ("Headers", format_size(report.header_bytes)),
        ("Missing", f"{report.gaps.missing:,} in {plural(report.gaps.gaps, 'gap')}"),
        ("Repeated ids", f"{report.ids.extra_messages:,}"),
    ]
    if sizes is not None:
        facts.append(("Payload, half below", format_size(sizes.p50)))
        facts.append(("Payload, largest", format_size(sizes.max)))
    return (
        "<dl>" + "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts) + "</dl>"
    )


def _over_time(report: DeepReport) -> list[str]:
    length = slot_text(report.slot_s)

    def bars(value: Callable[[int], str], which: str) -> list[Bar]:
        return [
            Bar(number := getattr(slot, which), _label(slot.start, report.slot_s), f"{slot.start}: {value(number)}")
            for slot in report.slots
        ]

    return [
        f"<h2>Messages in each {text(length)}</h2>",
        columns(bars(lambda number: plural(number, "message"), "messages"), _number),
        f"<h2>Bytes of payloads in each {text(length)}</h2>",
        columns(bars(format_size, "bytes"), lambda value: format_size(int(value))),
    ]


def slot_text(seconds: float) -> str:
    """Return the length of a slot: `5 minutes`."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= unit:
            return name if seconds == unit else plural(int(seconds // unit), name)
    return plural(round(seconds * 1000), "millisecond")


def _label(start: str, slot_s: float) -> str:
    if slot_s >= 86400:
        return start[:10]
    return start[5:16].replace("T", " ") if slot_s >= 60 else start[11:23].rstrip("Z")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _subjects(report: DeepReport) -> list[str]:
    shown = len(report.subjects)
    title = f"{shown} of {report.number_of_subjects:,} subjects" if shown < report.number_of_subjects else "Subjects"
    bars = [Bar(one.messages, one.subject, f"{one.messages:,} · {format_size(one.bytes)}") for one in report.subjects]
    return [f"<h2>{text(title)}, by messages</h2>", rows(bars)]


def _payload_sizes(report: DeepReport) -> list[str]:
    sizes = report.sizes
    caption = ""
    if sizes is not None:
        named = (("smallest", sizes.min), ("half", sizes.p50), ("90 %", sizes.p90), ("99 %", sizes.p99))
        caption = (
            ", ".join(f"{name} {format_size(value)}" for name, value in named) + f", largest {format_size(sizes.max)}"
        )
    bars = [
        Bar(
            one.messages,
            format_size(one.from_bytes),
            f"{format_size(one.from_bytes)} to {format_size(one.to_bytes)}: {plural(one.messages, 'message')}",
        )
        for one in report.size_classes
    ]
    return ["<h2>Sizes of payloads</h2>", f"<p>{text(caption)}</p>", columns(bars, _number, labels=12)]


def _twice(title: str, key: str, found: Repeats) -> list[str]:
    if not found.keys:
        return []
    caption = f"{found.keys:,}, with {plural(found.extra_messages, 'message')} beyond the first of each"
    lines = [(one.key, f"{one.messages:,}", f"{one.first_seq:,}", f"{one.last_seq:,}") for one in found.most]
    return [f"<h2>{text(title)}</h2>", f"<p>{text(caption)}</p>", _table((key, "Messages", "First", "Last"), lines)]


def _missing(report: DeepReport) -> list[str]:
    gaps = report.gaps
    if not gaps.gaps:
        return []
    caption = f"{plural(gaps.missing, 'message')} missing in {plural(gaps.gaps, 'gap')}; the longest:"
    lines = [(f"{one.first:,} to {one.last:,}", f"{one.missing:,}") for one in gaps.longest[:20]]
    return ["<h2>Gaps</h2>", f"<p>{text(caption)}</p>", _table(("Sequences", "Missing"), lines)]


def _headers(report: DeepReport) -> list[str]:
    lines = [(one.key, f"{one.messages:,}") for one in report.headers]
    return ["<h2>Headers</h2>", _table(("Header", "Messages"), lines)] if lines else []


def _table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are numbers."""

    def row(tag: str, cells: Sequence[str]) -> str:
        marks = ["", *[' class="n"'] * (len(cells) - 1)]
        return "".join(f"<{tag}{mark}>{text(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))

    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in lines)
    return f"<table><tr>{row('th', names)}</tr>{body}</table>"
