"""`natsctl account report connections` and `statistics`."""

from __future__ import annotations

import typer

from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import Json, Watch, session_of
from natsctl.cli.render.columns import Columns, Reverse, Sort, Wide
from natsctl.cli.server.report.connections import FILTER, FILTERS, connection_report, request_of
from natsctl.cli.server.report.rows import top
from natsctl.cli.server.report.show import Report, View, show_report
from natsctl.cli.server.scope import Top


@flagged((*FILTERS, FILTER))
def connections(
    ctx: typer.Context,
    top_rows: Top = 1000,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    watch: Watch = None,
    json: Json = False,
    given: Given = {},  # noqa: B006  # filled in by `flagged`, never changed
) -> None:
    """Show the account's connections, those with most subscriptions first."""
    from natsctl.client.account import own_answers

    session, body = session_of(ctx), request_of(given)
    view = View(0, sort, reverse, columns, wide, watch, json)

    def build() -> Report:
        answers = session.run(lambda manager: own_answers(manager, "CONNZ", body))
        return connection_report(answers, given, view, top_rows)

    show_report(build, view)


def statistics(
    ctx: typer.Context,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    watch: Watch = None,
    json: Json = False,
) -> None:
    """Show what each server counts for the account."""
    from natsctl.cli.render.account_statistics import STATISTICS, render_statistics
    from natsctl.client.account import own_answers
    from natsctl.client.system_reports import listed

    session, view = session_of(ctx), View(0, sort, reverse, columns, wide, watch, json)

    def build() -> Report:
        answers = session.run(lambda manager: own_answers(manager, "STATZ"))
        versions = {one.id: one.server for one in answers}
        rows = [{**row, "told": versions[row["server"]["id"]]} for row in listed(answers, "account_statz")]
        shown, _ = top(rows, STATISTICS, view.sort, view.reverse, 0, "server")
        document = [{key: value for key, value in row.items() if key != "told"} for row in shown]
        return Report(document, lambda width: render_statistics(shown, width, columns, wide), answers)

    show_report(build, view)
