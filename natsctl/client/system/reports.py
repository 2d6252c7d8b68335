"""Reports made of servers' answers: one row for each connection, route, gateway, leaf node, account or server.

A row is the server's own object with all its fields, and its origin in `server`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from natsctl.api.units import parse_duration
from natsctl.api.versions import metadata_level
from natsctl.client.search import compile_condition
from natsctl.client.system.system_account import ServerAnswer, ServerAnswers

Row = dict[str, Any]


def listed(answers: Iterable[ServerAnswer], key: str) -> list[Row]:
    """Return the entries under `key` of all answers, such as `connections`, `routes` or `leafs`."""
    return [{**entry, "server": server_of(answer)} for answer in answers for entry in answer.data.get(key) or ()]


def connections(answers: Iterable[ServerAnswer], reason: str = "", expression: str = "") -> list[Row]:
    """Return every connection that ended for that reason and matches an expression.

    Raises UsageError.

    The request says neither. An expression may use the members of a connection directly or below `conn`.
    """
    rows = listed(answers, "connections")
    if reason:
        rows = [row for row in rows if str(row.get("reason") or "").lower() == reason.lower()]
    if expression:
        test = compile_condition(expression)
        rows = [row for row in rows if test({**row, "conn": row, "conns": row, "Conns": row})]
    return rows


def server_of(answer: ServerAnswer) -> Row:
    """Return the server of an entry, as it describes itself."""
    return dict(answer.server)


def gateways(answers: Iterable[ServerAnswer]) -> list[Row]:
    """Return every gateway connection, with `remote`, the cluster at its other end, and `direction`."""
    rows = []
    for answer in answers:
        for remote, gateway in (answer.data.get("outbound_gateways") or {}).items():
            rows.append(_gateway(answer, remote, "outbound", gateway))
        for remote, several in (answer.data.get("inbound_gateways") or {}).items():
            rows += [_gateway(answer, remote, "inbound", gateway) for gateway in several]
    return rows


def _gateway(answer: ServerAnswer, remote: str, direction: str, gateway: Mapping[str, Any]) -> Row:
    return {**gateway, "server": server_of(answer), "remote": remote, "direction": direction}


MOVED = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")
"""Sums over the connections of an account."""


def accounts(answers: Iterable[ServerAnswer]) -> list[Row]:
    """Return every account with connections, with them and their traffic, over all servers."""
    found: dict[str, Row] = {}
    for connection in listed(answers, "connections"):
        name, server = str(connection.get("account") or ""), connection["server"]
        empty = {"account": name, "connections": 0, "connection_info": [], **dict.fromkeys(MOVED, 0), "server": []}
        row = found.setdefault(name, empty)
        row["connections"] += 1
        row["connection_info"].append(connection)
        for field in MOVED:
            row[field] += int(connection.get(field) or 0)
        if server not in row["server"]:
            row["server"].append(server)
    return list(found.values())


def account_totals(answers: Iterable[ServerAnswer]) -> list[Row]:
    """Return every account with its traffic since the servers started, over all servers."""
    found: dict[str, Row] = {}
    for answer in answers:
        for part in answer.data.get("account_statz") or ():
            _add(found.setdefault(part["acc"], _no_account(part)), answer, part)
    return list(found.values())


def _no_account(part: Mapping[str, Any]) -> Row:
    counted = ("conns", "leafnodes", "num_subscriptions", "slow_consumers")
    moved = {side: {"msgs": 0, "bytes": 0} for side in ("sent", "received")}
    return {"acc": part["acc"], "name": part.get("name") or part["acc"], **dict.fromkeys(counted, 0), **moved}


def _add(row: Row, answer: ServerAnswer, part: Mapping[str, Any]) -> None:
    for field in ("conns", "leafnodes", "num_subscriptions", "slow_consumers"):
        row[field] += int(part.get(field) or 0)
    for side in ("sent", "received"):
        for unit in ("msgs", "bytes"):
            row[side][unit] += int((part.get(side) or {}).get(unit) or 0)
    row.setdefault("servers", []).append({**part, "server": server_of(answer)})


def clusters(servers: ServerAnswers) -> list[Row]:
    """Return every cluster: its servers, their connections and gateways."""
    found: dict[str, Row] = {}
    for server in servers:
        empty = {"cluster": server.cluster, "servers": 0, "connections": 0, "outbound": 0, "inbound": 0}
        row = found.setdefault(server.cluster, empty)
        row["servers"] += 1
        row["connections"] += int(server.data.get("connections") or 0)
        for gateway in server.data.get("gateways") or ():
            row["outbound"] += 1
            row["inbound"] += int(gateway.get("inbound_connections") or 0)
    return list(found.values())


def count_by_server(rows: Iterable[Row]) -> list[Row]:
    found: dict[str, Row] = {}
    for row in rows:
        server = row["server"]
        found.setdefault(str(server.get("id")), {"server": server, "count": 0})["count"] += 1
    return list(found.values())


def details(answers: Iterable[ServerAnswer]) -> Iterable[tuple[ServerAnswer, Row, Row]]:
    """Yield every stream of JSZ answers with details: server, account, stream."""
    for answer in answers:
        for account in answer.data.get("account_details") or ():
            for stream in account.get("stream_detail") or ():
                yield answer, account, stream


def leaders(answers: ServerAnswers) -> list[Row]:
    """Return the number of streams and consumers that each server leads."""
    found: dict[str, Row] = {
        answer.name: {"server": server_of(answer), "streams": 0, "consumers": 0}
        for answer in answers
        if answer.data.get("streams")
    }
    for one, _, stream in details(answers):
        found[one.name]["streams"] += _leads(one, stream)
        found[one.name]["consumers"] += sum(_leads(one, consumer) for consumer in stream.get("consumer_detail") or ())
    return list(found.values())


def _leads(answer: ServerAnswer, asset: Mapping[str, Any]) -> bool:
    """Return whether the server leads the asset; one outside a cluster is led by the server that has it."""
    cluster = asset.get("cluster")
    return cluster is None or cluster.get("leader") == answer.name


def of_account(answer: ServerAnswer, account: str) -> ServerAnswer:
    """Return a JSZ answer with details and configurations, counted for one account only."""
    streams = [stream for _, owner, stream in details([answer]) if account in (owner.get("name"), owner.get("id"))]

    def held(field: str, storage: str = "") -> int:
        kept = [stream for stream in streams if storage in ("", (stream.get("config") or {}).get("storage"))]
        return sum(int((one.get("state") or {}).get(field) or 0) for one in kept)

    counted = {
        "streams": len(streams),
        "consumers": sum(len(one.get("consumer_detail") or ()) for one in streams),
        "messages": held("messages"),
        "bytes": held("bytes"),
        "memory": held("bytes", "memory"),
        "storage": held("bytes", "file"),
    }
    return ServerAnswer({**answer.raw, "data": {**answer.data, **counted}}, answer.rtt_ns)


def above_level(answers: Iterable[ServerAnswer], level: int, every: bool = False) -> dict[str, list[Row]]:
    """Return the `streams` and `consumers` that need a higher JetStream API level, each once.

    With `every` also the other consumers of such streams, removed with them: the stream's name then ends with `*`.
    """
    streams: dict[tuple[str, str], Row] = {}
    consumers: dict[tuple[str, str, str], Row] = {}
    for _, owner, stream in details(answers):
        account, name, needed = (
            str(owner.get("name")),
            str(stream.get("name")),
            metadata_level((stream.get("config") or {}).get("metadata")),
        )
        if needed > level:
            streams[account, name] = {"account": account, "name": name, "api_level": needed}
        shown = f"{name}*" if every and needed > level else name
        for consumer in stream.get("consumer_detail") or ():
            consumer_level = metadata_level((consumer.get("config") or {}).get("metadata"))
            if consumer_level > level or shown != name:
                row = {"account": account, "name": consumer.get("name"), "stream": shown, "api_level": consumer_level}
                consumers[account, name, str(consumer.get("name"))] = row
    return {"streams": list(streams.values()), "consumers": list(consumers.values())}


def span_ns(text: Any) -> int:
    """Return a duration as servers write it (`357µs`, `1d2h3m4s`) in nanoseconds; 0 if invalid."""
    try:
        return parse_duration(str(text or "0"))
    except ValueError:
        return 0
