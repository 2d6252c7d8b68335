"""JetStream use, limits, connections and TLS of the account: `natsctl account`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from natsctl.api.account import AccountInfo
from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, NatsctlError, UsageError
from natsctl.cli import output
from natsctl.cli.flags import Given, Json, flagged, session_of
from natsctl.cli.render.text import duration, safe
from natsctl.cli.server.overview import Server, Top
from natsctl.cli.server.report import FILTER, FILTERS, Report, View, connection_report, request_of, show_report, top
from natsctl.cli.verbs import LazyModule, Verb

if TYPE_CHECKING:
    from natsctl.cli.backup import accounts
else:
    accounts = LazyModule("natsctl.cli.backup.accounts")


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
        from natsctl.cli.output import show_page
        from natsctl.cli.render.accounts import render_account

        show_page(render_account(answer.value if answer else None, server, user))
    if failure and not (isinstance(failure, ApiResponseError) and failure.err_code in NOT_ENABLED):
        raise failure


def tls(
    ctx: typer.Context,
    expire_warn: Annotated[
        str, typer.Option("--expire-warn", metavar="DURATION", help="warn when less time is left; 0 for never")
    ] = "1w",
    ocsp: Annotated[bool, typer.Option("--ocsp", help="also show what the certificates say about OCSP")] = False,
    pem: Annotated[bool, typer.Option("--pem/--no-pem", help="also show the certificates themselves")] = True,
    json: Json = False,
) -> None:
    """Show the certificates that the server presented, its own first, and warn of those that expire soon."""
    import msgspec

    from natsctl.api.units import parse_duration
    from natsctl.client.certificates import chain

    try:
        least_ns = parse_duration(expire_warn)
    except ValueError as failure:
        raise UsageError(f"--expire-warn: {failure}") from failure
    found = session_of(ctx).run(chain)
    if json:
        output.emit_json([msgspec.to_builtins(one if pem else msgspec.structs.replace(one, pem="")) for one in found])
    else:
        from natsctl.cli.output import show_page
        from natsctl.cli.render.accounts import render_chain

        show_page(render_chain(found, ocsp))
        if pem:
            output.emit("\n" + "\n".join(one.pem.rstrip() for one in found))
        if ocsp:
            output.note("stapled OCSP responses are not checked: Python's TLS does not expose them")
    for one in found:
        if least_ns > 0 and one.expires_in_ns < least_ns:
            left = one.expires_in_ns
            when = f"expires in {duration(left)}" if left > 0 else f"expired {duration(-left)} ago"
            output.note(f"warning: the certificate of {safe(one.subject)} {when}")


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


class AccountOverview(AccountInfo):
    """The server's answer to `$JS.API.INFO`, and beside it who is logged in (`user`) and where (`server`).

    Where JetStream does not answer, only those two are there.
    """

    type: str = ""
    user: dict[str, Any] = msgspec.field(default_factory=dict)
    server: dict[str, Any] = msgspec.field(default_factory=dict)


class Moved(msgspec.Struct):
    """Amounts that were moved."""

    msgs: int
    bytes: int


class AccountStatistics(msgspec.Struct):
    """Counters of the account on one server."""

    acc: str
    conns: int
    leafnodes: int
    num_subscriptions: int
    sent: Moved
    received: Moved
    slow_consumers: int
    server: Server


REPORT_VERBS = (
    Verb(
        "connections, conn, connz, conns",
        connections,
        answer="cli.server.report:Connection[]",
        examples=("natsctl account report connections --sort in-bytes --top 10",),
    ),
    Verb(
        "statistics, stats, statsz, statz",
        statistics,
        answer="cli.account:AccountStatistics[]",
    ),
)

VERBS = (
    Verb("info, nfo, i", info, answer="cli.account:AccountOverview"),
    Verb("report, rep", REPORT_VERBS, "Show the account's connections and what they move"),
    Verb(
        "tls",
        tls,
        answer="client.certificates:Certificate[]",
        examples=("natsctl account tls --no-pem --expire-warn 30d",),
    ),
    Verb(
        "backup, snapshot",
        accounts.backup_account,
        answer="cli.backup.answers:AccountOutcome",
        examples=("natsctl account backup /data/account --parallel 8",),
    ),
    Verb(
        "restore",
        accounts.restore_account,
        answer="cli.backup.answers:AccountOutcome",
        examples=("natsctl account restore /data/account --on-existing skip",),
    ),
)
