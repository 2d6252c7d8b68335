"""`natsctl server report leafnodes`, `routes` and `gateways`: what connects servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from natsctl.api.units import plural
from natsctl.cli.flags import TEXT, Flag, Given, fields_of, flagged
from natsctl.cli.options import session_of
from natsctl.cli.render.tables import Column
from natsctl.cli.server.report.rows import top
from natsctl.cli.server.report.show import Report, View, show_report
from natsctl.cli.server.scope import SCOPE, Expect, scope_of

if TYPE_CHECKING:
    from natsctl.client.system.answers import Scope, ServerAnswer
    from natsctl.client.system.reports import Row

_LEAFNODES = (Flag("--account", TEXT, "account", "only leaf nodes of this account"),)
_GATEWAYS = (Flag("--filter-name", TEXT, "name", "only gateways to this cluster"),)


@flagged((*_LEAFNODES, *SCOPE))
def leafnodes(ctx: typer.Context, given: Given, view: View, expect: Expect = 0) -> None:
    """Show leaf node connections."""
    from natsctl.cli.render.server_reports import LEAFNODES
    from natsctl.client.system.reports import listed

    asked = _Asked("LEAFZ", fields_of(_LEAFNODES, given), partial(listed, key="leafs"), scope_of(given, expect))
    _report(ctx, asked, "Leafnode Report", LEAFNODES, view)


@flagged(SCOPE)
def routes(ctx: typer.Context, given: Given, view: View, expect: Expect = 0) -> None:
    """Show the routes within clusters."""
    from natsctl.cli.render.server_reports import ROUTES
    from natsctl.client.system.reports import listed

    asked = _Asked("ROUTEZ", {}, partial(listed, key="routes"), scope_of(given, expect))
    _report(ctx, asked, "Cluster Report", ROUTES, view)


@flagged((*_GATEWAYS, *SCOPE))
def gateways(ctx: typer.Context, given: Given, view: View, expect: Expect = 0) -> None:
    """Show the gateways between clusters."""
    from natsctl.cli.render.server_reports import GATEWAYS
    from natsctl.client.system.reports import gateways as rows

    asked = _Asked("GATEWAYZ", fields_of(_GATEWAYS, given, accounts=True), rows, scope_of(given, expect))
    _report(ctx, asked, "Super Cluster Report", GATEWAYS, view)


class _Asked(NamedTuple):
    """What servers are asked, and the rows of their answers."""

    what: str
    body: dict[str, Any]
    rows_of: Callable[[Iterable[ServerAnswer]], list[Row]]
    scope: Scope


def _report(ctx: typer.Context, asked: _Asked, title: str, table: Sequence[Column[Row]], view: View) -> None:
    from natsctl.cli.render.tables import render_sheet
    from natsctl.client.system.census import System

    session = session_of(ctx)

    def build() -> Report:
        answers = session.run(lambda manager: System(manager).ask(asked.what, asked.body, asked.scope))
        shown, _ = top(asked.rows_of(answers), table, view.sort, view.reverse, 0, "server")
        none = f"{title}: no connections on {plural(len(answers), 'server')}"
        totals = {
            "Server": plural(len(answers), "server"),
            "Name": f"{len(shown)} in all",
        }
        return Report(
            shown,
            lambda width: [
                render_sheet(title, table, shown, width, totals, words=view.columns, wide=view.wide, none=none)
            ],
            answers,
        )

    show_report(build, view, asked.scope.expect)
