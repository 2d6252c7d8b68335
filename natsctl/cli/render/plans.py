"""Plans, drift and results of desired state as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from natsctl.api.units import format_size, plural
from natsctl.cli.render import change as fields
from natsctl.cli.render.text import count, duration, folded, hanging, safe
from natsctl.client.asset_config import DEFAULTS as PLAIN
from natsctl.desired.apply.results import INTERRUPTED, LOST, Failure, Outcome, Result, Status
from natsctl.desired.assets import Kind, without_labels
from natsctl.desired.plan import Action, Change, Difference, Plan

if TYPE_CHECKING:
    from natsctl.cli.desired.plan import Drift, PlannedAsset
    from natsctl.cli.desired.sources import CheckedFile, Validated


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
    """Return all changes in their order, remarks, and the summary; `width` None folds nothing."""
    blocks = ["\n".join(_change(change, width, bold, plan.keep_messages)) for change in plan.changes]
    notes = [line for note in plan.notes for line in folded(safe(f"note: {note}"), width or len(note) * 4 + 8)]
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else []), hanging(render_plan_summary(plan), width)])


def render_plan_summary(plan: Plan) -> str:
    """Return the number of assets by change: `3 to create, 1 to update, 0 to replace, 0 to remove, 12 unchanged`."""
    taken = [change.action for change in plan.changes]
    said = [f"{count(taken.count(action))} {words}" for action, words in _COUNTED]
    refused = f"; {count(len(plan.refused))} refused" if plan.refused else ""
    return f"{', '.join(said)}, {count(plan.unchanged)} unchanged{refused}"


def _change(change: Change, width: int | None, bold: bool, kept: bool) -> Iterator[str]:
    yield from heading(SIGNS[change.action], f"{change.kind} {change.key.name}", width, bold)
    if change.takes_over is not None:
        owner = f"owner {change.takes_over}" if change.takes_over else "no owner"
        yield from indented([safe(f"takes over {change.kind} {change.key.name} ({owner})")], width)
    yield from indented(_fields(change), width)
    yield from indented(_consequences(change, kept), width)


def heading(sign: str, name: str, width: int | None, bold: bool) -> Iterator[str]:
    text = f"{sign} {safe(name)}"
    for line in folded(text, width) if width else [text]:
        yield f"{_BOLD}{line}{_OFF}" if bold else line


def indented(texts: Sequence[str] | Iterator[str], width: int | None) -> Iterator[str]:
    """Yield lines below the heading; a continued line stands two columns further in."""
    for text in texts:
        lines = folded(text, max(width - len(_INDENT) - 2, 16)) if width else [text]
        for index, line in enumerate(lines):
            yield f"{_INDENT}{'  ' if index else ''}{line}"


def _fields(change: Change) -> Iterator[str]:
    if change.action is Action.CREATE:
        config = without_labels(change.config or {})
        shown = [fields.render_field(name, value) for name, value in config.items() if _is_shown(name, value)]
        if shown:
            yield ", ".join(shown)
    else:
        yield from (render_difference(difference) for difference in change.differences)


def _is_shown(name: str, value: object) -> bool:
    return name not in _NAMES and bool(value) and value != -1 and PLAIN.get(name) != value


def render_difference(one: Difference) -> str:
    """Return one field: `max_age: 1y → 2y`."""
    return fields.render_change(fields.FieldChange(one.path, one.old, one.new))


def _consequences(change: Change, kept: bool) -> Iterator[str]:
    """Yield the losses of a change, the changes before it, and the reason if it is refused."""
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


def render_drift(drift: Drift, width: int | None = None, bold: bool = False) -> str:
    """Return each asset that differs with its fields, those missing and those in no document.

    `width` None folds nothing.
    """
    blocks = [_asset("~", one, width, bold) for one in drift.different]
    blocks += [_asset("+", one, width, bold, ": not on the server") for one in drift.missing]
    blocks += [_asset("-", one, width, bold, ": not in any document") for one in drift.extra]
    return "\n\n".join([*("\n".join(block) for block in blocks), hanging(_summary(drift), width)])


def _asset(sign: str, one: PlannedAsset, width: int | None, bold: bool, tail: str = "") -> Iterator[str]:
    yield from heading(sign, f"{one.kind} {one.key.name}{tail}", width, bold)
    yield from indented((render_difference(difference) for difference in one.differences), width)
    if one.fault:
        yield from indented([safe(f"cannot be compared: {one.fault}")], width)


def _summary(drift: Drift) -> str:
    numbers = (
        (len(drift.different), "different"),
        (len(drift.missing), "not on the server"),
        (len(drift.extra), "not in any document"),
        (drift.equal, "equal"),
    )
    return ", ".join(f"{count(number)} {words}" for number, words in numbers)


_DONE = {
    Action.CREATE: "created",
    Action.UPDATE: "updated",
    Action.REPLACE: "replaced",
    Action.DELETE: "deleted",
    Action.NONE: "left alone",
}
_NOUNS = {
    Kind.STREAM: "stream",
    Kind.CONSUMER: "consumer",
    Kind.KEY_VALUE: "key-value bucket",
    Kind.OBJECT_STORE: "object store",
}
_ENDED = {INTERRUPTED: "interrupted", LOST: "the connection was lost"}
_OUTCOMES = ("created", "updated", "replaced", "deleted", "failed", "skipped", "unchanged")


def render_result(result: Result) -> str:
    key = safe(str(result.key))
    if result.status is Status.SKIPPED:
        return f"skipped {key}: {_because(result.because)}"
    if result.error is not None:
        return _failure(f"failed to {result.action} {key}", result.error)
    detail = f": {safe(result.detail)}" if result.detail else ""
    lines = [f"{_DONE[result.action]} {key}{detail}", *(f"  warning: {safe(text)}" for text in result.warnings)]
    return "\n".join(lines)


def _because(why: str) -> str:
    return f"{safe(why)} was not done" if why[:1].isupper() else safe(why)


def _failure(what: str, error: Failure) -> str:
    number = f" ({error.err_code})" if error.err_code else ""
    lines = [f"{what}: {safe(error.description)}{number}"]
    if error.hint:
        lines.append(f"  {safe(error.hint)}")
    return "\n".join(lines)


def render_losses(plan: Plan) -> str:
    """Return the removals and replacements of a plan: `delete 2 assets with 1,234 messages, replace 1 asset`."""
    parts = []
    for action in (Action.DELETE, Action.REPLACE):
        found = [change for change in plan.changes if change.action is action]
        if found:
            kinds = {change.kind for change in found}
            noun = _NOUNS[Kind(kinds.pop())] if len(kinds) == 1 else "asset"
            one = safe(str(found[0].key)) if len(found) == 1 else plural(len(found), noun)
            messages = sum(change.messages for change in found)
            held = f" with {plural(messages, 'message')}" if messages else ""
            kept = ", keeping messages" if action is Action.REPLACE and plan.keep_messages else ""
            parts.append(f"{action} {one}{held}{kept}")
    losing = [change for change in plan.changes if change.losses]
    if losing:
        one = safe(str(losing[0].key)) if len(losing) == 1 else plural(len(losing), "asset")
        parts.append(f"change {one} ({'; '.join(safe(text) for change in losing[:3] for text in change.losses)})")
    return " and ".join(parts)


def render_summary(outcome: Outcome) -> str:
    counts = outcome.summary
    said = [f"{count(number)} {name}" for name in _OUTCOMES if (number := getattr(counts, name))]
    if not outcome.results:
        return f"nothing to do: {plural(counts.unchanged, 'asset')} as described" if said else "nothing to do"
    ended = f"{_ENDED[outcome.ended]}: " if outcome.ended in _ENDED else ""
    return f"{ended}{', '.join(said)} in {duration(counts.elapsed)}"


def render_validated(verdict: Validated, width: int | None = None) -> str:
    """Return a line for each file with its faults below it, and a summary; `width` None folds nothing."""
    lines = [line for file in verdict.files for line in _file(file, width)]
    faults = sum(len(file.faults) for file in verdict.files)
    assets = sum(len(file.assets) for file in verdict.files)
    held = f"{plural(assets, 'asset')} of owner {safe(verdict.owner)} in {plural(len(verdict.files), 'file')}"
    lines.append(f"{held}: {plural(faults, 'fault') if faults else 'valid'}")
    return "\n".join([*lines[:-1], hanging(lines[-1], width)])


def _file(file: CheckedFile, width: int | None) -> list[str]:
    lines = [hanging(f"{safe(file.file)}: {_held(file)}", width)]
    for fault in file.faults:
        line = f"line {fault.line}: " if fault.line else ""
        wrapped = hanging(safe(f"{line}{fault.path}: {fault.reason}"), width and max(width - 2, 1))
        lines.append("  " + wrapped.replace("\n", "\n  "))
    return lines


def _held(file: CheckedFile) -> str:
    nouns = {"Stream": "stream", "Consumer": "consumer", "KeyValue": "key-value bucket", "ObjectStore": "object store"}
    counts = {kind: sum(asset.kind == kind for asset in file.assets) for kind in nouns}
    return ", ".join(plural(count, nouns[kind]) for kind, count in counts.items() if count) or "no assets"
