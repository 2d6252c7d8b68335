"""`backup inspect` and `backup info`: the contents of a backup, without a server."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.backup.options import Source
from natsctl.cli.options import Json, Progress
from natsctl.cli.progress import progress as shown

SUBJECTS = 20


def inspect(
    path: Source,
    subjects: Annotated[
        int | None,
        typer.Option("--subjects", metavar="N", help="subjects to list, 0 for all (20, with -j all)", min=0),
    ] = None,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Show a backup's configuration, state, consumers and subjects. Reads all of it; needs no server."""
    from natsctl.client.backup.inspect import inspect as look_into
    from natsctl.client.backup.opened import open_backup

    top = (0 if json else SUBJECTS) if subjects is None else subjects
    with open_backup(path) as backup, shown("Reading", backup.size, bar=progress, quiet=json) as tracker:
        found = look_into(backup, top=top, on_read=tracker.at)
    if json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(found))
        return
    from natsctl.cli.render.backup import render_inspection
    from natsctl.cli.screen import show_page

    show_page(render_inspection(found))


def info(
    path: Source,
    subjects: Annotated[bool, typer.Option("--subjects", help="also every subject with its messages")] = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Show a backup's configuration, its numbers, and what it was made of, as the nats tool does.

    Reads all of it; needs no server. natsctl backup inspect shows more.
    """
    from natsctl.client.backup.inspect import describe
    from natsctl.client.backup.opened import open_backup

    with open_backup(path) as backup, shown("Reading", backup.size, bar=progress, quiet=json) as tracker:
        found = describe(backup, subjects=subjects, on_read=tracker.at)
    if json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(found))
        return
    from natsctl.cli.render.backup import render_info
    from natsctl.cli.screen import show_page, show_table, width

    show_page(render_info(found, str(path)))
    if subjects:
        from natsctl.cli.render.streams import render_subjects

        output.emit("")
        show_table(render_subjects(str(found.config.get("name", "")), sorted((found.subjects or {}).items()), width()))
