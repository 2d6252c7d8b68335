"""JetStream's cluster, and connections spread over servers: `natsctl server cluster`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from natsctl.api.errors import ApiResponseError, NatsctlError, UnreachableError, UsageError
from natsctl.api.units import parse_length, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed
from natsctl.cli.framework.flags import (
    DURATION,
    SUBJECT,
    TEXT,
    WORDS,
    Flag,
    Force,
    Given,
    Json,
    Progress,
    fields_of,
    flagged,
    length_option,
)
from natsctl.cli.framework.live import progress
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import did_you_mean, pick
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.leadership import announce_leader, announce_step_down
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import safe, yes
from natsctl.client.leaders import peers_of
from natsctl.client.system import cluster as system_cluster
from natsctl.client.system.cluster import (
    ClusterMember,
    Excess,
    Hosted,
    PeerNotFoundError,
    find_peer,
    hosted,
    meta_group,
    plan_moves,
    send_away,
)
from natsctl.client.system.system_account import ServerScope

_CONNECTIONS = (
    Flag("--account", TEXT, "acc", "only connections of this account"),
    Flag("--subject", SUBJECT, "filter_subject", "only connections that subscribe to this subject"),
)
_PACE = (
    Flag("--server-name", TEXT, "host", "only this server", aliases=("--host",)),
    Flag("--cluster", TEXT, "cluster", "only servers of this cluster"),
    Flag("--idle", DURATION, "idle", "only connections that have been idle this long"),
    Flag("--kind", WORDS, "kind", "kinds of connections: client, leafnode", default="client"),
)
_KINDS = ("client", "leafnode")


@flagged((*_CONNECTIONS, *_PACE))
def balance(
    session: Session,
    given: Given,
    spread: Annotated[str, Argument(metavar="DURATION", help="spread the moves over this time")] = "0s",
    force: Force = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Disconnect clients from servers that have more connections than others, so that they reconnect elsewhere."""
    spread_s, kinds = _seconds(spread), given.get("--kind", ["client"])
    if strange := [kind for kind in kinds if kind.lower() not in _KINDS]:
        raise UsageError(f"--kind: expected {' or '.join(_KINDS)}, not {strange[0]!r}")
    scope = ServerScope(given.get("--server-name", ""), given.get("--cluster", ""))
    body, idle_ns = fields_of(_CONNECTIONS, given), int(given.get("--idle", 0))
    counts, excess = session.run(lambda manager: plan_moves(manager, body, kinds, idle_ns, scope))
    session.effect["connections"] = len(excess)
    for row in counts:
        there = plural(row["connections"], "connection")
        output.log(f"{safe(str(row['server'].get('name')))}: {there} of {row['target']}")
    moved = _send_away(session, excess, spread_s, quiet=json or not progress)
    servers: list[dict[str, Any]] = counts
    if json:
        output.emit_json({"balanced": moved, "servers": servers})
    else:
        output.note(f"{plural(moved, 'connection')} moved")


def _send_away(session: Session, excess: list[Excess], spread_s: float, *, quiet: bool) -> int:
    """Disconnect clients and return their number, without clients that had already left."""
    moved = 0
    with progress("Balancing", len(excess), "connections", quiet=quiet) as tracker:
        for done, one in enumerate(excess, 1):
            try:
                session.run(lambda manager, one=one: send_away(manager, one))  # type: ignore[misc]  # binds this round's
                moved += 1
            except ApiResponseError as failure:
                output.note(f"warning: connection {one.cid} of {safe(one.server.name)}: {safe(str(failure))}")
            tracker.at(done)
            if done < len(excess):
                time.sleep(spread_s / len(excess))
    return moved


def _seconds(text: str) -> float:
    try:
        return parse_length(text) / 1e9
    except ValueError as failure:
        raise UsageError(f"DURATION: {failure}") from failure


class Election(msgspec.Struct):
    """Leader of the cluster before and after an election."""

    previous: str
    leader: str
    meta_cluster: dict[str, Any]


class Rescue(msgspec.Struct):
    """JetStream's cluster as its servers see it, and each server's answer to lowering the quorum."""

    servers: list[ClusterMember]
    answers: list[dict[str, Any]]


