"""Tables of servers, connections and accounts: `natsctl server report`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec

from natsctl.api.errors import NatsctlError, NotFoundError
from natsctl.api.units import format_size, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    SUBJECT,
    SWITCH,
    TEXT,
    Config,
    Flag,
    Given,
    Json,
    Rounds,
    Watch,
    check_rounds,
    choice,
    fields_of,
    flagged,
)
from natsctl.cli.framework.live import emit_each
from natsctl.cli.framework.live import watch as watch_view
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.server_reports import (
    ACCOUNTS,
    CONNECTIONS,
    CONSUMERS_ABOVE,
    JETSTREAM,
    LINKS,
    REASON,
    STREAMS_ABOVE,
    healthy,
    render_connections,
    render_health,
    render_jetstream,
    render_use,
)
from natsctl.cli.render.tables import Column, Columns, Reverse, Sort, Wide, render_sheet, sorted_rows
from natsctl.cli.server.overview import (
    ARCHIVE,
    SCOPE,
    Compact,
    Expect,
    Server,
    Top,
    compacted,
    note_missing,
    require_all,
    scope_of,
    servers_of,
)
from natsctl.client.received import UNUSABLE, Received
from natsctl.client.system.reports import above_level, of_account
from natsctl.client.system.reports import accounts as account_rows
from natsctl.client.system.reports import connections as every_connection
from natsctl.client.system.system_account import ServerAnswer, ServerAnswers, System

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.manager import Manager


def _again(name: str, module: str = "report") -> str:
    """Return the `answer` of a report: an array of the type, or with --watch one per line."""
    return f"cli.server.{module}:{name}[]|cli.server.{module}:{name}[]*"


class Connection(msgspec.Struct):
    """A connection as its server describes it."""

    cid: int
    kind: str
    server: Server
    account: str = ""
    name: str = ""
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0


class Account(msgspec.Struct):
    """The connections of an account over all servers, with their traffic."""

    account: str
    connections: int
    connection_info: list[Connection]
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    subscriptions: int
    server: list[Server]


class Leafnode(msgspec.Struct):
    """A leaf node connection as its server describes it."""

    server: Server
    account: str
    name: str = ""


class Route(msgspec.Struct):
    """A route as its server describes it."""

    rid: int
    server: Server
    remote_id: str = ""


class Gateway(msgspec.Struct):
    """A gateway connection as its server describes it, with the cluster at its other end."""

    server: Server
    remote: str
    direction: str
    connection: dict[str, Any]


class StreamAbove(msgspec.Struct):
    """A stream that needs a higher API level."""

    account: str
    name: str
    api_level: int


class ConsumerAbove(msgspec.Struct):
    """A consumer that needs a higher API level, or its stream does; the stream's name then ends with `*`."""

    account: str
    name: str
    stream: str
    api_level: int


class Downgrade(msgspec.Struct):
    """The streams and consumers that are in the way of a lower API level."""

    streams: list[StreamAbove] = []
    consumers: list[ConsumerAbove] = []


Use = dict[str, float]
"""CPU of each server in percent, or its memory in bytes, by its name."""


T = TypeVar("T")

SPELLED: Mapping[str, str] = {
    "recvb": "in-bytes",
    "recvm": "in-msgs",
    "sentb": "out-bytes",
    "sentm": "out-msgs",
    "msgs": "messages",
    "mbytes": "bytes",
    "api": "api-req",
    "mem": "memory",
    "assets": "ha-assets",
    "err": "api-err",
    "name": "server",
}
"""Names of the nats tool for columns with other titles here."""


def top(
    rows: Sequence[T], table: Sequence[Column[T]], sort: str | None, reverse: bool, most: int, default: str
) -> tuple[list[T], str]:
    """Return the first `most` rows by a column and its name; 0 means all.

    Numbers are sorted from the largest, text from its beginning.
    """
    words = {column.word: column for column in table}
    word = sort or default
    if word not in words and SPELLED.get(word) in words:
        word = SPELLED[word]
    falling = word in words and words[word].right
    found = sorted_rows(rows, table, word, falling != reverse, default=default)
    return found[: most or None], word


class ServerReport(NamedTuple):
    """Report: a JSON document, its tables, and the answers of the servers."""

    document: Any
    render: Callable[[int | None], list[RenderableType]]
    answers: ServerAnswers


