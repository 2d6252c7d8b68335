"""Documents carried out in one go on a server that somebody has just started, for it or for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.plan.apply.carry import carry_out
from natsctl.plan.apply.execution import OnResult, unheard
from natsctl.plan.apply.result import Outcome
from natsctl.plan.planner.account_plan import plan_for
from natsctl.plan.planner.planner import PlanOptions

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.plan.wanted import DocumentSet


class ProvisionError(NatsctlError):
    """An account does not match its documents: a change failed or was not started."""

    def __init__(self, text: str, exit_code: ExitCode, *, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.code = exit_code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # by what happened, where the others are by class
        """The exit code of the command."""
        return int(self.code)


async def provide(
    manager: Manager, documents: DocumentSet, *, prune: bool = False, on_result: OnResult = unheard
) -> Outcome:
    """Make the account match the documents, without replacing anything. Raises PlanRefusedError, ProvisionError."""
    plan = await plan_for(manager, documents, PlanOptions(prune=prune))
    outcome = await carry_out(manager, plan, on_result=on_result)
    failed = [(one.key, one.error) for one in outcome.results if one.error is not None]
    if failed or outcome.ended:
        text = "\n".join(f"{key}: {error.description}" for key, error in failed)
        hint = next((error.hint for _, error in failed if error.hint), "")
        raise ProvisionError(text or f"not all was done: {outcome.ended}", outcome.exit_code, hint=hint)
    return outcome


def told(outcome: Outcome) -> str:
    """Return a line that sums up the changes."""
    counts = outcome.summary
    words = {
        "created": counts.created,
        "updated": counts.updated,
        "replaced": counts.replaced,
        "deleted": counts.deleted,
        "unchanged": counts.unchanged,
    }
    return ", ".join(f"{count} {word}" for word, count in words.items() if count) or "nothing to do"
