"""`natsctl account info`: who is connected where, and what JetStream holds and allows."""

from __future__ import annotations

import typer

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiFailure, NatsctlError
from natsctl.cli import output
from natsctl.cli.options import Json, session_of

NOT_ENABLED = (ErrCode.NOT_ENABLED_FOR_ACCOUNT, ErrCode.NOT_ENABLED)
"""Error codes of an account, and of a server, without JetStream: an answer, and no failure of a command about both."""


def info(ctx: typer.Context, json: Json = False) -> None:
    """Show the account's connection, and its use and limits of JetStream.

    With -j the server's answer to $JS.API.INFO, with `user` and `server` beside its own fields.
    """
    from natsctl.client.account import overview

    found, server, user = session_of(ctx).run(overview)
    failure = found if isinstance(found, NatsctlError) else None
    answer = None if isinstance(found, NatsctlError) else found
    if json:
        raw = answer.raw if answer else {}
        beside = {key: value for key, value in (("user", user), ("server", server)) if key not in raw}
        output.emit_json({**raw, **beside})
    else:
        from natsctl.cli.render.accounts import render_account
        from natsctl.cli.screen import show_page

        show_page(render_account(answer.value if answer else None, server, user))
    if failure and not (isinstance(failure, ApiFailure) and failure.err_code in NOT_ENABLED):
        raise failure
