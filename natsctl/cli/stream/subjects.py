"""`natsctl stream subjects`: which subjects a stream holds, and how many messages of each."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import Json, StreamName, session_of
from natsctl.cli.render.text import safe

ORDERS = {"name": 0, "subjects": 0, "messages": 1, "count": 1}
"""What rows of subject and count are sorted by first, by the word for it."""


def subjects(
    ctx: typer.Context,
    stream: StreamName = None,
    filter: Annotated[str, typer.Argument(metavar="[FILTER]", help="subjects of this pattern")] = ">",
    sort: Annotated[
        str, typer.Option("--sort", metavar="name|messages", help="sort the rows by this column")
    ] = "messages",
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="reverse the order", show_default=False)] = False,
    names: Annotated[bool, typer.Option("--names/--no-names", "-n", help="subjects only, one on a line")] = False,
    json: Json = False,
) -> None:
    """Show the subjects of a stream and how many messages each has, fewest first."""
    if sort not in ORDERS:
        raise UsageError(f"--sort: expected one of {', '.join(ORDERS)}, not {sort!r}")
    session = session_of(ctx)
    name = pick_stream(session, stream)
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.stream_info(name, subjects_filter=filter))
    found: dict[str, int] = (answer.raw.get("state") or {}).get("subjects") or {}
    first = ORDERS[sort]
    rows = sorted(found.items(), key=lambda pair: (pair[first], pair[1 - first]), reverse=reverse)
    if json:
        output.emit_json([subject for subject, _ in rows] if names else dict(rows))
    elif names:
        output.emit_names(subject for subject, _ in rows)
    elif rows:
        from natsctl.cli.render.streams import render_subjects
        from natsctl.cli.screen import show_table, width

        show_table(render_subjects(name, rows, width()))
    else:
        output.emit(f"No subjects match {safe(filter)} in Stream {safe(name)}")
