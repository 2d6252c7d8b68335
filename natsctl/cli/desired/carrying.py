"""What `apply` and `destroy` share: flags, the run with its lines and its bar, the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from natsctl.api.errors import UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.options import Progress
from natsctl.cli.render.text import safe
from natsctl.plan.apply import CONCURRENCY

if TYPE_CHECKING:
    from collections.abc import Collection

    from natsctl.cli.session import Session
    from natsctl.client.manager import Manager
    from natsctl.plan.apply.carry import ApplyOptions
    from natsctl.plan.apply.result import Outcome, Result
    from natsctl.plan.change import Plan

Yes = Annotated[bool, typer.Option("--yes", "--force", help="remove and replace without asking", show_default=False)]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", help="changes carried out at once", min=1, max=256)
]
OnFailure = Annotated[
    str,
    typer.Option(
        "--on-failure", metavar="continue|stop", help="whether to continue with what does not depend on a failed change"
    ),
]
BackupFolder = Annotated[
    Path,
    typer.Option(
        "--backup-folder",
        metavar="FOLDER",
        help="where --keep-backup leaves backups [the working directory]",
        show_default=False,
    ),
]
KeepBackup = Annotated[
    bool,
    typer.Option("--keep-backup", help="leave a backup of each stream that is replaced", show_default=False),
]

BAR_FROM = 20
"""Changes from which on a bar shows at a terminal how far it is."""
_ON_FAILURE = ("continue", "stop")


class Running(NamedTuple):
    """How changes are carried out: a bundle of flags for commands."""

    on_failure: OnFailure = "continue"
    concurrency: Concurrency = CONCURRENCY
    yes: Yes = False
    progress: Progress = True

    def options(self, backup_folder: Path = Path(), keep_backup: bool = False) -> ApplyOptions:
        """The same for plan/apply. Raises UsageError."""
        from natsctl.plan.apply.carry import ApplyOptions

        if self.on_failure not in _ON_FAILURE:
            raise UsageError(f"--on-failure {self.on_failure}: expected {' or '.join(_ON_FAILURE)}")
        return ApplyOptions(self.concurrency, self.on_failure == "stop", backup_folder, keep_backup)


def is_destructive(plan: Plan) -> bool:
    """Whether anything is removed or replaced, or an update takes something away."""
    return any(change.action in ("delete", "replace") or change.losses for change in plan.changes)


def agreed(session: Session, plan: Plan, yes: bool, *, typed: bool = False) -> bool:
    """Return whether to go on: what a plan loses is shown and asked about; `typed` asks for a name or a number.

    Raises NotConfirmedError where nobody can be asked.
    """
    from natsctl.cli.consent import check_consent, confirmed
    from natsctl.cli.desired.planning import show_plan

    if yes or not is_destructive(plan):
        return True
    check_consent(session, losses(plan), yes, flag="--yes")
    show_plan(plan)
    changes = plan.changes
    word = (changes[0].key.name if len(changes) == 1 else str(len(changes))) if typed else ""
    return confirmed(session, losses(plan), yes, typed=word, flag="--yes")


def losses(plan: Plan) -> str:
    """What is removed, replaced or lost, in words: `delete 2 streams with 1,234 messages and replace Stream A`."""
    from natsctl.cli.render.plans import render_losses

    return render_losses(plan)


def recovered(session: Session, concerned: Collection[str], *, json: bool) -> list[str]:
    """Finish interrupted replacements, and return what became of each; in a dry run the plan names them.

    Raises PlanConflictError where one of the streams `concerned` is being replaced by another process.
    """
    from natsctl.client.backup.attempts import Lifeline

    async def work(manager: Manager) -> list[str]:
        from natsctl.plan.apply.holding import names_of

        lifeline = Lifeline(manager, say=sayer(json))
        if session.dry_run or not await lifeline.patiently(lambda: names_of(lifeline.manager)):
            return []
        from natsctl.plan.apply.recovery import recover

        return await lifeline.patiently(lambda: recover(lifeline, concerned))

    return session.run(work)


def still_valid(session: Session, saved: Plan) -> Plan:
    """The same plan, if the account is what it was made for; raises PlanChangedError, which names what is not."""
    from natsctl.cli.desired.planning import patiently
    from natsctl.plan.saved import PlanChangedError, changed_since
    from natsctl.plan.world import read_world

    names = {change.stream for change in saved.changes}
    told = changed_since(saved, session.run(lambda manager: patiently(manager, lambda one: read_world(one, names))))
    if told:
        raise PlanChangedError(told)
    return saved


def carried_out(session: Session, plan: Plan, options: ApplyOptions, *, bar: bool, json: bool) -> Outcome:
    """What became of the plan; each change has its line on stderr as it ends, unless a program reads."""
    from natsctl.cli.progress import progress
    from natsctl.cli.render.plans import render_result
    from natsctl.client.backup.attempts import Lifeline
    from natsctl.plan.apply.carry import carry_out

    total = len(plan.changes)
    shown = bar and not json and total >= BAR_FROM and sys.stderr.isatty()

    async def work(manager: Manager) -> Outcome:
        done = 0
        lifeline = Lifeline(manager, say=sayer(json))
        with progress("Changes", total, "changes", quiet=not shown) as tracker:

            def tell(result: Result) -> None:
                nonlocal done
                done += 1
                tracker.at(done)
                if not json:
                    output.tell(render_result(result))

            return await carry_out(lifeline, plan, options, tell)

    return session.run(work)


def sayer(json: bool) -> Any:
    """Where a run says what it is at: stderr, unless a program reads it."""
    from natsctl.client.backup.progress import mute

    return mute if json else lambda text: output.log(safe(text))


def show_outcome(plan: Plan, outcome: Outcome, notes: list[str], *, json: bool) -> int:
    """Print how it went, and return the exit status."""
    if json:
        from msgspec import to_builtins

        from natsctl.plan.saved import saved_document

        document = to_builtins(outcome)
        output.emit_json({"plan": saved_document(plan), **document, "notes": notes})
    else:
        from natsctl.cli.render.plans import render_summary

        output.emit(render_summary(outcome))
    return outcome.exit_code


def show_requests(session: Session, plan: Plan, options: ApplyOptions, *, json: bool) -> int:
    """End a dry run: the plan and the requests that would be sent. Drift is an exit status of its own."""
    from natsctl.cli.preview import show_preview
    from natsctl.client.preview import DryRunError
    from natsctl.plan.apply.carry import preview
    from natsctl.plan.saved import saved_document

    planned = session.run(lambda manager: preview(manager, plan, options))
    if not json:
        from natsctl.cli import screen
        from natsctl.cli.render.plans import render_plan

        output.emit(render_plan(plan, screen.width(), output.has_color(sys.stdout)))
    effect = {"plan": saved_document(plan)} if json else {}
    if planned or json:
        show_preview(DryRunError(*planned, effect=effect), session.effect, as_json=json)
    return ExitCode.DRIFT if plan.changes else ExitCode.DONE
