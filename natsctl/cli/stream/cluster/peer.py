"""`stream cluster peer-remove`: a server that leaves the group of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiFailure, UsageError
from natsctl.cli import output
from natsctl.cli.consent import check_consent, confirmed, named
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import Force, Json, StreamName, session_of
from natsctl.cli.suggest import did_you_mean
from natsctl.cli.waiting import wait_seconds
from natsctl.client.assets.leaders import WAIT_S, await_gone, check_clustered, peers_of

if TYPE_CHECKING:
    from natsctl.api.answers import StreamRemovePeerAnswer
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer

Peer = Annotated[str | None, typer.Argument(metavar="PEER", help="the server to remove", show_default=False)]
Wait = Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="longest wait for its removal [10s]")]


def peer_remove(
    ctx: typer.Context,
    stream: StreamName = None,
    peer: Peer = None,
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove a server from the group of a stream; another one takes its place where the cluster has one."""
    session = session_of(ctx)
    check_consent(session, f"remove a server from {named('Stream', [stream] if stream else [])}", force)
    name = pick_stream(session, stream)
    with suggesting(session, name):
        live = session.run(lambda manager: manager.stream_info(name)).raw
    check_clustered(live, f"Stream {name}")
    leaving = _picked(session, name, peer, peers_of(live))
    session.effect["replicas_left"] = len(peers_of(live)) - 1
    if not confirmed(session, f"remove {leaving} from Stream {name}", force, typed=leaving):
        return
    if not json and not session.dry_run:
        output.log(f'Removing peer "{leaving}"')
    answer = _remove(session, name, leaving)
    session.run(lambda manager: await_gone(manager, name, leaving, wait_seconds(wait) or WAIT_S))
    output.emit_json(answer.raw) if json else output.log(f'Requested removal of peer "{leaving}"')


def _remove(session: Session, name: str, leaving: str) -> Answer[StreamRemovePeerAnswer]:
    try:
        return session.run(lambda manager: manager.stream_peer_remove(name, leaving))
    except ApiFailure as failure:
        if failure.err_code == ErrCode.PEER_REMAP:
            failure.hint = f"no other server can take its place: natsctl stream edit {name} --replicas reduces them"
        raise


def _picked(session: Session, name: str, given: str | None, peers: list[str]) -> str:
    if given is None:
        if not session.interactive:
            raise UsageError("a server is needed: give PEER")
        from natsctl.cli.prompts.ask import prompt_name

        return prompt_name("Select a Peer", peers)
    if given not in peers:
        hint = did_you_mean(given, peers) or f"it is on {', '.join(peers)}"
        raise UsageError(f"Stream {name} is not on {given}", hint=hint)
    return given
