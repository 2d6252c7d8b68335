"""`natsctl apply`: makes an account be as documents say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli.desired import carrying, planning, sources
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.plan.change import Plan


@flagged()
def apply(
    ctx: typer.Context,
    named: sources.Named,
    running: carrying.Running,
    plan_file: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="carry out a plan that was saved", show_default=False),
    ] = None,
    prune: planning.Prune = False,
    allow_replace: planning.AllowReplace = False,
    keep_messages: planning.KeepMessages = False,
    backup_folder: carrying.BackupFolder = Path(),
    keep_backup: carrying.KeepBackup = False,
    adopt: planning.Adopt = False,
    max_removals: planning.MaxRemovals = None,
    allow_empty: sources.AllowEmpty = False,
    json: Json = False,
) -> int:
    """Create and update what differs from the documents, and leave the rest alone.

    Origins come before their mirrors and sources, streams before their consumers; what does not depend on each other
    is done side by side. It may be repeated at any time: what is already done is skipped. Whatever removes or replaces
    something, or takes messages away, is shown and asked about at a terminal; elsewhere it needs --yes.

    PATH may be a plan that natsctl plan --out has saved. It is refused if the account has changed since. With
    --keep-messages a replaced stream keeps its messages and consumers: it is saved, removed and restored. If that is
    interrupted, the next apply finishes it, from any machine.
    """
    from natsctl.plan.apply.carry import check_allowed
    from natsctl.plan.planner.planner import PlanOptions

    session = session_of(ctx)
    how = running.options(backup_folder, keep_backup)
    saved = _saved_plan([*(named.files or ()), *(named.paths or ())], plan_file)
    wanted = named.load(allow_empty=allow_empty) if saved is None else None
    described = [change.key for change in saved.changes] if saved is not None else wanted.wanted if wanted else ()
    notes = carrying.recovered(session, {key.stream for key in described}, json=json)
    if saved is not None:
        plan = carrying.still_valid(session, saved)
    elif wanted is not None:
        options = PlanOptions(prune, allow_replace, keep_messages, adopt, max_removals)
        plan = planning.planned(session, wanted, options)
    if session.dry_run:
        return carrying.show_requests(session, plan, how, json=json)
    check_allowed(plan)
    if not carrying.agreed(session, plan, running.yes):
        return ExitCode.DONE
    outcome = carrying.carried_out(session, plan, how, bar=running.progress, json=json)
    return carrying.show_outcome(plan, outcome, notes, json=json)


def _saved_plan(named: Sequence[str], plan_file: Path | None) -> Plan | None:
    """The plan that was given in place of documents, None where documents were. Raises UsageError."""
    from natsctl.plan.documents.files import STDIN
    from natsctl.plan.saved import decode_plan, is_saved_plan

    if plan_file is not None:
        if named:
            raise UsageError("--plan carries out that plan alone: leave the documents out")
        return decode_plan(_content(plan_file), str(plan_file))
    files = [name for name in named if name != STDIN and not name.endswith((".yaml", ".yml")) and Path(name).is_file()]
    texts = {name: _content(Path(name)) for name in files}
    plans = [name for name, text in texts.items() if is_saved_plan(text)]
    if plans and len(named) > 1:
        raise UsageError(f"{plans[0]} is a saved plan: it is carried out alone")
    return decode_plan(texts[plans[0]], plans[0]) if plans else None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise UsageError(f"cannot read {path}: {failure.strerror}") from failure
