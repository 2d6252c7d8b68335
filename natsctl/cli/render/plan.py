"""A plan as a person reads it: each change with its sign, its fields and what comes of it, and one line that sums up.

The signs are those of terraform: `+` is made, `~` changed, `±` removed and made anew, `-` removed. Weight stands for
colour: on a terminal the line that names the asset is bold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from natsctl.api.units import format_size, plural
from natsctl.cli.render import change as fields
from natsctl.cli.render.fold import folded, hanging
from natsctl.cli.render.values import count, safe
from natsctl.client.assets.stream_defaults import DEFAULTS as PLAIN
from natsctl.plan.change import Action, Change, Difference
from natsctl.plan.labels import stripped

if TYPE_CHECKING:
    from natsctl.plan.change import Plan

SIGNS: Final = {Action.CREATE: "+", Action.UPDATE: "~", Action.REPLACE: "±", Action.DELETE: "-", Action.NONE: " "}
_COUNTED: Final = (
    (Action.CREATE, "to create"),
    (Action.UPDATE, "to update"),
    (Action.REPLACE, "to replace"),
    (Action.DELETE, "to remove"),
)
_NAMES: Final = ("name", "durable_name")
_INDENT: Final = "    "
_BOLD, _OFF = "\x1b[1m", "\x1b[0m"


def render_plan(plan: Plan, width: int | None = None, bold: bool = False) -> str:
    """All changes in their order, what else is to be known, and the summary; `width` None folds nothing."""
    blocks = ["\n".join(_change(one, width, bold, plan.keep_messages)) for one in plan.changes]
    notes = [line for note in plan.notes for line in folded(safe(f"note: {note}"), width or len(note) * 4 + 8)]
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else []), hanging(render_plan_summary(plan), width)])


def render_plan_summary(plan: Plan) -> str:
    """How many assets go which way: `3 to create, 1 to update, 0 to replace, 0 to remove, 12 unchanged`."""
    taken = [change.action for change in plan.changes]
    said = [f"{count(taken.count(action))} {words}" for action, words in _COUNTED]
    refused = f"; {count(len(plan.refused))} refused" if plan.refused else ""
    return f"{', '.join(said)}, {count(plan.unchanged)} unchanged{refused}"


def _change(change: Change, width: int | None, bold: bool, kept: bool) -> Iterator[str]:
    yield from heading(SIGNS[change.action], f"{change.kind} {change.key.name}", width, bold)
    yield from indented(_fields(change), width)
    yield from indented(_consequences(change, kept), width)


def heading(sign: str, name: str, width: int | None, bold: bool) -> Iterator[str]:
    """The line that names an asset."""
    text = f"{sign} {safe(name)}"
    for line in folded(text, width) if width else [text]:
        yield f"{_BOLD}{line}{_OFF}" if bold else line


def indented(texts: Sequence[str] | Iterator[str], width: int | None) -> Iterator[str]:
    """Lines below the heading; what goes on in a next line stands two columns further in."""
    for text in texts:
        lines = folded(text, max(width - len(_INDENT) - 2, 16)) if width else [text]
        for at, line in enumerate(lines):
            yield f"{_INDENT}{'  ' if at else ''}{line}"


def _fields(change: Change) -> Iterator[str]:
    """What an asset will have, or how it differs."""
    if change.action is Action.CREATE:
        config = stripped(change.config or {})
        shown = [fields.render_field(name, value) for name, value in config.items() if _tells(name, value)]
        if shown:
            yield ", ".join(shown)
    else:
        yield from (render_difference(one) for one in change.differences)


def _tells(name: str, value: object) -> bool:
    """Whether a field of a new asset is more than what everybody takes for granted."""
    return name not in _NAMES and bool(value) and value != -1 and PLAIN.get(name) != value


def render_difference(one: Difference) -> str:
    """One field: `max_age: 1y → 2y`."""
    return fields.render_change(fields.Change(one.path, one.old, one.new))


def _consequences(change: Change, kept: bool) -> Iterator[str]:
    """What is lost, what must come first, what is refused and why."""
    lost = change.action is Action.DELETE or (change.action is Action.REPLACE and not kept)
    if change.messages and lost:
        verb = "goes" if change.messages == 1 else "go"
        yield f"{plural(change.messages, 'message')} ({format_size(change.bytes)}) {verb}"
    yield from (safe(note) for note in change.notes)
    after = [name for name in change.needs if not (change.consumer and name == change.stream)]
    if after:
        yield safe(f"after {', '.join(after)}")
    if change.refused:
        yield safe(f"refused: {change.refused}")
        if change.hint:
            yield safe(f"{change.hint}")
    if change.place and change.refused:
        yield safe(f"asked for at {change.place}")
