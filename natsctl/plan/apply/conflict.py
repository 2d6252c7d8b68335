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
    """An asset was created, changed or removed by another client since the plan was made; nothing was sent."""

    exit_code = ExitCode.CONFLICT


def check_unchanged(change: Change, live: Mapping[str, Any]) -> bool:
    """Return whether an asset is as in the plan; False if all changes of the plan have been made already.

    Raises PlanConflictError, with the fields, if it is neither.
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
    """Raise PlanConflictError if another process is replacing a stream, or was interrupted in doing so."""
    if not change.consumer and is_being_replaced(live):
        raise PlanConflictError(
            f"{change.key} is being replaced, or that was interrupted",
            hint="apply again when that has ended: apply finishes what was interrupted",
        )


def made_otherwise(change: Change, live: Mapping[str, Any]) -> PlanConflictError:
    """Return the error for an asset that exists already, with the fields that differ from the documents."""
    wanted = change.config or {}
    found = differences(wanted, {name: live.get(name) for name in wanted})
    how = f"another {_fields(found)}" if found else "fields that the document leaves out"
    return PlanConflictError(f"{change.key} was made meanwhile by somebody else, with {how}", hint=PLAN_AGAIN)


def gone(change: Change) -> PlanConflictError:
    """Return the error for an asset that was to be changed and does not exist."""
    return PlanConflictError(f"{change.key} does not exist any more", hint=PLAN_AGAIN)


def _said(found: list[Difference]) -> list[tuple[str, str]]:
    """Return differences as they can be compared; labels are left out, as they only record who made a change."""
    return sorted((one.path, repr(one.new or None)) for one in found if one.path not in _OF_LABELS)


def _fields(found: list[Difference]) -> str:
    return ", ".join(one.path for one in found)
