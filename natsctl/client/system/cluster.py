"""The servers that run JetStream's cluster: their leader, their members, and the balance of connections."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from natsctl.api.errors import NatsctlError, UnreachableError, UsageError
from natsctl.client.leaders import hand_over, peers_of
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError, Planned
from natsctl.client.requests import patiently
from natsctl.client.system.reports import Row, listed, span_ns
from natsctl.client.system.system_account import ALL, ServerAnswer, ServerScope, System, gather

STEP_DOWN = "$JS.API.META.LEADER.STEPDOWN"
REMOVE = "$JS.API.SERVER.REMOVE"
EVACUATE = "$JS.API.SERVER.EVACUATE"
PURGE = "$JS.API.ACCOUNT.PURGE"
WHAT = "the JetStream cluster"


class PeerNotFoundError(NatsctlError):
    """The cluster has no such member; `known` are its members."""

    exit_code = 3

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"{WHAT} has no server {name}", hint=f"known are: {', '.join(known)}")
        self.name = name
        self.known = known


async def meta_group(manager: Manager) -> Row:
    """Return the leader and replicas of the group, as in the information of a clustered stream, under `cluster`.

    Raises NatsctlError, and UnreachableError without a leader.
    """
    answers = await System(manager).ask("JSZ")
    groups = [(answer, answer.data["meta_cluster"]) for answer in answers if answer.data.get("meta_cluster")]
    if not any(group.get("cluster_size") for _, group in groups):
        raise NatsctlError(
            "JetStream is not clustered on these servers: did not receive a response from the meta leader,"
            " ensure the account used has system privileges and appropriate permissions",
            hint="this applies to servers of a cluster only",
        )
    led = next((group for one, group in groups if group.get("leader") in (one.name, one.id)), None)
    if led is None:
        raise UnreachableError(f"{WHAT} has no leader", hint="more than half of its servers must be up")
    return {"cluster": led}


async def step_down(manager: Manager, placement: Mapping[str, Any]) -> tuple[Row, Row]:
    """Request a step-down of the group's leader; returns the group before and after. Raises as `leaders.hand_over`."""
    body = {"placement": dict(placement)} if placement else None

    async def ask() -> None:
        await change(manager, STEP_DOWN, body)

    async def load() -> Row:
        return await meta_group(manager)

    before, after = await hand_over(load, ask, WHAT)
    return dict(before), dict(after)


async def find_peer(manager: Manager, name: str) -> Row:
    """Return the member of the group with that name or peer id; raises PeerNotFoundError."""
    group = await meta_group(manager)
    cluster = group["cluster"]
    leader = {"name": cluster.get("leader"), "peer": cluster.get("peer"), "current": True, "leader": True}
    for one in (leader, *(cluster.get("replicas") or ())):
        if name in (one.get("name"), one.get("peer")):
            return dict(one)
    raise PeerNotFoundError(name, peers_of(group))


async def remove_peer(manager: Manager, peer: Mapping[str, Any]) -> dict[str, Any]:
    return await change(manager, REMOVE, {"peer": peer.get("name"), "peer_id": peer.get("peer") or ""})


class Hosted(msgspec.Struct):
    """Number of streams and consumers that a server has copies of."""

    streams: int
    consumers: int


async def hosted(manager: Manager, server: str) -> Hosted:
    """Return the copies on one server; raises UnreachableError if it does not answer."""
    answers = await System(manager).ask("JSZ", None, ServerScope(name=server))
    data = answers[0].data
    return Hosted(int(data.get("streams") or 0), int(data.get("consumers") or 0))


async def evacuate_server(manager: Manager, server: str) -> dict[str, Any]:
    """Request that every stream and consumer of a server moves to others, and return the answer."""
    return await change(manager, EVACUATE, {"peer": server})


class ClusterMember(msgspec.Struct):
    """JetStream's cluster as one of its servers sees it: peers, the number of live ones, and the quorum.

    `rescue` is true while the quorum is lowered.
    """

    server: str
    cluster: str
    leader: str
    cluster_size: int
    peers: int
    online: int
    quorum_needed: int
    rescue: bool


