"""Servers and accounts over the system account: `natsctl server list`, `ping`, `info`, `graph`, `config`, `account`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from natsctl.api.errors import ApiResponseError, NotFoundError, UnreachableError, UsageError
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, confirmed_at_terminal
from natsctl.cli.framework.flags import TEXT, WORDS, Flag, Force, Given, Json, Names, Rounds, flagged
from natsctl.cli.framework.live import Every, plot_room, watch
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.plot import Rate, Series, plot_lines, render_plots, sized
from natsctl.cli.render.servers import render_account_detail, render_server
from natsctl.cli.render.tables import Columns, Reverse, Sort, Wide, sorted_rows
from natsctl.cli.render.text import duration, safe
from natsctl.client.system.system_account import ServerAnswer as AnswerReceived
from natsctl.client.system.system_account import ServerAnswers, ServerNotFoundError, ServerScope, System

if TYPE_CHECKING:
    from rich.console import RenderableType


SCOPE = (
    Flag("--host", TEXT, "host", "only the server of this name, id or host", aliases=("--name",)),
    Flag("--cluster", TEXT, "cluster", "only servers of this cluster"),
    Flag("--tags", WORDS, "tags", "only servers that have all these tags", aliases=("--tag",)),
)

ARCHIVE = Flag("--archive", TEXT, "archive", "read a bundle of `natsctl audit gather` instead of asking servers")


def compacted(rows: Sequence[AnswerReceived]) -> list[AnswerReceived]:
    """Return copies of answers with server names without the parts between dots that all of them end in."""
    names = [row.name.split(".") for row in rows]
    shortest = min((len(words) for words in names), default=1)
    shared = 0
    while shared < shortest - 1 and len({words[-1 - shared] for words in names}) == 1:
        shared += 1
    found = []
    for row, words in zip(rows, names, strict=True):
        short = ".".join(words[: len(words) - shared])
        raw = {**row.raw, "server": {**row.server, "name": short}}
        if (meta := row.data.get("meta_cluster")) and meta.get("leader") == row.name:
            raw["data"] = {**row.data, "meta_cluster": {**meta, "leader": short}}
        found.append(AnswerReceived(raw, row.rtt_ns))
    return found


Expect = Annotated[int, Argument(metavar="EXPECT", help="number of servers that must answer", min=0)]
Top = Annotated[int, Option("--top", metavar="N", help="only the first N rows", min=0)]
ServerName = Annotated[str, Argument(metavar="SERVER", help="the server, by name or id")]


def scope_of(given: Given, expect: int = 0) -> ServerScope:
    return ServerScope(given.get("--host", ""), given.get("--cluster", ""), tuple(given.get("--tags", ())), expect)


def servers_of(session: Session, given: Given, watch: float | None = None) -> Session:
    """Return the session for the request; with --archive it reads a bundle.

    Raises UsageError for --archive with --watch, as a bundle does not change.
    """
    session.archive = str(given.get("--archive", ""))
    if session.archive and watch is not None:
        raise UsageError("--watch and --archive exclude each other: a bundle does not change")
    return session


def note_missing(answers: ServerAnswers) -> None:
    if answers.missing:
        output.note(f"warning: {len(answers)} of {answers.expected} servers answered")


def require_all(answers: ServerAnswers, expect: int) -> None:
    """Raise UnreachableError if fewer than `expect` servers answered; without it (0), warn of missing ones."""
    if expect and len(answers) < expect:
        raise UnreachableError(
            f"{len(answers)} of {expect} servers answered", hint="the others are down or unreachable"
        )
    note_missing(answers)


Compact = Annotated[
    bool, Option("--compact/--no-compact", help="leave out the domain that all names of servers end in")
]


class Server(msgspec.Struct):
    """A server that answered."""

    name: str
    id: str
    host: str = ""
    cluster: str = ""
    ver: str = ""
    tags: list[str] = []
    jetstream: bool = False


class Statistics(msgspec.Struct):
    """A server's statistics, as it sent them."""

    server: Server
    statsz: dict[str, Any]


class Ping(msgspec.Struct):
    """A server's answer to a ping; `rtt` in nanoseconds."""

    server: Server
    rtt: int


class ServerAnswer(msgspec.Struct):
    """A server's answer, as it sent it: `data`, or an `error` with `code` and `description`."""

    server: Server
    data: Any = None
    error: Any = None


