"""`natsctl stream find`: the streams that meet criteria."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from natsctl.cli import output
from natsctl.cli.flags import DURATION, SWITCH, TEXT, WHOLE, Flag, Given, fields_of, flagged
from natsctl.cli.options import All, Json, Names, session_of
from natsctl.cli.paging import emit_name_pages
from natsctl.cli.render.tables import Columns, Reverse, Sort
from natsctl.cli.stream.listing import MoreColumns, Streams, list_streams, meant_streams, tell_absent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from natsctl.api.stream import StreamInfo
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager

FIND: tuple[Flag, ...] = (
    Flag("--server-name", TEXT, "server_name", "on a server whose name matches this regular expression"),
    Flag("--cluster", TEXT, "cluster", "in a cluster whose name matches this regular expression"),
    Flag("--empty", SWITCH, "empty", "without messages"),
    Flag("--idle", DURATION, "idle", "without new messages or deliveries for this long"),
    Flag("--created", DURATION, "created", "created longer ago than this"),
    Flag("--consumers", WHOLE, "consumers", "with fewer consumers than this"),
    Flag("--subject", TEXT, "subject", "that store this subject"),
    Flag("--replicas", WHOLE, "replicas", "with at most N replicas"),
    Flag("--sourced", SWITCH, "sourced", "that source other streams"),
    Flag("--mirrored", SWITCH, "mirrored", "that mirror another stream"),
    Flag("--leader", TEXT, "leader", "led by this server"),
    Flag("--api-level", WHOLE, "api_level", "that require at least this API level"),
    Flag("--expression", TEXT, "expression", "for which this is true, such as 'state.messages > 10'"),
    Flag("--invert", SWITCH, "invert", "invert every criterion except --subject"),
)
"""What streams are found by."""


@flagged(FIND)
def find(
    ctx: typer.Context,
    given: Given,
    names: Names = False,
    all_streams: All = False,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: MoreColumns = False,
    json: Json = False,
) -> None:
    """Find the streams that meet all criteria.

    An --expression is about `config`, `state` and `info`, in the spelling of `stream info -j`:
    'config.retention == "limits" && state.messages > 1000'. With -n names are printed page by page as they are found,
    unless they are to be sorted.
    """
    if names and not (json or sort or reverse):
        _show_names(session_of(ctx), given, all_streams)
        return
    from natsctl.cli.render.streams import LIST, WIDE, render_stream_list, stream_rows
    from natsctl.cli.render.tables import chosen, ordered

    session = session_of(ctx)
    picked = chosen(LIST, columns or (WIDE if wide else None), False)
    streams, found = find_streams(session, given, all_streams)
    rows = ordered(stream_rows([one.value for one in found], {}, time.time_ns()), LIST, sort, reverse)
    in_order = [row.info.config.name for row in rows]
    if json:
        raw = {one.value.config.name: one.raw for one in found}
        output.emit_json(in_order if names else [raw[name] for name in in_order])
    elif names:
        output.emit_names(in_order)
    elif rows:
        from natsctl.cli.screen import show_table

        show_table(render_stream_list("Streams", picked, rows))
    else:
        output.emit("No Streams meet the criteria")
    tell_absent(streams.absent)


def find_streams(session: Session, given: Given, all_streams: bool) -> tuple[Streams, list[Answer[StreamInfo]]]:
    """All streams, and those of them that meet the criteria that were given."""
    from natsctl.client.assets.stream_filter import matching

    wanted, subject, invert = _criteria(given)
    streams = list_streams(session, subject=subject, all_streams=all_streams)
    found = session.run(
        lambda manager: matching(manager, streams.answers, wanted, invert=invert, now_ns=time.time_ns())
    )
    return streams, found


def _show_names(session: Session, given: Given, all_streams: bool) -> None:
    """Print the names of those that meet the criteria, page by page."""
    from natsctl.client.assets.stream_filter import matching

    wanted, subject, invert = _criteria(given)
    absent: dict[str, str] = {}

    async def pages(manager: Manager) -> AsyncIterator[list[str]]:
        async for page in manager.stream_pages(subject=subject):
            streams = meant_streams(page, None, all_streams)
            absent.update(streams.absent)
            found = await matching(manager, streams.answers, wanted, invert=invert, now_ns=time.time_ns())
            yield [one.value.config.name for one in found]

    emit_name_pages(session, pages)
    tell_absent(absent)


def _criteria(given: Given) -> tuple[dict[str, Any], str, bool]:
    """What is asked of streams, the subject that they store, and whether the opposite of all else is meant."""
    from natsctl.client.assets.stream_filter import CRITERIA

    wanted = fields_of(FIND, given)
    for name in ("expression", "server_name", "cluster"):
        if name in wanted:
            CRITERIA[name](wanted[name])  # a fault in it is told before anything is asked
    return wanted, str(wanted.pop("subject", "")), bool(wanted.pop("invert", False))