async def members(manager: Manager) -> list[ClusterMember]:
    """Return the cluster as each server sees it that can be rescued, those of the asked JetStream domain.

    Raises UsageError if the servers are in other domains, NatsctlError if none is in a cluster.
    """
    answers = await System(manager).ask("JSZ")
    domain = manager.connection.target.settings.jetstream_domain
    domains = {str(answer.server.get("domain") or "") for answer in answers}
    if domain not in domains:
        there = ", ".join(sorted(filter(None, domains)))
        if not there:
            raise UsageError(
                "servers are not in a JetStream domain, remove the domain set using --js-domain or the context"
            )
        none = f"no compatible servers found in domain {domain}: " if domain else ""
        raise UsageError(f"{none}servers are in domain {there}, specify it using --js-domain")
    found = [
        _member(answer)
        for answer in answers
        if str(answer.server.get("domain") or "") == domain and answer.data.get("meta_cluster", {}).get("quorum_needed")
    ]
    if not found:
        raise NatsctlError(
            "no server can be rescued: none is in a cluster", hint="this is about clusters of nats-server from 2.15 on"
        )
    return found


def _member(answer: ServerAnswer) -> ClusterMember:
    meta = answer.data["meta_cluster"]
    replicas, leader = meta.get("replicas") or (), str(meta.get("leader") or "")
    return ClusterMember(
        server=answer.name,
        cluster=answer.cluster,
        leader=leader,
        cluster_size=int(meta.get("cluster_size") or 0),
        peers=len(replicas) + bool(leader),
        online=sum(not replica.get("offline") for replica in replicas) + bool(leader),
        quorum_needed=int(meta.get("quorum_needed") or 0),
        rescue=bool(meta.get("rescue")),
    )


async def rescue(manager: Manager, quorum: int, servers: int) -> list[Row]:
    """Request that many servers to lower the quorum of their cluster for five minutes, and return the answers."""
    connection = manager.connection
    subject, body = f"{connection.target.api_prefix}.META.RESCUE", {"quorum_needed": quorum}
    if connection.dry_run:
        raise DryRunError(Planned(subject, body))
    answers = await gather(connection, subject, body, expected=lambda _: servers)
    return sorted((answer.raw for answer in answers), key=lambda one: str(one.get("server")))


async def purge_account(manager: Manager, account: str) -> dict[str, Any]:
    """Remove everything that JetStream holds for an account, and return the server's answer."""
    return await change(manager, f"{PURGE}.{account}", None)


async def change(manager: Manager, subject: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """Return the answer to a changing request; it is not repeated if it may have been done.

    Raises DryRunError in a dry run.
    """
    if manager.connection.dry_run:
        raise DryRunError(Planned(subject, body))
    payload = json.dumps(body).encode() if body else b""
    return await patiently(
        manager.connection, lambda: manager.requests.exchange(subject, payload, once=True), may_repeat=False
    )


class Excess(NamedTuple):
    """A connection that should move to another server."""

    server: ServerAnswer
    cid: int
    kind: str


async def plan_moves(
    manager: Manager, body: Mapping[str, Any], kinds: Iterable[str], idle_ns: int, scope: ServerScope = ALL
) -> tuple[list[Row], list[Excess]]:
    """Return how many connections each server has, and which have to go for all to have about as many.

    `body` and `kinds` select connections; only connections idle for `idle_ns` are moved.
    """
    answers = await System(manager).ask("CONNZ", {"auth": True, **body}, scope)
    wanted = {kind.lower() for kind in kinds}
    by_server = {
        answer.id: [row for row in listed([answer], "connections") if str(row.get("kind")).lower() in wanted]
        for answer in answers
    }
    target = -(-sum(len(rows) for rows in by_server.values()) // len(answers))
    counts, excess = [], []
    for answer in answers:
        rows = by_server[answer.id]
        counts.append({"server": answer.server, "connections": len(rows), "target": target})
        resting = [row for row in rows if span_ns(row.get("idle")) >= idle_ns and not _ours(manager, answer, row)]
        resting.sort(key=lambda row: span_ns(row.get("uptime")))
        excess += [Excess(answer, int(row["cid"]), str(row["kind"])) for row in resting[: max(0, len(rows) - target)]]
    return counts, excess


def _ours(manager: Manager, server: ServerAnswer, row: Row) -> bool:
    info = manager.connection.info
    return info.get("server_id") == server.id and info.get("client_id") == row.get("cid")


async def send_away(manager: Manager, one: Excess) -> None:
    """Ask a client to reconnect elsewhere; a leaf node cannot be asked: it is disconnected and reconnects."""
    what = "LDM" if one.kind.lower() == "client" else "KICK"
    await System(manager).ask_one(one.server.id, what, {"cid": one.cid}, changes=True)