class AccountDetail(msgspec.Struct):
    """An account as a server sends it: limits, imports and exports are there if it has them."""

    account_name: str


class Success(msgspec.Struct):
    """An answer of the JetStream API that reports success and nothing else."""

    type: str
    success: bool = False
    initiated: bool = False


@flagged((*SCOPE, ARCHIVE))
def ls(
    session: Session,
    given: Given,
    expect: Expect = 0,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    compact: Compact = False,
    names: Names = False,
    json: Json = False,
) -> None:
    """List the servers that answer; fail if they are fewer than EXPECT."""
    from natsctl.cli.render.server_reports import SERVERS, render_census
    from natsctl.cli.server.report import ServerReport, readable_report, show_parts

    session = servers_of(session, given)
    census = session.run(lambda manager: System(manager).ping(scope_of(given, expect)))
    for one in census if session.archive else ():
        one.rtt_ns = 0

    def make(answers: ServerAnswers) -> ServerReport:
        rows = sorted_rows(answers, SERVERS, sort, reverse, default="name" if session.archive else "rtt")
        shown = compacted(rows) if compact else rows
        document = [row.name if names else row.raw for row in rows]
        return ServerReport(document, lambda width: render_census(answers, shown, width, columns, wide), answers)

    report = readable_report(session.received, census, make)
    if json:
        output.emit_json(report.document)
    elif names:
        output.emit_names(report.document)
    else:
        show_parts(report)
    require_all(census, expect)


