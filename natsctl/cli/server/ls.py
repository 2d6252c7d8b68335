"""`natsctl server list` and `ping`: which servers there are, and how quickly they answer."""

from __future__ import annotations

import typer

from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import Json, Names, session_of
from natsctl.cli.render.tables import Columns, Reverse, Sort, Wide
from natsctl.cli.render.text import duration, safe
from natsctl.cli.server.scope import SCOPE, Expect, require_all, scope_of


@flagged(SCOPE)
def ls(
    ctx: typer.Context,
    given: Given,
    expect: Expect = 0,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    names: Names = False,
    json: Json = False,
) -> None:
    """List the servers that answer, and with EXPECT fail when they are fewer."""
    from natsctl.cli.render.server_reports import SERVERS, render_census
    from natsctl.cli.render.tables import ordered
    from natsctl.cli.screen import console, width
    from natsctl.client.system.census import System

    census = session_of(ctx).run(lambda manager: System(manager).census(scope_of(given, expect)))
    rows = ordered(census, SERVERS, sort, reverse, default="rtt")
    if names:
        found = [one.name for one in rows]
        output.emit_json(found) if json else output.emit_names(found)
    elif json:
        output.emit_json([one.raw for one in rows])
    else:
        for part in render_census(census, rows, width(), columns, wide):
            console().print(part)
    require_all(census, expect)


@flagged(SCOPE)
def ping(
    ctx: typer.Context,
    given: Given,
    expect: Expect = 0,
    show_id: bool = typer.Option(False, "--id", help="also the servers' ids", show_default=False),
    json: Json = False,
) -> None:
    """Show how quickly each server answers, and with EXPECT fail when they are fewer."""
    from natsctl.client.system.census import System

    census = session_of(ctx).run(lambda manager: System(manager).census(scope_of(given, expect)))
    answers = sorted(census, key=lambda one: one.rtt_ns)
    if json:
        output.emit_json([{"server": one.server, "rtt": one.rtt_ns} for one in answers])
    else:
        wide = max(len(safe(one.name)) for one in answers)
        for one in answers:
            lead = f"{safe(one.id)} " if show_id else ""
            output.emit(f"{lead}{safe(one.name):<{wide}}  rtt={duration(one.rtt_ns)}")
        spans = [one.rtt_ns for one in answers]
        most, least, mean = duration(max(spans)), duration(min(spans)), duration(sum(spans) // len(spans))
        answered = plural(len(spans), "server")
        output.emit(f"\n{answered} answered: fastest {least}, slowest {most}, mean {mean}")
    require_all(census, expect)
