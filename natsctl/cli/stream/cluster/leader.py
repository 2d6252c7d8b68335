"""`stream cluster step-down` and `balance`: leaders that hand over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api import endpoints
from natsctl.cli import output
from natsctl.cli.flags import Given, flagged
from natsctl.cli.names import confirmed, pick_stream, suggesting
from natsctl.cli.options import All, Force, Json, StreamName, session_of
from natsctl.cli.render.values import count, safe
from natsctl.cli.stream.find import FIND, find_streams
from natsctl.cli.waiting import wait_seconds
from natsctl.client.leaders import WAIT_S, Move, hand_over, leader_of, plan_balance
from natsctl.client.preview import Planned, Previewed

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.manager import Manager

Info = Mapping[str, Any]
Preferred = Annotated[
    str, typer.Option("--preferred", metavar="SERVER", help="the server that should lead", show_default=False)
]
Wait = Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="longest wait for another leader [10s]")]
BALANCE = tuple(flag for flag in FIND if flag.name != "--api-level")


def step_down(
    ctx: typer.Context,
    stream: StreamName = None,
    preferred: Preferred = "",
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Have the leader of a stream step down, and wait until another server leads."""
    session = session_of(ctx)
    name = pick_stream(session, stream)
    if not confirmed(session, f"change the leader of Stream {name}", force, needs_force=False, json=json):
        return
    before, after = _move(session, name, preferred, wait_seconds(wait) or WAIT_S)
    if json:
        output.emit_json(after)
        return
    output.note(f"Stream {safe(name)} is led by {safe(leader_of(after))}, it was by {safe(leader_of(before))}")
    from natsctl.cli.render.stream import render_stream_state
    from natsctl.cli.screen import show_page

    answer = session.run(lambda manager: manager.stream_info(name))
    show_page(render_stream_state(answer.value))


@flagged(BALANCE)
def balance(
    ctx: typer.Context,
    given: Given,
    all_streams: All = False,
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Spread the leaders of streams evenly over the servers that have copies of them."""
    session = session_of(ctx)
    _, found = find_streams(session, given, all_streams)
    moves = plan_balance((str(one.raw["config"]["name"]), one.raw) for one in found)
    if session.dry_run:
        raise Previewed(*_planned(session, moves), effect={"leaders_moved": len(moves)})
    if moves and not json:
        output.note("\n".join(f"  {safe(move.name)}: {safe(move.leader)} → {safe(move.target)}" for move in moves))
    if moves and not confirmed(session, f"move {len(moves)} leaders", force, needs_force=False, json=json):
        return
    done = _carry_out(session, moves, wait_seconds(wait) or WAIT_S, quiet=json)
    if json:
        output.emit_json({"streams": len(found), "moved": done})
    else:
        output.emit(f"Balanced {count(len(found))} Streams, {count(len(done))} leaders moved")


def _planned(session: Session, moves: list[Move]) -> list[Planned]:
    prefix = session.target().api_prefix
    return [
        Planned(
            endpoints.STREAM_LEADER_STEPDOWN.subject(move.name, prefix=prefix),
            {"placement": {"preferred": move.target}},
        )
        for move in moves
    ]


def _carry_out(session: Session, moves: list[Move], wait_s: float, *, quiet: bool) -> list[dict[str, str]]:
    from natsctl.cli.progress import progress

    done = []
    with progress("Moving leaders", len(moves), "leaders", quiet=quiet or not moves) as bar:
        for number, move in enumerate(moves, 1):
            before, after = _move(session, move.name, move.target, wait_s)
            done.append({"stream": move.name, "from": leader_of(before), "to": leader_of(after)})
            bar.at(number)
    return done


def _move(session: Session, name: str, preferred: str, wait_s: float) -> tuple[Info, Info]:
    async def work(manager: Manager) -> tuple[Info, Info]:
        async def load() -> Info:
            return (await manager.stream_info(name)).raw

        async def ask() -> object:
            return await manager.stream_step_down(name, preferred=preferred)

        return await hand_over(load, ask, f"Stream {name}", wait_s)

    with suggesting(session, name):
        return session.run(work)