class View(NamedTuple):
    """Presentation of a report: a bundle of flags for commands."""

    sort: Sort = None
    reverse: Reverse = False
    columns: Columns = None
    wide: Wide = False
    watch: Watch = None
    rounds: Rounds = 0
    json: Json = False


class BriefView(NamedTuple):
    """Presentation of a report with fixed columns: a bundle of flags for commands."""

    reverse: Reverse = False
    watch: Watch = None
    rounds: Rounds = 0
    json: Json = False


def show_report(
    session: Session,
    ask: Callable[[Manager], Awaitable[ServerAnswers]],
    make: Callable[[ServerAnswers], ServerReport],
    view: View | BriefView,
    expect: int = 0,
) -> None:
    """Show one report, or with --watch refresh it until Ctrl-C or --count; raises UnreachableError.

    A server with an unusable answer is left out.
    """

    def build() -> ServerReport:
        return readable_report(session.received, session.run(ask), make)

    check_rounds(view.watch, view.rounds)
    session.lasting = view.watch is not None
    if view.watch is None:
        report = build()
        output.emit_json(report.document) if view.json else show_parts(report)
        require_all(report.answers, expect)
        return
    if view.json:
        emit_each(lambda: build().document, view.watch, view.rounds)
    else:
        watch_view(lambda: _together(build()), view.watch, rounds=view.rounds)


def _report(
    session: Session,
    given: Given,
    expect: int,
    view: View | BriefView,
    make: Callable[[ServerAnswers], ServerReport],
    what: str,
    body: dict[str, Any],
) -> None:
    scope = scope_of(given, expect)
    session = servers_of(session, given, view.watch)
    show_report(session, lambda manager: System(manager).ask(what, body, scope), make, view, expect)


def readable_report(
    received: Received, answers: ServerAnswers, make: Callable[[ServerAnswers], ServerReport]
) -> ServerReport:
    def rest() -> ServerReport:
        return make(readable_answers(received, answers, lambda some: make(some).render(None)))

    def render(width: int | None) -> list[RenderableType]:
        try:
            return report.render(width)
        except UNUSABLE:
            return rest().render(width)

    try:
        report = make(answers)
    except UNUSABLE:
        return rest()
    return report._replace(render=render)


def readable_answers(
    received: Received, answers: Sequence[ServerAnswer], use: Callable[[ServerAnswers], Any]
) -> ServerAnswers:
    """Return the answers that can be used one by one; the other servers are reported."""

    def attempt(one: ServerAnswer) -> ServerAnswer:
        with suppress(NatsctlError):
            use(ServerAnswers([one], 1))
        return one

    found = received.readable(answers, attempt, lambda one: f"Server {one.name}")
    return ServerAnswers(found, getattr(answers, "expected", 0))


def show_parts(report: ServerReport) -> None:
    for part in report.render(output.width()):
        output.show_table(part)


def _together(report: ServerReport) -> RenderableType:
    from rich.console import Group

    return Group(*report.render(output.width()))


STATES = {"open": 0, "closed": 1, "all": 2}


def place_state(body: Config, value: str) -> None:
    body["state"] = STATES[value]


def for_answers(body: Config, value: Any) -> None:
    """Leave the request unchanged: the flag filters the answers."""


FILTERS = (
    Flag("--subject", SUBJECT, "filter_subject", "only connections that subscribe to this subject"),
    Flag("--username", TEXT, "user", "only connections of this user"),
    Flag("--state", choice(*STATES), place_state, "which connections", default="open"),
    Flag("--closed-reason", TEXT, for_answers, "only connections closed for this reason"),
)  # fmt: skip
FILTER = Flag("--filter", TEXT, for_answers, "only connections that match this expression")
ACCOUNT = Flag("--account", TEXT, "acc", "only connections of this account")


@flagged((ACCOUNT, *FILTERS, FILTER, *SCOPE, ARCHIVE))
def connections(session: Session, given: Given, view: View, expect: Expect = 0, top_rows: Top = 1000) -> None:
    """Show connections, those with most subscriptions first."""
    body = request_of(given) | ({"subscriptions": True} if view.json else {})
    _report(session, given, expect, view, lambda found: connection_report(found, given, view, top_rows), "CONNZ", body)


def request_of(given: Given) -> dict[str, Any]:
    body = fields_of((ACCOUNT, *FILTERS), given, auth=True)
    if "--closed-reason" in given:
        body.setdefault("state", STATES["closed"])
    return body


