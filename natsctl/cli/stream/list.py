"""Lists of streams: `natsctl stream ls` and `find`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial

from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    DURATION,
    SWITCH,
    TEXT,
    WHOLE,
    All,
    Details,
    Flag,
    Given,
    Json,
    Names,
    check_details,
    fields_of,
    flagged,
)
from natsctl.cli.framework.output import emit_name_pages
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import is_internal, is_match
from natsctl.cli.framework.session import Session
from natsctl.cli.render.tables import Columns, Reverse, Sort, selected_columns, sorted_rows
from natsctl.cli.render.text import safe
from natsctl.hints import TYPE_CHECKING, Annotated, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.api.stream import StreamInfo
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer, ListedFields, Listing


Subject = Annotated[str, Option("--subject", metavar="SUBJECT", help="streams that store this subject")]
Patterns = Annotated[
    list[str] | None,
    Argument(metavar="[NAME]...", help="names; * and ? match any characters"),
]


MoreColumns = Annotated[bool, Option("--wide", help="more columns, for a wide terminal; --columns selects them")]


class Streams(NamedTuple):
    """The streams to show; `absent` has the reasons for missing ones by name; `hidden` counts those left out."""

    answers: list[Answer[StreamInfo]]
    absent: dict[str, str]
    hidden: int


def is_meant(name: str, patterns: Sequence[str] | None, all_streams: bool) -> bool:
    """Return whether to show a stream: its name matches, and it is no bucket's unless those were requested."""
    if patterns:
        return any(is_match(name, pattern) for pattern in patterns)
    return all_streams or not is_internal(name)


def list_streams(
    session: Session,
    *,
    subject: str = "",
    patterns: Sequence[str] | None = None,
    all_streams: bool = False,
    fields: ListedFields | None = None,
) -> Streams:
    listing = session.ask(lambda manager: manager.stream_list(subject=subject, fields=fields))
    return meant_streams(listing, patterns, all_streams)


def meant_streams(found: Listing[Answer[StreamInfo]], patterns: Sequence[str] | None, all_streams: bool) -> Streams:
    kept = [one for one in found if is_meant(one.value.config.name, patterns, all_streams)]
    absent = {name: why for name, why in _absent(found.raw).items() if is_meant(name, patterns, all_streams)}
    return Streams(kept, absent, len(found) - len(kept))


def _absent(raw: dict[str, Any]) -> dict[str, str]:
    said: dict[str, str] = dict.fromkeys(raw.get("missing") or (), "no answer")
    offline = raw.get("offline") or {}
    if isinstance(offline, dict):
        return said | {name: f"offline: {why}" for name, why in offline.items()}
    return said | dict.fromkeys(offline, "offline")


def nothing_found(streams: Streams, subject: str, patterns: Sequence[str] | None) -> str:
    if patterns:
        return f"No Streams match {safe(' '.join(patterns))}"
    none = f"No Streams store {safe(subject)}" if subject else "No Streams defined"
    return none + (", pass -a to include system streams" if streams.hidden else "")


def warn_absent(absent: Collection[str]) -> None:
    if absent:
        output.note(f"warning: inaccessible streams: {', '.join(safe(name) for name in absent)}")


ReverseOrder = Annotated[bool, Option("--reverse", "-r", "-R", help="reverse the order")]