class ConnectionBalance(msgspec.Struct):
    """Number of connections that were moved, and how many each server had before."""

    balanced: int
    servers: list[dict[str, Any]]


_PLACEMENT = (
    Flag("--host", TEXT, "preferred", "the server that should lead next", aliases=("--preferred",)),
    Flag("--cluster", TEXT, "cluster", "the cluster that should lead next"),
    Flag("--tags", WORDS, "tags", "tags that the next leader should have", aliases=("--tag",)),
)


@flagged(_PLACEMENT)
def step_down(session: Session, given: Given, force: Force = False, json: Json = False) -> None:
    """Make the leader of JetStream's cluster step down, and wait for a new one."""
    group = session.run(system_cluster.meta_group)
    if not json:
        announce_step_down(group)
    before, after = session.run(lambda manager: system_cluster.step_down(manager, fields_of(_PLACEMENT, given)))
    was, now = str(before["cluster"].get("leader")), str(after["cluster"].get("leader"))
    if json:
        output.emit_json({"previous": was, "leader": now, "meta_cluster": after["cluster"]})
    else:
        announce_leader(after)


def peer_remove(
    session: Session,
    name: Annotated[str, Argument(metavar="SERVER", help="the server, by name or peer id")],
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove a server from JetStream's cluster permanently; its data is replicated to others."""
    check_consent(session, f"remove {name} from JetStream's cluster", force)
    peer = _find_peer(session, name)
    shown = str(peer.get("name") or name)
    session.effect["server"] = shown
    session.effect["online"] = not peer.get("offline")
    if not peer.get("offline") and not force:
        output.note(f"warning: {safe(shown)} is up: stop it first, or it will join again when it restarts")
    question = f"remove {shown} from JetStream's cluster"
    if not confirmed(session, question, force, typed=shown):
        return
    answer = session.run(lambda manager: system_cluster.remove_peer(manager, peer))
    output.emit_json(answer) if json else output.note(f"{safe(shown)} was removed from JetStream's cluster")


EVACUATION_S = 300.0
"""Maximum wait until a server has no copies: a large stream takes minutes to copy."""
LOOK_EVERY_S = 1.0


def evacuate(
    session: Session,
    peer: Annotated[str | None, Argument(metavar="PEER", help="the server to evacuate")] = None,
    wait: Annotated[float | None, length_option("--wait", help="maximum wait for the moves [5m]")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Move every stream and consumer of a server to other servers, and show the progress until none is left.

    A stream that no other server can take has a copy less afterwards. The server stays in the cluster.
    """
    check_consent(session, f"evacuate {peer or 'a server'}", force)
    peer = pick(session, peer, "Peer", lambda: peers_of(session.run(meta_group)))
    found = _find_peer(session, peer)
    shown = str(found.get("name") or peer)
    before = session.run(lambda manager: system_cluster.hosted(manager, shown))
    session.effect.update(server=shown, streams=before.streams, consumers=before.consumers)
    if not confirmed(session, f"evacuate {shown}", force, typed=shown):
        return
    if not json and not session.dry_run:
        output.log(f'Evacuating assets from peer "{shown}"')
    wait_s = wait or EVACUATION_S
    session.run(lambda manager: system_cluster.evacuate_server(manager, shown))
    if not json:
        output.log(f'Requested evacuation of peer "{shown}"')
    left = _watch_evacuation(session, shown, wait_s, quiet=json)
    if left.streams or left.consumers:
        raise UnreachableError(
            f"{shown} still has {plural(left.streams, 'stream')} and {plural(left.consumers, 'consumer')}"
            f" after {wait_s:g}s",
            hint="the moves continue: natsctl server report jetstream shows them",
        )
    if json:
        moved = {"streams": before.streams, "consumers": before.consumers}
        output.emit_json({"server": shown, "evacuated": True, **moved})
    else:
        output.emit(f"{safe(shown)} has no streams or consumers any more")


def _find_peer(session: Session, name: str) -> dict[str, Any]:
    try:
        return session.run(lambda manager: find_peer(manager, name))
    except PeerNotFoundError as failure:
        failure.hint = did_you_mean(failure.name, failure.known) or failure.hint
        raise


def _watch_evacuation(session: Session, server: str, wait_s: float, *, quiet: bool) -> Hosted:
    """Return the copies that remain on a server after the evacuation or the wait; each change is shown."""
    until_s, shown = time.monotonic() + wait_s, None
    while True:
        left = session.run(lambda manager: hosted(manager, server))
        if left != shown and not quiet:
            output.note(f'Server "{safe(server)}": Streams: {left.streams} Consumers: {left.consumers}')
        shown = left
        if not (left.streams or left.consumers) or time.monotonic() > until_s:
            return left
        time.sleep(LOOK_EVERY_S)


class Evacuation(msgspec.Struct):
    """An evacuated server, and the number of streams and consumers that it had copies of."""

    server: str
    evacuated: bool
    streams: int
    consumers: int


def rescue(
    session: Session,
    quorum: Annotated[
        int | None,
        Option("--quorum", metavar="N", help="number of servers that form a quorum", min=1),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show whether JetStream's cluster has a leader; without one --quorum lowers how many servers must be up.

    This is for a cluster that has lost more than half of its servers for good, without a peer-remove before. The quorum
    is lowered for five minutes, and the lost servers should be removed in this time. What only they had stored is lost.
    """
    action = f"lower the quorum of JetStream's cluster to {quorum}"
    if quorum is not None:
        check_consent(session, action, force)
    members = session.run(system_cluster.members)
    if not json:
        _show_members(members)
    healthy = any(member.leader for member in members)
    if healthy:
        if not json:
            output.emit("Cluster is healthy with a leader, no rescue needed")
    elif quorum is None:
        up = plural(len(members), "server")
        raise UsageError("--quorum is missing: JetStream's cluster has no leader", hint=f"{up} answered, give as many")
    elif quorum > len(members):
        raise UsageError(f"--quorum: expected 1 to {len(members)}, as many servers as answer, not {quorum}")
    answers: list[dict[str, Any]] = []
    if quorum is not None and not healthy:
        if not confirmed(session, action, force):
            return
        answers = session.run(lambda manager: system_cluster.rescue(manager, quorum, len(members)))
    if json:
        output.emit_json({"servers": members, "answers": answers})
    _show_rescued(answers, quiet=json)


def _show_members(members: Sequence[ClusterMember]) -> None:
    columns = ("Server", "Cluster", "Size", "Peers", "Quorum Requires", "Rescuing")
    rows = [
        (
            f"{member.server}*" if member.server == member.leader else member.server,
            member.cluster,
            str(member.cluster_size),
            f"{member.online} online / {plural(member.peers, 'peer')}",
            str(member.quorum_needed),
            yes(member.rescue),
        )
        for member in members
    ]
    output.show_table(render_table("Current Cluster State", columns, rows, right=("Size", "Quorum Requires")))


def _show_rescued(answers: Sequence[dict[str, Any]], *, quiet: bool) -> None:
    done = [answer for answer in answers if not answer.get("error")]
    refused = [
        f"{answer.get('server')}: {answer['error'].get('description')}" for answer in answers if answer.get("error")
    ]
    if answers and not done:
        raise NatsctlError(f"no server has lowered its quorum: {'; '.join(refused)}")
    if quiet or not done:
        return
    for one in done:
        now = plural(int(one.get("new_quorum") or 0), "server")
        output.note(f"Server {safe(str(one.get('server')))} now requires {now} (was {one.get('prev_quorum')})")
    for text in refused:
        output.note(f"warning: {safe(text)}")
    output.note("Remove the lost servers now: natsctl server cluster peer-remove")


VERBS = (
    verb(
        "step-down, stepdown, sd, elect, down, d",
        step_down,
        "cli.server.meta_cluster:Election",
        "natsctl server cluster step-down --host n2",
    ),
    verb("peer-remove, rm, pr", peer_remove, "cli.server.overview:Success"),
    verb("evacuate", evacuate, "cli.server.meta_cluster:Evacuation", "natsctl server cluster evacuate n3 --dry-run"),
    verb(
        "rescue",
        rescue,
        "cli.server.meta_cluster:Rescue",
        "natsctl server cluster rescue",
        "natsctl server cluster rescue --quorum 1",
    ),
    verb(
        "balance", balance, "cli.server.meta_cluster:ConnectionBalance", "natsctl server cluster balance 10s --idle 1m"
    ),
)
