"""`natsctl restore`: streams and consumers from a configuration backup; and the verbs of `natsctl backup restore`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.consent import confirmed_edit
from natsctl.cli.options import Force, Json, session_of
from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "stream",
        "stream.transfer:restore",
        answer="StreamInfo",
        examples=("natsctl backup restore stream ./orders",),
    ),
    Verb(
        "account",
        "backup.account:restore",
        answer="cli.backup.shapes:AccountOutcome",
        examples=("natsctl backup restore account /data/js-backup",),
    ),
)


def restore(
    ctx: typer.Context,
    folder: Annotated[str | None, typer.Argument(metavar="FOLDER", help="folder of natsctl backup")] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help="only this file of the backup")] = None,
    update_streams: Annotated[
        bool, typer.Option("--update-streams", help="update existing streams to the saved configuration")
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Create the streams and consumers that a configuration backup describes; messages come back by stream restore."""
    if (folder is None) == (file is None):
        raise UsageError("give either FOLDER or --file FILE")
    from natsctl.client.backup.configuration import restore_account, restore_losses

    source, only = Path(folder or file or ""), Path(file) if file else None
    session = session_of(ctx)
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
