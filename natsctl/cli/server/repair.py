"""`natsctl server repair`: streams that a server refuses to serve, and what can be made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.consent import confirmed
from natsctl.cli.options import Force, Json, session_of
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.server.storage import RefusedStream


def repair(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="STORE_DIR", help="storage folder of the stopped server", show_default=False)
    ],
    streams: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STREAM", help="refused streams to repair; without any, they are shown", show_default=False
        ),
    ] = None,
    account: Annotated[str, typer.Option("--account", metavar="NAME", help="the account of the streams")] = "$G",
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="JSON configuration to use where it is lost", show_default=False),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show the streams of a stopped server that it refuses to serve, or make streams of what can be read of them.

    A stream is refused where files are damaged, missing, older than what was synced, or another stream's. Putting
    the right file back loses nothing. A repair gives up what cannot be read: messages keep their sequences and times,
    consumers are as they were in what is left of the journal, and the old folder is moved aside below refused/.
    `natsctl stream rm` on the running server gives a stream up altogether and frees its name.
    """
    from natsctl.server.storage import refused_streams, repair_streams

    session = session_of(ctx)
    if not streams:
        found = refused_streams(folder)
    else:
        question = f"discard what cannot be read of {', '.join(map(safe, streams))}"
        if not confirmed(session, question, force):
            return
        found = repair_streams(folder, account, streams, config.read_bytes() if config is not None else None)
    if json:
        from msgspec.structs import asdict

        output.emit_json([asdict(one) for one in found])
        return
    for one in found:
        _show(one)
    if not found:
        output.note("every stream is served")


def _show(one: RefusedStream) -> None:
    name = f"{safe(one.account)} > {safe(one.name)}"
    if not one.repaired:
        output.emit(f"{name}: {safe(one.reason)}")
        return
    output.emit(
        f"{name}: {plural(one.messages, 'message')} up to sequence {one.last_seq:,}; the old files are in {one.remains}"
    )
    for note in one.notes:
        output.emit(f"  {safe(note)}")
