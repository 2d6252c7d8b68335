"""`natsctl rtt`: how long a PING takes."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.options import Json, session_of
from natsctl.cli.render.text import safe


def rtt(
    ctx: typer.Context,
    iterations: Annotated[int, typer.Argument(metavar="ITERATIONS", help="number of round trips [5]", min=1)] = 5,
    json: Json = False,
) -> int:
    """Show the mean round trip to every address of this context's servers; exit 5 if none can be reached."""
    from natsctl.client.rtt import round_trips

    found = session_of(ctx).run(lambda manager: round_trips(manager.connection.target, iterations))
    if json:
        import msgspec

        output.emit_json(msgspec.json.encode(found))
    else:
        from natsctl.cli.render.measurements import rendered_trips

        for line in rendered_trips(found):
            output.emit(line)
        for trips in found:
            for trip in trips.results:
                if trip.error:
                    output.note(f"{safe(trip.address)}: {safe(trip.error)}")
    reached = any(not trip.error for trips in found for trip in trips.results)
    return ExitCode.DONE if reached else ExitCode.UNREACHABLE
