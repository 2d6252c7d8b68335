"""`consumer cluster step-down` and `balance`: leaders that hand over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.cli import output
from natsctl.cli.consumer.config import show_info
from natsctl.cli.consumer.find import FILTERS, described
from natsctl.cli.consumer.ls import list_consumers
from natsctl.cli.flags import Given, flagged
from natsctl.cli.names import confirmed, pick_consumer, pick_stream, suggesting
from natsctl.cli.options import ConsumerName, Force, Json, StreamName, session_of
from natsctl.cli.render.values import safe
from natsctl.cli.waiting import wait_seconds
from natsctl.client.leaders import WAIT_S, Move, NotClustered, hand_over, leader_of, plan_balance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from natsctl.cli.session import Session
    from natsctl.client.manager import Manager

Preferred = Annotated[
    str, typer.Option("--preferred", metavar="SERVER", help="the server that should lead", show_default=False)
]
Wait = Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="longest wait for another leader [10s]")]


def step_down(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    preferred: Preferred = "",
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Have the leader of a consumer step down, and wait until another server leads."""
    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    if not confirmed(session, f"change the leader of Consumer {where} > {name}", force, needs_force=False, json=json):
        return
    before, after = _move(session, where, name, preferred, wait_seconds(wait) or WAIT_S)
    if json:
        output.emit_json(after)
        return
    told = f"Consumer {where} > {name} is led by {leader_of(after)}, it was by {leader_of(before)}"
    answer = session.run(lambda manager: manager.consumer_info(where, name))
    show_info(answer, json, state_only=True, done=told)


@flagged([flag for flag in FILTERS if flag.name != "--api-level"])
def balance(
    ctx: typer.Context,
    given: Given,
    stream: StreamName = None,
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Spread the leaders of a stream's consumers evenly over the servers that have copies."""
    session = session_of(ctx)
    where = pick_stream(session, stream)
    test = described(given).test(time.time_ns())
    found = [one.raw for one in list_consumers(session, where) if test(one.raw)]
    moves = _plan(session, where, found)
    if moves and not session.dry_run:
        for move in () if json else moves:
            output.note(f"  {safe(move.name)}: {safe(move.leader)} → {safe(move.target)}")
        if not confirmed(session, f"move {len(moves)} leaders", force, needs_force=False, json=json):
            return
    done = _carry_out(session, where, moves, wait_seconds(wait) or WAIT_S, json)
    if json:
        output.emit_json({"stream": where, "consumers": len(found), "moved": done})
    else:
        output.emit(f"Balanced {len(found):,} Consumers of {safe(where)}, {len(done):,} leaders moved")


def _plan(session: Session, stream: str, found: list[dict[str, Any]]) -> list[Move]:
    """What must move. Raises NotClustered where nothing could, and Previewed with every request in a dry run."""
    if found and not any("cluster" in one for one in found):
        raise NotClustered(
            f"the Consumers of {stream} are not clustered",
            hint="leaders change among the servers of a cluster only",
        )
    moves = plan_balance((one["name"], one) for one in found)
    if session.dry_run:
        from natsctl.api import endpoints
        from natsctl.client.preview import Planned, Previewed

        prefix = session.target().api_prefix
        planned = [
            Planned(
                endpoints.CONSUMER_LEADER_STEPDOWN.subject(stream, move.name, prefix=prefix),
                {"placement": {"preferred": move.target}},
            )
            for move in moves
        ]
        raise Previewed(*planned, effect={"leaders_moved": len(moves)})
    return moves


def _carry_out(session: Session, stream: str, moves: list[Move], wait_s: float, json: bool) -> list[dict[str, str]]:
    from natsctl.cli.progress import progress

    done = []
    with progress("Moving leaders", len(moves), "leaders", quiet=json or not moves) as bar:
        for number, move in enumerate(moves, 1):
            before, after = _move(session, stream, move.name, move.target, wait_s)
            done.append({"consumer": move.name, "from": leader_of(before), "to": leader_of(after)})
            bar.at(number)
    return done


def _move(
    session: Session, stream: str, name: str, preferred: str, wait_s: float
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    async def work(manager: Manager) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        async def load() -> Mapping[str, Any]:
            return (await manager.consumer_info(stream, name)).raw

        return await hand_over(
            load, lambda: manager.consumer_step_down(stream, name, preferred), f"Consumer {stream} > {name}", wait_s
        )

    with suggesting(session, stream, name):
        return session.run(work)
