"""`server report cpu`, `mem`, `health`, `jetstream` and `downgrade` as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from natsctl.api.units import format_size, plural
from natsctl.cli.render.columns import Column
from natsctl.cli.render.server_connections import counted, text
from natsctl.cli.render.server_sheet import render_sheet, summed
from natsctl.cli.render.values import count, duration, safe, yes
from natsctl.client.system.answers import Answers, ServerAnswer
from natsctl.client.system.reports import Row, leaders

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

LONGEST_BAR = 40
_NAME: Column[ServerAnswer] = Column("Server", lambda one: safe(one.name))
_CLUSTER: Column[ServerAnswer] = Column("Cluster", lambda one: safe(one.cluster), wide=True)


def render_use(
    title: str, what: str, rows: Sequence[ServerAnswer], show: Callable[[Any], str], width: int | None
) -> Text:
    """One line and bar a server, the longest for the largest value of the statistics' field `what`."""
    from rich.text import Text

    most = max((float(one.data.get(what) or 0) for one in rows), default=0) or 1
    column = max((len(safe(one.name)) for one in rows), default=0)
    longest = min(LONGEST_BAR, (width or 200) // 3)
    lines = [title, ""]
    for one in rows:
        value = one.data.get(what) or 0
        bar = "█" * max(1, round(float(value) / most * longest))
        lines.append(f"{safe(one.name):>{column}}: {bar} {show(value)}")
    return Text("\n".join(lines))


def healthy(answer: ServerAnswer) -> bool:
    """Whether a server calls itself well."""
    return answer.data.get("status") == "ok" or int(answer.data.get("status_code") or 0) == 200


def render_health(answers: Answers, width: int | None) -> list[RenderableType]:
    """Every server with its state and what it complains about."""
    rows = [
        {
            "name": one.name,
            "cluster": one.cluster,
            "domain": one.server.get("domain"),
            "status": _status(one),
            "type": kind,
            "error": error,
        }
        for one in answers
        for kind, error in _complaints(one)
    ]
    table: tuple[Column[Row], ...] = (
        Column("Server", text("name")),
        Column("Cluster", text("cluster"), wide=True),
        Column("Domain", text("domain"), wide=True),
        Column("Status", text("status")),
        Column("Type", text("type")),
        Column("Error", text("error")),
    )
    well = sum(healthy(one) for one in answers)
    totals = {"Server": plural(len(answers), "server"), "Status": f"ok: {well}, failing: {len(answers) - well}"}
    return [render_sheet("Health Report", table, rows, width, totals)]


def _status(one: ServerAnswer) -> str:
    return f"{one.data.get('status', 'no answer')} ({one.data.get('status_code') or (200 if healthy(one) else 503)})"


def _complaints(one: ServerAnswer) -> list[tuple[str, str]]:
    said = [(str(each.get("type") or ""), str(each.get("error") or "")) for each in one.data.get("errors") or ()]
    if not said and (single := one.data.get("error") or one.raw.get("error")):
        said = [("", str(single.get("description") if isinstance(single, dict) else single))]
    return said or [("", "")]


def _held(title: str, field: str, show: Callable[[int], str], wide: bool = False) -> Column[ServerAnswer]:
    def value(one: ServerAnswer) -> int:
        return int(one.data.get(field) or 0)

    return Column(title, lambda one: show(value(one)), value, wide)


JETSTREAM: tuple[Column[ServerAnswer], ...] = (
    Column("Server", lambda one: safe(one.name) + ("*" if is_meta_leader(one) else "")),
    _CLUSTER,
    _held("Streams", "streams", count),
    _held("Consumers", "consumers", count),
    _held("Messages", "messages", count),
    _held("Bytes", "bytes", format_size),
    _held("Memory", "memory", format_size, wide=True),
    _held("File", "storage", format_size, wide=True),
    Column("API Req", lambda one: count(_api(one, "total")), lambda one: _api(one, "total"), wide=True),
    Column("API Err", lambda one: count(_api(one, "errors")), lambda one: _api(one, "errors"), wide=True),
    Column("Pending", lambda one: count(_pending(one)), lambda one: _pending(one), wide=True),
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


def _api(one: ServerAnswer, field: str) -> int:
    return int((one.data.get("api") or {}).get(field) or 0)


def _pending(one: ServerAnswer) -> int:
    return int((one.data.get("meta_cluster") or {}).get("pending") or 0)


def is_meta_leader(one: ServerAnswer) -> bool:
    """Whether the server leads the JetStream cluster."""
    leader = (one.data.get("meta_cluster") or {}).get("leader")
    return bool(leader) and leader in (one.name, one.id)


def render_jetstream(
    answers: Answers, rows: Sequence[ServerAnswer], account: str, with_leaders: bool, width: int | None,
    words: str | None, wide: bool,
) -> list[RenderableType]:  # fmt: skip
    """Use of JetStream by server, and where there is a cluster its members."""
    title = f"JetStream Summary for Account {safe(account)}" if account else "JetStream Summary"
    totals = {"Server": plural(len(rows), "server")}
    for column, field, show in (
        ("Streams", "streams", count),
        ("Consumers", "consumers", count),
        ("Messages", "messages", count),
        ("Bytes", "bytes", format_size),
        ("Memory", "memory", format_size),
        ("File", "storage", format_size),
    ):
        totals[column] = show(sum(int(one.data.get(field) or 0) for one in rows))
    totals["API Req"] = summed(rows, lambda one: _api(one, "total"), count)
    totals["API Err"] = summed(rows, lambda one: _api(one, "errors"), count)
    none = "JetStream is not enabled on any server"
    parts: list[RenderableType] = [
        render_sheet(title, JETSTREAM, rows, width, totals, words=words, wide=wide, none=none)
    ]
    parts += _meta(answers, width)
    if with_leaders:
        found = sorted(leaders(answers), key=lambda row: -row["streams"])
        parts.append(render_sheet("RAFT Leader Report", LEADERS, found, width, none="No server leads anything"))
    return parts


def _meta(answers: Answers, width: int | None) -> list[RenderableType]:
    leader = next((one for one in answers if is_meta_leader(one)), None)
    clustered = [one for one in answers if (one.data.get("meta_cluster") or {}).get("cluster_size")]
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
