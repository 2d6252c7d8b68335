"""Reports about servers as tables: connections, accounts, JetStream, replicas, and their activity."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.times import parse_time
from natsctl.api.units import format_size, plural
from natsctl.cli.render.tables import TROUBLE, Column, render_sheet
from natsctl.cli.render.text import count, duration, safe, yes
from natsctl.client.system.reports import Row, clusters, count_by_server, gateways, leaders, listed, span_ns
from natsctl.client.system.system_account import ServerAnswer, ServerAnswers

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from natsctl.client.system.replicas import ConsumerReplica, Replica, StreamReplica


_KINDS = {"Leafnode": "L", "Router": "R", "Gateway": "G"}
Value = Callable[[Any], Any]


def text(*path: str) -> Value:
    return lambda row: safe(str(_at(row, path) or ""))


def number(*path: str) -> Value:
    """Return the number in a field, 0 if it is absent."""
    return lambda row: int(_at(row, path) or 0)


def span(*path: str) -> Value:
    return lambda row: span_ns(_at(row, path))


def _at(row: Row | ServerAnswer, path: Sequence[str]) -> Any:
    value: Any = {"server": row.server, "data": row.data} if isinstance(row, ServerAnswer) else row
    for key in path:
        value = (value or {}).get(key)
    return value


def counted(title: str, *path: str, wide: bool = False, spare: int = 0) -> Column[Any]:
    value = number(*path)
    return Column(title, lambda row: count(value(row)), value, wide, spare, count)


def sized(title: str, *path: str, wide: bool = False) -> Column[Any]:
    value = number(*path)
    return Column(title, lambda row: format_size(value(row)), value, wide, total=format_size)


def _length(title: str, *path: str) -> Column[Any]:
    def value(row: Any) -> int:
        return len(_at(row, path) or ())

    return Column(title, lambda row: count(value(row)), value, wide=True)


def _cpu(*path: str) -> Column[Any]:
    def value(row: Any) -> float:
        return float(_at(row, path) or 0)

    return Column("CPU %", lambda row: f"{value(row):.0f}", value)


def spanned(title: str, *path: str, wide: bool = False) -> Column[Row]:
    value = span(*path)
    return Column(title, lambda row: duration(value(row)), value, wide)


def _address(*path: str) -> Value:
    return lambda row: safe(f"{_at(row, (*path, 'ip')) or ''}:{_at(row, (*path, 'port')) or ''}".strip(":"))


def account_name(row: Row) -> str:
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
    Column[Row]("Spoke", lambda row: yes(bool(row.get("is_spoke"))), wide=True),
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
    _length("Accounts", "accounts"),
)

LINKS: Final[dict[str, tuple[str, Sequence[Column[Row]], Callable[[ServerAnswers], list[Row]]]]] = {
    "LEAFZ": ("Leafnode Report", LEAFNODES, lambda answers: listed(answers, "leafs")),
    "ROUTEZ": ("Cluster Report", ROUTES, lambda answers: listed(answers, "routes")),
    "GATEWAYZ": ("Super Cluster Report", GATEWAYS, gateways),
}
"""Reports about connections between servers by the request: title, columns, and the rows of the answers."""


def render_connections(
    table: Sequence[Column[Row]], shown: Sequence[Row], rows: Sequence[Row], by: str, width: int | None,
    words: str | None, wide: bool,
) -> list[RenderableType]:  # fmt: skip
    """Return the connections shown, the totals of all `rows`, and how many each server has."""
    title = f"Top {count(len(shown))} Connections out of {count(len(rows))} by {by}"
    totals = {"Name": f"all {count(len(rows))}"}
    none = "No connections"
    parts: list[RenderableType] = [
        render_sheet(title, table, shown, width, totals, words=words, wide=wide, none=none, summed=rows)
    ]
    if rows:
        per_server = sorted(count_by_server(rows), key=lambda row: str(row["server"].get("name")))
        parts.append(render_sheet("Connections per server", PER_SERVER, per_server, width))
    return parts


LONGEST_BAR = 40


def render_use(
    title: str, what: str, rows: Sequence[ServerAnswer], show: Callable[[Any], str], width: int | None
) -> Text:
    """Return a line and a bar for each server, the longest for the largest value of the statistics' field `what`."""
    from rich.text import Text

    most = max((float(row.data.get(what) or 0) for row in rows), default=0) or 1
    column = max((len(safe(row.name)) for row in rows), default=0)
    longest = min(LONGEST_BAR, (width or 200) // 3)
    lines = [title, ""]
    for row in rows:
        value = row.data.get(what) or 0
        bar = "█" * max(1, round(float(value) / most * longest))
        lines.append(f"{safe(row.name):>{column}}: {bar} {show(value)}")
    return Text("\n".join(lines))


def healthy(answer: ServerAnswer) -> bool:
    return answer.data.get("status") == "ok" or int(answer.data.get("status_code") or 0) == 200


def render_health(answers: ServerAnswers, width: int | None) -> list[RenderableType]:
    rows = [
        {
            "name": answer.name,
            "cluster": answer.cluster,
            "domain": answer.server.get("domain"),
            "status": _status(answer),
            "type": kind,
            "error": error,
        }
        for answer in answers
        for kind, error in _errors_of(answer)
    ]
    table: tuple[Column[Row], ...] = (
        Column("Server", text("name")),
        Column("Cluster", text("cluster"), wide=True),
        Column("Domain", text("domain"), wide=True),
        Column("Status", text("status")),
        Column("Type", text("type")),
        Column("Error", text("error")),
    )
    well = sum(healthy(answer) for answer in answers)
    totals = {"Server": plural(len(answers), "server"), "Status": f"ok: {well}, failing: {len(answers) - well}"}
    return [render_sheet("Health Report", table, rows, width, totals)]


def _status(one: ServerAnswer) -> str:
    return f"{one.data.get('status', 'no answer')} ({one.data.get('status_code') or (200 if healthy(one) else 503)})"


def _errors_of(one: ServerAnswer) -> list[tuple[str, str]]:
    said = [(str(error.get("type") or ""), str(error.get("error") or "")) for error in one.data.get("errors") or ()]
    if not said and (single := one.data.get("error") or one.raw.get("error")):
        said = [("", str(single.get("description") if isinstance(single, dict) else single))]
    return said or [("", "")]


JETSTREAM: tuple[Column[ServerAnswer], ...] = (
    Column("Server", lambda one: safe(one.name) + ("*" if is_meta_leader(one) else "")),
    Column("Cluster", text("server", "cluster"), wide=True),
    counted("Streams", "data", "streams"),
    counted("Consumers", "data", "consumers"),
    counted("Messages", "data", "messages"),
    sized("Bytes", "data", "bytes"),
    sized("Memory", "data", "memory", wide=True),
    sized("File", "data", "storage", wide=True),
    counted("API Req", "data", "api", "total", wide=True),
    counted("API Err", "data", "api", "errors", wide=True, spare=TROUBLE),
    counted("Pending", "data", "meta_cluster", "pending", wide=True, spare=TROUBLE)._replace(total=None),
    Column("Quorum Sz", lambda one: count(_quorum(one)) if _quorum(one) else "", lambda one: _quorum(one), wide=True),
    Column("Rescuing", lambda one: yes(bool(_meta_group(one).get("rescue"))) if _quorum(one) else "", wide=True),
)
REPLICAS: tuple[Column[Row], ...] = (
    Column("Name", text("name")),
    Column("ID", text("peer"), wide=True),
    Column("Leader", lambda row: "yes" if row["leader"] else ""),
    Column("Current", lambda row: yes(bool(row.get("current")))),
    Column("Online", lambda row: yes(not row.get("offline"))),
    Column("Active", lambda row: duration(int(row.get("active") or 0)), lambda row: row.get("active") or 0, wide=True),
    counted("Lag", "lag"),
)
LEADERS: tuple[Column[Row], ...] = (
    Column("Server", text("server", "name")),
    Column("Cluster", text("server", "cluster")),
    counted("Stream Leaders", "streams"),
    counted("Consumer Leaders", "consumers"),
)
_API_LEVEL = counted("Required API level", "api_level")
STREAMS_ABOVE: tuple[Column[Row], ...] = (
    Column("Account", text("account")),
    Column("Stream", text("name")),
    _API_LEVEL,
)
CONSUMERS_ABOVE: tuple[Column[Row], ...] = (
    Column("Account", text("account")),
    Column("Stream", text("stream")),
    Column("Consumer", text("name")),
    _API_LEVEL,
)


def _meta_group(one: ServerAnswer) -> dict[str, Any]:
    return one.data.get("meta_cluster") or {}


def _quorum(one: ServerAnswer) -> int:
    """Return how many servers the cluster needs; 0 before nats-server 2.15, and without a cluster."""
    return int(_meta_group(one).get("quorum_needed") or 0)


def is_meta_leader(one: ServerAnswer) -> bool:
    leader = _meta_group(one).get("leader")
    return bool(leader) and leader in (one.name, one.id)


def render_jetstream(
    answers: ServerAnswers, rows: Sequence[ServerAnswer], account: str, with_leaders: bool, width: int | None,
    words: str | None, wide: bool,
) -> list[RenderableType]:  # fmt: skip
    title = f"JetStream Summary for Account {safe(account)}" if account else "JetStream Summary"
    totals = {"Server": plural(len(rows), "server")}
    none = "JetStream is not enabled on any server"
    parts: list[RenderableType] = [
        render_sheet(title, JETSTREAM, rows, width, totals, words=words, wide=wide, none=none, summed=rows)
    ]
    parts += _meta(answers, width)
    if with_leaders:
        found = sorted(leaders(answers), key=lambda row: -row["streams"])
        parts.append(render_sheet("RAFT Leader Report", LEADERS, found, width, none="No server leads anything"))
    return parts


def _meta(answers: ServerAnswers, width: int | None) -> list[RenderableType]:
    leader = next((answer for answer in answers if is_meta_leader(answer)), None)
    clustered = [answer for answer in answers if _meta_group(answer).get("cluster_size")]
    if leader is None:
        if not clustered:
            return []
        from rich.text import Text

        size = int(clustered[0].data["meta_cluster"]["cluster_size"])
        few = f"warning: the JetStream cluster has no leader: {len(clustered)} of its {size} servers answered"
        return [Text(f"{few}, {size // 2 + 1} must be up")]
    meta = leader.data["meta_cluster"]
    members = [{"name": leader.name, "peer": meta.get("peer"), "leader": True, "current": True}]
    members += [{**replica, "leader": False} for replica in meta.get("replicas") or ()]
    members.sort(key=lambda row: str(row["name"]))
    return [render_sheet(f"RAFT Meta Group, led from cluster {safe(leader.cluster)}", REPLICAS, members, width)]


STREAM_COLUMNS: Final = (
    "Stream Replica", "Raft", "Account", "Account ID", "Node", "Messages", "Bytes", "Subjects", "Deleted", "Consumers",
    "First", "Last", "Status", "Leader", "Peers",
)  # fmt: skip
CONSUMER_COLUMNS: Final = (
    "Consumer", "Stream", "Raft", "Account", "Account ID", "Node", "Delivered (S,C)", "ACK Floor (S,C)", "Counters",
    "Status", "Leader", "Stream Cluster Leader", "Peers",
)  # fmt: skip
REPLICA_NUMBERS: Final = frozenset(
    ("Messages", "Bytes", "Subjects", "Deleted", "Consumers", "First", "Last", "Delivered (S,C)", "ACK Floor (S,C)")
)
SMALLEST_PERCENT: Final = 0.01


def drift(number: int, leading: int | None) -> str:
    """Return a number with its deviation from the leader's, as `990 (-1%)`."""
    if leading is None or number == leading:
        return str(number)
    if leading == 0:
        return f"{number} (+100%)"
    percent = (number - leading) / leading * 100
    if abs(percent) < SMALLEST_PERCENT:
        percent = SMALLEST_PERCENT if percent > 0 else -SMALLEST_PERCENT
    return f"{number} ({f'{percent:+.2f}'.rstrip('0').rstrip('.')}%)"


def stream_row(one: StreamReplica, leader: StreamReplica | None) -> list[str]:
    fields = ("messages", "bytes", "subjects", "deleted", "consumers", "first_seq", "last_seq")
    numbers = [drift(getattr(one, name), None if leader is None else getattr(leader, name)) for name in fields]
    whose = [one.stream, one.raft_group, one.account, one.account_id, _node(one)]
    return [*whose, *numbers, one.status, one.leader, _peers(one)]


def consumer_row(one: ConsumerReplica, leader: ConsumerReplica | None) -> list[str]:
    def shown(name: str) -> str:
        return drift(getattr(one, name), None if leader is None else getattr(leader, name))

    progress = f"{one.delivered_stream_seq / one.last_seq * 100:.0f}%" if one.last_seq else "0%"
    delivered = (
        f"{shown('delivered_stream_seq')} [{one.first_seq}, {one.last_seq}] {progress}"
        f" | {shown('delivered_consumer_seq')}"
    )
    floor = f"{shown('ack_floor_stream_seq')} | {shown('ack_floor_consumer_seq')}"
    counters = f"(ap:{one.num_ack_pending}, nr:{one.num_redelivered}, nw:{one.num_waiting}, np:{one.num_pending})"
    whose = [one.consumer, one.stream, one.raft_group, one.account, one.account_id, _node(one)]
    return [*whose, delivered, floor, counters, one.status, one.leader, one.stream_leader, _peers(one)]


def _node(one: Replica) -> str:
    return f"{one.server}*" if one.leads else one.server


def _peers(one: Replica) -> str:
    return " ".join(
        f"{peer.name}(current={str(peer.current).lower()},offline={str(peer.offline).lower()})" for peer in one.peers
    )


STATISTICS: tuple[Column[Row], ...] = (
    Column("Server", text("server", "name")),
    Column("Host", text("facts", "host"), wide=True),
    Column("Cluster", text("server", "cluster"), wide=True),
    Column("Version", text("facts", "ver"), wide=True),
    Column("Tags", lambda row: ", ".join(safe(str(tag)) for tag in row["facts"].get("tags") or ()), wide=True),
    counted("Connections", "conns"),
    counted("Leafnodes", "leafnodes", wide=True),
    counted("Subscriptions", "num_subscriptions"),
    counted("In Msgs", "received", "msgs"),
    counted("Out Msgs", "sent", "msgs"),
    sized("In Bytes", "received", "bytes", wide=True),
    sized("Out Bytes", "sent", "bytes", wide=True),
    counted("Slow", "slow_consumers", wide=True, spare=TROUBLE),
)


def render_statistics(rows: Sequence[Row], width: int | None, words: str | None, wide: bool) -> list[RenderableType]:
    totals = {"Server": plural(len(rows), "server")}
    none = "No server counts anything for this account"
    return [
        render_sheet(
            "Account Statistics", STATISTICS, rows, width, totals, words=words, wide=wide, none=none, summed=rows
        )
    ]


def uptime_ns(one: ServerAnswer) -> int:
    start = one.data.get("start")
    return max(0, time.time_ns() - parse_time(str(start))) if start else 0


SERVERS: tuple[Column[ServerAnswer], ...] = (
    Column("Name", text("server", "name")),
    Column("Cluster", text("server", "cluster"), wide=True),
    Column("Host", text("server", "host"), wide=True),
    Column("Version", text("server", "ver"), wide=True),
    Column("JS", lambda one: "yes" if one.server.get("jetstream") else "no"),
    counted("Conns", "data", "connections"),
    counted("Subs", "data", "subscriptions"),
    _length("Routes", "data", "routes"),
    _length("GWs", "data", "gateways"),
    sized("Mem", "data", "mem"),
    _cpu("data", "cpu"),
    counted("Cores", "data", "cores", wide=True)._replace(total=None),
    counted("Slow", "data", "slow_consumers", wide=True, spare=TROUBLE),
    Column("Uptime", lambda one: duration(uptime_ns(one) // 10**9 * 10**9), uptime_ns, wide=True),
    Column("RTT", lambda one: duration(one.rtt_ns), lambda one: one.rtt_ns, wide=True),
)
CLUSTERS: tuple[Column[Row], ...] = (
    Column("Cluster", text("cluster")),
    counted("Servers", "servers"),
    counted("Outgoing Gateways", "outbound"),
    counted("Incoming Gateways", "inbound"),
    counted("Connections", "connections"),
)


def render_census(
    census: ServerAnswers, rows: Sequence[ServerAnswer], width: int | None, columns: str | None, wide: bool
) -> list[RenderableType]:
    totals = {
        "Name": plural(len(rows), "server"),
        "JS": str(sum(bool(row.server.get("jetstream")) for row in rows)),
    }
    parts: list[RenderableType] = [
        render_sheet("Server Overview", SERVERS, rows, width, totals, words=columns, wide=wide, summed=rows)
    ]
    if any(row.cluster for row in rows) and columns is None:
        parts.append(render_sheet("Cluster Overview", CLUSTERS, clusters(census), width))
    return parts


def _rate(title: str, key: str, show: Callable[[int], str], wide: bool = False) -> Column[Row]:
    def value(row: Row) -> float:
        return float((row.get("rates") or {}).get(key) or 0)

    return Column(title, lambda row: f"{show(round(value(row)))}/s", value, wide)


_RATES = (
    _rate("In Msgs", "in_msgs", count),
    _rate("Out Msgs", "out_msgs", count),
    _rate("In Bytes", "in_bytes", format_size, wide=True),
    _rate("Out Bytes", "out_bytes", format_size, wide=True),
)
_WATCHED_SERVER: Column[Row] = Column("Server", text("server", "name"))
WATCHED_SERVERS: tuple[Column[Row], ...] = (
    _WATCHED_SERVER,
    counted("Conns", "connections"),
    counted("Subs", "subscriptions", wide=True),
    counted("Slow", "slow_consumers", wide=True, spare=TROUBLE),
    sized("Memory", "mem"),
    _cpu("cpu"),
    _length("Routes", "routes"),
    _length("GWs", "gateways"),
    *_RATES,
)
WATCHED_JETSTREAM: tuple[Column[Row], ...] = (
    _WATCHED_SERVER,
    counted("HA Assets", "jetstream", "stats", "ha_assets"),
    sized("Memory", "jetstream", "stats", "memory"),
    sized("File", "jetstream", "stats", "storage"),
    counted("API", "jetstream", "stats", "api", "total"),
    _rate("API Rate", "api", count),
    counted("API Errors", "jetstream", "stats", "api", "errors", wide=True),
    counted("Pending", "jetstream", "meta", "pending", wide=True),
    Column("Leader", text("jetstream", "meta", "leader"), wide=True),
)
WATCHED_ACCOUNTS: tuple[Column[Row], ...] = (
    Column("Account", lambda row: account_name({"account": row["acc"], "name_tag": row["name"]})),
    _length("Servers", "servers")._replace(wide=False),
    counted("Conns", "conns"),
    counted("Leafs", "leafnodes", wide=True),
    counted("Subs", "num_subscriptions", wide=True),
    counted("Slow", "slow_consumers", wide=True, spare=TROUBLE),
    *_RATES,
)
WATCHED_REQUESTS: tuple[Column[Row], ...] = (
    Column("Account", text("account")),
    Column("Subject", text("subject")),
    counted("Requests", "requests"),
    counted("Errors", "errors"),
    Column("Rate", lambda row: f"{row['rate']:.1f}/s", lambda row: row["rate"]),
    Column("Last Client", text("last_client"), wide=True),
)
