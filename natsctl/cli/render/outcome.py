"""Pictures of a plan that is carried out: a line for each change as it is done, and one for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.units import plural
from natsctl.cli.render.values import count, duration, safe
from natsctl.plan.apply.result import INTERRUPTED, LOST, Status
from natsctl.plan.asset import Kind
from natsctl.plan.change import Action

if TYPE_CHECKING:
    from natsctl.plan.apply.result import Failure, Outcome, Result
    from natsctl.plan.change import Plan

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
_COUNTED = ("created", "updated", "replaced", "deleted", "failed", "skipped", "unchanged")


def render_result(result: Result) -> str:
    """The lines about one change: what became of which asset, and why."""
    key = safe(str(result.key))
    if result.status is Status.SKIPPED:
        return f"skipped {key}: {_because(result.because)}"
    if result.error is not None:
        return _failure(f"failed to {result.action} {key}", result.error)
    detail = f": {safe(result.detail)}" if result.detail else ""
    lines = [f"{_DONE[result.action]} {key}{detail}", *(f"  warning: {safe(text)}" for text in result.warnings)]
    return "\n".join(lines)


def _because(why: str) -> str:
    """What a change was skipped for: an asset, or a sentence."""
    return f"{safe(why)} was not done" if why[:1].isupper() else safe(why)


def _failure(what: str, error: Failure) -> str:
    number = f" ({error.err_code})" if error.err_code else ""
    lines = [f"{what}: {safe(error.description)}{number}"]
    if error.hint:
        lines.append(f"  {safe(error.hint)}")
    return "\n".join(lines)


def render_losses(plan: Plan) -> str:
    """What a plan removes and replaces, for a question: `delete 2 assets with 1,234 messages, replace 1 asset`."""
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
    """How many assets went which way, in one line."""
    counts = outcome.summary
    said = [f"{count(number)} {name}" for name in _COUNTED if (number := getattr(counts, name))]
    if not outcome.results:
        return f"nothing to do: {plural(counts.unchanged, 'asset')} as described" if said else "nothing to do"
    ended = f"{_ENDED[outcome.ended]}: " if outcome.ended in _ENDED else ""
    return f"{ended}{', '.join(said)} in {duration(counts.elapsed)}"
