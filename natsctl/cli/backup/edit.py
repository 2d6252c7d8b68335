"""`backup edit`: a new backup of some of the messages of another one, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.backup import picking
from natsctl.cli.backup.options import Consumers, ForceReplace, Source
from natsctl.cli.options import Json, Progress, session_of
from natsctl.cli.progress import progress as shown
from natsctl.cli.render.values import safe


def edit(
    ctx: typer.Context,
    path: Source,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="directory, or a file such as ORDERS.tgz")],
    name: Annotated[str, typer.Option("--name", metavar="STREAM", help="another name", show_default=False)] = "",
    subject: picking.Subjects = None,
    since: picking.Since = None,
    until: picking.Until = None,
    seq: picking.Sequences = "",
    archive: Annotated[
        int, typer.Option("--archive", metavar="1|2", help="format to write: 1 is read by servers before 2.15")
    ] = 2,
    consumers: Consumers = True,
    force: ForceReplace = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Make a new backup with some messages of another one, under its own or another name, in either format.

    The messages keep their sequences and times; the one that is read stays as it is. Needs no server.
    """
    from natsctl.client.backup.edit import edit_backup

    if archive not in (1, 2):
        raise UsageError(f"--archive: expected 1 or 2, not {archive}")
    pick = picking.read_pick(subject, since, until, seq)
    with shown("Reading", None, bar=progress, quiet=json) as tracker:
        done = edit_backup(
            path,
            target,
            name=name,
            pick=pick,
            version=archive,
            consumers=consumers,
            replace=force,
            dry_run=session_of(ctx).dry_run,
            on_read=tracker.at,
        )
    if json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(done))
    else:
        output.note(f"Wrote {plural(done.messages, 'message')} of Stream {safe(done.stream)} to {safe(done.target)}")
