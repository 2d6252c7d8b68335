"""`backup ls`: which backups there are below a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.options import Json, Names


def ls(
    folder: Annotated[
        Path, typer.Argument(metavar="PATH", help="a folder, looked through to any depth", show_default=False)
    ] = Path(),
    names: Names = False,
    json: Json = False,
) -> None:
    """List the backups below a folder (this one without PATH), of any form; nothing but their descriptions is read."""
    from natsctl.client.backup.found import find_backups

    found = find_backups(folder)
    if names:
        paths = [one.path for one in found]
        output.emit_json(paths) if json else output.emit_names(paths)
    elif json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(found))
    elif found:
        from natsctl.cli.render.backup import render_found
        from natsctl.cli.screen import show_table

        show_table(render_found(found))
    else:
        output.note("No backups there")
