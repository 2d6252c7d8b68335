"""`natsctl stream ls`: which streams there are."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.options import All, Details, Json, Names, check_details, session_of
from natsctl.cli.paging import emit_name_pages
from natsctl.cli.render.tables import Columns, Sort
from natsctl.cli.stream.listing import (
    MoreColumns,
    Patterns,
    Subject,
    is_meant,
    list_streams,
    nothing_found,
    tell_absent,
)

if TYPE_CHECKING:
    from natsctl.cli.session import Session

Reverse = Annotated[bool, typer.Option("--reverse", "-r", "-R", help="reverse the order", show_default=False)]


def ls(
    ctx: typer.Context,
    patterns: Patterns = None,
    subject: Subject = "",
    names: Names = False,
    all_streams: All = False,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: MoreColumns = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """List the streams, smallest first.

    With -n they are printed by name, each page as it comes from the server. A table, and what is sorted, is shown when
    all pages are there. With -j the names are one array, and with -j --details whole objects.
    """
    check_details(details, json)
    session = session_of(ctx)
    if names:
        meant = partial(is_meant, patterns=patterns, all_streams=all_streams)
        _show_names(session, subject, meant, reverse=reverse, json=json)
        return
    from natsctl.cli.render.streams import LIST, WIDE, render_stream_list, stream_rows
    from natsctl.cli.render.tables import chosen, ordered

    picked = chosen(LIST, columns or (WIDE if wide else None), False)
    streams = list_streams(session, subject=subject, patterns=patterns, all_streams=all_streams)
    rows = stream_rows([one.value for one in streams.answers], streams.absent, time.time_ns())
    by = sort or ("name" if json and not details else "size")
    in_order = ordered(ordered(rows, LIST, "name", False), LIST, by, reverse)
    if json:
        raw = {one.value.config.name: one.raw for one in streams.answers}
        found = [row.info.config.name for row in in_order if not row.status]
        output.emit_json([raw[name] for name in found] if details else found)
    elif rows:
        from natsctl.cli.screen import show_table

        show_table(render_stream_list("Streams", picked, in_order))
    else:
        output.emit(nothing_found(streams, subject, patterns))
    tell_absent(streams.absent)


def _show_names(session: Session, subject: str, meant: Callable[[str], bool], *, reverse: bool, json: bool) -> None:
    if not (reverse or json):
        emit_name_pages(session, lambda manager: _meant_pages(manager.stream_name_pages(subject=subject), meant))
        return
    found = session.run(lambda manager: manager.stream_names(subject=subject))
    shown = sorted(filter(meant, found), reverse=reverse)
    output.emit_json(shown) if json else output.emit_names(shown)


async def _meant_pages(pages: AsyncIterator[list[str]], meant: Callable[[str], bool]) -> AsyncIterator[Iterable[str]]:
    async for page in pages:
        yield filter(meant, page)