def connection_report(answers: ServerAnswers, given: Given, view: View, most: int) -> ServerReport:
    """Return the report of CONNZ answers; filters that the request does not have are applied here."""
    reason = given.get("--closed-reason", "")
    rows = every_connection(answers, reason, given.get("--filter", ""))
    ended = given.get("--state", "open") != "open" or bool(reason)
    table = (*CONNECTIONS, REASON) if ended else CONNECTIONS
    shown, by = top(rows, table, view.sort, view.reverse, most, "subs")
    return ServerReport(
        shown, lambda width: render_connections(table, shown, rows, by, width, view.columns, view.wide), answers
    )


@flagged((*SCOPE, ARCHIVE))
def accounts(
    session: Session,
    given: Given,
    view: View,
    account: Annotated[str, Argument(metavar="ACCOUNT", help="the connections of this account")] = "",
    expect: Expect = 0,
    top_rows: Top = 1000,
) -> None:
    """Show accounts with their connections and traffic, or the connections of one."""
    if account and not view.json:
        connections(session, {**given, "--account": account}, view, expect, top_rows)
        return
    body = {"auth": True, "subscriptions": True, **({"acc": account} if account else {})}

    def make(answers: ServerAnswers) -> ServerReport:
        rows = account_rows(answers)
        shown, by = top(rows, ACCOUNTS, view.sort, view.reverse, top_rows, "subs")
        title = f"{plural(len(rows), 'Account')} by {by}"
        if account and not shown:
            raise NotFoundError(f"account {account} has no connections")
        return ServerReport(
            shown[0] if account else shown,
            lambda width: [render_sheet(title, ACCOUNTS, shown, width, words=view.columns, wide=view.wide)],
            answers,
        )

    _report(session, given, expect, view, make, "CONNZ", body)


def _links(what: str, help: str, *flags: Flag, **fixed: Any) -> Callable[..., None]:
    @flagged((*flags, *SCOPE, ARCHIVE))
    def show(session: Session, given: Given, view: View, expect: Expect = 0) -> None:
        title, table, rows_of = LINKS[what]

        def make(answers: ServerAnswers) -> ServerReport:
            shown, _ = top(rows_of(answers), table, view.sort, view.reverse, 0, "server")
            totals = {"Server": plural(len(answers), "server"), "Name": f"{len(shown)} in all"}
            return ServerReport(
                shown,
                lambda width: [render_sheet(title, table, shown, width, totals, words=view.columns, wide=view.wide)],
                answers,
            )

        _report(session, given, expect, view, make, what, fields_of(flags, given, **fixed))

    show.__doc__ = help
    return show


leafnodes = _links(
    "LEAFZ", "Show leaf node connections.", Flag("--account", TEXT, "account", "only leaf nodes of this account")
)
routes = _links("ROUTEZ", "Show the routes within clusters.")
gateways = _links(
    "GATEWAYZ",
    "Show the gateways between clusters.",
    Flag("--filter-name", TEXT, "name", "only gateways to this cluster"),
    accounts=True,
)
HEALTH = (
    Flag("--js-enabled", SWITCH, "js-enabled-only", "also fail where JetStream is off", aliases=("-J",)),
    Flag("--server-only", SWITCH, "js-server-only", "do not check streams and consumers", aliases=("-S",)),
    Flag("--account", TEXT, "account", "check this account only"),
    Flag("--stream", TEXT, "stream", "check this stream only"),
    Flag("--consumer", TEXT, "consumer", "check this consumer only"),
)
_JETSTREAM_FLAGS = (Flag("--account", TEXT, "account", "the use of this account"),)


def _use(field: str, title: str, help: str, show: Callable[[Any], str]) -> Callable[..., None]:
    @flagged((*SCOPE, ARCHIVE))
    def show_use(session: Session, given: Given, view: BriefView, expect: Expect = 0) -> None:
        def make(census: ServerAnswers) -> ServerReport:
            rows = sorted(census, key=lambda one: -float(one.data.get(field) or 0), reverse=view.reverse)
            document = {row.name: row.data.get(field) or 0 for row in rows}
            return ServerReport(document, lambda width: [render_use(title, field, rows, show, width)], census)

        session, scope = servers_of(session, given, view.watch), scope_of(given, expect)
        show_report(session, lambda manager: System(manager).ping(scope), make, view, expect)

    show_use.__doc__ = help
    return show_use


