"""`account backup` and `account restore`: every stream of the account, with its data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.api.units import format_size, plural
from natsctl.cli import output
from natsctl.cli.backup import options as flags
from natsctl.cli.consent import check_consent, confirmed, named
from natsctl.cli.options import Force, Json, Progress, session_of
from natsctl.cli.progress import progress as shown

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.backup.attempts import Lifeline
    from natsctl.client.backup.outcome import AccountOutcome
    from natsctl.client.manager import Manager

Work = Callable[["Lifeline", Callable[[float, float], None]], Awaitable["AccountOutcome"]]

CriticalWarnings = Annotated[
    bool, typer.Option("--critical-warnings", "-w", help="exit with 1 if anything differs from the backup")
]


def backup(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder to make")],
    check: flags.Check = False,
    consumers: flags.Consumers = True,
    parallel: flags.Parallel = flags.PARALLEL,
    idle_timeout: flags.IdleTimeout = flags.IDLE_TIMEOUT,
    retries: flags.Retries = flags.RETRIES,
    critical_warnings: CriticalWarnings = False,
    force: flags.ForceReplace = False,
    progress: Progress = True,
    json: Json = False,
) -> int:
    """Back up every stream of the account with its data, those of KV and object stores included.

    Failures are reported and end with exit status 1; the other streams are saved. The nats tool restores the folder.
    """
    from natsctl.client.backup.account_save import save_account_data
    from natsctl.client.backup.save import SaveOptions

    session = session_of(ctx)
    options = SaveOptions(consumers=consumers, check=check, idle_s=flags.read_idle(idle_timeout), force=force)
    if not (session.dry_run or json):
        _announce(session, folder)
    done = _run(
        session,
        "Backup",
        lambda lifeline, on_change: save_account_data(
            lifeline, folder, options, parallel=parallel, on_change=on_change
        ),
        retries,
        bar=progress,
        json=json,
    )
    return _show("Backup", done, json, critical_warnings)


def restore(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of an account backup")],
    on_existing: flags.OnExisting = "fail",
    cluster: flags.Cluster = "",
    tag: flags.Tags = None,
    replicas: flags.Replicas = 0,
    parallel: flags.Parallel = flags.PARALLEL,
    idle_timeout: flags.IdleTimeout = flags.IDLE_TIMEOUT,
    retries: flags.Retries = flags.RETRIES,
    critical_warnings: CriticalWarnings = False,
    force: Force = False,
    progress: Progress = True,
    json: Json = False,
) -> int:
    """Restore every stream of an account backup, origins before their mirrors and sources.

    Without --on-existing nothing is restored if one of the streams exists.
    """
    from natsctl.client.backup.account_restore import restore_account_data, saved_in
    from natsctl.client.backup.restore import OnExisting, RestoreOptions

    session = session_of(ctx)
    options = RestoreOptions(
        cluster=cluster,
        tags=tuple(tag or ()),
        replicas=replicas,
        on_existing=flags.read_existing(on_existing),
        idle_s=flags.read_idle(idle_timeout),
    )
    if options.on_existing is OnExisting.REPLACE:
        check_consent(session, "replace Streams that exist", force)
        there = set(session.run(lambda manager: manager.stream_names())) & saved_in(folder).keys()
        question = f"replace {named('Stream', sorted(there))}"
        if there and not confirmed(session, question, force):
            return ExitCode.DONE
    done = _run(
        session,
        "Restore",
        lambda lifeline, on_change: restore_account_data(
            lifeline, folder, options, parallel=parallel, on_change=on_change
        ),
        retries,
        bar=progress,
        json=json,
    )
    return _show("Restore", done, json, critical_warnings)


def _announce(session: Session, folder: Path) -> None:
    from natsctl.cli.render.text import safe

    listing = session.run(lambda manager: manager.stream_list())
    states = [answer.raw.get("state") or {} for answer in listing]
    size = format_size(sum(int(state.get("bytes") or 0) for state in states))
    consumers = sum(int(state.get("consumer_count") or 0) for state in states)
    output.log(
        f"Backing up {plural(len(states), 'stream')}, {size}, {plural(consumers, 'consumer')} to {safe(str(folder))}"
    )


def _run(session: Session, what: str, work: Work, retries: int, *, bar: bool, json: bool) -> AccountOutcome:
    """The outcome of work on all streams, under one bar."""
    from natsctl.client.backup.attempts import Lifeline

    async def run(manager: Manager) -> AccountOutcome:
        lifeline = Lifeline(manager, retries=retries, say=flags.sayer(json))
        with shown(what, None, bar=bar, quiet=json) as tracker:
            return await work(lifeline, tracker.at)

    return session.run(run)


def _show(what: str, done: AccountOutcome, json: bool, critical_warnings: bool) -> int:
    """Show what became of the streams; the answer is the exit status."""
    if json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(done))
    else:
        from natsctl.cli.render.backup import render_outcome, render_outcome_line
        from natsctl.cli.screen import show_table

        show_table(render_outcome(done))
        output.note(render_outcome_line(what, done))
    failed = done.failed or (critical_warnings and done.warned)
    return NatsctlError.exit_code if failed else ExitCode.DONE
