"""Consumers of a stream and the state of one: `natsctl consumer ls`, `find`, `info` and `state`."""

from __future__ import annotations

import time

from natsctl.api.errors import ErrCode, UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    DURATION,
    ON,
    SWITCH,
    TEXT,
    WHOLE,
    All,
    ConsumerName,
    Details,
    Flag,
    Given,
    Json,
    Names,
    NoSelect,
    StreamName,
    check_details,
    fields_of,
    flagged,
)
from natsctl.cli.framework.output import emit_name_pages
from natsctl.cli.framework.resolve import if_there, pick_consumer, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.tables import Columns, Reverse, Sort, Wide, render_columns, selected_columns, sorted_rows
from natsctl.cli.render.text import safe
from natsctl.hints import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer, ListedFields, Listing
    from natsctl.client.search import ConsumerTest


class ConsumerFlags(NamedTuple):
    """The stream and the consumer of a command: a bundle of flags."""

    stream: StreamName = None
    consumer: ConsumerName = None

    def pick(self, session: Session) -> tuple[str, str]:
        where = pick_stream(session, self.stream)
        return where, pick_consumer(session, where, self.consumer)


def list_consumers(session: Session, stream: str, fields: ListedFields | None = None) -> Listing[Answer[Any]]:
    with suggesting(session, stream):
        return session.ask(lambda manager: manager.consumer_list(stream, fields=fields))


def warn_of_absent(*pages: Listing[Answer[Any]]) -> None:
    absent = [name for page in pages for word in ("missing", "offline") for name in page.raw.get(word) or ()]
    if absent:
        output.note(f"warning: inaccessible consumers: {', '.join(safe(name) for name in absent)}")


def existing(session: Session, stream: str, name: str) -> Answer[Any] | None:
    """Return the consumer of that name, or None. Raises ApiResponseError, for a stream that does not exist too."""
    with suggesting(session, stream):
        return if_there(
            lambda: session.ask(lambda manager: manager.consumer_info(stream, name)), ErrCode.CONSUMER_NOT_FOUND
        )


def show_info(answer: Answer[Any], json: bool, state_only: bool = False, done: str = "") -> None:
    if json:
        output.emit_json(answer.raw)
        return
    if done:
        output.note(safe(done, block=True))
    from natsctl.cli.render.consumers import render_consumer, render_consumer_state

    render = render_consumer_state if state_only else render_consumer
    output.show_page(render(answer.value, time.time_ns()))


def info(
    session: Session,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    no_select: NoSelect = False,
    all_streams: All = False,
    json: Json = False,
    *,
    state_only: bool = False,
) -> None:
    """Show a consumer's configuration and state."""
    if no_select and not (stream and consumer):
        raise UsageError("a consumer is needed: give STREAM and CONSUMER")
    where = pick_stream(session, stream, all_streams=all_streams)
    name = pick_consumer(session, where, consumer)
    with suggesting(session, where, name):
        answer = session.ask(lambda manager: manager.consumer_info(where, name))
    show_info(answer, json, state_only)


def state(
    session: Session,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    no_select: NoSelect = False,
    all_streams: All = False,
    json: Json = False,
) -> None:
    """Show a consumer's state."""
    info(session, stream, consumer, no_select, all_streams, json, state_only=True)


def ls(
    session: Session,
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
    if no_select and not stream:
        raise UsageError("a stream is needed: give STREAM")
    stream = pick_stream(session, stream, all_streams=all_streams)
    if names:
        with suggesting(session, stream):
            _list_names(session, stream, json)
        return
    from natsctl.cli.render.consumers import LISTED

    answers = list_consumers(session, stream, None if columns or wide or sort else LISTED)
    show_consumers(
        answers, sort=sort, reverse=reverse, columns=columns, wide=wide, json=json, names=json and not details
    )
    warn_of_absent(answers)


def _list_names(session: Session, stream: str, json: bool) -> None:
    if json:
        output.emit_json(list(session.ask(lambda manager: manager.consumer_names(stream))))
    else:
        emit_name_pages(session.ask, lambda manager: manager.consumer_name_pages(stream))


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
    from natsctl.cli.render.consumers import consumer_columns

    table = consumer_columns(time.time_ns())
    shown = selected_columns(table, columns, wide)
    # The columns are for the table, but a wrong name is reported in any case.
    rows = sorted_rows(answers, table, sort, reverse)
    if json:
        shown_rows = rows if sort or reverse else answers
        output.emit_json([row.raw["name"] if names else row.raw for row in shown_rows])
    elif rows:
        output.show_table(render_columns("Consumers", shown, rows))
    else:
        output.emit(none)


FILTERS = (
    Flag("--pull", ON, "pull", "pull consumers"),
    Flag("--push", ON, "push", "push consumers"),
    Flag("--bound", ON, "bound", "only consumers with a reader now"),
    Flag("--waiting", WHOLE, "waiting", "with fewer waiting pulls than this"),
    Flag("--ack-pending", WHOLE, "ack_pending", "with fewer outstanding acks than this"),
    Flag("--pending", WHOLE, "pending", "with fewer unprocessed messages than this"),
    Flag("--idle", DURATION, "idle_ns", "with no delivery for this long"),
    Flag("--created", DURATION, "created_ns", "created longer ago than this"),
    Flag("--replicas", WHOLE, "replicas", "with at most N replicas"),
    Flag("--leader", TEXT.named("SERVER"), "leader", "led by this server"),
    Flag("--pinned", ON, "pinned", "with a pinned client in every priority group"),
    Flag("--api-level", WHOLE, "api_level", "requiring at least this API level"),
    Flag(
        "--expression",
        TEXT.named("EXPR"),
        "expression",
        "a condition over config, state and info, such as 'state.num_pending > 10'",
    ),
    Flag("--invert", SWITCH, "invert", "invert every condition"),
)


@flagged(FILTERS)
def find(
    session: Session,
    given: Given,
    stream: StreamName = None,
    names: Names = False,
    all_streams: All = False,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Show the consumers that meet every condition.

    With -n names are printed page by page as they are found.
    """
    test = test_of(given)
    stream = pick_stream(session, stream, all_streams=all_streams)
    if names and not json:
        _find_names(session, stream, test)
        return
    answers = list_consumers(session, stream)
    found = [answer for answer in answers if test(answer.raw)]
    if names:
        output.emit_json([one.raw["name"] for one in found])
    else:
        none = "No Consumers match" if answers else "No Consumers defined"
        show_consumers(found, sort=sort, reverse=reverse, columns=columns, wide=wide, json=json, none=none)
    warn_of_absent(answers)


def _find_names(session: Session, stream: str, test: ConsumerTest) -> None:
    seen: list[Listing[Any]] = []

    async def pages(manager: Manager) -> AsyncIterator[list[str]]:
        async for page in manager.consumer_pages(stream):
            seen.append(page)
            yield [one.raw["name"] for one in page if test(one.raw)]

    with suggesting(session, stream):
        emit_name_pages(session.run, pages)
    warn_of_absent(*seen)


def test_of(given: Given) -> ConsumerTest:
    from natsctl.client.search import consumer_test

    wanted = fields_of(FILTERS, given)
    return consumer_test(wanted, time.time_ns(), invert=wanted.pop("invert", False))
