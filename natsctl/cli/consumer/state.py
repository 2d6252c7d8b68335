"""State of one consumer: `natsctl consumer info` and `state`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, UsageError
from natsctl.cli import output
from natsctl.cli.flags import All, ConsumerName, Json, NoSelect, StreamName, session_of
from natsctl.cli.render.text import safe
from natsctl.cli.resolve import pick_consumer, pick_stream, suggesting

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.requests import Answer, Listing


def list_consumers(session: Session, stream: str) -> Listing[Answer[Any]]:
    """Return all consumers of a stream. Raises ApiResponseError with a suggestion."""
    with suggesting(session, stream):
        return session.run(lambda manager: manager.consumer_list(stream))


def warn_of_absent(*pages: Listing[Answer[Any]]) -> None:
    """Warn on stderr of the consumers that the server could not show."""
    absent = [name for page in pages for word in ("missing", "offline") for name in page.raw.get(word) or ()]
    if absent:
        output.note(f"warning: inaccessible consumers: {', '.join(safe(name) for name in absent)}")


def existing(session: Session, stream: str, name: str) -> Answer[Any] | None:
    """Return the consumer of that name, or None. Raises ApiResponseError, for a stream that does not exist too."""
    try:
        with suggesting(session, stream):
            return session.run(lambda manager: manager.consumer_info(stream, name))
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.CONSUMER_NOT_FOUND:
            raise
        return None


def live_consumer(session: Session, stream: str, name: str) -> Answer[Any]:
    """Return the consumer as it is. Raises ApiResponseError with a suggestion."""
    with suggesting(session, stream, name):
        return session.run(lambda manager: manager.consumer_info(stream, name))


def show_info(answer: Answer[Any], json: bool, state_only: bool = False, done: str = "") -> None:
    """Show the consumer that an answer describes, below a line on what was done."""
    if json:
        output.emit_json(answer.raw)
        return
    if done:
        output.note(safe(done, block=True))
    from natsctl.cli.output import show_page
    from natsctl.cli.render.consumers import render_consumer, render_consumer_state

    render = render_consumer_state if state_only else render_consumer
    show_page(render(answer.value, time.time_ns()))


def info(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    no_select: NoSelect = False,
    all_streams: All = False,
    json: Json = False,
) -> None:
    """Show a consumer's configuration and state."""
    _show(ctx, stream, consumer, no_select, all_streams, json, state_only=False)


def state(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    no_select: NoSelect = False,
    all_streams: All = False,
    json: Json = False,
) -> None:
    """Show a consumer's state."""
    _show(ctx, stream, consumer, no_select, all_streams, json, state_only=True)


def _show(
    ctx: typer.Context,
    stream: str | None,
    consumer: str | None,
    no_select: bool,
    all_streams: bool,
    json: bool,
    *,
    state_only: bool,
) -> None:
    session = session_of(ctx)
    if no_select and not (stream and consumer):
        raise UsageError("a consumer is needed: give STREAM and CONSUMER")
    where = pick_stream(session, stream, all_streams=all_streams)
    show_info(live_consumer(session, where, pick_consumer(session, where, consumer)), json, state_only)
