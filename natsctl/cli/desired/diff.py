"""`natsctl diff`: how an account differs from documents."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.desired import planning, sources
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.plan.change import Plan


@flagged()
def diff(
    ctx: typer.Context,
    named: sources.Named,
    prune: planning.Prune = False,
    allow_empty: sources.AllowEmpty = False,
    json: Json = False,
) -> int:
    """Show how the account differs from the documents, field by field; exit status 10 if it does.

    A field reads `max_age: 1d → 1y`: as the server has it, and as the documents want it. Fields that no document
    mentions are not compared. With --prune, what apply --prune would remove is listed as well.
    """
    session = session_of(ctx)
    wanted = named.load(allow_empty=allow_empty)
    if prune:
        planning.check_owned(wanted)

    from natsctl.cli.desired.drift import Drift

    async def work(manager: Manager) -> Plan:
        from natsctl.plan.planner.account_plan import plan_for
        from natsctl.plan.planner.planner import PlanOptions

        return await plan_for(manager, wanted, PlanOptions(prune=prune))

    found = Drift.of(session.run(work))
    if json:
        import msgspec

        output.emit_json(msgspec.to_builtins(found))
    else:
        from natsctl.cli import screen
        from natsctl.cli.render.plans import render_drift

        output.emit(render_drift(found, screen.width(), output.has_color(sys.stdout)))
    return ExitCode.DRIFT if found.is_any else ExitCode.DONE
