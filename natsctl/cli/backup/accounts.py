"""Backups of an account's configurations and data: `natsctl backup`, `restore`, `account backup`, `account restore`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from natsctl.api.errors import ExitCode, NatsctlError, UsageError
from natsctl.api.units import format_size, plural
from natsctl.cli.backup.transfer_flags import (
    IDLE_TIMEOUT,
    PARALLEL,
    RETRIES,
    Check,
    Cluster,
    Consumers,
    ForceReplace,
    IdleTimeout,
    OnExisting,
    Parallel,
    Replicas,
    Retries,
    Tags,
    progress_log,
    read_existing,
    read_idle,
)
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, confirmed_edit, named
from natsctl.cli.framework.flags import Force, Json, Progress
from natsctl.cli.framework.live import progress as shown
from natsctl.cli.framework.nouns import BY_WORD
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.text import safe
from natsctl.client.backup.manifest import Document

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from natsctl.client.backup.account_backup import AccountOutcome
    from natsctl.client.backup.transfer import OnProgress, RetryingManager
    from natsctl.client.backup.transfer import TransferProgress as Transferred
    from natsctl.client.manager import Manager


Work = Callable[["RetryingManager", Callable[[float, float], None]], Awaitable["AccountOutcome"]]

CriticalWarnings = Annotated[
    bool, Option("--critical-warnings", "-w", help="exit with 1 if anything differs from the backup")
]


class ConfigurationBackup(Document):
    """Names of the assets in a folder of configuration files, saved or restored; consumers as `STREAM > CONSUMER`."""

    folder: str
    streams: list[str]
    consumers: list[str]
    templates: list[str]
    data: list[str]


def backup_account(
    session: Session,
    folder: Annotated[Path, Argument(metavar="FOLDER", help="folder to make")],
    check: Check = False,
    consumers: Consumers = True,
    parallel: Parallel = PARALLEL,
    idle_timeout: IdleTimeout = IDLE_TIMEOUT,
    retries: Retries = RETRIES,
    critical_warnings: CriticalWarnings = False,
    force: ForceReplace = False,
    progress: Progress = True,
    json: Json = False,
) -> int:
    """Back up every stream of the account with its data, including KV and object stores.

    Failures are reported and end with exit status 1; the other streams are saved. The nats tool restores the folder.
    """
    from natsctl.client.backup.account_backup import save_account_data
    from natsctl.client.backup.save import SaveOptions

    options = SaveOptions(consumers=consumers, check=check, idle_s=read_idle(idle_timeout), force=force)
    if not (session.dry_run or json):
        _announce(session, folder)
    done = _run(
        session,
        "Backup",
        lambda retrying, on_change: save_account_data(
            retrying, folder, options, parallel=parallel, on_change=on_change
        ),
        retries,
        bar=progress,
        json=json,
    )
    return _show("Backup", done, json, critical_warnings)


def restore_account(
    session: Session,
    folder: Annotated[Path, Argument(metavar="FOLDER", help="folder of an account backup")],
    on_existing: OnExisting = "fail",
    cluster: Cluster = "",
    tag: Tags = None,
    replicas: Replicas = 0,
    parallel: Parallel = PARALLEL,
    idle_timeout: IdleTimeout = IDLE_TIMEOUT,
    retries: Retries = RETRIES,
    critical_warnings: CriticalWarnings = False,
    force: Force = False,
    progress: Progress = True,
    json: Json = False,
) -> int:
    """Restore every stream of an account backup, origins before their mirrors and sources.

    Without --on-existing nothing is restored if one of the streams exists.
    """
    from natsctl.client.backup.account_backup import restore_account_data, saved_in
    from natsctl.client.backup.restore import OnExisting, RestoreOptions

    options = RestoreOptions(
        cluster=cluster,
        tags=tuple(tag or ()),
        replicas=replicas,
        on_existing=read_existing(on_existing),
        idle_s=read_idle(idle_timeout),
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
        lambda retrying, on_change: restore_account_data(
            retrying, folder, options, parallel=parallel, on_change=on_change
        ),
        retries,
        bar=progress,
        json=json,
    )
    return _show("Restore", done, json, critical_warnings)


def _announce(session: Session, folder: Path) -> None:
    listing = session.run(lambda manager: manager.stream_list())
    states = [answer.raw.get("state") or {} for answer in listing]
    size = format_size(sum(int(state.get("bytes") or 0) for state in states))
    consumers = sum(int(state.get("consumer_count") or 0) for state in states)
    output.log(
        f"Backing up {plural(len(states), 'stream')}, {size}, {plural(consumers, 'consumer')} to {safe(str(folder))}"
    )


def _run(session: Session, what: str, work: Work, retries: int, *, bar: bool, json: bool) -> AccountOutcome:
    from natsctl.client.backup.transfer import RetryingManager

    async def run(manager: Manager) -> AccountOutcome:
        retrying = RetryingManager(manager, retries=retries, say=progress_log(json))
        with shown(what, None, bar=bar, quiet=json) as tracker:
            return await work(retrying, tracker.at)

    return session.run(run)


def _show(what: str, done: AccountOutcome, json: bool, critical_warnings: bool) -> int:
    if json:
        output.emit_json(done)
    else:
        from natsctl.cli.render.backup import render_outcome, render_outcome_line

        output.show_table(render_outcome(done))
        output.note(render_outcome_line(what, done))
    failed = done.failed or (critical_warnings and done.warned)
    return NatsctlError.exit_code if failed else ExitCode.DONE


SAVED = ("stream", "consumer", "account", "kv", "object")
"""Nouns that can be backed up, and the commands for that."""


def backup(
    session: Session,
    folder: Annotated[Path, Argument(metavar="FOLDER", help="folder to make")],
    data: Annotated[bool, Option("--data", help="also save the messages, as stream_<STREAM>.tgz")] = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Back up the configuration of every stream, template and durable consumer into a new folder.

    natsctl restore reads it. With --data each stream's messages are saved with it; natsctl stream restore reads
    those. natsctl account backup saves only data, faster; natsctl backup ls, verify, inspect, cat and edit look
    into backups.
    """
    _check_order(folder)
    from natsctl.cli.backup.transfer_flags import shown
    from natsctl.client.backup.configuration import save_account

    def transfer() -> AbstractContextManager[OnProgress]:
        return shown(_begins, "Received", bar=progress, quiet=json)

    saved = session.run(lambda manager: save_account(manager, folder, data=data, log=output.log, transfer=transfer))
    if json:
        output.emit_json(asdict(saved))


