"""`natsctl stream gaps`: which sequences of a stream are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.consent import confirmed_at_terminal
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import Force, Json, Progress, StreamName, session_of
from natsctl.cli.render.text import count, safe

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer
    from natsctl.client.assets.gaps import Gap


def gaps(
    ctx: typer.Context, stream: StreamName = None, force: Force = False, progress: Progress = True, json: Json = False
) -> None:
    """Show the ranges of deleted sequences.

    Where the server names only some of them, the headers of all messages are read.
    """
    from natsctl.client.assets.gaps import is_complete, ranges

    session = session_of(ctx)
    name = pick_stream(session, stream)
    with suggesting(session, name):
        live = session.run(lambda manager: manager.stream_info(name, deleted_details=True))
    if is_complete(live):
        found = ranges(live.value.state.deleted or ())
    else:
        messages = live.value.state.messages
        question = f"read the headers of all {plural(messages, 'message')} of Stream {name}"
        if not (force or confirmed_at_terminal(session, question)):
            return
        found = _walk(session, live, bar=progress, quiet=json)
    if json:
        output.emit_json(found)
    elif found:
        from natsctl.cli.render.tables import render_table
        from natsctl.cli.screen import show_table

        columns = ("First Message", "Last Message", "Missing")
        rows = [(count(first), count(last), count(last - first + 1)) for first, last in found]
        title = f"{plural(len(found), 'gap')} found in Stream {name}"
        show_table(render_table(title, columns, rows, columns))
    else:
        output.emit(f"No deleted messages in {safe(name)}")


def _walk(session: Session, live: Answer[StreamInfoAnswer], *, bar: bool, quiet: bool) -> list[Gap]:
    from natsctl.cli.progress import progress
    from natsctl.client.assets.gaps import walk_gaps

    what = f"Reading Stream {live.value.config.name}"
    with progress(what, live.value.state.messages, "messages", bar=bar, quiet=quiet) as tracker:
        return session.run(lambda manager: walk_gaps(manager, live, tracker.at))
