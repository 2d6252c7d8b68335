"""`natsctl server report connections` and `accounts`: who is connected, and how much they move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.units import plural
from natsctl.cli.flags import SUBJECT, TEXT, Config, Flag, Given, choice, fields_of, flagged
from natsctl.cli.options import session_of
from natsctl.cli.server.account.account import AccountNotFound
from natsctl.cli.server.report.rows import top
from natsctl.cli.server.report.show import Report, View, show_report
from natsctl.cli.server.scope import SCOPE, Expect, Top, scope_of

if TYPE_CHECKING:
    from natsctl.client.system.answers import Answers

STATES = {"open": 0, "closed": 1, "all": 2}


def place_state(body: Config, value: str) -> None:
    """Ask for connections in that state."""
    body["state"] = STATES[value]


def _here(body: Config, value: str) -> None:
    """Leave the request alone: the flag filters what is answered."""


FILTERS = (
    Flag("--subject", SUBJECT, "filter_subject", "only connections that subscribe to this subject"),
    Flag("--username", TEXT, "user", "only connections of this user"),
    Flag("--state", choice(*STATES), place_state, "which connections", default="open"),
    Flag("--closed-reason", TEXT, _here, "only connections closed for this reason"),
)  # fmt: skip
FILTER = Flag("--filter", TEXT, _here, "only connections for which this expression is true")
ACCOUNT = Flag("--account", TEXT, "acc", "only connections of this account")


@flagged((ACCOUNT, *FILTERS, FILTER, *SCOPE))
def connections(ctx: typer.Context, given: Given, view: View, expect: Expect = 0, top_rows: Top = 1000) -> None:
    """Show connections, those with most subscriptions first."""
    _connections(ctx, given, view, expect, top_rows)


def _connections(ctx: typer.Context, given: Given, view: View, expect: int, most: int) -> None:
    from natsctl.client.system.census import System

    session = session_of(ctx)
    body, scope = {**request_of(given), **({"subscriptions": True} if view.json else {})}, scope_of(given, expect)

    def build() -> Report:
        answers = session.run(lambda manager: System(manager).ask("CONNZ", body, scope))
        return connection_report(answers, given, view, most)

    show_report(build, view, expect)


def request_of(given: Given) -> dict[str, Any]:
    """The body of a CONNZ request for those flags."""
    body = fields_of((ACCOUNT, *FILTERS), given, auth=True)
    if "--closed-reason" in given:
        body.setdefault("state", STATES["closed"])
    return body


def connection_report(answers: Answers, given: Given, view: View, most: int) -> Report:
    """The report of CONNZ answers; what the request cannot say is filtered here."""
    from natsctl.cli.render.server_reports import CONNECTIONS, REASON, render_connections
    from natsctl.client.system.reports import connections as every_connection

    reason = given.get("--closed-reason", "")
    rows = every_connection(answers, reason, given.get("--filter", ""))
    ended = given.get("--state", "open") != "open" or bool(reason)
    table = (*CONNECTIONS, REASON) if ended else CONNECTIONS
    shown, by = top(rows, table, view.sort, view.reverse, most, "subs")
    return Report(
        shown, lambda width: render_connections(table, shown, rows, by, width, view.columns, view.wide), answers
    )


@flagged(SCOPE)
def accounts(
    ctx: typer.Context,
    given: Given,
    view: View,
    account: Annotated[
        str, typer.Argument(metavar="ACCOUNT", help="the connections of this account", show_default=False)
    ] = "",
    expect: Expect = 0,
    top_rows: Top = 1000,
) -> None:
    """Show accounts with the connections that they have and what those have moved, or the connections of one."""
    if account and not view.json:
        _connections(ctx, {**given, "--account": account}, view, expect, top_rows)
        return
    from natsctl.cli.render.server_reports import ACCOUNTS
    from natsctl.cli.render.tables import render_sheet
    from natsctl.client.system.census import System
    from natsctl.client.system.reports import accounts as account_rows

    session, scope = session_of(ctx), scope_of(given, expect)
    body = {"auth": True, "subscriptions": True, **({"acc": account} if account else {})}

    def build() -> Report:
        answers = session.run(lambda manager: System(manager).ask("CONNZ", body, scope))
        rows = account_rows(answers)
        shown, by = top(rows, ACCOUNTS, view.sort, view.reverse, top_rows, "subs")
        title = f"{plural(len(rows), 'Account')} by {by}"
        if account and not shown:
            raise AccountNotFound(f"account {account} has no connections")
        return Report(
            shown[0] if account else shown,
            lambda width: [render_sheet(title, ACCOUNTS, shown, width, words=view.columns, wide=view.wide)],
            answers,
        )

    show_report(build, view, expect)
