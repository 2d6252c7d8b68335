"""`natsctl server account info` and `purge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import ApiFailure, NatsctlError
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.consent import check_consent, confirmed
from natsctl.cli.options import Force, Json, session_of
from natsctl.cli.render.text import safe
from natsctl.cli.server.info import suggesting_server

if TYPE_CHECKING:
    from natsctl.cli.session import Session

Account = Annotated[str, typer.Argument(metavar="ACCOUNT", help="the account's name", show_default=False)]


class AccountNotFound(NatsctlError):
    """No server has such an account."""

    exit_code = 3


def info(
    ctx: typer.Context,
    account: Account,
    host: Annotated[str, typer.Option("--host", metavar="SERVER", help="the server to ask", show_default=False)] = "",
    json: Json = False,
) -> None:
    """Show an account: what it may do, imports and exports."""
    from natsctl.client.system.census import System

    session = session_of(ctx)
    try:
        with suggesting_server():
            answer = session.run(lambda manager: System(manager).ask_one(host, "ACCOUNTZ", {"account": account}))
    except ApiFailure as failure:
        raise _unknown(session, account) or failure from None
    if json:
        output.emit_json(answer.raw)
        return
    from natsctl.cli.render.servers import render_account_detail
    from natsctl.cli.screen import show_page

    show_page(render_account_detail(answer.data.get("account_detail") or {}, answer.name))


def _unknown(session: Session, account: str) -> AccountNotFound | None:
    """Return, if the server has no such account, a failure that says which one may have been meant."""
    from natsctl.cli.suggest import did_you_mean
    from natsctl.client.system.census import System

    known = session.run(lambda manager: System(manager).ask_one("", "ACCOUNTZ")).data.get("accounts") or []
    if account in known:
        return None
    hint = did_you_mean(account, known) or "natsctl server report accounts shows those that are in use"
    return AccountNotFound(f"there is no account {account}", hint=hint)


def purge(ctx: typer.Context, account: Account, force: Force = False, json: Json = False) -> None:
    """Remove every stream and consumer that JetStream holds for an account."""
    from natsctl.client.system.census import System
    from natsctl.client.system.cluster import purge_account
    from natsctl.client.system.reports import details

    session = session_of(ctx)
    check_consent(session, f"remove all Streams of account {account}", force)
    asked = {"account": account, "accounts": True, "streams": True}
    answers = session.run(lambda manager: System(manager).ask("JSZ", asked))
    streams = {str(stream.get("name")) for _, owner, stream in details(answers) if owner.get("name") == account}
    if not streams and (unknown := _unknown(session, account)):
        raise unknown
    session.effect["streams"] = len(streams)
    question = f"remove {plural(len(streams), 'Stream')}, which is everything in account {account}"
    if not confirmed(session, question, force, typed=account):
        return
    answer = session.run(lambda manager: purge_account(manager, account))
    output.emit_json(answer) if json else output.emit(f"Purge operation on account {safe(account)} initiated")
