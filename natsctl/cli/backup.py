"""`natsctl backup`: the configuration of every stream and consumer into a folder, on demand with the messages."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.options import Json, Progress, session_of

app = typer.Typer(help="Back up the configuration of every stream and consumer.")


@app.command("backup")
def backup(
    ctx: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="folder to make")],
    data: Annotated[bool, typer.Option("--data", help="also the messages, as stream_<STREAM>.tgz")] = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Back up the configuration of every stream and durable consumer into a new folder; natsctl restore reads it.

    With --data each stream's messages are saved beside it; natsctl stream restore reads those.
    """
    from natsctl.cli.progress import ProgressDisplay
    from natsctl.client.account_backup import save_account

    display = ProgressDisplay("Received", bar=progress)
    saved = session_of(ctx).run(
        lambda manager: save_account(manager, Path(folder), data=data, log=output.log, on_progress=display)
    )
    if json:
        output.emit_json(asdict(saved))
