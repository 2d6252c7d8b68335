"""`natsctl stream ls`: which streams there are."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.names import is_internal
from natsctl.cli.options import All, Json, Names, session_of
from natsctl.cli.render.values import safe


def ls(
    ctx: typer.Context,
    subject: Annotated[str, typer.Option("--subject", metavar="SUBJECT", help="streams that store this subject")] = "",
    names: Names = False,
    all_streams: All = False,
    json: Json = False,
) -> None:
    """List the streams."""
    session = session_of(ctx)
    if names:
        found = session.run(lambda manager: manager.stream_names(subject=subject))
        shown = [name for name in found if all_streams or not is_internal(name)]
        output.emit_json(shown) if json else output.emit_names(shown)
        return
    answers = session.run(lambda manager: manager.stream_list(subject=subject))
    kept = [one for one in answers if all_streams or not is_internal(one.value.config.name)]
    if json:
        output.emit_json([one.raw for one in kept])
    elif kept:
        from natsctl.cli.render.stream import render_streams
        from natsctl.cli.screen import show_table

        show_table(render_streams([one.value for one in kept], time.time_ns()))
    else:
        none = f"No Streams store {safe(subject)}" if subject else "No Streams defined"
        output.emit(none + (", pass -a to include system streams" if answers else ""))
    absent = [*(answers.raw.get("missing") or ()), *(answers.raw.get("offline") or ())]
    if absent:
        output.note(f"warning: inaccessible streams: {', '.join(safe(name) for name in absent)}")
