"""`natsctl consumer pause` and `resume`: no deliveries until a moment, or again at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.api.times import format_time, parse_time
from natsctl.cli import output
from natsctl.cli.consumer.config import live_consumer
from natsctl.cli.moments import FORMS, read_moment
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import ConsumerName, Force, Json, StreamName, session_of
from natsctl.cli.render.text import duration, safe, stamp, when

if TYPE_CHECKING:
    from natsctl.cli.session import Session

DEFAULT_PAUSE = "1h"


def pause(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    until: Annotated[
        str | None,
        typer.Argument(metavar="UNTIL", help="a duration, or a time; without offset it is local", show_default=False),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Pause delivery until a time.

    UNTIL is a time such as 2026-12-24T18:00:00Z, local time such as "2026-12-24 18:00", or a duration such as 1h.
    """
    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    if not session.dry_run:
        live_consumer(session, where, name)
    until_ns = _until(session, until)
    answer = session.run(lambda manager: manager.consumer_pause(where, name, format_time(until_ns)))
    if json:
        output.emit_json(answer.raw)
        return
    until_ns = parse_time(answer.value.pause_until)
    shown = f"{stamp(until_ns)} ({duration(answer.value.pause_remaining)} remaining)"
    output.emit(f"Paused {safe(where)} > {safe(name)} until {shown}")


def resume(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Resume delivery."""
    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    live: dict[str, Any] = live_consumer(session, where, name).raw
    paused = bool(live.get("paused"))
    answer = session.run(lambda manager: manager.consumer_pause(where, name))
    if json:
        output.emit_json(answer.raw)
        return
    shown = f"Consumer {safe(where)} > {safe(name)}"
    if paused:
        until = when(live["config"].get("pause_until"))
        output.emit(f"{shown} was resumed while previously paused until {until}")
    else:
        output.emit(f"{shown} was resumed, it was not paused")


def _until(session: Session, text: str | None) -> int:
    """The moment to pause until, asked for at a terminal. Raises UsageError."""
    if text is None:
        if not session.interactive:
            raise UsageError("until when is needed: give UNTIL", hint=f"it is {FORMS}")
        from natsctl.cli.prompts.consumer import prompt_pause

        return prompt_pause(DEFAULT_PAUSE)
    try:
        until_ns = read_moment(text)
    except ValueError as error:
        raise UsageError(f"UNTIL: {error}") from error
    if until_ns <= time.time_ns():
        raise UsageError(f"UNTIL: {stamp(until_ns)} is in the past", hint="natsctl consumer resume ends a pause")
    return until_ns
