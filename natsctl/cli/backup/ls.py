"""`backup ls`: the backups below a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.options import Json, Names


def ls(
    folder: Annotated[
        Path, typer.Argument(metavar="PATH", help="a folder, searched to any depth", show_default=False)
    ] = Path(),
    check: Annotated[bool, typer.Option("--check/--no-check", help="read the data to find damage")] = True,
    names: Names = False,
    json: Json = False,
) -> int:
    """List the backups below a folder (this one without PATH), of any form.

    Ends with 1 where one is damaged: by its checksum, or by what is inside where it has none. With --no-check or -n
    only descriptions are read.
    """
    from natsctl.client.backup.found import find_backups

    found = find_backups(folder, read=check and not names)
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
    return NatsctlError.exit_code if any(one.error for one in found) else ExitCode.DONE
