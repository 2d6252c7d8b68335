"""`natsctl account`: what the account holds and may hold."""

from __future__ import annotations

import typer

from natsctl.api.errors import NatsctlError
from natsctl.cli import output
from natsctl.cli.options import Json, session_of


def info(ctx: typer.Context, json: Json = False) -> None:
    """Show who is connected where, and what JetStream holds and allows for the account."""
    session = session_of(ctx)
    if json:
        output.emit_json(session.run(lambda manager: manager.account_info()).raw)
        return
    from natsctl.cli.render.account import render_account
    from natsctl.cli.screen import show_page
    from natsctl.client.account import overview

    found, server, user = session.run(overview)
    if isinstance(found, NatsctlError):
        show_page(render_account(None, server, user))
        raise found
    show_page(render_account(found.value, server, user))
