"""Leaders and copies of streams and consumers: step-downs, moves of many leaders, and servers that are evacuated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, UnsetType, field

from natsctl.api.errors import ApiResponseError, ErrCode, UnreachableError, UsageError
from natsctl.api.model import Model, blank, new_list
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed_at_terminal
from natsctl.cli.framework.flags import length_option
from natsctl.cli.framework.live import progress
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.prompts import prompt_name
from natsctl.cli.framework.resolve import did_you_mean, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import count, safe
from natsctl.client.leaders import (
    WAIT_S,
    ClusterAsset,
    Info,
    await_gone,
    check_in_cluster,
    leader_of,
    peers_of,
    plan_spread,
)
from natsctl.client.message import DryRunError

Preferred = Annotated[str, Option("--preferred", metavar="SERVER", help="the server that should lead")]
Wait = Annotated[float | None, length_option("--wait", help="maximum wait for a new leader [10s]")]

Peer = Annotated[str | None, Argument(metavar="PEER", help="the server to remove")]
MoveWait = Annotated[float | None, length_option("--wait", help="maximum wait for the move [1m]")]
MOVE_WAIT_S = 60.0
"""Maximum wait for a copy on another server; it has to catch up first."""


def announce_step_down(before: Info) -> None:
    peers = plural(len(peers_of(before)), "peer").removesuffix("s")
    output.log(f'Requesting leader step down of "{leader_of(before)}" in a {peers} RAFT group')


def announce_leader(after: Info) -> None:
    output.log(f'New leader elected "{leader_of(after)}"')


class MovedLeader(Model):
    """A stream or consumer with a new leader."""

    stream: str | UnsetType = UNSET
    consumer: str | UnsetType = UNSET
    from_: str = field(name="from", default_factory=blank)
    to: str = field(default_factory=blank)


class LeaderBalance(Model):
    """The number of examined streams, or of a stream's consumers, and the leaders that moved."""

    stream: str | UnsetType = UNSET
    streams: int | UnsetType = UNSET
    consumers: int | UnsetType = UNSET
    moved: list[MovedLeader] = field(default_factory=new_list)


def step_down(session: Session, asset: ClusterAsset, preferred: str, wait: float | None, json: bool) -> bool:
    """Make the leader step down and wait for a new one; return whether the asset is still to be shown."""
    _, after = _hand_over(session, asset, preferred, wait or WAIT_S, quiet=json)
    if json:
        output.emit_json(after)
    return not json


def _hand_over(
    session: Session, asset: ClusterAsset, preferred: str, wait_s: float, *, quiet: bool
) -> tuple[Info, Info]:
    announce = None if quiet else announce_step_down
    with suggesting(session, asset.stream, asset.consumer):
        before, after = session.run(lambda manager: asset.hand_over(manager, preferred, wait_s, announce))
    if not quiet:
        announce_leader(after)
    return before, after


def balance_leaders(
    session: Session,
    infos: Mapping[ClusterAsset, Info],
    wait: float | None,
    json: bool,
    scope: str,
    counts: Mapping[str, Any],
) -> None:
    """Spread the leaders over the servers that have copies, and show the moves: with `json` after `counts`.

    `scope` completes "Balanced 2 …". Raises DryRunError with every request in a dry run.
    """
    assets = {asset.consumer or asset.stream: asset for asset in infos}
    moves = [(assets[move.name], move) for move in plan_spread((a.consumer or a.stream, i) for a, i in infos.items())]
    if not json:
        _announce_groups(infos)
    if session.dry_run:
        prefix = session.target().api_prefix
        planned = [asset.planned(move.target, prefix) for asset, move in moves]
        raise DryRunError(*planned, effect={"leaders_moved": len(moves)})
    for _, move in () if json else moves:
        output.note(f"  {safe(move.name)}: {safe(move.leader)} → {safe(move.target)}")
    targets = [(asset, move.target) for asset, move in moves]
    moved = _moved(session, targets, wait or WAIT_S, quiet=json or not moves)
    if json:
        output.emit_json({**counts, "moved": moved})
    else:
        noun, _, where = scope.partition(" ")
        output.emit(f"Balanced {plural(len(moved), noun)}{where and f' {safe(where)}'} of {count(len(infos))}")


