"""`natsctl account report connections` and `statistics`."""

from __future__ import annotations

import typer

from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import session_of
from natsctl.cli.server.overview import Top
from natsctl.cli.server.report import FILTER, FILTERS, Report, View, connection_report, request_of, show_report, top


@flagged((*FILTERS, FILTER))
def connections(ctx: typer.Context, given: Given, view: View, top_rows: Top = 1000) -> None:
    """Show the account's connections, those with most subscriptions first."""
    from natsctl.client.account import own_answers

    session, body = session_of(ctx), request_of(given)

    def build() -> Report:
        answers = session.run(lambda manager: own_answers(manager, "CONNZ", body))
        return connection_report(answers, given, view, top_rows)

    show_report(build, view)


@flagged()
def statistics(ctx: typer.Context, view: View) -> None:
    """Show the statistics of each server for the account."""
    from natsctl.cli.render.server_reports import STATISTICS, render_statistics
    from natsctl.client.account import own_answers
    from natsctl.client.system.reports import listed

    session = session_of(ctx)

    def build() -> Report:
        answers = session.run(lambda manager: own_answers(manager, "STATZ"))
        versions = {one.id: one.server for one in answers}
        rows = [{**row, "told": versions[row["server"]["id"]]} for row in listed(answers, "account_statz")]
        shown, _ = top(rows, STATISTICS, view.sort, view.reverse, 0, "server")
        document = [{key: value for key, value in row.items() if key != "told"} for row in shown]
        return Report(document, lambda width: render_statistics(shown, width, view.columns, view.wide), answers)

    show_report(build, view)
