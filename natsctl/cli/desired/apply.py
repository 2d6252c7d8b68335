"""Documents applied to the account: `natsctl apply` and `natsctl destroy`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import field, to_builtins

from natsctl.api.errors import ExitCode, UsageError, file_errors
from natsctl.api.model import Model
from natsctl.cli.desired.plan import (
    Adopt,
    AllowReplace,
    KeepMessages,
    MaxRemovals,
    Prune,
    patiently,
    planned,
    show_plan,
)
from natsctl.cli.desired.sources import AllowEmpty, DocumentFlags
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, show_preview
from natsctl.cli.framework.flags import Json, Progress
from natsctl.cli.framework.live import progress
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.render.plans import render_losses, render_plan, render_result, render_summary
from natsctl.cli.render.text import safe
from natsctl.client.backup.transfer import RetryingManager, mute
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError
from natsctl.desired.apply import CONCURRENCY
from natsctl.desired.apply.apply import ApplyOptions, apply_plan, check_allowed, preview
from natsctl.desired.apply.holding_stream import names_of
from natsctl.desired.apply.results import Outcome, Result, Summary
from natsctl.desired.assets import DocumentSet
from natsctl.desired.live import read_live_state
from natsctl.desired.plan import (
    Plan,
    PlanChangedError,
    SavedPlan,
    changed_since,
    decode_plan,
    is_saved_plan,
    saved_document,
)
from natsctl.desired.planner import PlanOptions

BAR_FROM = 20
"""The number of changes above which a bar shows the progress at a terminal."""
_ON_FAILURE = ("continue", "stop")


class ApplyFlags(NamedTuple):
    """Flags about how changes are applied, shared by commands."""

    on_failure: Annotated[
        str,
        Option(
            "--on-failure",
            metavar="continue|stop",
            help="whether to continue with changes that do not depend on a failed one",
        ),
    ] = "continue"
    concurrency: Annotated[
        int, Option("--concurrency", metavar="N", help="changes carried out at once", min=1, max=256)
    ] = CONCURRENCY
    yes: Annotated[bool, Option("--yes", "--force", help="remove and replace without asking")] = False
    progress: Progress = True

    def options(self, backup_folder: Path = Path(), keep_backup: bool = False) -> ApplyOptions:
        if self.on_failure not in _ON_FAILURE:
            raise UsageError(f"--on-failure {self.on_failure}: expected {' or '.join(_ON_FAILURE)}")
        return ApplyOptions(self.concurrency, self.on_failure == "stop", backup_folder, keep_backup)


def is_destructive(plan: Plan) -> bool:
    """Return whether the plan removes or replaces anything, or an update causes a loss."""
    return any(change.action in ("delete", "replace") or change.losses for change in plan.changes)


def confirm_plan(session: Session, plan: Plan, yes: bool, *, typed: bool = False) -> bool:
    """Return whether to continue: the losses of a plan are shown and confirmed; `typed` asks for a name or a number.

    Raises NotConfirmedError without a terminal.
    """
    if yes or not is_destructive(plan):
        return True
    check_consent(session, render_losses(plan), yes, flag="--yes")
    show_plan(plan)
    changes = plan.changes
    word = (changes[0].key.name if len(changes) == 1 else str(len(changes))) if typed else ""
    return confirmed(session, render_losses(plan), yes, typed=word, flag="--yes")


def finish_replacements(session: Session, concerned: Collection[str], *, json: bool) -> list[str]:
    """Finish interrupted replacements, and return the result of each; in a dry run the plan names them.

    Raises ConflictError if another process is replacing one of the streams `concerned`.
    """

    async def work(manager: Manager) -> list[str]:
        retrying = RetryingManager(manager, say=progress_log(json))
        if session.dry_run or not await retrying.patiently(lambda: names_of(retrying.manager)):
            return []
        from natsctl.desired.apply.recovery import recover

        return await retrying.patiently(lambda: recover(retrying, concerned))

    return session.run(work)


def check_still_valid(session: Session, saved: Plan) -> Plan:
    """Return the plan if the account has not changed since; raises PlanChangedError with the list of changes."""
    names = {change.stream for change in saved.changes}
    changed = changed_since(
        saved, session.run(lambda manager: patiently(manager, lambda one: read_live_state(one, names)))
    )
    if changed:
        raise PlanChangedError(changed)
    return saved


def run_plan(session: Session, plan: Plan, options: ApplyOptions, *, bar: bool, json: bool) -> Outcome:
    """Return the outcome of the plan; each change has its line on stderr as it ends, except with -j."""
    total = len(plan.changes)
    shown = bar and not json and total >= BAR_FROM and sys.stderr.isatty()

    async def work(manager: Manager) -> Outcome:
        done = 0
        retrying = RetryingManager(manager, say=progress_log(json))
        with progress("Changes", total, "changes", quiet=not shown) as tracker:

            def report(result: Result) -> None:
                nonlocal done
                done += 1
                tracker.at(done)
                if not json:
                    output.write_stderr(render_result(result))

            return await apply_plan(retrying, plan, options, report)

    return session.run(work)


def progress_log(json: bool) -> Any:
    """Return the function that reports progress as text: to stderr, or nowhere with -j."""
    return mute if json else lambda text: output.log(safe(text))


def show_outcome(plan: Plan, outcome: Outcome, notes: list[str], *, json: bool) -> int:
    if json:
        document = to_builtins(outcome)
        output.emit_json({"plan": saved_document(plan), **document, "notes": notes})
    else:
        output.emit(render_summary(outcome))
    return outcome.exit_code


def show_requests(session: Session, plan: Plan, options: ApplyOptions, *, json: bool) -> int:
    """End a dry run: print the plan and its requests. Drift is an exit status of its own."""
    planned = session.run(lambda manager: preview(manager, plan, options))
    if not json:
        output.emit(render_plan(plan, output.width(), output.has_color(sys.stdout)))
    effect = {"plan": saved_document(plan)} if json else {}
    if planned or json:
        show_preview(DryRunError(*planned, effect=effect), session.effect, as_json=json)
    return ExitCode.DRIFT if plan.changes else ExitCode.DONE


class Applied(Model, kw_only=True, omit_defaults=False):
    """A plan, the result of each change, and their number by outcome.

    `ended` is the reason for changes that were not started: "" for none, "stopped", "interrupted" or "lost". `notes`
    list interrupted replacements that were finished first.
    """

    plan: SavedPlan
    results: list[Result]
    summary: Summary
    ended: str
    notes: list[str] = field(default_factory=list)


def apply(
    session: Session,
    named: DocumentFlags,
    running: ApplyFlags,
    plan_file: Annotated[
        Path | None,
        Option("--plan", metavar="FILE", help="carry out a plan that was saved"),
    ] = None,
    prune: Prune = False,
    allow_replace: AllowReplace = False,
    keep_messages: KeepMessages = False,
    backup_folder: Annotated[
        Path,
        Option(
            "--backup-folder",
            metavar="FOLDER",
            help="where --keep-backup leaves backups [the working directory]",
        ),
    ] = Path(),
    keep_backup: Annotated[
        bool,
        Option("--keep-backup", help="leave a backup of each stream that is replaced"),
    ] = False,
    adopt: Adopt = False,
    max_removals: MaxRemovals = None,
    allow_empty: AllowEmpty = False,
    json: Json = False,
) -> int:
    """Create and update what differs from the documents, and change nothing else.

    Origins come before their mirrors and sources, streams before their consumers; independent changes run in parallel.
    It may be repeated at any time: finished changes are skipped. A change that removes or replaces something, or loses
    messages, is shown and must be confirmed at a terminal; elsewhere it needs --yes.

    PATH may be a plan that natsctl plan --out has saved. It is refused if the account has changed since. With
    --keep-messages a replaced stream keeps its messages and consumers: it is saved, removed and restored. If that is
    interrupted, the next apply finishes it, from any machine.
    """
    how = running.options(backup_folder, keep_backup)
    saved = _saved_plan([*(named.files or ()), *(named.paths or ())], plan_file)
    wanted = named.load(allow_empty=allow_empty) if saved is None else None
    described = [change.key for change in saved.changes] if saved is not None else wanted.wanted if wanted else ()
    notes = finish_replacements(session, {key.stream for key in described}, json=json)
    if saved is not None:
        plan = check_still_valid(session, saved)
    elif wanted is not None:
        options = PlanOptions(prune, allow_replace, keep_messages, adopt, max_removals=max_removals)
        plan = planned(session, wanted, options)
    if session.dry_run:
        return show_requests(session, plan, how, json=json)
    check_allowed(plan)
    if not confirm_plan(session, plan, running.yes):
        return ExitCode.DONE
    outcome = run_plan(session, plan, how, bar=running.progress, json=json)
    return show_outcome(plan, outcome, notes, json=json)


def _saved_plan(named: Sequence[str], plan_file: Path | None) -> Plan | None:
    """Return the saved plan that was given instead of documents, None for documents. Raises UsageError."""
    from natsctl.desired.documents.files import STDIN

    if plan_file is not None:
        if named:
            raise UsageError("--plan carries out only that plan: leave the documents out")
        return decode_plan(_content(plan_file), str(plan_file))
    files = [name for name in named if name != STDIN and not name.endswith((".yaml", ".yml")) and Path(name).is_file()]
    texts = {name: _content(Path(name)) for name in files}
    plans = [name for name, text in texts.items() if is_saved_plan(text)]
    if plans and len(named) > 1:
        raise UsageError(f"{plans[0]} is a saved plan: it is carried out by itself")
    return decode_plan(texts[plans[0]], plans[0]) if plans else None


def _content(path: Path) -> bytes:
    with file_errors(f"cannot read {path}", UsageError):
        return path.read_bytes()


def check_named(wanted: DocumentSet, names: Sequence[str]) -> None:
    from natsctl.desired.planner import names_of

    for name in names:
        found = [str(key) for key in wanted.wanted if name in names_of(key)]
        if len(found) != 1:
            reason = f"it is the name of {' and '.join(found)}" if found else "no document describes it"
            raise UsageError(f"--remove {name}: {reason}", hint='for example --remove "Stream ORDERS"')


def destroy(
    session: Session,
    named: DocumentFlags,
    running: ApplyFlags,
    prune: Annotated[
        bool,
        Option("--prune", help="also remove everything else that this owner's documents created"),
    ] = False,
    adopt: Annotated[bool, Option("--adopt", help="also remove what another owner's documents created")] = False,
    removed: Annotated[
        list[str] | None,
        Option("--remove", metavar="NAME", help="also remove this asset that natsctl did not create; may be repeated"),
    ] = None,
    max_removals: MaxRemovals = None,
    allow_empty: AllowEmpty = False,
    json: Json = False,
) -> int:
    """Remove the assets in the documents, with all messages: mirrors and sources before their origins.

    Missing assets count as removed. Assets that natsctl did not create stay, also those that apply --adopt took
    over: --remove NAME removes them (ORDERS, "ORDERS > NEW", "KeyValue SETTINGS"). If anything is protected or another
    owner has it, nothing is removed.
    """
    how = running.options()
    wanted = named.load(allow_empty=allow_empty)
    check_named(wanted, removed or ())
    options = PlanOptions(prune=prune, adopt=adopt, named=frozenset(removed or ()), max_removals=max_removals)
    plan = planned(session, wanted, options, destroy=True)
    if session.dry_run:
        return show_requests(session, plan, how, json=json)
    for note in () if json else plan.notes[len(wanted.notes) :]:
        output.note(safe(f"note: {note}"))
    check_allowed(plan)
    if not confirm_plan(session, plan, running.yes, typed=True):
        return ExitCode.DONE
    outcome = run_plan(session, plan, how, bar=running.progress, json=json)
    return show_outcome(plan, outcome, [], json=json)
