"""`stream cluster step-down` and `balance`: leaders that hand over."""

from __future__ import annotations

import typer

from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.flags import Given, flagged
from natsctl.cli.leadership import Preferred, Wait, balance_leaders, hand_over
from natsctl.cli.names import pick_stream
from natsctl.cli.options import All, Force, Json, StreamName, session_of
from natsctl.cli.render.text import count
from natsctl.cli.stream.find import FIND, find_streams
from natsctl.cli.waiting import wait_seconds
from natsctl.client.assets.leaders import WAIT_S, Asset


def step_down(
    ctx: typer.Context,
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
    from natsctl.cli.render.streams import render_stream_state
    from natsctl.cli.screen import show_page

    answer = session.run(lambda manager: manager.stream_info(asset.stream))
    show_page(render_stream_state(answer.value))


@flagged(tuple(flag for flag in FIND if flag.name != "--api-level"))
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
    infos = {Asset(str(one.raw["config"]["name"])): one.raw for one in found}
    done = balance_leaders(session, infos, wait_seconds(wait) or WAIT_S, force=force, json=json)
    if done is None:
        return
    if json:
        output.emit_json({"streams": len(found), "moved": done})
    else:
        output.emit(f"Balanced {plural(len(done), 'stream')} of {count(len(found))}")