cpu = _use("cpu", "CPU Usage", "Show the CPU use of servers, highest first.", lambda value: f"{float(value):.0f}%")
mem = _use(
    "mem",
    "Memory Usage",
    "Show the memory use of servers, highest first.",
    lambda value: f"({format_size(int(value))})",
)


@flagged((*HEALTH, *SCOPE, ARCHIVE))
def health(session: Session, given: Given, view: BriefView, expect: Expect = 0) -> None:
    """Show the health that servers report; fails if one is unhealthy."""
    ill: list[str] = []

    def make(answers: ServerAnswers) -> ServerReport:
        answers.sort(key=lambda answer: answer.name, reverse=view.reverse)
        ill[:] = [answer.name for answer in answers if not healthy(answer)]
        return ServerReport(answers.raw, lambda width: render_health(answers, width), answers)

    _report(session, given, expect, view, make, "HEALTHZ", fields_of(HEALTH, given, details=True))
    if ill:
        raise NatsctlError(f"not well: {', '.join(ill)}")


@flagged((*_JETSTREAM_FLAGS, *SCOPE, ARCHIVE))
def jetstream(
    session: Session,
    given: Given,
    view: View,
    expect: Expect = 0,
    leaders: Annotated[
        bool, Option("--leaders", "-l", help="also how many streams and consumers each server leads")
    ] = False,
    compact: Compact = False,
) -> None:
    """Show what JetStream holds on each server, and the members of its cluster."""
    body = fields_of(_JETSTREAM_FLAGS, given)
    if leaders or "--account" in given:
        body.update(accounts=True, streams=True, consumer=True, config=True)
    account = str(given.get("--account", ""))

    def make(answers: ServerAnswers) -> ServerReport:
        with_it = [answer for answer in answers if answer.data and not answer.data.get("disabled")]
        if account:
            with_it = [of_account(one, account) for one in with_it]
        rows, _ = top(with_it, JETSTREAM, view.sort or "cluster", view.reverse, 0, "cluster")
        if compact:
            rows = compacted(rows)
        return ServerReport(
            answers.raw,
            lambda width: render_jetstream(answers, rows, account, leaders, width, view.columns, view.wide),
            answers,
        )

    _report(session, given, expect, view, make, "JSZ", body)


@flagged((*SCOPE, ARCHIVE))
def downgrade(
    session: Session,
    given: Given,
    level: Annotated[int, Argument(metavar="LEVEL", help="the JetStream API level to go back to", min=0)],
    every: Annotated[
        bool, Option("--all", help="also the consumers of such streams that need no higher level themselves")
    ] = False,
    json: Json = False,
) -> None:
    """List streams and consumers that need a higher JetStream API level than LEVEL."""
    body = {"accounts": True, "streams": True, "consumer": True, "config": True}
    answers = servers_of(session, given).run(lambda manager: System(manager).ask("JSZ", body, scope_of(given)))
    found = above_level(answers, level, every)
    if json:
        output.emit_json({kind: rows for kind, rows in found.items() if rows})
    elif not any(found.values()):
        output.emit("All assets are compatible with the specified API level.")
    else:
        for title, table, rows in (
            ("Assets: Streams", STREAMS_ABOVE, found["streams"]),
            ("Assets: Consumers", CONSUMERS_ABOVE, found["consumers"]),
        ):
            if rows:
                output.show_table(render_sheet(title, table, rows, output.width()))
    note_missing(answers)


VERBS = (
    verb(
        "accounts, acct",
        accounts,
        f"cli.server.report:Account|{_again('Account')}",
        "natsctl server report accounts --sort in-msgs",
    ),
    verb(
        "connections, conn, connz, conns",
        connections,
        _again("Connection"),
        "natsctl srv report connections --account ORDERS --sort out-bytes --top 10",
        "natsctl srv report connections --state closed --filter 'out_msgs > 1000'",
    ),
    verb("leafnodes, leaf, leafz", leafnodes, _again("Leafnode")),
    verb("routes, route", routes, _again("Route")),
    verb("gateways, super, gateway", gateways, _again("Gateway")),
    verb("cpu", cpu, "cli.server.report:Use|cli.server.report:Use*"),
    verb("mem", mem, "cli.server.report:Use|cli.server.report:Use*"),
    verb("health", health, _again("ServerAnswer", "overview")),
    verb(
        "jetstream, jsz, js", jetstream, _again("ServerAnswer", "overview"), "natsctl server report jetstream --leaders"
    ),
    verb("downgrade", downgrade, "cli.server.report:Downgrade"),
)
