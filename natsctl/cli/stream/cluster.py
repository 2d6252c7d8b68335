"""Streams of a cluster: `natsctl stream cluster step-down`, `balance` and `peer-remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import field

from natsctl.api.errors import ApiResponseError, ErrCode, UsageError
from natsctl.api.model import Model, blank, new_list, zero
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.consent import check_consent, confirmed, named
from natsctl.cli.flags import All, Force, Given, Json, StreamName, flagged, session_of, wait_seconds
from natsctl.cli.leadership import Preferred, Wait, balance_leaders, hand_over
from natsctl.cli.parameters import Argument, Context, Option
from natsctl.cli.render.text import count
from natsctl.cli.resolve import did_you_mean, pick_stream, suggesting
from natsctl.cli.stream.list import FIND, find_streams
from natsctl.cli.verbs import Verb
from natsctl.client.leaders import WAIT_S, Asset, await_gone, check_clustered, peers_of

if TYPE_CHECKING:
    from natsctl.api.answers import StreamRemovePeerAnswer
    from natsctl.cli.session import Session
    from natsctl.client.requests import Answer


class Moved(Model):
    """A stream whose leader changed."""

    stream: str = field(default_factory=blank)
    from_: str = field(name="from", default_factory=blank)
    to: str = field(default_factory=blank)


class Balance(Model):
    """`stream cluster balance`: number of examined streams, and those whose leaders moved."""

    streams: int = field(default_factory=zero)
    moved: list[Moved] = field(default_factory=new_list)


def step_down(
    ctx: Context,
    stream: StreamName = None,
    preferred: Preferred = "",
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make the leader of a stream step down, and wait for a new one."""
    session = session_of(ctx)
    asset = Asset(pick_stream(session, stream))
    _, after = hand_over(session, asset, preferred, wait_seconds(wait) or WAIT_S, quiet=json)
    if json:
        output.emit_json(after)
        return
    from natsctl.cli.output import show_page
    from natsctl.cli.render.streams import render_stream_state

    answer = session.run(lambda manager: manager.stream_info(asset.stream))
    show_page(render_stream_state(answer.value))


@flagged(tuple(flag for flag in FIND if flag.name != "--api-level"))
def balance(
    ctx: Context,
    given: Given,
    all_streams: All = False,
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Spread the leaders of streams evenly over the servers that have copies of them."""
    session = session_of(ctx)
    _, found = find_streams(session, given, all_streams)
    infos = {Asset(str(one.raw["config"]["name"])): one.raw for one in found}
    done = balance_leaders(session, infos, wait_seconds(wait) or WAIT_S, force=force, json=json)
    if done is None:
        return
    if json:
        output.emit_json({"streams": len(found), "moved": done})
    else:
        output.emit(f"Balanced {plural(len(done), 'stream')} of {count(len(found))}")


Peer = Annotated[str | None, Argument(metavar="PEER", help="the server to remove")]
RemovalWait = Annotated[str | None, Option("--wait", metavar="DURATION", help="longest wait for its removal [10s]")]


def peer_remove(
    ctx: Context,
    stream: StreamName = None,
    peer: Peer = None,
    wait: RemovalWait = None,
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
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.PEER_REMAP:
            failure.hint = f"no other server can take its place: natsctl stream edit {name} --replicas reduces them"
        raise


def _picked(session: Session, name: str, given: str | None, peers: list[str]) -> str:
    if given is None:
        if not session.interactive:
            raise UsageError("a server is needed: give PEER")
        from natsctl.cli.prompts import prompt_name

        return prompt_name("Select a Peer", peers)
    if given not in peers:
        hint = did_you_mean(given, peers) or f"it is on {', '.join(peers)}"
        raise UsageError(f"Stream {name} is not on {given}", hint=hint)
    return given


VERBS = (
    Verb(
        "step-down, stepdown, sd, elect, down, d",
        step_down,
        answer="StreamInfoAnswer",
        examples=("natsctl stream cluster step-down ORDERS --preferred n2",),
    ),
    Verb(
        "balance",
        balance,
        answer="cli.stream.cluster:Balance",
        examples=("natsctl stream cluster balance --subject 'ORDERS.>' --dry-run",),
    ),
    Verb(
        "peer-remove, pr",
        peer_remove,
        answer="StreamRemovePeerAnswer",
        examples=("natsctl stream cluster peer-remove ORDERS n3 -f",),
    ),
)
