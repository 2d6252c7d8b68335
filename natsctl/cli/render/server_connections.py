"""`server report connections`, `accounts`, `leafnodes`, `routes` and `gateways` as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from natsctl.api.units import format_size
from natsctl.cli.render.columns import Column
from natsctl.cli.render.server_sheet import render_sheet, summed
from natsctl.cli.render.values import count, duration, safe, yes
from natsctl.client.system.reports import Row, count_by_server, span_ns

if TYPE_CHECKING:
    from rich.console import RenderableType

_KINDS = {"Leafnode": "L", "Router": "R", "Gateway": "G"}
Value = Callable[[Row], Any]


def text(*path: str) -> Value:
    """A cell with the text of a field, which may lie in another one."""
    return lambda row: safe(str(_at(row, path) or ""))


def number(*path: str) -> Value:
    """The number in a field, 0 where it is absent."""
    return lambda row: int(_at(row, path) or 0)


def span(*path: str) -> Value:
    """The length of time in a field, in nanoseconds."""
    return lambda row: span_ns(_at(row, path))


def _at(row: Row, path: Sequence[str]) -> Any:
    value: Any = row
    for key in path:
        value = (value or {}).get(key)
    return value


def counted(title: str, *path: str, wide: bool = False) -> Column[Row]:
    """A column of counts."""
    value = number(*path)
    return Column(title, lambda row: count(value(row)), value, wide)


def sized(title: str, *path: str, wide: bool = False) -> Column[Row]:
    """A column of sizes."""
    value = number(*path)
    return Column(title, lambda row: format_size(value(row)), value, wide)


def spanned(title: str, *path: str, wide: bool = False) -> Column[Row]:
    """A column of lengths of time."""
    value = span(*path)
    return Column(title, lambda row: duration(value(row)), value, wide)


def _address(*path: str) -> Value:
    return lambda row: safe(f"{_at(row, (*path, 'ip')) or ''}:{_at(row, (*path, 'port')) or ''}".strip(":"))


def account_name(row: Row) -> str:
    """An account's name, with the tag that says what its public key is."""
    account, tag = str(row.get("account") or ""), str(row.get("name_tag") or "")
    return safe(f"{tag} ({account})" if tag and tag != account else account)


_SERVER = (Column("Server", text("server", "name")), Column("Cluster", text("server", "cluster"), wide=True))
_MOVED = (
    counted("In Msgs", "in_msgs"),
    counted("Out Msgs", "out_msgs"),
    sized("In Bytes", "in_bytes", wide=True),
    sized("Out Bytes", "out_bytes", wide=True),
)
CONNECTIONS: tuple[Column[Row], ...] = (
    Column("CID", lambda row: f"{_KINDS.get(row.get('kind', ''), '')}{row.get('cid', '')}", number("cid")),
    Column("Name", text("name")),
    *_SERVER,
    Column("IP", _address(), wide=True),
    Column("Account", account_name, wide=True),
    spanned("Uptime", "uptime", wide=True),
    *_MOVED,
    counted("Subs", "subscriptions"),
)
REASON: Column[Row] = Column("Reason", text("reason"))
PER_SERVER: tuple[Column[Row], ...] = (*_SERVER, counted("Connections", "count"))
ACCOUNTS: tuple[Column[Row], ...] = (
    Column("Account", lambda row: account_name({**row, "name_tag": row["connection_info"][0].get("name_tag")})),
    counted("Connections", "connections"),
    *_MOVED,
    counted("Subs", "subscriptions"),
)
LEAFNODES: tuple[Column[Row], ...] = (
    *_SERVER,
    Column("Name", text("name")),
    Column("Account", text("account")),
    Column("Address", _address(), wide=True),
    spanned("RTT", "rtt", wide=True),
    *_MOVED,
    counted("Subs", "subscriptions"),
    Column("Compressed", text("compression"), wide=True),
    Column("Spoke", lambda row: yes(bool(row.get("is_spoke"))), wide=True),
)
ROUTES: tuple[Column[Row], ...] = (
    *_SERVER,
    Column("Name", text("remote_name")),
    Column("Account", text("account")),
    Column("Address", _address(), wide=True),
    Column("ID", lambda row: f"rid:{row.get('rid', '')}", number("rid"), wide=True),
    spanned("Uptime", "uptime", wide=True),
    spanned("RTT", "rtt", wide=True),
    counted("Subs", "subscriptions"),
    sized("In Bytes", "in_bytes"),
    sized("Out Bytes", "out_bytes"),
)
GATEWAYS: tuple[Column[Row], ...] = (
    *_SERVER,
    Column("Kind", text("direction")),
    Column("Name", text("remote")),
    Column("Address", _address("connection"), wide=True),
    Column("ID", lambda row: f"gid:{number('connection', 'cid')(row)}", number("connection", "cid"), wide=True),
    spanned("Uptime", "connection", "uptime", wide=True),
    spanned("RTT", "connection", "rtt"),
    sized("In Bytes", "connection", "in_bytes"),
    sized("Out Bytes", "connection", "out_bytes"),
    Column(
        "Accounts", lambda row: count(len(row.get("accounts") or ())), lambda row: len(row.get("accounts") or ()), True
    ),
)


def render_connections(
    table: Sequence[Column[Row]], shown: Sequence[Row], rows: Sequence[Row], by: str, width: int | None,
    words: str | None, wide: bool,
) -> list[RenderableType]:  # fmt: skip
    """The connections shown, the totals of all `rows`, and how many each server has."""
    title = f"Top {count(len(shown))} Connections out of {count(len(rows))} by {by}"
    totals = {
        "Name": f"all {count(len(rows))}",
        "In Msgs": summed(rows, number("in_msgs"), count),
        "Out Msgs": summed(rows, number("out_msgs"), count),
        "In Bytes": summed(rows, number("in_bytes"), format_size),
        "Out Bytes": summed(rows, number("out_bytes"), format_size),
        "Subs": summed(rows, number("subscriptions"), count),
    }
    parts: list[RenderableType] = [
        render_sheet(title, table, shown, width, totals, words=words, wide=wide, none="No connections")
    ]
    if rows:
        per_server = sorted(count_by_server(rows), key=lambda row: str(row["server"].get("name")))
        parts.append(render_sheet("Connections per server", PER_SERVER, per_server, width))
    return parts
