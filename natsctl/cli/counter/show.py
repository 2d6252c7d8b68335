"""`natsctl counter get`, `view` and `ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from natsctl.cli import output
from natsctl.cli.options import Details, Json, Names, check_details, session_of

if TYPE_CHECKING:
    from natsctl.client.counters import Counter

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="the counter's subject")]
Pattern = Annotated[str, typer.Argument(metavar="SUBJECT", help="subjects, wildcards allowed", show_default=False)]
Stream = Annotated[
    str,
    typer.Option("--stream", metavar="STREAM", help="its stream, if several have the subject [the only one]"),
]


def get(ctx: typer.Context, subject: Subject, stream: Stream = "", json: Json = False) -> None:
    """Show the value of a counter."""
    found = _counter(ctx, subject, stream)
    if json:
        output.emit_json(msgspec.json.encode(found))
    else:
        output.emit(found.val)


def view(ctx: typer.Context, subject: Subject, stream: Stream = "", json: Json = False) -> None:
    """Show a counter, its last change, and the counts of the streams that it sources."""
    from natsctl.cli.render.counter import render_counter
    from natsctl.cli.screen import show_page

    found = _counter(ctx, subject, stream)
    if json:
        output.emit_json(msgspec.json.encode(found))
    else:
        show_page(render_counter(found))


def ls(
    ctx: typer.Context,
    subject: Pattern = "",
    stream: Stream = "",
    names: Names = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """List the counters on a subject, in a stream, or all.

    With -j their subjects are one array, and with -j --details whole objects.
    """
    from natsctl.cli.names import suggesting
    from natsctl.cli.render.counter import render_counters
    from natsctl.cli.screen import show_table
    from natsctl.client.counters import counters

    check_details(details, json)
    session = session_of(ctx)
    with suggesting(session, stream):
        found = session.run(lambda manager: counters(manager, subject, stream))
    subjects = dict.fromkeys(one.subject for one in found)
    if json:
        output.emit_json(msgspec.json.encode(found) if details else list(subjects))
    elif names:
        output.emit_names(subjects)
    elif found:
        show_table(render_counters(found))
    else:
        output.note("No Counters found")


def _counter(ctx: typer.Context, subject: str, stream: str) -> Counter:
    from natsctl.cli.messaging.bodies import check_target
    from natsctl.cli.names import suggesting
    from natsctl.client.counters import counter

    check_target(subject)
    session = session_of(ctx)
    with suggesting(session, stream):
        return session.run(lambda manager: counter(manager, subject, stream))