@flagged(SCOPE)
def ping(
    session: Session,
    given: Given,
    expect: Expect = 0,
    show_id: Annotated[bool, Option("--id", help="also the servers' ids")] = False,
    graph: Annotated[bool, Option("--graph", help="also plot how many servers answered in each 25 ms")] = False,
    json: Json = False,
) -> None:
    """Show how quickly each server answers; fail if they are fewer than EXPECT."""
    census = session.run(lambda manager: System(manager).ping(scope_of(given, expect)))
    answers = sorted(census, key=lambda one: one.rtt_ns)
    if json:
        output.emit_json([{"server": answer.server, "rtt": answer.rtt_ns} for answer in answers])
    else:
        wide = max(len(safe(answer.name)) for answer in answers)
        for one in answers:
            lead = f"{safe(one.id)} " if show_id else ""
            output.emit(f"{lead}{safe(one.name):<{wide}}  rtt={duration(one.rtt_ns)}")
        spans = [answer.rtt_ns for answer in answers]
        most, least, mean = duration(max(spans)), duration(min(spans)), duration(sum(spans) // len(spans))
        answered = plural(len(spans), "server")
        output.emit(f"\n{answered} answered: fastest {least}, slowest {most}, mean {mean}")
        if graph:
            output.emit(_distribution(spans))
    require_all(census, expect)


SPAN_NS = 25_000_000
"""Width of a bar in the plot of round trips."""
PLOT_LINES = 10


def _distribution(spans_ns: list[int]) -> str:
    """Return a plot of the number of round trips in each 25 ms; the last bar is the slowest answer's."""
    bars = [0.0] * (max(spans_ns) // SPAN_NS + 1)
    for span in spans_ns:
        bars[span // SPAN_NS] += 1
    lines = plot_lines(bars, output.width() or 80, PLOT_LINES)
    return "\n".join(["", *lines, "Answers per 25 ms"])


@contextmanager
def suggesting_server() -> Iterator[None]:
    try:
        yield
    except ServerNotFoundError as failure:
        failure.hint = did_you_mean(failure.name, failure.known) or failure.hint
        raise


@flagged((ARCHIVE,))
def info(session: Session, given: Given, server: ServerName = "", json: Json = False) -> None:
    """Show a server by name or id, else the one connected to."""
    with suggesting_server():
        answer = servers_of(session, given).run(lambda manager: System(manager).ask_one(server, "VARZ"))
    if json:
        output.emit_json(answer.raw)
        return
    output.show_page(render_server(answer))


def reload(session: Session, server: ServerName = "", force: Force = False, json: Json = False) -> None:
    """Reload a server's configuration file."""
    with suggesting_server():
        found = session.run(lambda manager: System(manager).find(server))
        if not (force or confirmed_at_terminal(session, f"reload the configuration of {found.name}")):
            return
        answer = session.run(lambda manager: System(manager).ask_one(found.id, "RELOAD", changes=True))
    output.emit_json(answer.raw) if json else output.note(f"{safe(answer.name)} has reloaded its configuration")


def graph(
    session: Session,
    server: ServerName = "",
    jetstream: Annotated[bool, Option("--jetstream", "-j", help="show JetStream instead")] = False,
    every: Every = 1.0,
    rounds: Rounds = 0,
) -> None:
    """Plot a server's load and throughput, until Ctrl-C."""
    columns, lines = plot_room(rounds)
    with suggesting_server():
        found = session.run(lambda manager: System(manager).find(server))
    plots = _plots(jetstream)
    session.lasting = True

    def view() -> RenderableType:
        varz = session.run(lambda manager: System(manager).ask_one(found.id, "VARZ")).data
        for series, paths in plots:
            value = sum(_figure(varz, path) for path in paths)
            series.count(value, time.monotonic()) if isinstance(series, Rate) else series.add(value)
        return render_plots(f"Server {safe(found.name)}", [series for series, _ in plots], columns, lines)

    watch(view, every, rounds=rounds)


def _plots(jetstream: bool) -> list[tuple[Series, tuple[str, ...]]]:
    """Return the plotted figures of a server or of its JetStream, and the fields that each is the sum of."""
    if not jetstream:
        return [
            (Series("CPU %"), ("cpu",)),
            (Series("Memory", sized), ("mem",)),
            (Series("Connections"), ("connections",)),
            (Rate("Messages"), ("in_msgs", "out_msgs")),
        ]
    return [
        (Series("Memory", sized), ("jetstream.stats.memory",)),
        (Series("File Storage", sized), ("jetstream.stats.storage",)),
        (Rate("API Requests"), ("jetstream.stats.api.total",)),
        (Series("Pending API Requests"), ("jetstream.stats.api.inflight",)),
    ]


def _figure(varz: dict[str, object], path: str) -> float:
    value: object = varz
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0


Account = Annotated[str, Argument(metavar="ACCOUNT", help="the account's name")]


@flagged((ARCHIVE,))
def account_info(
    session: Session,
    given: Given,
    account: Account,
    host: Annotated[str, Option("--host", metavar="SERVER", help="the server to ask")] = "",
    json: Json = False,
) -> None:
    """Show an account: limits, imports and exports."""
    session = servers_of(session, given)
    try:
        with suggesting_server():
            answer = session.run(lambda manager: System(manager).ask_one(host, "ACCOUNTZ", {"account": account}))
    except ApiResponseError as failure:
        raise _unknown(session, account) or failure from None
    detail = answer.data.get("account_detail") or {}
    if json:
        output.emit_json(detail)
        return
    output.show_page(render_account_detail(detail, answer.name))


def _unknown(session: Session, account: str) -> NotFoundError | None:
    known = session.run(lambda manager: System(manager).ask_one("", "ACCOUNTZ")).data.get("accounts") or []
    if account in known:
        return None
    hint = did_you_mean(account, known) or "natsctl server report accounts shows the accounts in use"
    return NotFoundError(f"there is no account {account}", hint=hint)


def account_purge(session: Session, account: Account, force: Force = False, json: Json = False) -> None:
    """Remove every stream and consumer that JetStream holds for an account."""
    from natsctl.client.system.cluster import purge_account
    from natsctl.client.system.reports import details

    check_consent(session, f"remove all Streams of account {account}", force)
    asked = {"account": account, "accounts": True, "streams": True}
    answers = session.run(lambda manager: System(manager).ask("JSZ", asked))
    streams = {str(stream.get("name")) for _, owner, stream in details(answers) if owner.get("name") == account}
    if not streams and (unknown := _unknown(session, account)):
        raise unknown
    session.effect["streams"] = len(streams)
    question = f"remove {plural(len(streams), 'Stream')}, that is everything in account {account}"
    if not confirmed(session, question, force, typed=account):
        return
    answer = session.run(lambda manager: purge_account(manager, account))
    output.emit_json(answer) if json else output.emit(f"Purge operation on account {safe(account)} initiated")


CONFIG_VERBS = (verb("reload", reload, "cli.server.overview:ServerAnswer"),)

ACCOUNT_VERBS = (
    verb("info, i", account_info, "cli.server.overview:AccountDetail"),
    verb("purge", account_purge, "cli.server.overview:Success"),
)
