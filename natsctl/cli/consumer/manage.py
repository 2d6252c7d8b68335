"""`natsctl consumer`: the commands about consumers."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.consumer.config import show_info
from natsctl.cli.names import check_consumer, confirmed, pick_consumer, pick_stream, suggesting
from natsctl.cli.options import ConsumerName, Force, Json, Names, StreamName, session_of
from natsctl.cli.render.values import safe

NoSelect = Annotated[bool, typer.Option("--no-select", help="do not offer a list to pick from")]


def ls(ctx: typer.Context, stream: StreamName = None, names: Names = False, json: Json = False) -> None:
    """List the consumers of a stream."""
    session = session_of(ctx)
    stream = pick_stream(session, stream)
    if names:
        with suggesting(session, stream):
            found = session.run(lambda manager: manager.consumer_names(stream))
        output.emit_json(list(found)) if json else output.emit_names(found)
        return
    with suggesting(session, stream):
        answers = session.run(lambda manager: manager.consumer_list(stream))
    if json:
        output.emit_json([one.raw for one in answers])
    elif answers:
        from natsctl.cli.render.consumer import render_consumers
        from natsctl.cli.screen import show_table

        show_table(render_consumers([one.value for one in answers], time.time_ns()))
    else:
        output.emit("No Consumers defined")


def info(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    no_select: NoSelect = False,
    json: Json = False,
) -> None:
    """Show a consumer's configuration and state."""
    _show(ctx, stream, consumer, no_select, json, state_only=False)


def state(ctx: typer.Context, stream: StreamName = None, consumer: ConsumerName = None, json: Json = False) -> None:
    """Show a consumer's state."""
    _show(ctx, stream, consumer, no_select=False, json=json, state_only=True)


def _show(
    ctx: typer.Context, stream: str | None, consumer: str | None, no_select: bool, json: bool, state_only: bool
) -> None:
    session = session_of(ctx)
    if no_select and not (stream and consumer):
        raise UsageError("a consumer is needed: give STREAM and CONSUMER")
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    with suggesting(session, where, name):
        answer = session.run(lambda manager: manager.consumer_info(where, name))
    show_info(answer, json, state_only)


def rm(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove a consumer."""
    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    if not force:
        check_consumer(session, where, name)
    if not confirmed(session, f"delete Consumer {where} > {name}", force, needs_force=True):
        return
    with suggesting(session, where, name):
        answer = session.run(lambda manager: manager.consumer_delete(where, name))
    output.emit_json(answer.raw) if json else output.note(f"Consumer {safe(where)} > {safe(name)} was removed")
