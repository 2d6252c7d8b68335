"""`natsctl stream info` and `state`: one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import Json, StreamName, session_of
from natsctl.cli.stream.config import show_info

if TYPE_CHECKING:
    from natsctl.cli.session import Session

NoSelect = Annotated[bool, typer.Option("--no-select", help="do not ask which one", show_default=False)]


def info(
    ctx: typer.Context,
    stream: StreamName = None,
    state_only: Annotated[bool, typer.Option("--state", help="only the state")] = False,
    no_select: NoSelect = False,
    json: Json = False,
) -> None:
    """Show a stream's configuration and state."""
    session = session_of(ctx)
    name = _existing(session, stream, no_select)
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.stream_info(name))
    if json or not state_only:
        show_info(answer, json)
        return
    from natsctl.cli.render.streams import render_stream_state
    from natsctl.cli.screen import show_page

    show_page(render_stream_state(answer.value))


def state(ctx: typer.Context, stream: StreamName = None, no_select: NoSelect = False, json: Json = False) -> None:
    """Show a stream's state."""
    info(ctx, stream, state_only=True, no_select=no_select, json=json)


def _existing(session: Session, stream: str | None, no_select: bool) -> str:
    if no_select and not stream:
        raise UsageError("a stream is needed: give STREAM")
    return pick_stream(session, stream)
