"""Moving streams to another server: `natsctl migrate`."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import quote

from natsctl.api.errors import UsageError
from natsctl.api.subjects import is_valid_name
from natsctl.api.units import plural
from natsctl.cli.backup.transfer_flags import (
    PARALLEL,
    RETRIES,
    Cluster,
    Parallel,
    Replicas,
    Retries,
    Tags,
    progress_log,
)
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, Progress, read_past_moment
from natsctl.cli.framework.live import progress as shown
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session
from natsctl.cli.render.backup import render_migration
from natsctl.cli.render.text import count, duration, safe
from natsctl.wire.server_url import without_login

if TYPE_CHECKING:
    from natsctl.client.backup.transfer import RetryingManager
    from natsctl.client.migration.migration import Migration, MigrationOptions
    from natsctl.client.migration.migration_state import MigrationReport
    from natsctl.client.servers import Target


class MigrationStep(NamedTuple):
    """Step of a migration: a bundle of flags."""

    cutover: Annotated[
        bool, Option("--cutover", help="stop ingest at the origin, copy the rest, verify and open the destination")
    ] = False
    abort: Annotated[
        bool, Option("--abort", help="take an interrupted cutover back: both sides become as they were")
    ] = False
    sample: Annotated[
        int | None,
        Option("--sample", metavar="N", help="only the newest N messages of each stream; the origin goes on", min=1),
    ] = None
    since: Annotated[
        int,
        Option(
            "--since",
            metavar="TIME",
            help="only messages since this time, or this long ago; the same",
            read=read_past_moment,
        ),
    ] = 0

    def options(self, streams: list[str] | None, parallel: int) -> MigrationOptions:
        from natsctl.client.migration.migration import MigrationOptions

        if sum((self.cutover, self.abort, bool(self.sample or self.since))) > 1:
            raise UsageError("--cutover, --abort and --sample or --since exclude each other")
        if self.abort and streams:
            raise UsageError("--abort takes back the whole cutover: name no streams")
        for name in streams or ():
            if not is_valid_name(name):
                raise UsageError(f"invalid stream name {name!r}")
        return MigrationOptions(tuple(dict.fromkeys(streams or ())), self.sample or 0, self.since, parallel)

    def run(self, migration: Migration) -> Awaitable[MigrationReport]:
        if self.abort:
            return migration.abort()
        if self.cutover:
            return migration.cut_over()
        return migration.take_sample() if migration.options.partial else migration.copy()


class Placing(NamedTuple):
    """Place of the streams at the destination: a bundle of flags."""

    replicas: Replicas = 0
    cluster: Cluster = ""
    tag: Tags = None


def migrate(
    session: Session,
    step: MigrationStep,
    placing: Placing,
    streams: Annotated[
        list[str] | None, Argument(metavar="[STREAM]...", help="the streams [all of the account]")
    ] = None,
    origin: Annotated[str, Option("--from", metavar="CONTEXT", help="the context, or URL, to move streams from")] = "",
    destination: Annotated[str, Option("--to", metavar="CONTEXT", help="the context, or URL, to move streams to")] = "",
    folder: Annotated[
        Path | None, Option("--dir", metavar="DIR", help="folder of the copied messages and the progress")
    ] = None,
    parallel: Parallel = PARALLEL,
    retries: Retries = RETRIES,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Move streams to another server or cluster: messages with sequences and times, consumers with their places.

    Without --cutover the messages are copied to a folder of this machine while clients go on; repeat it as often as
    you like. With --cutover streams at the origin no longer accept messages, the rest is copied, every message is
    verified, and the destination opens. A run that was killed is continued by the next one.

    --sample and --since make streams of the newest messages at the destination and keep the origin as it is.
    """
    if (origin == destination) or not origin or not destination:
        raise UsageError("--from and --to name two contexts", hint="natsctl context ls shows them")
    options = step.options(streams, parallel)
    place = folder or _folder(origin, destination, partial=options.partial)

    async def work(here: RetryingManager, there: RetryingManager) -> MigrationReport:
        from natsctl.client.migration.destination import MigrationDestination
        from natsctl.client.migration.migration import Migration
        from natsctl.client.migration.origin import MigrationOrigin

        tags = tuple(placing.tag or ())
        side = MigrationDestination(without_login(destination), there, placing.replicas, placing.cluster, tags)
        migration = Migration(MigrationOrigin(without_login(origin), here), side, place, options)
        quiet = json or session.dry_run
        with (
            migration.folder.held(dry_run=session.dry_run),
            shown("Moving" if step.cutover else "Copying", None, "messages", bar=progress, quiet=quiet) as tracker,
        ):
            migration.on_progress = tracker.at
            return await step.run(migration)

    report = _between(session, origin, destination, retries, work, quiet=json)
    _show(report, json)


