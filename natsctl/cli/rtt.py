"""`natsctl rtt`: how long a PING takes."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.options import Json, session_of


def rtt(
    ctx: typer.Context,
    iterations: Annotated[int, typer.Argument(metavar="ITERATIONS", help="how many round trips [5]", min=1)] = 5,
    json: Json = False,
) -> int:
    """Show the mean round trip to every address of every server of this context; exit 5 when one is unreachable."""
    from natsctl.client.rtt import round_trips

    found = session_of(ctx).run(lambda manager: round_trips(manager.connection.target, iterations))
    if json:
        import msgspec

        output.emit_json(msgspec.json.encode(found))
    else:
        from natsctl.cli.render.rtt import render_trips
        from natsctl.cli.screen import show_table

        show_table(render_trips(found))
    failed = any(trip.error for trips in found for trip in trips.results)
    return ExitCode.UNREACHABLE if failed else ExitCode.DONE
