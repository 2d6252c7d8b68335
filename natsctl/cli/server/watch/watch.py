"""`natsctl server watch servers`, `jetstream` and `accounts`.

Servers are asked at each look; what they publish by themselves comes every 30 seconds only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import session_of
from natsctl.cli.server.scope import SCOPE, scope_of
from natsctl.cli.server.watch.show import Looks, Number, show_rows

if TYPE_CHECKING:
    from natsctl.client.system.reports import Row


@flagged(SCOPE)
def servers(ctx: typer.Context, given: Given, looks: Looks, number: Number = 0) -> None:
    """Watch servers: connections, load and throughput."""
    from natsctl.cli.render.server_reports import WATCHED_SERVERS

    show_rows("Servers", WATCHED_SERVERS, _servers(ctx, given), looks, "conns", number)


@flagged(SCOPE)
def jetstream(ctx: typer.Context, given: Given, looks: Looks, number: Number = 0) -> None:
    """Watch JetStream on each server: storage and API requests."""
    from natsctl.cli.render.server_reports import WATCHED_JETSTREAM

    servers = _servers(ctx, given)

    def look() -> list[Row]:
        return [row for row in servers() if row.get("jetstream")]

    show_rows("JetStream", WATCHED_JETSTREAM, look, looks, "ha-assets", number)


def _servers(ctx: typer.Context, given: Given) -> Callable[[], list[Row]]:
    from natsctl.client.system.census import System
    from natsctl.client.system.rates import Rates, server_rows

    session, scope, rates = session_of(ctx), scope_of(given), Rates()

    def look() -> list[Row]:
        census = session.run(lambda manager: System(manager).census(scope))
        return server_rows(census, rates, time.monotonic())

    return look


@flagged(SCOPE)
def accounts(ctx: typer.Context, given: Given, looks: Looks, number: Number = 0) -> None:
    """Watch accounts: connections and throughput."""
    from natsctl.cli.render.server_reports import WATCHED_ACCOUNTS
    from natsctl.client.system.census import System
    from natsctl.client.system.rates import Rates, account_rows
    from natsctl.client.system.reports import account_totals

    session, scope, rates = session_of(ctx), scope_of(given), Rates()

    def look() -> list[Row]:
        answers = session.run(lambda manager: System(manager).of_accounts("STATZ", {}, scope))
        return account_rows(account_totals(answers), rates, time.monotonic())

    show_rows("Accounts", WATCHED_ACCOUNTS, look, looks, "conns", number)
