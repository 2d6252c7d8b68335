"""`natsctl server cluster balance`: as many connections on every server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import ApiFailure, UsageError
from natsctl.api.units import parse_length, plural
from natsctl.cli import output
from natsctl.cli.flags import DURATION, SUBJECT, TEXT, WORDS, Flag, Given, fields_of, flagged
from natsctl.cli.options import Force, Json, Progress, session_of
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.system.cluster import Excess

_WHICH = (
    Flag("--account", TEXT, "acc", "only connections of this account"),
    Flag("--subject", SUBJECT, "filter_subject", "only connections that subscribe to this subject"),
)
_HOW = (
    Flag("--server-name", TEXT, "host", "only this server", aliases=("--host",)),
    Flag("--cluster", TEXT, "cluster", "only servers of this cluster"),
    Flag("--idle", DURATION, "idle", "only connections that have been idle this long"),
    Flag("--kind", WORDS, "kind", "kinds of connections: client, leafnode", default="client"),
)
_KINDS = ("client", "leafnode")


@flagged((*_WHICH, *_HOW))
def balance(
    ctx: typer.Context,
    given: Given,
    spread: Annotated[
        str, typer.Argument(metavar="DURATION", help="spread the moves over this time", show_default=False)
    ] = "0s",
    force: Force = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Disconnect clients from servers that have more connections than others, so that they reconnect elsewhere."""
    from natsctl.client.system.answers import Scope
    from natsctl.client.system.cluster import plan_moves

    session = session_of(ctx)
    spread_s, kinds = _seconds(spread), given.get("--kind", ["client"])
    if strange := [kind for kind in kinds if kind.lower() not in _KINDS]:
        raise UsageError(f"--kind: expected {' or '.join(_KINDS)}, not {strange[0]!r}")
    scope = Scope(given.get("--server-name", ""), given.get("--cluster", ""))
    body, idle_ns = fields_of(_WHICH, given), int(given.get("--idle", 0))
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
    """How many went; those that had gone by themselves do not count."""
    from natsctl.cli.progress import progress
    from natsctl.client.system.cluster import send_away

    moved = 0
    with progress("Balancing", len(excess), "connections", quiet=quiet) as tracker:
        for done, one in enumerate(excess, 1):
            try:
                session.run(lambda manager, one=one: send_away(manager, one))  # type: ignore[misc]  # binds this round's
                moved += 1
            except ApiFailure as failure:
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