def _announce_groups(infos: Mapping[ClusterAsset, Info]) -> None:
    by_cluster: dict[str, list[Info]] = {}
    for info in infos.values():
        if name := (info.get("cluster") or {}).get("name"):
            by_cluster.setdefault(str(name), []).append(info)
    for name, members in by_cluster.items():
        servers = {peer for info in members for peer in peers_of(info)}
        even = -(-len(members) // max(1, len(servers)))
        output.log(f"Found cluster {name} with a balanced distribution of {even}")


def _moved(
    session: Session, moves: Sequence[tuple[ClusterAsset, str]], wait_s: float, *, quiet: bool
) -> list[dict[str, str]]:
    done: list[dict[str, Any]] = []
    with progress("Moving leaders", len(moves), "leaders", quiet=quiet) as bar:
        for number, (asset, target) in enumerate(moves, 1):
            before, after = _hand_over(session, asset, target, wait_s, quiet=True)
            named = {"consumer": asset.consumer} if asset.consumer else {"stream": asset.stream}
            done.append({**named, "from": leader_of(before), "to": leader_of(after)})
            bar.at(number)
    return done


def pick_peer(session: Session, asset: ClusterAsset, given: str | None, peers: Sequence[str]) -> str:
    """Return the server that was given, or that the user picks. Raises UsageError for one without a copy."""
    if given is None:
        if not session.interactive:
            raise UsageError("a server is needed: give PEER")
        return prompt_name("Select a Peer", list(peers))
    if given not in peers:
        hint = did_you_mean(given, peers) or f"it is on {', '.join(peers)}"
        raise UsageError(f"{asset.shown} is not on {given}", hint=hint)
    return given


def evacuate(
    session: Session, asset: ClusterAsset, peer: str | None, wait: float | None, force: bool, json: bool
) -> None:
    """Move the copy of a stream or consumer from a server to another one, and wait until it has left.

    Another server takes the copy before the old one is given up, so that nothing is lost. Raises UsageError,
    NatsctlError, ApiResponseError if no other server can take it, and UnreachableError if that takes too long.
    """
    with suggesting(session, asset.stream, asset.consumer):
        live = session.run(asset.info)
    check_in_cluster(live, asset.shown)
    leaving = pick_peer(session, asset, peer, peers_of(live))
    if not (force or confirmed_at_terminal(session, f"evacuate {leaving}")):
        return
    if not json and not session.dry_run:
        kind = "consumer" if asset.consumer else "stream"
        output.log(f'Evacuating {kind} from peer "{leaving}"')
    answer = _request_evacuation(session, asset, leaving)
    if not json:
        output.log(f'Requested evacuation of peer "{leaving}"')
    after = session.run(lambda manager: await_gone(manager, asset, leaving, wait or MOVE_WAIT_S))
    if json:
        output.emit_json(answer)
    else:
        output.emit(f"{asset.shown.split()[0]} peers are now: {safe(', '.join(peers_of(after)))}")


def _request_evacuation(session: Session, asset: ClusterAsset, leaving: str) -> Mapping[str, Any]:
    try:
        return session.run(lambda manager: asset.evacuate(manager, leaving))
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.PEER_REMAP:
            failure.hint = no_other_server(asset)
        raise
    except UnreachableError as failure:
        failure.hint = failure.hint or NEEDS_2_15
        raise


NEEDS_2_15 = "nats-server answers this from 2.15 on: natsctl server ls shows the versions"


def no_other_server(asset: ClusterAsset) -> str:
    if asset.consumer:
        return f"no other server of Stream {asset.stream} can take it: natsctl str info {asset.stream} shows them"
    return f"no other server can take its place: natsctl str edit {asset.stream} --replicas reduces them"
