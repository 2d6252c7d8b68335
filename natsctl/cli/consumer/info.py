"""`natsctl consumer info` and `state`: one consumer's configuration and where it stands."""

from __future__ import annotations

import typer

from natsctl.api.errors import UsageError
from natsctl.cli.consumer.config import live_consumer, show_info
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import All, ConsumerName, Json, NoSelect, StreamName, session_of


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