def _folder(origin: str, destination: str, *, partial: bool) -> Path:
    """Return the folder of a migration: below `natsctl/migrations` in XDG_STATE_HOME (~/.local/state)."""
    home = os.environ.get("XDG_STATE_HOME")
    top = Path(home) if home else Path.home() / ".local" / "state"
    name = "--".join(quote(without_login(side), safe="") for side in (origin, destination))
    return top / "natsctl" / "migrations" / (f"{name}--sample" if partial else name)


def _between(
    session: Session,
    origin: str,
    destination: str,
    retries: int,
    work: Callable[[RetryingManager, RetryingManager], Awaitable[MigrationReport]],
    *,
    quiet: bool,
) -> MigrationReport:
    import asyncio

    targets = [_target(session, text) for text in (origin, destination)]

    async def run() -> MigrationReport:
        from natsctl.client.backup.transfer import RetryingManager
        from natsctl.client.dial import connect
        from natsctl.client.manager import Manager

        async with (
            await connect(targets[0], name="natsctl migrate", trace=session.options.trace) as first,
            await connect(targets[1], name="natsctl migrate", trace=session.options.trace) as second,
        ):
            first.dry_run = second.dry_run = session.dry_run
            say = progress_log(quiet)
            sides = [RetryingManager(Manager(one), retries=retries, say=say) for one in (first, second)]
            return await work(sides[0], sides[1])

    return asyncio.run(run())


def _target(session: Session, text: str) -> Target:
    from natsctl.client.contexts import ContextNotFoundError, Contexts
    from natsctl.client.servers import Target, TargetKind, server_urls, target_of
    from natsctl.client.settings import DEFAULT_TIMEOUT_S, Settings

    timeout_s = session.options.timeout or DEFAULT_TIMEOUT_S
    if "://" in text:
        return Target(TargetKind.NAMED, server_urls(text, "--from and --to"), text, Settings(), timeout_s)
    try:
        return target_of(Contexts(os.environ), text, session.options.timeout)
    except ContextNotFoundError as failure:
        failure.hint = did_you_mean(text, failure.known) or failure.hint
        raise


def _show(report: MigrationReport, json: bool) -> None:
    if json:
        output.emit_json(report)
        return
    output.show_table(render_migration(report))
    for stream in report.streams:
        for text in stream.warnings:
            output.note(safe(f"{stream.stream}: {text}"))
    output.note(safe(_last_line(report)))


def _last_line(report: MigrationReport) -> str:
    held = f"{plural(len(report.streams), 'stream')} with {plural(report.messages, 'message')}"
    took = f"in {duration(report.elapsed)}"
    if report.action == "copied":
        behind = sum(stream.behind for stream in report.streams)
        late = f", {count(behind)} behind" if behind else ""
        return f"{held} copied {took}{late}; --cutover moves the clients' streams to {report.destination}"
    if not report.streams:
        return "nothing is left to move" if report.action == "moved" else f"nothing was {report.action}"
    if report.action == "moved":
        return (
            f"{held} moved to {report.destination} {took}, closed for {duration(report.pause)};"
            f" {report.origin} accepts no messages for them any more"
        )
    if report.action == "sampled":
        return f"{held} made at {report.destination} {took}"
    return f"{plural(len(report.streams), 'stream')} taken back: {report.origin} accepts messages again"
