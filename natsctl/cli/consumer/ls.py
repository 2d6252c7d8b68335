"""`natsctl consumer ls`: which consumers a stream has."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import All, Details, Json, Names, NoSelect, StreamName, check_details, session_of
from natsctl.cli.paging import emit_name_pages
from natsctl.cli.render.tables import Columns, Reverse, Sort, Wide
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer, Listing


def ls(
    ctx: typer.Context,
    stream: StreamName = None,
    names: Names = False,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    no_select: NoSelect = False,
    all_streams: All = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """List the consumers of a stream.

    With -n they are printed as the server sorts them, each page as it comes; a table is shown when all pages are there.
    With -j the names are one array, and with -j --details whole objects.
    """
    check_details(details, json)
    session = session_of(ctx)
    if no_select and not stream:
        raise UsageError("a stream is needed: give STREAM")
    stream = pick_stream(session, stream, all_streams=all_streams)
    if names:
        with suggesting(session, stream):
            _show_names(session, stream, json)
        return
    answers = list_consumers(session, stream)
    show_consumers(
        answers, sort=sort, reverse=reverse, columns=columns, wide=wide, json=json, names=json and not details
    )
    warn_of_absent(answers)


def _show_names(session: Session, stream: str, json: bool) -> None:
    if json:
        output.emit_json(list(session.run(lambda manager: manager.consumer_names(stream))))
    else:
        emit_name_pages(session, lambda manager: manager.consumer_name_pages(stream))


def list_consumers(session: Session, stream: str) -> Listing[Answer[Any]]:
    """All consumers of a stream. Raises ApiFailure, with what may have been meant."""
    with suggesting(session, stream):
        return session.run(lambda manager: manager.consumer_list(stream))


def show_consumers(
    answers: Sequence[Answer[Any]],
    *,
    sort: str | None,
    reverse: bool,
    columns: str | None,
    wide: bool,
    json: bool,
    names: bool = False,
    none: str = "No Consumers defined",
) -> None:
    """Show consumers as a table, or with `json` as whole objects or their `names`."""
    from natsctl.cli.render.consumers import consumer_columns
    from natsctl.cli.render.tables import chosen, ordered

    table = consumer_columns(time.time_ns())
    shown = chosen(table, columns, wide)
    # The columns are for people, but a wrong name is told in any case.
    rows = ordered(answers, table, sort, reverse)
    if json:
        shown_rows = rows if sort or reverse else answers
        output.emit_json([one.raw["name"] if names else one.raw for one in shown_rows])
    elif rows:
        from natsctl.cli.render.tables import render_columns
        from natsctl.cli.screen import show_table

        show_table(render_columns("Consumers", shown, rows))
    else:
        output.emit(none)


def warn_of_absent(*pages: Listing[Answer[Any]]) -> None:
    """Say on stderr which consumers the server could not show."""
    absent = [name for page in pages for word in ("missing", "offline") for name in page.raw.get(word) or ()]
    if absent:
        output.note(f"warning: inaccessible consumers: {', '.join(safe(name) for name in absent)}")
