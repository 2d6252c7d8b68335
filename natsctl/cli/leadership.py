"""Leaders of streams and consumers: the flags for handing over, and many of them moved one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.cli import output
from natsctl.cli.names import suggesting
from natsctl.cli.render.values import safe
from natsctl.client.assets.leaders import Asset, Info, leader_of, plan_spread
from natsctl.client.preview import Previewed

if TYPE_CHECKING:
    from natsctl.cli.session import Session

Preferred = Annotated[
    str, typer.Option("--preferred", metavar="SERVER", help="the server that should lead", show_default=False)
]
Wait = Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="longest wait for another leader [10s]")]


def hand_over(session: Session, asset: Asset, preferred: str, wait_s: float) -> tuple[Info, Info]:
    """Have the leader step down; the information before and after. Raises with what may have been meant."""
    with suggesting(session, asset.stream, asset.consumer):
        return session.run(lambda manager: asset.hand_over(manager, preferred, wait_s))


def balance_leaders(
    session: Session, found: Mapping[Asset, Info], wait_s: float, *, force: bool, json: bool
) -> list[dict[str, str]] | None:
    """Spread the leaders over the servers that have copies; who moved from where to where, None if that is not wanted.

    Raises Previewed with every request in a dry run.
    """
    assets = {asset.consumer or asset.stream: asset for asset in found}
    moves = [(assets[move.name], move) for move in plan_spread((a.consumer or a.stream, i) for a, i in found.items())]
    if session.dry_run:
        prefix = session.target().api_prefix
        planned = [asset.planned(move.target, prefix) for asset, move in moves]
        raise Previewed(*planned, effect={"leaders_moved": len(moves)})
    for _, move in () if json else moves:
        output.note(f"  {safe(move.name)}: {safe(move.leader)} → {safe(move.target)}")
    return _moved(session, [(asset, move.target) for asset, move in moves], wait_s, quiet=json or not moves)


def _moved(session: Session, moves: Sequence[tuple[Asset, str]], wait_s: float, *, quiet: bool) -> list[dict[str, str]]:
    from natsctl.cli.progress import progress

    done: list[dict[str, Any]] = []
    with progress("Moving leaders", len(moves), "leaders", quiet=quiet) as bar:
        for number, (asset, target) in enumerate(moves, 1):
            before, after = hand_over(session, asset, target, wait_s)
            named = {"consumer": asset.consumer} if asset.consumer else {"stream": asset.stream}
            done.append({**named, "from": leader_of(before), "to": leader_of(after)})
            bar.at(number)
    return done