def ls(
    session: Session,
    patterns: Patterns = None,
    subject: Subject = "",
    names: Names = False,
    all_streams: All = False,
    sort: Sort = None,
    reverse: ReverseOrder = False,
    columns: Columns = None,
    wide: MoreColumns = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """List the streams, smallest first.

    With -n they are printed by name, including buckets' streams, each page as it comes from the server. A table or a
    sorted list is shown when all pages are there. With -j the names are one array, and with -j --details whole objects.
    """
    check_details(details, json)
    if names:
        meant = partial(is_meant, patterns=patterns, all_streams=True)
        _list_names(session, subject, meant, reverse=reverse, json=json)
        return
    from natsctl.cli.render.streams import LIST, LISTED, WIDE, render_stream_list, stream_rows

    picked = selected_columns(LIST, columns or (WIDE if wide else None), False)
    fields = None if columns or wide or sort else LISTED
    streams = list_streams(session, subject=subject, patterns=patterns, all_streams=all_streams, fields=fields)
    rows = stream_rows([answer.value for answer in streams.answers], streams.absent, time.time_ns())
    by = sort or ("name" if json and not details else "size")
    in_order = sorted_rows(sorted_rows(rows, LIST, "name", False), LIST, by, reverse)
    if json:
        raw = {answer.value.config.name: answer.raw for answer in streams.answers}
        found = [row.info.config.name for row in in_order if not row.status]
        output.emit_json([raw[name] for name in found] if details else found)
    elif rows:
        output.show_table(render_stream_list("Streams", picked, in_order))
    else:
        output.emit(nothing_found(streams, subject, patterns))
    warn_absent(streams.absent)


def _list_names(session: Session, subject: str, meant: Callable[[str], bool], *, reverse: bool, json: bool) -> None:
    if not (reverse or json):
        emit_name_pages(session.ask, lambda manager: _meant_pages(manager.stream_name_pages(subject=subject), meant))
        return
    found = session.ask(lambda manager: manager.stream_names(subject=subject))
    shown = sorted(filter(meant, found), reverse=reverse)
    output.emit_json(shown) if json else output.emit_names(shown)


async def _meant_pages(pages: AsyncIterator[list[str]], meant: Callable[[str], bool]) -> AsyncIterator[Iterable[str]]:
    async for page in pages:
        yield filter(meant, page)


FIND: tuple[Flag, ...] = (
    Flag("--server-name", TEXT, "server_name", "on a server with a name that matches this regular expression"),
    Flag("--cluster", TEXT, "cluster", "in a cluster with a name that matches this regular expression"),
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
    Flag("--expression", TEXT, "expression", "that match this expression, such as 'state.messages > 10'"),
    Flag("--invert", SWITCH, "invert", "invert every criterion except --subject"),
)


@flagged(FIND)
def find(
    session: Session,
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
        _find_names(session, given)
        return
    from natsctl.cli.render.streams import LIST, WIDE, render_stream_list, stream_rows

    picked = selected_columns(LIST, columns or (WIDE if wide else None), False)
    streams, found = find_streams(session, given)
    rows = sorted_rows(stream_rows([one.value for one in found], {}, time.time_ns()), LIST, sort, reverse)
    in_order = [row.info.config.name for row in rows]
    if json:
        raw = {one.value.config.name: one.raw for one in found}
        output.emit_json(in_order if names else [raw[name] for name in in_order])
    elif names:
        output.emit_names(in_order)
    elif rows:
        output.show_table(render_stream_list("Streams", picked, rows))
    else:
        output.emit("No Streams meet the criteria")
    warn_absent(streams.absent)


def find_streams(session: Session, given: Given) -> tuple[Streams, list[Answer[StreamInfo]]]:
    from natsctl.client.search import matching

    wanted, subject, invert = _criteria(given)
    streams = list_streams(session, subject=subject, all_streams=True)
    found = session.run(
        lambda manager: matching(manager, streams.answers, wanted, invert=invert, now_ns=time.time_ns())
    )
    return streams, found


def _find_names(session: Session, given: Given) -> None:
    from natsctl.client.search import matching

    wanted, subject, invert = _criteria(given)
    absent: dict[str, str] = {}

    async def pages(manager: Manager) -> AsyncIterator[list[str]]:
        async for page in manager.stream_pages(subject=subject):
            streams = meant_streams(page, None, all_streams=True)
            absent.update(streams.absent)
            found = await matching(manager, streams.answers, wanted, invert=invert, now_ns=time.time_ns())
            yield [one.value.config.name for one in found]

    emit_name_pages(session.run, pages)
    warn_absent(absent)


def _criteria(given: Given) -> tuple[dict[str, Any], str, bool]:
    from natsctl.client.search import CRITERIA

    wanted = fields_of(FIND, given)
    for name in ("expression", "server_name", "cluster"):
        if name in wanted:
            CRITERIA[name](wanted[name])  # a fault in it is reported before any request
    return wanted, str(wanted.pop("subject", "")), bool(wanted.pop("invert", False))
