"""Activity of servers, accounts and JetStream until Ctrl-C: `natsctl server watch`."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from natsctl.api.errors import UsageError
from natsctl.cli.framework.flags import Given, Json, Rounds, flagged, interval_seconds, length_option
from natsctl.cli.framework.live import emit_each, watch
from natsctl.cli.framework.output import width
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb, verb
from natsctl.cli.render.server_reports import WATCHED_ACCOUNTS, WATCHED_JETSTREAM, WATCHED_REQUESTS, WATCHED_SERVERS
from natsctl.cli.render.tables import Column, Reverse, Sort, render_sheet
from natsctl.cli.server.overview import SCOPE, scope_of
from natsctl.cli.server.report import readable_answers, top
from natsctl.client.system.reports import Row, account_totals
from natsctl.client.system.system_account import ServerAnswers, System
from natsctl.client.system.top import ApiCounts, Rates, account_rows, server_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.manager import Manager


class Activity(msgspec.Struct):
    """One round: a row for each server, account or subject, with its rates per second."""

    rows: list[dict[str, Any]]


Number = Annotated[int, Option("--number", "-n", "--top", metavar="N", help="only the first N rows", min=0)]


class Looks(NamedTuple):
    """Interval and presentation of a watch: a bundle of flags for commands."""

    sort: Sort = None
    reverse: Reverse = False
    every: Annotated[
        float, Option("--every", metavar="DURATION", help="time between two refreshes", read=interval_seconds)
    ] = 2.0
    rounds: Rounds = 0
    json: Json = False


def show_rows(
    title: str, table: Sequence[Column[Row]], look: Callable[[], list[Row]], looks: Looks, default: str, number: int
) -> None:
    def rows() -> list[Row]:
        return top(look(), table, looks.sort, looks.reverse, number, default)[0]

    if looks.json:
        emit_each(lambda: {"rows": rows()}, looks.every, looks.rounds)
        return

    def view() -> RenderableType:
        return render_sheet(title, table, rows(), width(), none=f"{title}: nothing yet")

    watch(view, looks.every, rounds=looks.rounds)


def requests(
    session: Session,
    looks: Looks,
    account: Annotated[str, Option("--account", metavar="REGEX", help="only accounts that this matches")] = "",
    rate: Annotated[float, length_option("--rate", help="time over which rates are taken")] = 60.0,
    record_consumer: Annotated[
        bool, Option("--record-consumer/--no-record-consumer", help="count the requests about each consumer separately")
    ] = True,
    compact: Annotated[
        bool, Option("--compact/--no-compact", help="shorten names of accounts and subjects above 40 characters")
    ] = False,
    number: Number = 10,
) -> None:
    """Watch requests to the JetStream API of the account that is logged in, the most frequent first."""
    try:
        wanted = re.compile(account)
    except re.error as failure:
        raise UsageError(f"--account: {failure}") from failure
    session.lasting = True
    counts = ApiCounts(rate, wanted, consumers=record_consumer)
    session.run(counts.listen)

    def look() -> list[Row]:
        session.run(lambda _: counts.take())
        rows = counts.rows(time.monotonic())
        if not compact or looks.json:
            return rows
        return [{**row, "account": _short(row["account"]), "subject": _short(row["subject"])} for row in rows]

    show_rows("JetStream API Requests", WATCHED_REQUESTS, look, looks, "requests", number)


_LONGEST = 40


def _short(name: str) -> str:
    half = _LONGEST // 2 - 1
    return name if len(name) <= _LONGEST else f"{name[:half]}…{name[-half:]}"


@flagged(SCOPE)
def servers(session: Session, given: Given, looks: Looks, number: Number = 0) -> None:
    """Watch servers: connections, load and throughput."""
    look = _readable_rows(session, _statistics(given), server_rows, WATCHED_SERVERS)
    show_rows("Servers", WATCHED_SERVERS, look, looks, "conns", number)


@flagged(SCOPE)
def jetstream(session: Session, given: Given, looks: Looks, number: Number = 0) -> None:
    """Watch JetStream on each server: storage and API requests."""

    def rows_of(answers: ServerAnswers, rates: Rates, at_s: float) -> list[Row]:
        return [row for row in server_rows(answers, rates, at_s) if row.get("jetstream")]

    look = _readable_rows(session, _statistics(given), rows_of, WATCHED_JETSTREAM)
    show_rows("JetStream", WATCHED_JETSTREAM, look, looks, "ha-assets", number)


def _statistics(given: Given) -> Callable[[Manager], Awaitable[ServerAnswers]]:
    return lambda manager: System(manager).ping(scope_of(given))


def _readable_rows(
    session: Session,
    ask: Callable[[Manager], Awaitable[ServerAnswers]],
    rows_of: Callable[[ServerAnswers, Rates, float], list[Row]],
    table: Sequence[Column[Row]],
) -> Callable[[], list[Row]]:
    rates = Rates()
    session.lasting = True

    def attempt(answers: ServerAnswers) -> None:
        for row in rows_of(answers, Rates(), 0.0):
            for column in table:
                column.cell(row)

    def look() -> list[Row]:
        return rows_of(readable_answers(session.received, session.run(ask), attempt), rates, time.monotonic())

    return look


@flagged(SCOPE)
def accounts(session: Session, given: Given, looks: Looks, number: Number = 0) -> None:
    """Watch accounts: connections and throughput."""
    look = _readable_rows(
        session,
        lambda manager: System(manager).of_accounts("STATZ", {}, scope_of(given)),
        lambda answers, rates, at_s: account_rows(account_totals(answers), rates, at_s),
        WATCHED_ACCOUNTS,
    )
    show_rows("Accounts", WATCHED_ACCOUNTS, look, looks, "conns", number)


API_VERBS = (verb("requests, req", requests, "cli.server.watch:Activity*"),)

VERBS = (
    verb("servers, server, srv", servers, "cli.server.watch:Activity*"),
    verb("jetstream, jsz, js", jetstream, "cli.server.watch:Activity*"),
    verb("accounts, account, acct", accounts, "cli.server.watch:Activity*"),
    Verb("api", API_VERBS, "Watch the JetStream API"),
)
