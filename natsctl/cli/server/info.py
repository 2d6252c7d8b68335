"""`natsctl server info` and `config reload`: one server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from natsctl.cli import output
from natsctl.cli.consent import confirmed_at_terminal
from natsctl.cli.options import Force, Json, session_of
from natsctl.cli.render.text import safe
from natsctl.cli.server.scope import ServerName


@contextmanager
def suggesting_server() -> Iterator[None]:
    """Give the error about a server that does not exist the hint which one may have been meant."""
    from natsctl.cli.suggest import did_you_mean
    from natsctl.client.system.census import ServerNotFound

    try:
        yield
    except ServerNotFound as failure:
        failure.hint = did_you_mean(failure.name, failure.known) or failure.hint
        raise


def info(ctx: typer.Context, server: ServerName = "", json: Json = False) -> None:
    """Show one server: the one of that name or id, else the one connected to."""
    from natsctl.client.system.census import System

    with suggesting_server():
        answer = session_of(ctx).run(lambda manager: System(manager).ask_one(server, "VARZ"))
    if json:
        output.emit_json(answer.raw)
        return
    from natsctl.cli.render.servers import render_server
    from natsctl.cli.screen import show_page

    show_page(render_server(answer))


def reload(ctx: typer.Context, server: ServerName = "", force: Force = False, json: Json = False) -> None:
    """Make a server reload its configuration file."""
    from natsctl.client.system.census import System

    session = session_of(ctx)
    with suggesting_server():
        found = session.run(lambda manager: System(manager).find(server))
        if not (force or confirmed_at_terminal(session, f"reload the configuration of {found.name}")):
            return
        answer = session.run(lambda manager: System(manager).ask_one(found.id, "RELOAD", changes=True))
    output.emit_json(answer.raw) if json else output.note(f"{safe(answer.name)} has reloaded its configuration")
