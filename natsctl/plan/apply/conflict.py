"""Whether an asset is still what a plan was made for: looked at again before it is changed or removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.plan.apply.holding import is_being_replaced
from natsctl.plan.change import Change, Difference
from natsctl.plan.labels import LABELS, without_server_made
from natsctl.plan.planner.compare import differences

PLAN_AGAIN = "plan again: natsctl plan shows what differs now"
_OF_LABELS = frozenset(f"metadata.{label}" for label in LABELS)


class PlanConflictError(NatsctlError):
    """Somebody else has made, changed or removed an asset since the plan was made; nothing was sent."""

    exit_code = ExitCode.CONFLICT


def check_unchanged(change: Change, live: Mapping[str, Any]) -> bool:
    """Whether an asset is as the plan found it; False where all that the plan changes has been changed already.

    Raises PlanConflictError, with the fields, where it is neither.
    """
    found = differences(change.before or {}, without_server_made(live))
    if not found:
        return True
    if _said(found) == _said(change.differences):
        return False
    raise PlanConflictError(
        f"{change.key} is not what the plan was made for: {_fields(found)} changed meanwhile", hint=PLAN_AGAIN
    )


def check_not_replaced(change: Change, live: Mapping[str, Any]) -> None:
    """Raise PlanConflictError where somebody else is about to replace a stream, or was interrupted in doing so."""
    if not change.consumer and is_being_replaced(live):
        raise PlanConflictError(
            f"{change.key} is being replaced, or that was interrupted",
            hint="apply again when that has ended: apply finishes what was interrupted",
        )


def made_otherwise(change: Change, live: Mapping[str, Any]) -> PlanConflictError:
    """That an asset which was to be made is there, with the fields in which it is not what is wanted."""
    wanted = change.config or {}
    found = differences(wanted, {name: live.get(name) for name in wanted})
    how = f"another {_fields(found)}" if found else "fields that the document leaves out"
    return PlanConflictError(f"{change.key} was made meanwhile by somebody else, with {how}", hint=PLAN_AGAIN)


def gone(change: Change) -> PlanConflictError:
    """That an asset which was to be changed is not there."""
    return PlanConflictError(f"{change.key} does not exist any more", hint=PLAN_AGAIN)


def _said(found: list[Difference]) -> list[tuple[str, str]]:
    """Differences as they can be compared; labels say who changed something, not what."""
    return sorted((one.path, repr(one.new or None)) for one in found if one.path not in _OF_LABELS)


def _fields(found: list[Difference]) -> str:
    return ", ".join(one.path for one in found)
