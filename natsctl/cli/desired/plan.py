"""`natsctl plan`: what apply would do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.desired import planning, sources
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.plan.change import Plan


@flagged()
def plan(
    ctx: typer.Context,
    named: sources.Named,
    prune: planning.Prune = False,
    allow_replace: planning.AllowReplace = False,
    keep_messages: planning.KeepMessages = False,
    adopt: planning.Adopt = False,
    max_removals: planning.MaxRemovals = None,
    allow_empty: sources.AllowEmpty = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="save the plan, for apply", show_default=False)
    ] = None,
    json: Json = False,
) -> int:
    """Show what apply would do, in order, and change nothing; exit status 10 if there is anything to do.

    Fields that a document does not mention are left as they are; null asks for the default. The owner of an asset is
    in its metadata (natsctl.owner): apply labels what it creates and changes. An asset without a label is labelled when
    it is changed, or at once with --adopt, and never removed. An asset of another owner is neither changed nor removed
    without --adopt.

    The signs: + created, ~ changed in place, ± removed and created again, - removed.
    """
    from natsctl.plan.planner.planner import PlanOptions

    session = session_of(ctx)
    wanted = named.load(allow_empty=allow_empty)
    options = PlanOptions(prune, allow_replace, keep_messages, adopt, max_removals)
    made = planning.planned(session, wanted, options)
    if out is not None:
        _save(made, out, json)
    if json:
        from natsctl.plan.saved import saved_document

        output.emit_json(saved_document(made))
    else:
        from natsctl.cli import screen
        from natsctl.cli.render.plans import render_plan

        output.emit(render_plan(made, screen.width(), output.has_color(sys.stdout)))
    return ExitCode.DRIFT if made.changes else ExitCode.DONE


def _save(made: Plan, path: Path, json: bool) -> None:
    """Write the plan to a file that is nobody else's. Raises UsageError."""
    from natsctl.client.whole_file import PRIVATE, whole_file
    from natsctl.plan.saved import encode_plan

    if str(path) == "-":
        raise UsageError("--out -: a plan is saved to a file", hint="-j prints one")
    try:
        with whole_file(path, PRIVATE) as file:
            file.write(encode_plan(made))
    except OSError as failure:
        raise UsageError(f"--out {path}: {failure.strerror or failure}") from failure
    if not json:
        output.note(safe(f"saved: natsctl apply --plan {path} carries it out"))
