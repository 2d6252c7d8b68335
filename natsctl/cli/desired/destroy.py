"""`natsctl destroy`: removes what documents describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.exit_codes import ExitCode
from natsctl.cli.consent import check_consent, confirmed
from natsctl.cli.desired import carrying, planning, sources
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.plan.change import Plan

Prune = Annotated[
    bool, typer.Option("--prune", help="remove all else that has this owner's label, too", show_default=False)
]
Adopt = Annotated[bool, typer.Option("--adopt", help="remove what has another owner, too", show_default=False)]


@flagged()
def destroy(
    ctx: typer.Context,
    named: sources.Named,
    running: carrying.Running,
    prune: Prune = False,
    adopt: Adopt = False,
    allow_empty: sources.AllowEmpty = False,
    json: Json = False,
) -> int:
    """Remove what the documents describe, with all messages: mirrors and sources before their origins.

    What is not there counts as removed. Where anything is protected, or belongs to another owner, nothing is removed.
    """
    from natsctl.plan.apply.carry import check_allowed
    from natsctl.plan.planner.planner import PlanOptions

    session = session_of(ctx)
    how = running.options()
    wanted = named.load(allow_empty=allow_empty)
    plan = planning.planned(session, wanted, PlanOptions(prune=prune, adopt=adopt), destroy=True)
    if session.dry_run:
        return carrying.show_requests(session, plan, how, json=json)
    check_allowed(plan)
    if not _agreed(session, plan, running.yes):
        return ExitCode.DONE
    outcome = carrying.carried_out(session, plan, how, bar=running.progress, json=json)
    return carrying.show_outcome(plan, outcome, [], json=json)


def _agreed(session: Session, plan: Plan, yes: bool) -> bool:
    """Whether to go on: what vanishes is shown, and has to be confirmed by its name or the number of assets."""
    if not plan.changes or yes:
        return True
    check_consent(session, carrying.losses(plan), yes, flag="--yes")
    planning.show_plan(plan)
    typed = plan.changes[0].key.name if len(plan.changes) == 1 else str(len(plan.changes))
    return confirmed(session, carrying.losses(plan), False, typed=typed, flag="--yes")
