"""Streams of a cluster: `natsctl stream cluster`, their leaders, their copies, and moves of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError
from natsctl.cli import leadership
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, confirmed_at_terminal, named
from natsctl.cli.framework.flags import All, Force, Given, Json, StreamName, flagged, length_option
from natsctl.cli.framework.resolve import live_stream, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.leadership import MOVE_WAIT_S, MoveWait, Peer, Preferred, Wait, balance_leaders, pick_peer
from natsctl.cli.render.text import safe
from natsctl.cli.stream.list import FIND, find_streams
from natsctl.client.leaders import (
    WAIT_S,
    ClusterAsset,
    await_gone,
    await_settled,
    check_clustered,
    check_in_cluster,
    is_moving,
    peers_of,
)

if TYPE_CHECKING:
    from natsctl.api.answers import StreamCancelMoveAnswer, StreamRemovePeerAnswer
    from natsctl.client.requests import Answer


def step_down(
    session: Session,
    stream: StreamName = None,
    preferred: Preferred = "",
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make the leader of a stream step down, and wait for a new one."""
    asset = ClusterAsset(pick_stream(session, stream))
    if not leadership.step_down(session, asset, preferred, wait, json):
        return
    from natsctl.cli.render.streams import render_stream_state

    answer = session.run(lambda manager: manager.stream_info(asset.stream))
    output.show_page(render_stream_state(answer.value))


@flagged(tuple(flag for flag in FIND if flag.name != "--api-level"))
def balance(
    session: Session,
    given: Given,
    all_streams: All = False,
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Spread the leaders of streams, including buckets' streams, evenly over the servers that have copies of them."""
    _, found = find_streams(session, given)
    infos = {ClusterAsset(str(answer.raw["config"]["name"])): answer.raw for answer in found}
    balance_leaders(session, infos, wait, json, "stream", {"streams": len(infos)})


def peer_remove(
    session: Session,
    stream: StreamName = None,
    peer: Peer = None,
    wait: Annotated[float | None, length_option("--wait", help="maximum wait for its removal [10s]")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove a server from the group of a stream; another one takes its place where the cluster has one."""
    check_consent(session, f"remove a server from {named('Stream', [stream] if stream else [])}", force)
    name = pick_stream(session, stream)
    live = live_stream(session, name).raw
    check_clustered(live, f"Stream {name}")
    asset = ClusterAsset(name)
    leaving = pick_peer(session, asset, peer, peers_of(live))
    session.effect["replicas_left"] = len(peers_of(live)) - 1
    if not confirmed(session, f"remove {leaving} from Stream {name}", force, typed=leaving):
        return
    if not json and not session.dry_run:
        output.log(f'Removing peer "{leaving}"')
    answer = _remove(session, name, leaving)
    session.run(lambda manager: await_gone(manager, asset, leaving, wait or WAIT_S))
    output.emit_json(answer.raw) if json else output.log(f'Requested removal of peer "{leaving}"')


def _remove(session: Session, name: str, leaving: str) -> Answer[StreamRemovePeerAnswer]:
    try:
        return session.run(lambda manager: manager.stream_peer_remove(name, leaving))
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.PEER_REMAP:
            failure.hint = leadership.no_other_server(ClusterAsset(name))
        raise


def evacuate(
    session: Session,
    stream: StreamName = None,
    peer: Peer = None,
    wait: MoveWait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Move a stream and its consumers away from a server, to another server of the cluster."""
    asset = ClusterAsset(pick_stream(session, stream))
    leadership.evacuate(session, asset, peer, wait, force, json)


def cancel_move(
    session: Session,
    stream: StreamName = None,
    wait: Annotated[float | None, length_option("--wait", help="maximum wait until it has settled [1m]")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Cancel the move of a stream to other servers, or another change of its copies, and wait until it has settled."""
    asset = ClusterAsset(pick_stream(session, stream))
    with suggesting(session, asset.stream):
        live = session.run(asset.info)
    check_in_cluster(live, asset.shown)
    if not is_moving(live):
        raise NatsctlError(f"{asset.shown} is not moving", hint=f"{asset.shows_it} shows its servers")
    if not (force or confirmed_at_terminal(session, f"cancel the move of {asset.shown}")):
        return
    answer = _cancel(session, asset)
    if not json:
        output.note(f"Canceled move of {safe(asset.stream)}")
    after = session.run(lambda manager: await_settled(manager, asset, wait or MOVE_WAIT_S))
    if json:
        output.emit_json(answer.raw)
        return
    from natsctl.api.stream import StreamInfo
    from natsctl.cli.render.streams import render_stream
    from natsctl.client.requests import Answer

    output.show_page(render_stream(Answer(StreamInfo, "", raw=dict(after)).value))


def _cancel(session: Session, asset: ClusterAsset) -> Answer[StreamCancelMoveAnswer]:
    try:
        return session.run(lambda manager: manager.stream_cancel_move(asset.stream))
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.STREAM_MOVE_NOT_IN_PROGRESS:
            failure.hint = "only moves that an edit has begun can be cancelled: an evacuation goes on"
        raise


VERBS = (
    verb(
        "step-down, stepdown, sd, elect, down, d",
        step_down,
        "StreamInfoAnswer",
        "natsctl stream cluster step-down ORDERS --preferred n2",
    ),
    verb(
        "balance",
        balance,
        "cli.leadership:LeaderBalance",
        "natsctl stream cluster balance --subject 'ORDERS.>' --dry-run",
    ),
    verb("peer-remove, pr", peer_remove, "StreamRemovePeerAnswer", "natsctl stream cluster peer-remove ORDERS n3 -f"),
    verb("evacuate", evacuate, "StreamEvacuatePeerAnswer", "natsctl stream cluster evacuate ORDERS n3"),
    verb("cancel-move", cancel_move, "StreamCancelMoveAnswer", "natsctl stream cluster cancel-move ORDERS"),
)