def _check_order(folder: Path) -> None:
    """Raise UsageError if the folder has the name of a noun: `backup stream` was meant to be `stream backup`."""
    word = str(folder)
    noun = BY_WORD[word].name if word in BY_WORD and len(word) > 1 else ""
    if noun in SAVED:
        raise UsageError(
            f"natsctl backup {folder} would write a folder named {folder}",
            hint=f"did you mean natsctl {noun} backup? For a folder of that name give its whole path",
        )


def _begins(done: Transferred) -> str:
    return f'Starting backup of Stream "{safe(done.stream)}" with {format_size(done.total_bytes)}'


def restore(
    session: Session,
    folder: Annotated[str | None, Argument(metavar="FOLDER", help="folder of natsctl backup")] = None,
    file: Annotated[str | None, Option("--file", metavar="FILE", help="only this file of the backup")] = None,
    update_streams: Annotated[
        bool, Option("--update-streams", help="update existing streams to the saved configuration")
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Create the streams and consumers that a configuration backup describes; messages come back by stream restore."""
    if (folder is None) == (file is None):
        raise UsageError("give either FOLDER or --file FILE")
    from natsctl.client.backup.configuration import restore_account, restore_losses

    source, only = Path(folder or file or ""), Path(file) if file else None
    losses = (
        []
        if force
        else session.run(lambda manager: restore_losses(manager, source, update_streams=update_streams, only=only))
    )
    if losses and not confirmed_edit(session, f"restore {source}", force, losses):
        return
    done = session.run(
        lambda manager: restore_account(manager, source, update_streams=update_streams, log=output.log, only=only)
    )
    if json:
        output.emit_json(asdict(done))


RESTORE_VERBS = (
    verb("stream", "stream.transfer.restore", "StreamInfo", "natsctl backup restore stream ./orders"),
    verb(
        "account",
        restore_account,
        "client.backup.account_backup:AccountOutcome",
        "natsctl backup restore account /data/js-backup",
    ),
)
