"""Plans and documents applied to an account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from natsctl.api.errors import ExitCode, NatsctlError
from natsctl.api.units import plural
from natsctl.client.backup.transfer import RetryingManager
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError, Planned
from natsctl.desired.apply import CONCURRENCY
from natsctl.desired.apply.changes import Steps
from natsctl.desired.apply.execution import Execution, OnResult, ignore_result
from natsctl.desired.apply.results import Outcome
from natsctl.desired.assets import DocumentSet
from natsctl.desired.plan import Change, Plan
from natsctl.desired.planner import PlanOptions, plan_for


class PlanRefusedError(NatsctlError):
    """A plan has changes that are not allowed, listed in `faults` with reasons; nothing was sent."""

    exit_code = ExitCode.CONFLICT
    headline = "nothing was changed: the plan has what may not be done"

    def __init__(self, refused: Sequence[Change]) -> None:
        self.faults = [f"{change.key}: {change.refused}" for change in refused]
        hints = dict.fromkeys(change.hint for change in refused if change.hint)
        super().__init__("\n".join([f"{self.headline}:", *self.faults]), hint="\n".join(hints))


class TooManyRemovalsError(NatsctlError):
    """A plan removes more than its limit, without the user's consent; nothing was sent."""

    exit_code = ExitCode.CONFLICT

    def __init__(self, plan: Plan) -> None:
        super().__init__(
            f"nothing was changed: the plan removes {plural(plan.removals, 'asset')}, "
            f"more than {plan.max_removals or 0:,}",
            hint=f"look whether that is meant; --max-removals {plan.removals} allows it",
        )


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Options of applying a plan; with `keep_backup` the backups of replaced streams go to `backup_folder`."""

    concurrency: int = CONCURRENCY
    stop_on_failure: bool = False
    backup_folder: Path = field(default_factory=Path)
    keep_backup: bool = False


async def apply_plan(
    manager_or_retrying: Manager | RetryingManager,
    plan: Plan,
    options: ApplyOptions = ApplyOptions(),
    on_result: OnResult = ignore_result,
) -> Outcome:
    """Apply all changes, and return the result of each.

    Failed changes are results too. When cancelled (Ctrl-C) it returns early, with the reason in `Outcome.ended`.
    Raises PlanRefusedError or TooManyRemovalsError before anything is sent.
    """
    check_allowed(plan)
    retrying = manager_or_retrying
    if not isinstance(retrying, RetryingManager):
        retrying = RetryingManager(retrying)
    steps = _steps(retrying, plan, options)
    execution = Execution(
        plan.changes,
        lambda change: retrying.patiently(lambda: steps.take(change)),
        concurrency=options.concurrency,
        stop_on_failure=options.stop_on_failure,
        on_result=on_result,
        is_lost=lambda: retrying.manager.connection.lost,
    )
    return await execution.run(plan.unchanged)


async def preview(manager: Manager, plan: Plan, options: ApplyOptions = ApplyOptions()) -> list[Planned]:
    """Return the requests that would be sent on a connection in a dry run, in the order of the plan."""
    check_allowed(plan)
    planned: list[Planned] = []
    steps = _steps(RetryingManager(manager), plan, options)
    for change in plan.changes:
        try:
            await steps.take(change)
        except DryRunError as previewed:
            planned += previewed.planned
    return planned


def check_allowed(plan: Plan) -> None:
    """Raise PlanRefusedError if changes are not allowed, TooManyRemovalsError above the plan's limit."""
    if refused := plan.refused:
        raise PlanRefusedError(refused)
    if plan.max_removals is not None and plan.removals > plan.max_removals:
        raise TooManyRemovalsError(plan)


def _steps(retrying: RetryingManager, plan: Plan, options: ApplyOptions) -> Steps:
    keeper = None
    if plan.keep_messages:
        from natsctl.desired.apply.replacement import Replacement

        keeper = Replacement(retrying, options.backup_folder, keep_backup=options.keep_backup)
    return Steps(lambda: retrying.manager, keeper)


class ProvisionError(NatsctlError):
    """An account does not match its documents: changes failed or were not started."""

    def __init__(self, text: str, exit_code: ExitCode, *, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.code = exit_code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # of the instance, where other errors have one of the class
        return int(self.code)


async def provide(
    manager: Manager, documents: DocumentSet, *, prune: bool = False, on_result: OnResult = ignore_result
) -> Outcome:
    """Make the account match the documents, without replacing anything.

    Raises PlanRefusedError, TooManyRemovalsError, or ProvisionError once changes have failed.
    """
    plan = await plan_for(manager, documents, PlanOptions(prune=prune))
    outcome = await apply_plan(manager, plan, on_result=on_result)
    failed = [(result.key, result.error) for result in outcome.results if result.error is not None]
    if failed or outcome.ended:
        text = "\n".join(f"{key}: {error.description}" for key, error in failed)
        hint = next((error.hint for _, error in failed if error.hint), "")
        raise ProvisionError(text or f"not all was done: {outcome.ended}", outcome.exit_code, hint=hint)
    return outcome


def outcome_line(outcome: Outcome) -> str:
    words = ("created", "updated", "replaced", "deleted", "unchanged")
    counts = ((getattr(outcome.summary, word), word) for word in words)
    return ", ".join(f"{count} {word}" for count, word in counts if count) or "nothing to do"
