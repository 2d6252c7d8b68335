"""`natsctl server cluster step-down` and `peer-remove`: the group of servers that runs JetStream's cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.consent import check_consent, confirmed
from natsctl.cli.flags import TEXT, WORDS, Flag, Given, fields_of, flagged
from natsctl.cli.leadership import announce_leader, announce_step_down
from natsctl.cli.options import Force, Json, session_of
from natsctl.cli.render.values import safe

_PLACEMENT = (
    Flag("--host", TEXT, "preferred", "the server that should lead next", aliases=("--preferred",)),
    Flag("--cluster", TEXT, "cluster", "the cluster that should lead next"),
    Flag("--tags", WORDS, "tags", "tags that the next leader should have", aliases=("--tag",)),
)


@flagged(_PLACEMENT)
def step_down(ctx: typer.Context, given: Given, force: Force = False, json: Json = False) -> None:
    """Have another server lead JetStream's cluster, and wait until it does."""
    from natsctl.client.system import cluster as system_cluster

    session = session_of(ctx)
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
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="the server, by name or peer id", show_default=False)],
    force: Force = False,
    json: Json = False,
) -> None:
    """Take a server out of JetStream's cluster for good; what it held is made anew on others."""
    from natsctl.cli.suggest import did_you_mean
    from natsctl.client.system import cluster as system_cluster

    session = session_of(ctx)
    check_consent(session, f"remove {name} from JetStream's cluster", force)
    try:
        peer = session.run(lambda manager: system_cluster.find_peer(manager, name))
    except system_cluster.PeerNotFound as failure:
        failure.hint = did_you_mean(failure.name, failure.known) or failure.hint
        raise
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
