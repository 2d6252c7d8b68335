"""`natsctl backup`: the configuration of every stream and consumer into a folder, on demand with the messages."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import format_size
from natsctl.cli import output
from natsctl.cli.options import Json, Progress, session_of
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from natsctl.client.backup.progress import OnProgress
    from natsctl.client.backup.progress import Progress as Transferred


SAVED = ("stream", "consumer", "account", "kv", "object")
"""Nouns that somebody may mean to back up."""


def backup(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder to make")],
    data: Annotated[bool, typer.Option("--data", help="also save the messages, as stream_<STREAM>.tgz")] = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Back up the configuration of every stream, template and durable consumer into a new folder.

    natsctl restore reads it. With --data each stream's messages are saved beside it; natsctl stream restore reads
    those. natsctl account backup saves data alone, quicker; natsctl backup ls, verify, inspect, cat and edit look
    into backups.
    """
    _check_order(folder)
    from natsctl.cli.backup.progress import shown
    from natsctl.client.backup.configuration import save_account

    def transfer() -> AbstractContextManager[OnProgress]:
        return shown(_begins, "Received", bar=progress, quiet=json)

    saved = session_of(ctx).run(
        lambda manager: save_account(manager, folder, data=data, log=output.log, transfer=transfer)
    )
    if json:
        output.emit_json(asdict(saved))


def _check_order(folder: Path) -> None:
    """Raise UsageError where the folder's name is a noun: `backup stream` was meant to be `stream backup`."""
    from natsctl.cli.main import NOUNS

    nouns = {word: noun.name for noun in NOUNS for word in (noun.name, *noun.aliases) if len(word) > 1}
    noun = nouns.get(str(folder), "")
    if noun in SAVED:
        raise UsageError(
            f"natsctl backup {folder} would write a folder named {folder}",
            hint=f"did you mean natsctl {noun} backup? For a folder of that name give its whole path",
        )


def _begins(done: Transferred) -> str:
    return f'Starting backup of Stream "{safe(done.stream)}" with {format_size(done.total_bytes)}'
