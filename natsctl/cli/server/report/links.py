"""`natsctl server report leafnodes`, `routes` and `gateways`: what connects servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from natsctl.cli.flags import TEXT, Flag, Given, flagged
from natsctl.cli.options import Json, Watch, session_of
from natsctl.cli.render.columns import Column, Columns, Reverse, Sort, Wide
from natsctl.cli.server.report.rows import top
from natsctl.cli.server.report.show import Report, View, show_report
from natsctl.cli.server.report.state import body_of
from natsctl.cli.server.scope import SCOPE, Expect, scope_of

if TYPE_CHECKING:
    from natsctl.client.system_answers import ServerAnswer
    from natsctl.client.system_reports import Row

_LEAFNODES = (Flag("--account", TEXT, "account", "only leaf nodes of this account"),)
_GATEWAYS = (Flag("--filter-name", TEXT, "name", "only gateways to this cluster"),)


@flagged((*_LEAFNODES, *SCOPE))
def leafnodes(
    ctx: typer.Context,
    expect: Expect = 0,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    watch: Watch = None,
    json: Json = False,
    given: Given = {},  # noqa: B006  # filled in by `flagged`, never changed
) -> None:
    """Show leaf node connections."""
    from natsctl.cli.render.server_connections import LEAFNODES
    from natsctl.client.system_reports import listed

    ask = _asked("LEAFZ", _LEAFNODES, given)
    rows = partial(listed, key="leafs")
    _report(
        ctx, ask, rows, "Leafnode Report", LEAFNODES, View(expect, sort, reverse, columns, wide, watch, json), given
    )


@flagged(SCOPE)
def routes(
    ctx: typer.Context,
    expect: Expect = 0,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    watch: Watch = None,
    json: Json = False,
    given: Given = {},  # noqa: B006  # filled in by `flagged`, never changed
) -> None:
    """Show the routes within clusters."""
    from natsctl.cli.render.server_connections import ROUTES
    from natsctl.client.system_reports import listed

    ask = _asked("ROUTEZ", (), given)
    rows = partial(listed, key="routes")
    _report(ctx, ask, rows, "Cluster Report", ROUTES, View(expect, sort, reverse, columns, wide, watch, json), given)


@flagged((*_GATEWAYS, *SCOPE))
def gateways(
    ctx: typer.Context,
    expect: Expect = 0,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    watch: Watch = None,
    json: Json = False,
    given: Given = {},  # noqa: B006  # filled in by `flagged`, never changed
) -> None:
    """Show the gateways between clusters."""
    from natsctl.cli.render.server_connections import GATEWAYS
    from natsctl.client.system_reports import gateways as rows

    ask = _asked("GATEWAYZ", _GATEWAYS, given)
    ask[1].setdefault("accounts", True)
    _report(
        ctx, ask, rows, "Super Cluster Report", GATEWAYS, View(expect, sort, reverse, columns, wide, watch, json), given
    )


def _asked(what: str, flags: tuple[Flag, ...], given: Given) -> tuple[str, dict[str, Any]]:
    return what, body_of(flags, given)


def _report(
    ctx: typer.Context,
    ask: tuple[str, dict[str, Any]],
    rows_of: Callable[[Iterable[ServerAnswer]], list[Row]],
    title: str,
    table: Sequence[Column[Row]],
    view: View,
    given: Given,
) -> None:
    from natsctl.cli.render.server_sheet import render_sheet
    from natsctl.client.system import System

    session, scope = session_of(ctx), scope_of(given, view.expect)

    def build() -> Report:
        answers = session.run(lambda manager: System(manager).ask(*ask, scope))
        shown, _ = top(rows_of(answers), table, view.sort, view.reverse, 0, "server")
        none = f"{title}: no connections on {len(answers)} servers"
        totals = {
            "Server": f"{len(answers)} servers" if len(answers) != 1 else "1 server",
            "Name": f"{len(shown)} in all",
        }
        return Report(
            shown,
            lambda width: [
                render_sheet(title, table, shown, width, totals, words=view.columns, wide=view.wide, none=none)
            ],
            answers,
        )

    show_report(build, view)
