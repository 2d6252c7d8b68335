"""`natsctl destroy`: removes what documents describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.exit_codes import ExitCode
from natsctl.cli.desired import carrying, planning, sources
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of

if TYPE_CHECKING:
    pass

Prune = Annotated[
    bool,
    typer.Option("--prune", help="also remove everything else that this owner's documents created", show_default=False),
]
Adopt = Annotated[
    bool, typer.Option("--adopt", help="also remove what belongs to another owner or to none", show_default=False)
]


@flagged()
def destroy(
    ctx: typer.Context,
    named: sources.Named,
    running: carrying.Running,
    prune: Prune = False,
    adopt: Adopt = False,
    max_removals: planning.MaxRemovals = None,
    allow_empty: sources.AllowEmpty = False,
    json: Json = False,
) -> int:
    """Remove what the documents describe, with all messages: mirrors and sources before their origins.

    What does not exist counts as removed. If anything is protected, or natsctl did not create it and has not taken it
    over, or another owner has it, nothing is removed.
    """
    from natsctl.plan.apply.carry import check_allowed
    from natsctl.plan.planner.planner import PlanOptions

    session = session_of(ctx)
    how = running.options()
    wanted = named.load(allow_empty=allow_empty)
    options = PlanOptions(prune=prune, adopt=adopt, max_removals=max_removals)
    plan = planning.planned(session, wanted, options, destroy=True)
    if session.dry_run:
        return carrying.show_requests(session, plan, how, json=json)
    check_allowed(plan)
    if not carrying.agreed(session, plan, running.yes, typed=True):
        return ExitCode.DONE
    outcome = carrying.carried_out(session, plan, how, bar=running.progress, json=json)
    return carrying.show_outcome(plan, outcome, [], json=json)
